"""What agents of Tag observe of one another."""

import functools
import math
from typing import Any

import warp as wp

import warpdrive as wd
from warpdrive.zoo.tag_rules import TagState

__all__ = ["observe_all", "observe_nearest"]

PER_TURN = wp.constant(1.0 / (2.0 * math.pi))


@wp.func
def frame(s: Any, env: int, agent: int) -> wp.vec2:
    """The x axis of the frame in which an agent sees others: the square's, or straight ahead."""
    if s.egocentric:
        return wp.vec2(wp.cos(s.heading[env, agent]), wp.sin(s.heading[env, agent]))
    return wp.vec2(1.0, 0.0)


Seen = wp.types.vector(7, float)  # what an agent observes of another


@wp.func
def look_at(s: Any, env: int, agent: int, other: int, x_axis: wp.vec2) -> Seen:
    """The seven features by which `agent` sees `other`; zeros where `other` is -1."""
    seen = Seen()
    # Whoever there is to be seen: without a branch the reads of all others are under way together.
    one = wp.where(other < 0, agent, other)
    offset = (s.position[env, one] - s.position[env, agent]) * s.per_diagonal
    speed = (s.speed[env, one] - s.speed[env, agent]) * s.per_speed
    acceleration = (s.acceleration[env, one] - s.acceleration[env, agent]) * s.per_speed
    heading = (s.heading[env, one] - s.heading[env, agent]) * PER_TURN
    if other >= 0:
        seen[0] = x_axis[0] * offset[0] + x_axis[1] * offset[1]
        seen[1] = x_axis[0] * offset[1] - x_axis[1] * offset[0]
        seen[2] = speed
        seen[3] = acceleration
        seen[4] = heading
        seen[5] = wp.where(other < s.runners.first, 1.0, 0.0)
        seen[6] = 1.0
    return seen


@wp.func
def time_passed(s: Any, env: int, agent: int) -> float:
    """The share of the episode that has passed; 0 for an agent out of the game."""
    return wp.where(s.active[env, agent], float(s.step[env]) * s.per_step, 0.0)


@wp.func
def tell_all(s: Any, obs: Any, env: int, i: int, agent: int):
    """Write what one agent sees of all others, in index order; one that is out of the game leaves zeros."""
    slots = s.num_agents - 1
    x_axis = frame(s, env, agent)
    for slot in range(slots):
        other = slot
        if slot >= agent:
            other = slot + 1  # itself is left out
        if not (s.active[env, agent] and s.active[env, other]):
            other = -1
        seen = look_at(s, env, agent, other, x_axis)
        for feature in range(7):
            wd.put(obs, env, i, feature * slots + slot, seen[feature])
    wd.put(obs, env, i, 7 * slots, time_passed(s, env, agent))


@wd.per_agent
def observe_all(s: TagState, env: int, agent: int):
    """Show one agent all others."""
    if agent < s.runners.first:
        tell_all(s, s.taggers.obs, env, agent, agent)
    else:
        tell_all(s, s.runners.obs, env, agent - s.runners.first, agent)


@functools.cache
def observe_nearest(slots: int, listed: bool) -> Any:
    """The phase that shows one agent its `slots` nearest others; `listed`: they stand in `near`.

    One phase for both groups: on a GPU the few taggers alone would take nearly as long as all do.
    """
    find = wd.space.Search("position", cells=False).nearest(slots)
    Indices, AllSeen = wp.types.vector(slots, int), wp.types.vector(7 * slots, float)

    @wp.func
    def tell(obs: Any, env: int, i: int, seen: AllSeen, time: float):
        for k in range(slots):
            for feature in range(7):
                wd.put(obs, env, i, feature * slots + k, seen[7 * k + feature])
        wd.put(obs, env, i, 7 * slots, time)

    @wd.per_agent
    def observe(s: TagState, env: int, agent: int):
        nearest = Indices(-1)
        if s.active[env, agent]:
            if wp.static(listed):
                for k in range(slots):
                    nearest[k] = s.near[env, agent, k]
            else:
                nearest, _ = find(s, env, agent)
        # All is read before the first is written: reads do not go ahead of writes, which might be to the same place.
        x_axis = frame(s, env, agent)
        seen = AllSeen()
        for k in range(slots):
            one = look_at(s, env, agent, nearest[k], x_axis)
            for feature in range(7):
                seen[7 * k + feature] = one[feature]
        time = time_passed(s, env, agent)
        if agent < s.runners.first:
            tell(s.taggers.obs, env, agent, seen, time)
        else:
            tell(s.runners.obs, env, agent - s.runners.first, seen, time)

    return observe
