"""The nearest agents: by comparing all, or by looking into the cells around.

Agents are ordered by keys: whole numbers that hold the bits of a squared distance, which order as it does, and below
them the index, so that equally near ones stand by index. The least keys so far are kept sorted in a vector whose length
Warp knows when it compiles; a new one passes through it by minima and maxima, without branches. Up to 16 Warp unrolls
the loops over them, which puts them into registers on a GPU.
"""

import functools
from typing import Any

import warp as wp

from warpdrive.space.cells import CHOICE
from warpdrive.space.position import place_of, range_of
from warpdrive.space.rings import walk

__all__ = ["NO_KEY", "key_of", "low_bits", "nearest_of", "nearest_to", "on_gpu", "search_cells"]

BATCH = 4  # agents that are looked at together
NO_KEY = wp.uint32(0xFFFFFFFF)
INDEX = wp.constant(wp.uint64(0xFFFFFFFF))
WIDTH = wp.constant(wp.uint64(32))  # bits of an index


@wp.func_native("""
#if defined(__CUDA_ARCH__)
    return true;
#else
    return false;
#endif
""")
def on_gpu() -> bool:  # type: ignore[empty-body]
    """Whether this is compiled for a GPU; then only one of two branches is left."""


@wp.func
def key_of(square: float, other: int) -> wp.uint64:
    """The key of an agent at this squared distance."""
    return (wp.uint64(wp.cast(square, wp.uint32)) << WIDTH) | wp.uint64(other)


@wp.func
def bound_key(square: float) -> wp.uint64:
    """The key that those come before who are nearer; it holds no agent. The squared distance must not be 0."""
    return (wp.uint64(wp.cast(square, wp.uint32)) << WIDTH) - wp.uint64(1)


@wp.func
def low_bits(count: int) -> wp.uint32:
    """The lowest bits, as many as the numbers below `count` need."""
    bits = wp.uint32(wp.max(count - 1, 1))
    bits = bits | (bits >> wp.uint32(1))
    bits = bits | (bits >> wp.uint32(2))
    bits = bits | (bits >> wp.uint32(4))
    bits = bits | (bits >> wp.uint32(8))
    return bits | (bits >> wp.uint32(16))


@functools.cache
def unpack(k: int) -> Any:
    """The Warp function `(keys)` of the indices and squared distances in k whole keys; -1 and infinity for none."""
    Indices, Squares, Keys = wp.types.vector(k, int), wp.types.vector(k, float), wp.types.vector(k, wp.uint64)

    @wp.func
    def unpacked(keys: Keys):
        index = Indices(-1)
        square = Squares(wp.inf)
        for j in range(k):
            if (keys[j] & INDEX) != INDEX:
                index[j] = int(keys[j] & INDEX)
                square[j] = wp.cast(wp.uint32(keys[j] >> WIDTH), float)
        return index, square

    return unpacked


@functools.cache
def compare_whole(position: tuple[str, ...], dimensions: int, k: int, group: str | None) -> Any:
    """The Warp function `(s, env, place, besides, limit)` that looks at all agents, with whole keys."""
    place_at, bounds, unpacked = place_of(position, dimensions), range_of(group), unpack(k)
    last = k - 1
    Keys = wp.types.vector(k, wp.uint64)

    @wp.func
    def compare(s: Any, env: int, place: Any, besides: int, limit: float):
        keys = Keys(bound_key(limit))
        first, end = bounds(s)
        for other in range(first, end):
            if other != besides and s.active[env, other]:
                key = key_of(wp.length_sq(place_at(s, env, other) - place), other)
                if key < keys[last]:
                    for j in range(last, 0, -1):
                        keys[j] = wp.min(keys[j], wp.max(keys[j - 1], key))
                    keys[0] = wp.min(keys[0], key)
        index, square = unpacked(keys)
        return index, square

    return compare


