"""The least of many keys, kept in order without branches: a few at a time are merged with those that are kept."""

import functools
from typing import Any

import warp as wp

__all__ = ["keep_least"]


@functools.cache
def merge(Keys: Any, first: int, count: int) -> Any:
    """The Warp function `(keys)` that puts some in order that rise and then fall, seen from the vector's end.

    A bitonic merge (Batcher 1968, "Sorting networks and their applications", AFIPS 32): it may have any length, since
    what is missing to a power of two would be less than all, and stand at the end already.

    Args:
        Keys: the vector type.
        first, count: which of them, counted from the end.
    """
    last, half = Keys._length_ - 1, 1 << ((count - 1).bit_length() - 1)
    rest = count - half
    lower = merge(Keys, first, half) if half > 1 else None
    upper = merge(Keys, first + half, rest) if rest > 1 else None

    @wp.func
    def merged(keys: Keys):
        for i in range(rest):
            one = keys[last - first - i]
            other = keys[last - first - half - i]
            keys[last - first - i] = wp.max(one, other)
            keys[last - first - half - i] = wp.min(one, other)
        if wp.static(half > 1):
            keys = lower(keys)
        if wp.static(rest > 1):
            keys = upper(keys)
        return keys

    return merged


@functools.cache
def keep_least(Keys: Any, Batch: Any) -> Any:
    """The Warp function `(keys, batch)` of the least of both, in rising order as `keys` are.

    With 11 keys and batches of 4 it makes 12 + 4 + 34 minima and maxima; one key after the other would take 84.
    """
    last, batches = Keys._length_ - 1, Batch._length_
    taken = min(batches, last + 1)
    ordered = merge(Keys, 0, last + 1) if last else None

    @wp.func
    def least(keys: Keys, batch: Batch):
        for i in range(1, batches):
            for j in range(i, 0, -1):
                one = batch[j - 1]
                other = batch[j]
                batch[j - 1] = wp.min(one, other)
                batch[j] = wp.max(one, other)
        if batch[0] < keys[last]:
            # The greatest of the one beside the least of the other: what is left rises and then falls.
            for b in range(taken):
                keys[last - b] = wp.min(keys[last - b], batch[b])
            if wp.static(last > 0):
                keys = ordered(keys)
        return keys

    return least
