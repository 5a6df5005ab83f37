"""The scripted policies of Tag."""

from typing import Any

import warp as wp

import warpdrive as wd
from warpdrive.zoo.tag_rules import TWO_PI, TagState, distance_squared, level

__all__ = ["chaser", "runner"]


@wp.func
def nearest_level(wanted: float, first: float, spacing: float, count: int) -> int:
    """The action whose `level` is nearest to a number."""
    action = 1 + wp.clamp(int(wp.round((wanted - first) / spacing)), 0, count - 1)
    if wp.abs(wanted) <= wp.abs(wanted - level(action, first, spacing)):
        return 0
    return action


@wp.func
def turn_to(s: Any, env: int, agent: int, way: wp.vec2) -> int:
    """The turn after which an agent faces most nearly along `way`."""
    turn = wp.atan2(way[1], way[0]) - s.heading[env, agent]
    turn = turn - TWO_PI * wp.round(turn / TWO_PI)
    return nearest_level(turn, s.first_turn, s.turn_spacing, s.turn_levels)


@wp.func
def speed_up_to(s: Any, env: int, agent: int, speed: float) -> int:
    """The change of acceleration after which an agent's speed is nearest to one wanted."""
    wanted = speed - s.speed[env, agent] - s.acceleration[env, agent]
    return nearest_level(wanted, s.first_change, s.change_spacing, s.change_levels)


@wd.per_agent("taggers")
def chaser(s: TagState, env: int, i: int):
    """Run straight at the nearest runner in the game, as fast as can be."""
    agent = s.taggers.first + i
    here = s.position[env, agent]
    least = float(wp.inf)
    way = wp.vec2(0.0, 0.0)
    for r in range(s.runners.count):
        if s.runners.active[env, r]:
            there = s.position[env, s.runners.first + r]
            d = distance_squared(here, there)
            if d < least:
                least = d
                way = there - here
    s.taggers.action[env, i, 0] = speed_up_to(s, env, agent, s.max_speed_tagger)
    s.taggers.action[env, i, 1] = turn_to(s, env, agent, way)


@wd.per_agent("runners")
def runner(s: TagState, env: int, i: int):
    """Run, as fast as can be, where the nearest tagger will be farthest if all of them run straight at this runner.

    The edge of the square needs no rule of its own: who runs against it gets nowhere.
    """
    agent = s.runners.first + i
    here = s.position[env, agent]
    change = speed_up_to(s, env, agent, s.max_speed_runner)
    faster = s.acceleration[env, agent] + level(change, s.first_change, s.change_spacing)
    speed = wp.clamp(s.speed[env, agent] + faster, 0.0, s.max_speed_runner)
    farthest = float(-1.0)
    s.runners.action[env, i, 0] = change
    for turn in range(s.turn_levels + 1):
        heading = s.heading[env, agent] + level(turn, s.first_turn, s.turn_spacing)
        x = wp.clamp(here[0] + speed * wp.cos(heading), 0.0, s.side)
        y = wp.clamp(here[1] + speed * wp.sin(heading), 0.0, s.side)
        least = float(wp.inf)
        for t in range(s.taggers.count):
            there = s.position[env, s.taggers.first + t]
            there = there + wp.normalize(here - there) * s.max_speed_tagger
            least = wp.min(least, distance_squared(wp.vec2(x, y), there))
        if least > farthest:  # so of two equally good the first is kept
            farthest = least
            s.runners.action[env, i, 1] = turn
