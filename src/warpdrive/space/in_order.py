"""The nearest others of all agents at once, found in the order of their cells: for environments of many agents.

A thread for each slot of the lists: the threads of a warp then stand in the same cells, so they read the same
neighbours and look equally long. Slots behind the last listed agent have nothing to do: where many agents have left,
those are whole warps. Where agents stand is copied into the order of the lists first.
"""

import functools
from typing import Any

import warp as wp

from warpdrive.env.phases import Phase, per_agent
from warpdrive.space.cells import CHOICE, Cells
from warpdrive.space.nearest import NO_KEY, key_of, low_bits, nearest_of, on_gpu, search_cells
from warpdrive.space.position import Vector, get_number, place_of, put_number, range_of
from warpdrive.space.rings import walk

__all__ = ["list_place", "nearest_phases", "search_slots"]

AT_ONCE = 4  # agents that a search looks at together


@wp.func_native("""
    const char* row = reinterpret_cast<const char*>(places.data) + size_t(env) * size_t(places.strides[0]);
    return reinterpret_cast<const wp::vec3*>(row)[slot];
""")
def place_in(places: wp.array2d[wp.vec3], env: int, slot: int) -> wp.vec3:  # type: ignore[empty-body]
    """`places[env, slot]` of an array whose rows are contiguous: 2 instructions on a GPU in place of 12.

    Warp asks whether an index is negative and multiplies it with a stride in 64 bits; a search does nothing as often.
    """


@functools.cache
def listed_place(dimensions: int) -> Any:
    """The Warp function `(s, env, slot)` of the place of an agent by its slot in the lists."""
    Place = Vector[dimensions]

    @wp.func
    def listed(s: Any, env: int, slot: int):
        at = place_in(s.cell_place, env, slot)
        place = Place()
        for axis in range(dimensions):
            place[axis] = at[axis]
        return place

    return listed


@functools.cache
def list_place(position: tuple[str, ...], dimensions: int) -> Any:
    """The Warp function `(s, env, slot)` that copies the place of a slot's agent to where `search_slots` reads it."""
    place_at = place_of(position, dimensions)

    @wp.func
    def copy(s: Any, env: int, slot: int):
        me = s.cell_members[env, slot]
        if me < s.num_agents:
            place = place_at(s, env, me)
            at = wp.vec3(0.0, 0.0, 0.0)
            for axis in range(dimensions):
                at[axis] = place[axis]
            if not s.active[env, me]:  # has left since it was sorted
                at[0] = wp.nan  # nearer than nothing
            s.cell_place[env, slot] = at

    return copy


@functools.cache
def search_slots(position: tuple[str, ...], dimensions: int, k: int, group: str | None) -> Any:
    """The Warp function `(s, env, slot)` of the indices of the k nearest others of the agent in a slot.

    It must take part still. Keys have 32 bits, for which a GPU has minima and maxima: the slot takes the place of the
    lowest bits of the distance. The nearest found are put in order by whole keys; one more of them than are asked for
    tells whether the cut distances were enough to decide who is among them; where not, which is seldom, the search is
    made anew.
    """
    listed, place_at, bounds = listed_place(dimensions), place_of(position, dimensions), range_of(group)
    decide = search_cells(position, dimensions, k, group)
    last = k - 1
    Keys, Whole = wp.types.vector(k + 1, wp.uint32), wp.types.vector(k, wp.uint64)
    Indices = wp.types.vector(k, int)

    @wp.func
    def candidate(s: Any, env: int, slot: int, place: Any, besides: int, limit: float) -> wp.uint32:
        d = wp.length_sq(listed(s, env, slot) - place)
        if slot != besides and d < limit:
            return (wp.cast(d, wp.uint32) & ~low_bits(s.num_agents)) | wp.uint32(slot)
        return wp.static(NO_KEY)

    @wp.func
    def belongs(s: Any, env: int, slot: int) -> bool:
        if wp.static(group is not None):
            first, end = bounds(s)
            other = s.cell_members[env, slot]
            return other >= first and other < end
        return True

    @wp.func
    def farthest(s: Any, key: wp.uint32, limit: float) -> float:
        if key == wp.static(NO_KEY):
            return limit
        return wp.cast(key | low_bits(s.num_agents), float)

    walked = walk(dimensions, Keys, last, candidate, belongs, farthest, AT_ONCE)

    @wp.func
    def search(s: Any, env: int, slot: int):
        index = Indices(-1)
        place = listed(s, env, slot)
        keys = walked(s, env, place, slot, float(wp.inf), wp.static(NO_KEY))
        low = low_bits(s.num_agents)
        if keys[k] != wp.static(NO_KEY) and ((keys[last] ^ keys[k]) & ~low) == wp.uint32(0):
            me = s.cell_members[env, slot]
            index, _square = decide(s, env, place_at(s, env, me), me, float(wp.inf))
        else:
            whole = Whole()
            alike = bool(False)
            for j in range(k):
                if keys[j] != wp.static(NO_KEY):
                    at = int(keys[j] & low)
                    index[j] = s.cell_members[env, at]
                    whole[j] = key_of(wp.length_sq(listed(s, env, at) - place), index[j])
                    alike = alike or ((keys[j] ^ keys[j + 1]) & ~low) == wp.uint32(0)
            if alike:  # equal but for what was cut off: put in order
                for _turn in range(k):
                    for j in range(last):
                        if index[j + 1] >= 0 and whole[j + 1] < whole[j]:
                            nearer = whole[j + 1]
                            whole[j + 1] = whole[j]
                            whole[j] = nearer
                            other = index[j + 1]
                            index[j + 1] = index[j]
                            index[j] = other
        return index

    return search


@functools.cache
def nearest_phases(
    position: tuple[str, ...], dimensions: int, cells: bool | None, k: int, group: str | None, into: str
) -> tuple[Phase, Phase]:
    """The phases in which every agent's k nearest others are found and their indices put into a field."""
    copy, find = list_place(position, dimensions), nearest_of(position, dimensions, cells, k, group)
    get, put, by_cells = get_number(into), put_number(into), CHOICE[cells]
    search = search_slots(position, dimensions, k, group)
    Indices = wp.types.vector(k, int)

    @per_agent
    def list_places(s: Cells, env: int, agent: int):
        if by_cells(s) and on_gpu():
            copy(s, env, agent)

    @per_agent
    def find_nearest(s: Cells, env: int, agent: int):
        me = agent
        if by_cells(s):
            me = s.cell_members[env, agent]  # num_agents behind the last listed one
            if me < s.num_agents and not s.active[env, me]:  # has left since it was sorted
                me = s.num_agents
            # No slot's thread writes the row of one who does not take part; if its first number is -1, all are already.
            if (s.cell[env, agent] < 0 or not s.active[env, agent]) and get(s, env, agent, 0) != -1:
                for j in range(k):
                    put(s, env, agent, j, -1)
        if me < s.num_agents:
            index = Indices(-1)
            if by_cells(s) and on_gpu():
                index = search(s, env, agent)
            elif s.active[env, me]:
                index, _ = find(s, env, me)
            for j in range(k):
                put(s, env, me, j, index[j])

    return list_places, find_nearest
