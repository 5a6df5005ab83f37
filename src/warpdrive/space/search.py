"""Searching for neighbours: functions for phases, made for a position, a number and a kind of neighbours."""

import functools
from collections.abc import Callable
from typing import Any

import warp as wp

from warpdrive.env.environment import positive_int
from warpdrive.env.phases import Phase
from warpdrive.space.cells import Layout, along, coordinates, corners, layout, shape_for, sort_phases
from warpdrive.space.position import place_of

__all__ = ["Search"]

SLACK = wp.constant(1.0e-6)  # of coordinates, many times what rounding changes in them
NEARLY = wp.constant(0.99999)  # of a distance that nobody beyond can come closer than, the same for its square


# ---------------------------------------------------------------- small functions of which searches are made


@wp.func
def _by_lists(s: Any) -> bool:
    return s.cell_columns > 0


@wp.func
def _always(s: Any) -> bool:
    return True


@wp.func
def _never(s: Any) -> bool:
    return False


@wp.func
def _beyond(s: Any, u: wp.vec3, at: wp.vec3i, ring: int) -> float:
    """A length that all agents outside the box of cells around `at` are farther away than; infinity: there are none."""
    least = float(wp.inf)
    count = wp.vec3i(s.cell_columns, s.cell_rows, s.cell_planes)
    for axis in range(3):
        before = at[axis] - ring  # the first cell of the box
        behind = at[axis] + ring + 1  # the first one after it
        if before > 0:
            gap = u[axis] - float(before) - SLACK * (wp.abs(u[axis]) + float(before))
            least = wp.min(least, gap * s.cell_side[axis])
        if behind < count[axis]:
            gap = float(behind) - u[axis] - SLACK * (wp.abs(u[axis]) + float(behind))
            least = wp.min(least, gap * s.cell_side[axis])
    return least * NEARLY
