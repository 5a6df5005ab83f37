"""Cell lists: the agents that take part, sorted by the cell of a grid they stand in, and within a cell by index.

It is a counting sort in four phases, in which every agent works at once: find the own cell, count, sum the counts up,
and enter the list. Agents that enter the same cell meet in atomic minima of whole numbers, whose end result does not
depend on who comes first, so the lists are the same to the bit in every schedule.

An environment's grid has the more cells the more of its agents take part when they are sorted. What is found does not
depend on it.
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

__all__ = ["CHOICE", "SLACK", "Cells", "Layout", "along", "coordinates", "grid_of", "layout", "rate", "sort_phases"]

SLACK = wp.constant(1.0e-6)  # of coordinates, many times what rounding changes in them
LEAST_SIDE, MOST_SIDE = 1e-12, 1e12  # of a cell: between them squared distances neither vanish nor overflow


class Cells(State):
    """Base of a state whose agents are searched for: the members that cell lists need.

    Where all agents are compared with each other these hold next to nothing.
    """

    cell: PerAgent[int]  # in which the agent stood when it was sorted; -1: it did not take part
    cell_start: PerEnv[int, "cell_bounds"]  # type: ignore[name-defined]  # noqa: F821 - of each cell in cell_members
    cell_members: PerEnv[int, "cell_slots"]  # type: ignore[name-defined]  # noqa: F821 - see sort_phases
    cell_place: PerEnv[wp.vec3, "cell_slots"]  # type: ignore[name-defined]  # noqa: F821 - of each of them: see in_order
    cell_grid: PerEnv[wp.vec3i]  # cells along each axis, since the last sort
    cell_sums: PerEnv[int, "cell_blocks"]  # type: ignore[name-defined]  # noqa: F821 - agents in a block of cells

    cell_low: Param[wp.vec3]  # corner of the grid
    cell_extent: Param[wp.vec3]  # lengths of the grid
    cell_per_extent: Param[wp.vec3]  # one over them
    cell_columns: Param[int]  # most cells along x; 0: there are no lists, and all agents are compared
    cell_rows: Param[int]  # along y
    cell_planes: Param[int]  # along z
    cell_block: Param[int]  # cells whose agents are summed up together


@dataclass(frozen=True)
class Layout:
    """Whether an environment has cell lists, and of which cells: what its `__init__` hands on.

    Attributes:
        shape: cells along each axis when all agents take part; () where all agents are compared with each other.
        phases: to run before a search, after agents have moved or joined; () where there are no lists.
        params: for `super().__init__(params=...)`.
        sizes: for `super().__init__(sizes=...)`.
    """

    shape: tuple[int, ...]
    phases: tuple[Phase, ...]
    params: dict[str, Any]
    sizes: dict[str, int]


@wp.func
def _has_lists(s: Any) -> bool:
    return s.cell_columns > 0


@wp.func
def _always(s: Any) -> bool:
    return True


@wp.func
def _never(s: Any) -> bool:
    return False


# Whether to search by cell lists: known when a function is made, or asked of the state.
CHOICE = {None: _has_lists, True: _always, False: _never}


@wp.func
def along(u: float, count: int) -> int:
    """Index of the cell along one axis; places beyond the grid belong to its outermost cells, NaN to the first."""
    inside = wp.clamp(u, 0.0, float(count - 1))
    return wp.clamp(int(inside), 0, count - 1)


@wp.func
def grid_of(s: Any, env: int) -> wp.vec3i:
    """Cells along each axis of an environment's grid; one where nobody has been sorted yet."""
    grid = s.cell_grid[env]
    return wp.vec3i(wp.max(grid[0], 1), wp.max(grid[1], 1), wp.max(grid[2], 1))


@wp.func
def rate(s: Any, grid: wp.vec3i, axis: int) -> float:
    """Cells for a unit of length."""
    return float(grid[axis]) * s.cell_per_extent[axis]


@functools.cache
def coordinates(dimensions: int) -> Any:
    """The Warp function `(s, grid, place)` that tells a place in cells from the grid's corner; 0 on axes beyond."""

    @wp.func
    def in_cells(s: Any, grid: wp.vec3i, place: Any) -> wp.vec3:
        u = wp.vec3(0.0, 0.0, 0.0)
        for axis in range(dimensions):
            u[axis] = (place[axis] - s.cell_low[axis]) * rate(s, grid, axis)
        return u

    return in_cells


@functools.cache
def chosen_grid(dimensions: int) -> Any:
    """The Warp function `(s, env)` of the grid for the agents that take part now: as many to a cell as when all do."""

    @wp.func
    def choose(s: Any, env: int) -> wp.vec3i:
        count = s.num_active[env]
        if s.fresh[env]:  # they are counted when the first step begins
            count = s.num_agents
        share = float(wp.max(count, 1)) / float(s.num_agents)
        if wp.static(dimensions == 2):
            share = wp.sqrt(share)
        if wp.static(dimensions == 3):
            share = wp.cbrt(share)
        most = wp.vec3i(s.cell_columns, s.cell_rows, s.cell_planes)
        grid = wp.vec3i(1, 1, 1)
        for axis in range(dimensions):
            grid[axis] = wp.clamp(int(float(most[axis]) * share + 0.5), 1, most[axis])
        return grid

    return choose


