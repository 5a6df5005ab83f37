"""All agents within a radius, gathered into one value: by comparing all, or by looking into the cells around."""

import functools
from typing import Any

import warp as wp

from warpdrive.space.cells import CHOICE, SLACK, along, coordinates, grid_of, rate
from warpdrive.space.position import place_of, range_of

__all__ = ["fold_within"]


@functools.cache
def fold_within(
    position: tuple[str, ...], dimensions: int, cells: bool | None, function: Any, group: str | None
) -> Any:
    """The Warp function `(s, env, agent, radius, start)` that goes through all others within a radius."""
    place_at, in_cells, bounds = place_of(position, dimensions), coordinates(dimensions), range_of(group)
    by_lists = CHOICE[cells]

    @wp.func
    def fold_all(s: Any, env: int, agent: int, radius: float, start: Any):
        value = start
        place = place_at(s, env, agent)
        first, end = bounds(s)
        for other in range(first, end):
            if other != agent and s.active[env, other]:
                d = wp.length_sq(place_at(s, env, other) - place)
                if d < radius * radius:
                    value = function(s, env, agent, other, wp.sqrt(d), value)
        return value

    @wp.func
    def fold_cells(s: Any, env: int, agent: int, radius: float, start: Any):
        value = start
        place = place_at(s, env, agent)
        first, end = bounds(s)
        grid = grid_of(s, env)
        u = in_cells(s, grid, place)
        reach = radius * wp.vec3(rate(s, grid, 0), rate(s, grid, 1), rate(s, grid, 2))
        reach = reach + SLACK * (reach + wp.abs(u))
        low = wp.vec3i(
            along(u[0] - reach[0], grid[0]),
            along(u[1] - reach[1], grid[1]),
            along(u[2] - reach[2], grid[2]),
        )
        high = wp.vec3i(
            along(u[0] + reach[0], grid[0]),
            along(u[1] + reach[1], grid[1]),
            along(u[2] + reach[2], grid[2]),
        )
        for z in range(low[2], high[2] + 1):
            for y in range(low[1], high[1] + 1):
                row = (z * grid[1] + y) * grid[0]
                for slot in range(s.cell_start[env, row + low[0]], s.cell_start[env, row + high[0] + 1]):
                    other = s.cell_members[env, slot]
                    if other != agent and other >= first and other < end:
                        d = wp.length_sq(place_at(s, env, other) - place)
                        if d < radius * radius and s.active[env, other]:
                            value = function(s, env, agent, other, wp.sqrt(d), value)
        return value

    @wp.func
    def fold(s: Any, env: int, agent: int, radius: float, start: Any):
        value = start
        if radius > 0.0:
            if by_lists(s):
                value = fold_cells(s, env, agent, radius, start)
            else:
                value = fold_all(s, env, agent, radius, start)
        return value

    return fold
