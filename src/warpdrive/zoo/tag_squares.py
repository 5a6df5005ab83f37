"""Tagging in Tag where taggers are many: a runner looks at those in the squares around it only.

They stand in a hash table with a slot for each square, row after row. Who finds another in its slot goes on to the
next, and the least index stays: in the end the table is the same whoever came first (Amble and Knuth 1974, "Ordered
hash tables").
"""

import math
from typing import Any

import warp as wp

import warpdrive as wd
from warpdrive.zoo.tag_rules import TagState, book_tag, distance_squared

__all__ = ["clear_squares", "enter_square", "squares_along", "tag_runner_nearby"]

MANY_TAGGERS = 24  # from so many on runners look at those nearby only
LEAST_SQUARES = 6  # along a side of the grid for that


@wp.func
def square_at(s: Any, place: float) -> int:
    """The square along one side that a coordinate lies in."""
    return wp.clamp(int(place * float(s.squares) / s.side), 0, s.squares - 1)


@wd.per_agent
def clear_squares(s: TagState, env: int, agent: int):
    """Nobody stands in any square yet."""
    for slot in range(agent, s.in_square.shape[1], s.num_agents):
        s.in_square[env, slot] = s.taggers.count


@wd.per_agent("taggers")
def enter_square(s: TagState, env: int, i: int):
    """Put one tagger into the table."""
    here = s.position[env, s.taggers.first + i]
    slot = square_at(s, here[1]) * s.squares + square_at(s, here[0])
    waiting = i
    while waiting < s.taggers.count:
        waiting = wp.max(waiting, wp.atomic_min(s.in_square, env, slot, waiting))
        slot += 1


@wd.per_agent("runners")
def tag_runner_nearby(s: TagState, env: int, i: int):
    """What tag_runner does, for which it looks into three squares of three rows, and on to the next empty slot."""
    if s.runners.active[env, i]:
        here = s.position[env, s.runners.first + i]
        x = square_at(s, here[0])
        y = square_at(s, here[1])
        least = s.reach * s.reach
        tagger = int(-1)
        for row in range(wp.max(y - 1, 0), wp.min(y + 1, s.squares - 1) + 1):
            slot = row * s.squares + wp.max(x - 1, 0)
            last = row * s.squares + wp.min(x + 1, s.squares - 1)
            t = s.in_square[env, slot]
            while slot <= last or t < s.taggers.count:
                if t < s.taggers.count:
                    d = distance_squared(here, s.position[env, s.taggers.first + t])
                    if d < least or (d == least and t < tagger):  # of two equally near the first
                        least = d
                        tagger = t
                slot += 1
                t = s.in_square[env, slot]
        book_tag(s, env, i, tagger)


def squares_along(num_taggers: int, side: float, reach: float) -> int:
    """Squares along each side of the grid that taggers stand in; 0: there is none, and runners look at all taggers."""
    # A little longer than the reach, so that rounding does not matter; and about eight squares a tagger are enough.
    squares = min(int(0.999 * side / reach), math.isqrt(8 * num_taggers))
    return squares if num_taggers >= MANY_TAGGERS and squares >= LEAST_SQUARES else 0