@functools.cache
def sort_phases(position: tuple[str, ...], dimensions: int) -> tuple[Phase, ...]:
    """The phases that sort the agents that take part now by where they stand.

    `cell_members` then holds them cell after cell, and `s.num_agents` in the slots behind the last.
    """
    place_at, in_cells, choose = place_of(position, dimensions), coordinates(dimensions), chosen_grid(dimensions)

    @per_agent
    def find_cell(s: Cells, env: int, agent: int):
        grid = choose(s, env)
        if agent == 0:
            s.cell_grid[env] = grid
        cell = int(-1)
        if s.active[env, agent]:
            u = in_cells(s, grid, place_at(s, env, agent))
            row = along(u[2], grid[2]) * grid[1] + along(u[1], grid[1])
            cell = row * grid[0] + along(u[0], grid[0])
        s.cell[env, agent] = cell
        s.cell_members[env, agent] = s.num_agents  # greater than any: nobody has entered yet
        cells = grid[0] * grid[1] * grid[2]
        for c in range(agent, cells, s.num_agents):
            s.cell_start[env, c] = 0
        for b in range(agent, (cells + s.cell_block - 1) // s.cell_block, s.num_agents):
            s.cell_sums[env, b] = 0

    @per_agent
    def count_cell(s: Cells, env: int, agent: int):
        c = s.cell[env, agent]
        if c >= 0:
            wp.atomic_add(s.cell_start, env, c, 1)  # whole numbers: exact in any order
            wp.atomic_add(s.cell_sums, env, c // s.cell_block, 1)

    @per_agent
    def start_cells(s: Cells, env: int, agent: int):
        grid = grid_of(s, env)
        cells = grid[0] * grid[1] * grid[2]
        for b in range(agent, (cells + s.cell_block - 1) // s.cell_block, s.num_agents):
            start = int(0)
            for before in range(b):
                start += s.cell_sums[env, before]
            for c in range(b * s.cell_block, wp.min((b + 1) * s.cell_block, cells)):
                count = s.cell_start[env, c]
                s.cell_start[env, c] = start
                start += count
            if (b + 1) * s.cell_block >= cells:  # the last block
                s.cell_start[env, cells] = start

    @per_agent
    def enter_cell(s: Cells, env: int, agent: int):
        # Every slot keeps the least of all who come to it and sends the others on: in the end they stand in order.
        c = s.cell[env, agent]
        if c >= 0:
            slot = s.cell_start[env, c]
            waiting = agent
            while waiting < s.num_agents:
                waiting = wp.max(waiting, wp.atomic_min(s.cell_members, env, slot, waiting))
                slot += 1

    return find_cell, count_cell, start_cells, enter_cell


def shape_for(extent: Sequence[float], cells: float) -> tuple[int, ...]:
    """Cells along each axis of a box, about `cells` in all and about as long as wide."""
    shape, left = [1] * len(extent), max(1.0, cells)
    shortest_first = sorted(range(len(extent)), key=lambda axis: extent[axis])
    for place, axis in enumerate(shortest_first):
        rest = [extent[other] for other in shortest_first[place:]]
        side = (math.prod(rest) / left) ** (1 / len(rest))
        shape[axis] = max(1, round(extent[axis] / side))
        left = max(1.0, left / shape[axis])
    return tuple(shape)


def corners(low: Any, high: Any, dimensions: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The corners of a box as floats.

    Raises:
        ValueError: they are no finite numbers for each dimension, or high is not above low.
    """
    both = []
    for name, value in (("low", low), ("high", high)):
        try:
            corner = () if any(isinstance(x, str) for x in value) else tuple(float(x) for x in value)
        except (TypeError, ValueError, OverflowError):
            corner = ()
        if len(corner) != dimensions or not all(map(math.isfinite, corner)):
            raise ValueError(f"{name} must be {dimensions} finite numbers, one a dimension, got {value!r}")
        both.append(corner)
    if not all(math.isfinite(b - a) for a, b in zip(*both, strict=True)):
        raise ValueError(f"high - low must be finite on every axis, got {high!r} and {low!r}")
    if not all(a < b for a, b in zip(*both, strict=True)):
        raise ValueError(f"high must be greater than low on every axis, got {high!r} and {low!r}")
    return both[0], both[1]


def layout(
    position: tuple[str, ...], low: tuple[float, ...], high: tuple[float, ...], agents: int, shape: tuple[int, ...]
) -> Layout:
    """The layout for a grid of `shape` cells between two corners, or for () the one without lists.

    Raises:
        ValueError: a cell's side is too short or too long.
    """
    lists = bool(shape)
    fill = (0.0,) * (3 - len(low))
    extent = [b - a for a, b in zip(low, high, strict=True)]
    full = (*shape, *(1,) * (3 - len(shape)))
    cells = math.prod(full)
    block = max(1, math.isqrt(cells))
    sides = [e / n for e, n in zip(extent, shape, strict=False)]
    for side in sides:
        if not LEAST_SIDE <= side <= MOST_SIDE:
            raise ValueError(
                f"cells would be {side:g} long, and lengths from {LEAST_SIDE:g} to {MOST_SIDE:g} are possible; "
                "take another unit of length"
            )
    return Layout(
        shape=shape,
        phases=sort_phases(position, len(low)) if lists else (),
        params={
            "cell_low": (*low, *fill),
            "cell_extent": (*extent, *fill) if lists else (0.0, 0.0, 0.0),
            "cell_per_extent": (*(1.0 / e for e in extent), *fill) if lists else (0.0, 0.0, 0.0),
            "cell_columns": full[0] if lists else 0,
            "cell_rows": full[1],
            "cell_planes": full[2],
            "cell_block": block,
        },
        sizes={
            "cell_bounds": cells + 1 if lists else 1,
            "cell_slots": positive_int("agents", agents) if lists else 1,
            "cell_blocks": -(-cells // block),
        },
    )
