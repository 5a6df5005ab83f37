"""The walk through cell lists that every search for the nearest makes: ring by ring around the own cell.

Of a ring those cells are left out that lie farther away than the farthest of those sought so far.
"""

import functools
from typing import Any

import warp as wp

from warpdrive.space.cells import SLACK, along, coordinates, grid_of
from warpdrive.space.least import keep_least

__all__ = ["walk"]

FIRST_RING = 1  # cells on each side of the own one that are looked into at once
NEARLY = wp.constant(0.99999)  # of a distance, so much less that rounding does not make up for it


@functools.cache
def beyond(dimensions: int) -> Any:
    """The Warp function of a length that all agents outside the box of cells around one are farther away than.

    It is infinity where there are none outside.
    """

    @wp.func
    def outside(s: Any, count: wp.vec3i, u: wp.vec3, at: wp.vec3i, ring: int) -> float:
        least = float(wp.inf)
        for axis in range(dimensions):
            before = at[axis] - ring  # the first cell of the box
            behind = at[axis] + ring + 1  # the first one after it
            side = s.cell_extent[axis] / float(count[axis])
            if before > 0:
                gap = u[axis] - float(before) - SLACK * (wp.abs(u[axis]) + float(before))
                least = wp.min(least, gap * side)
            if behind < count[axis]:
                gap = float(behind) - u[axis] - SLACK * (wp.abs(u[axis]) + float(behind))
                least = wp.min(least, gap * side)
        return least * NEARLY

    return outside


@wp.func
def gap(u: float, cell: int, count: int, side: float) -> float:
    """A length along an axis that no agent in a row of cells is nearer than."""
    slack = SLACK * (wp.abs(u) + float(cell + 1))
    before = float(cell) - u - slack
    behind = u - float(cell + 1) - slack
    cells = float(0.0)
    # The outermost cells hold those beyond the grid too.
    if cell > 0:
        cells = wp.max(cells, before)
    if cell + 1 < count:
        cells = wp.max(cells, behind)
    return cells * side


@functools.cache
def walk(dimensions: int, Keys: Any, kth: int, candidate: Any, belongs: Any, farthest: Any, at_once: int = 1) -> Any:
    """The Warp function `(s, env, place, besides, limit, none)` that goes through the cells and returns the least keys.

    What it calls gets and returns numbers, not the vector of keys, which would be copied for each agent looked at: that
    made a search for 10 on the CPU 1.4 times as long, and one for 20 3.6 times.

    Args:
        dimensions: of places.
        Keys: the vector type of the keys; all of them begin as `none`.
        kth: which of them is that of the last agent sought.
        candidate: `(s, env, slot, place, besides, limit)`: the key of the agent in a slot of the lists, or `none`.
        belongs: `(s, env, slot)`: whether it is to be found.
        farthest: `(s, key, limit)`: the squared distance from which on no agent comes before the kth `key`.
        at_once: agents that are looked at together, so that their reads are under way at the same time. If more than
            one, cells of a ring that lie too far away are left out: on a CPU that costs more than it saves.
    """
    in_cells, outside, last = coordinates(dimensions), beyond(dimensions), Keys._length_ - 1
    Batch = wp.types.vector(at_once, Keys._wp_scalar_type_)
    kept = keep_least(Keys, Batch) if at_once > 1 else None

    @wp.func
    def walked(s: Any, env: int, place: Any, besides: int, limit: float, none: Any):
        keys = Keys(none)
        grid = grid_of(s, env)
        u = in_cells(s, grid, place)
        x, y, z = along(u[0], grid[0]), int(0), int(0)
        if wp.static(dimensions > 1):
            y = along(u[1], grid[1])
        if wp.static(dimensions > 2):
            z = along(u[2], grid[2])
        side = wp.cw_div(s.cell_extent, wp.vec3(float(grid[0]), float(grid[1]), float(grid[2]))) * NEARLY
        inner = int(-1)  # the box of cells up to this distance from the own one has been looked into
        outer = int(FIRST_RING)
        while inner < outer:
            to_left = gap(u[0], x - outer, grid[0], side[0])
            to_right = gap(u[0], x + outer, grid[0], side[0])
            first_plane = int(0)
            end_plane = int(1)
            if wp.static(dimensions > 2):
                first_plane = wp.max(z - outer, 0)
                end_plane = wp.min(z + outer, grid[2] - 1) + 1
            for pz in range(first_plane, end_plane):
                for py in range(wp.max(y - outer, 0), wp.min(y + outer, grid[1] - 1) + 1):
                    # Cells of a row lie one after the other: a whole row is one run, or two left and right of the box.
                    row = (pz * grid[1] + py) * grid[0]
                    first = x - outer
                    end = x + outer + 1
                    runs = wp.where(wp.abs(pz - z) <= inner and wp.abs(py - y) <= inner, 2, 1)
                    if wp.static(at_once > 1):
                        dy = gap(u[1], py, grid[1], side[1])
                        away = dy * dy
                        if wp.static(dimensions > 2):
                            dz = gap(u[2], pz, grid[2], side[2])
                            away += dz * dz
                        far = farthest(s, keys[kth], limit)
                        runs = wp.where(away > far, 0, runs)
                        first += wp.where(away + to_left * to_left > far, 1, 0)
                        end -= wp.where(away + to_right * to_right > far, 1, 0)
                    for run in range(runs):
                        left = wp.max(wp.where(run == 1, x + inner + 1, first), 0)
                        stop_at = wp.min(wp.where(runs == 2 and run == 0, x - inner, end), grid[0])
                        if left < stop_at:
                            slot = int(s.cell_start[env, row + left])
                            stop = s.cell_start[env, row + stop_at]
                            while slot < stop:
                                batch = Batch()
                                for b in range(at_once):
                                    at = wp.min(slot + b, stop - 1)
                                    key = candidate(s, env, at, place, besides, limit)
                                    seen = slot + b < stop
                                    if wp.static(at_once > 1):
                                        seen = seen and belongs(s, env, at)
                                    batch[b] = wp.where(seen, key, none)
                                if wp.static(at_once > 1):
                                    keys = kept(keys, batch)
                                elif batch[0] < keys[last] and belongs(s, env, slot):
                                    for j in range(last, 0, -1):
                                        keys[j] = wp.min(keys[j], wp.max(keys[j - 1], batch[0]))
                                    keys[0] = wp.min(keys[0], batch[0])
                                slot += at_once
            inner = outer
            least = outside(s, grid, u, wp.vec3i(x, y, z), outer)
            if least <= 0.0 or (least < wp.inf and least * least <= farthest(s, keys[kth], limit)):
                outer += 1
        return keys

    return walked
