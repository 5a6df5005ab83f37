"""Neighbours in space: the nearest agents, and all within a radius, for phases of any environment."""

from warpdrive.space.cells import Cells, Layout
from warpdrive.space.search import Search

__all__ = ["Cells", "Layout", "Search"]