@functools.cache
def compare_short(position: tuple[str, ...], dimensions: int, k: int, group: str | None) -> Any:
    """The same with keys of 32 bits, for which a GPU has minima and maxima and a CPU no advantage.

    In them the index takes the place of the lowest bits of the distance. One more of them than are asked for tells
    whether the cut distances were enough to order by; where two neighbours among them are equal but for the index,
    which is seldom, whole keys decide.
    """
    place_at, bounds = place_of(position, dimensions), range_of(group)
    decide = compare_whole(position, dimensions, k, group)
    Indices, Squares = wp.types.vector(k, int), wp.types.vector(k, float)
    Keys, Batch = wp.types.vector(k + 1, wp.uint32), wp.types.vector(BATCH, wp.uint32)

    @wp.func
    def compare(s: Any, env: int, place: Any, besides: int, limit: float):
        index = Indices(-1)
        square = Squares(wp.inf)
        keys = Keys(wp.static(NO_KEY))
        first, end = bounds(s)
        low = low_bits(end)
        for start in range(first, end, wp.static(BATCH)):
            batch = Batch()
            for b in range(wp.static(BATCH)):  # all of them first, so that their reads are under way together
                other = wp.min(start + b, end - 1)
                d = wp.length_sq(place_at(s, env, other) - place)
                seen = s.active[env, other] and other != besides and d < limit and start + b < end
                key = (wp.cast(d, wp.uint32) & ~low) | wp.uint32(other)
                batch[b] = wp.where(seen, key, wp.static(NO_KEY))
            for b in range(wp.static(BATCH)):
                key = batch[b]
                if key < keys[k]:
                    for j in range(k, 0, -1):
                        keys[j] = wp.min(keys[j], wp.max(keys[j - 1], key))
                    keys[0] = wp.min(keys[0], key)
        alike = bool(False)
        for j in range(k):
            if keys[j] != wp.static(NO_KEY):
                index[j] = int(keys[j] & low)
                square[j] = wp.length_sq(place_at(s, env, index[j]) - place)
                alike = alike or ((keys[j] ^ keys[j + 1]) & ~low) == wp.uint32(0)
        if alike:
            index, square = decide(s, env, place, besides, limit)
        return index, square

    return compare


@functools.cache
def search_cells(position: tuple[str, ...], dimensions: int, k: int, group: str | None) -> Any:
    """The Warp function `(s, env, place, besides, limit)` that looks into cells, ring by ring around the own one."""
    place_at, bounds, unpacked = place_of(position, dimensions), range_of(group), unpack(k)
    Keys = wp.types.vector(k, wp.uint64)

    @wp.func
    def candidate(s: Any, env: int, slot: int, place: Any, besides: int, limit: float) -> wp.uint64:
        other = s.cell_members[env, slot]
        first, end = bounds(s)
        if other == besides or other < first or other >= end:
            return bound_key(limit)
        return key_of(wp.length_sq(place_at(s, env, other) - place), other)

    @wp.func
    def belongs(s: Any, env: int, slot: int) -> bool:
        return s.active[env, s.cell_members[env, slot]]

    @wp.func
    def farthest(s: Any, key: wp.uint64, limit: float) -> float:
        return wp.cast(wp.uint32(key >> WIDTH), float)

    walked = walk(dimensions, Keys, k - 1, candidate, belongs, farthest)

    @wp.func
    def search(s: Any, env: int, place: Any, besides: int, limit: float):
        index, square = unpacked(walked(s, env, place, besides, limit, bound_key(limit)))
        return index, square

    return search


@functools.cache
def search_around(position: tuple[str, ...], dimensions: int, cells: bool | None, k: int, group: str | None) -> Any:
    """The Warp function `(s, env, place, besides, radius)` of the k nearest agents: their indices and distances.

    Args:
        cells: True or False: by cells or by comparing all; None: as the state says.
    """
    what = position, dimensions, k, group
    compare, compare_on_gpu, search = compare_whole(*what), compare_short(*what), search_cells(*what)
    by_cells = CHOICE[cells]
    Indices, Floats = wp.types.vector(k, int), wp.types.vector(k, float)

    @wp.func
    def around(s: Any, env: int, place: Any, besides: int, radius: float):
        index = Indices(-1)
        square = Floats(wp.inf)
        limit = radius * radius
        if radius > 0.0 and limit > 0.0:
            if by_cells(s):
                index, square = search(s, env, place, besides, limit)
            elif on_gpu():
                index, square = compare_on_gpu(s, env, place, besides, limit)
            else:
                index, square = compare(s, env, place, besides, limit)
        distance = Floats(wp.inf)
        for j in range(k):
            distance[j] = wp.sqrt(square[j])
        return index, distance

    return around


@functools.cache
def nearest_to(position: tuple[str, ...], dimensions: int, cells: bool | None, k: int, group: str | None) -> Any:
    """The Warp function `(s, env, place, radius)` of the k agents nearest to a place."""
    around = search_around(position, dimensions, cells, k, group)

    @wp.func
    def nearest(s: Any, env: int, place: Any, radius: float = wp.inf):
        index, distance = around(s, env, place, -1, radius)
        return index, distance

    return nearest


@functools.cache
def nearest_of(position: tuple[str, ...], dimensions: int, cells: bool | None, k: int, group: str | None) -> Any:
    """The Warp function `(s, env, agent, radius)` of the k nearest others of an agent."""
    place_at, around = place_of(position, dimensions), search_around(position, dimensions, cells, k, group)

    @wp.func
    def nearest(s: Any, env: int, agent: int, radius: float = wp.inf):
        index, distance = around(s, env, place_at(s, env, agent), agent, radius)
        return index, distance

    return nearest
