"""Cell lists: all agents of an environment sorted by the cell of a grid they stand in, and within a cell by index.

It is a counting sort in four phases, in which every agent works at once: find the own cell, count, sum the counts up, and
enter the list. Two agents that enter the same cell meet in atomic minima of whole numbers, whose end result does not
depend on who comes first, so the lists are the same to the bit in every schedule.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import warp as wp

from warpdrive.env.environment import positive_int
from warpdrive.env.phases import Phase, per_agent
from warpdrive.env.state import Param, PerAgent, PerEnv, State
from warpdrive.space.position import place_of

__all__ = ["Cells", "Layout", "coordinates", "layout", "sort_phases"]

MOST_CELLS = 2**24  # up to which a float counts them exactly
LEAST_SIDE, MOST_SIDE = 1e-12, 1e12  # of a cell: between them squared distances neither vanish nor overflow


class Cells(State):
    """Base of a state whose agents are searched for: the members that cell lists need.

    Where all agents are compared with each other these hold next to nothing.
    """

    cell: PerAgent[int]  # in which the agent stood when it was sorted
    cell_start: PerEnv[int, "cell_bounds"]  # type: ignore[name-defined]  # noqa: F821 - of each cell in cell_members
    cell_members: PerEnv[int, "cell_slots"]  # type: ignore[name-defined]  # noqa: F821 - agents, cell after cell
    cell_sums: PerEnv[int, "cell_blocks"]  # type: ignore[name-defined]  # noqa: F821 - agents in a block of cells

    cell_low: Param[wp.vec3]  # corner of the grid
    cell_side: Param[wp.vec3]  # lengths of a cell
    cell_rate: Param[wp.vec3]  # cells for a unit of length
    cell_columns: Param[int]  # cells along x; 0: there are no lists, and all agents are compared
    cell_rows: Param[int]  # along y
    cell_planes: Param[int]  # along z
    cell_block: Param[int]  # cells whose agents are summed up together


@dataclass(frozen=True)
class Layout:
    """Whether an environment has cell lists, and of which cells: what its `__init__` hands on.

    Attributes:
        shape: cells along each axis; () where all agents are compared with each other.
        phases: to run before a search, after agents have moved; () where there are no lists.
        params: for `super().__init__(params=...)`.
        sizes: for `super().__init__(sizes=...)`.
    """

    shape: tuple[int, ...]
    phases: tuple[Phase, ...]
    params: dict[str, Any]
    sizes: dict[str, int]
