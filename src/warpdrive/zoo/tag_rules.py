"""The rules of Tag: how an episode begins, how agents move, and who is tagged."""

import math
from typing import Any

import warp as wp

import warpdrive as wd

__all__ = ["TagState", "book_tag", "distance_squared", "end", "level", "move_runner", "move_tagger", "place"]
__all__ += ["reward_tagger", "tag_runner"]

TWO_PI = wp.constant(2.0 * math.pi)
QUARTER_TURN = wp.constant(0.5 * math.pi)


class TagState(wd.space.Cells):
    """Everything that happens in a game of tag. Lengths are in units of the square, time is in steps."""

    taggers: wd.Agents  # the first agents
    runners: wd.Agents  # those after them
    position: wd.PerAgent[wp.vec2]
    heading: wd.PerAgent[float]  # radians, from 0 to 2 pi
    speed: wd.PerAgent[float]
    acceleration: wd.PerAgent[float]
    # The nearest others of each, where all are sorted into cells.
    near: wd.PerEnv[int, "near_agents", "near_slots"]  # type: ignore[name-defined]  # noqa: F821
    tags: wd.PerAgent[int]  # of a tagger: runners that it has tagged in this step
    runners_left: wd.PerEnv[int]  # in the game after this step's tags
    # Where there are many taggers: which stand in each square of a grid; see enter_square.
    in_square: wd.PerEnv[int, "square_slots"]  # type: ignore[name-defined]  # noqa: F821

    side: wd.Param[float]  # of the square
    per_diagonal: wd.Param[float]  # one over the square's diagonal
    per_speed: wd.Param[float]  # one over the greatest speed
    per_step: wd.Param[float]  # one over the length of an episode
    max_speed_tagger: wd.Param[float]
    max_speed_runner: wd.Param[float]
    first_change: wd.Param[float]  # of acceleration, by action 1; each further action adds change_spacing
    change_spacing: wd.Param[float]
    change_levels: wd.Param[int]
    first_turn: wd.Param[float]  # radians, by action 1; each further action adds turn_spacing
    turn_spacing: wd.Param[float]
    turn_levels: wd.Param[int]
    reach: wd.Param[float]  # a tagger closer than this tags
    squares: wd.Param[int]  # along each side of the grid; each is longer than the reach

    edge_hit_penalty: wd.Param[float]
    step_penalty_for_tagger: wd.Param[float]
    step_reward_for_runner: wd.Param[float]
    tag_reward_for_tagger: wd.Param[float]
    tag_penalty_for_runner: wd.Param[float]
    end_of_game_reward_for_runner: wd.Param[float]
    runner_exits: wd.Param[bool]
    egocentric: wd.Param[bool]
    fixed_start: wd.Param[bool]
    start_seed: wd.Param[int]


@wd.per_agent
def place(s: TagState, env: int, agent: int):
    """Put one agent at rest at a random place, facing along one of the axes."""
    rng = wd.random(s, env, agent)
    if s.fixed_start:
        rng = wp.rand_init(s.start_seed, agent)  # depends on the agent alone
    x = wp.randf(rng)
    y = wp.randf(rng)
    s.position[env, agent] = wp.vec2(x, y) * s.side
    s.heading[env, agent] = float(wp.randi(rng, 0, 4)) * QUARTER_TURN
    s.speed[env, agent] = 0.0
    s.acceleration[env, agent] = 0.0
    s.tags[env, agent] = 0
    if agent == 0:
        s.runners_left[env] = s.runners.count


@wp.func
def level(action: int, first: float, spacing: float) -> float:
    """The number that an action stands for: 0 is none, 1 the first of the evenly spaced levels."""
    if action == 0:
        return 0.0
    return first + float(action - 1) * spacing


@wp.func
def drive(s: Any, env: int, agent: int, change: int, turn: int, max_speed: float) -> bool:
    """Move one agent by its action; returns whether it ran against the edge."""
    acceleration = s.acceleration[env, agent] + level(change, s.first_change, s.change_spacing)
    speed = wp.clamp(s.speed[env, agent] + acceleration, 0.0, max_speed)
    if speed <= 0.0 or speed >= max_speed:
        acceleration = 0.0
    heading = wp.mod(s.heading[env, agent] + level(turn, s.first_turn, s.turn_spacing), TWO_PI)
    if heading < 0.0:
        heading = heading + TWO_PI  # wp.mod keeps the sign, as C's fmod does

    position = s.position[env, agent]
    x = position[0] + speed * wp.cos(heading)
    y = position[1] + speed * wp.sin(heading)
    s.position[env, agent] = wp.vec2(wp.clamp(x, 0.0, s.side), wp.clamp(y, 0.0, s.side))
    s.heading[env, agent] = heading
    s.speed[env, agent] = speed
    s.acceleration[env, agent] = acceleration
    return x < 0.0 or x > s.side or y < 0.0 or y > s.side


@wd.per_agent("taggers")
def move_tagger(s: TagState, env: int, i: int):
    """Move one tagger, and give it what every step and the edge cost; nobody is counted yet."""
    reward = s.step_penalty_for_tagger
    agent = s.taggers.first + i
    s.tags[env, agent] = 0
    if i == 0:
        s.runners_left[env] = 0
    if drive(s, env, agent, s.taggers.action[env, i, 0], s.taggers.action[env, i, 1], s.max_speed_tagger):
        reward = reward + s.edge_hit_penalty
    s.taggers.reward[env, i] = reward


@wd.per_agent("runners")
def move_runner(s: TagState, env: int, i: int):
    """Move one runner if it is in the game, and give it what every step is worth and the edge costs."""
    if s.runners.active[env, i]:
        reward = s.step_reward_for_runner
        agent = s.runners.first + i
        if drive(s, env, agent, s.runners.action[env, i, 0], s.runners.action[env, i, 1], s.max_speed_runner):
            reward = reward + s.edge_hit_penalty
        s.runners.reward[env, i] = reward


@wp.func
def distance_squared(a: wp.vec2, b: wp.vec2) -> float:
    """Squares order as distances do, and save the root."""
    dx = b[0] - a[0]
    dy = b[1] - a[1]
    return dx * dx + dy * dy


@wp.func
def book_tag(s: Any, env: int, i: int, tagger: int):
    """Reward a runner in the game for having been tagged by `tagger`, or (-1) for not having been."""
    reward = s.runners.reward[env, i]
    in_game = True
    if tagger >= 0:
        wp.atomic_add(s.tags, env, s.taggers.first + tagger, 1)  # whole numbers: exact in any order
        reward = reward + s.tag_penalty_for_runner
        if s.runner_exits:
            in_game = False
            s.runners.terminated[env, i] = True
    if in_game:
        wd.atomic_add(s.runners_left, env, 1)
        if s.step[env] == s.episode_length:
            reward = reward + s.end_of_game_reward_for_runner
    s.runners.reward[env, i] = reward


@wd.per_agent("runners")
def tag_runner(s: TagState, env: int, i: int):
    """Is this runner tagged, and by whom. At the last step those who are still in the game are rewarded."""
    if s.runners.active[env, i]:
        here = s.position[env, s.runners.first + i]
        least = s.reach * s.reach
        tagger = int(-1)
        for t in range(s.taggers.count):
            d = distance_squared(here, s.position[env, s.taggers.first + t])
            if d < least:  # of two equally near the first
                least = d
                tagger = t
        book_tag(s, env, i, tagger)


@wd.per_agent("taggers")
def reward_tagger(s: TagState, env: int, i: int):
    """Reward a tagger for the runners that it has tagged, one after the other: floats are not added atomically."""
    reward = s.taggers.reward[env, i]
    for _ in range(s.tags[env, s.taggers.first + i]):
        reward += s.tag_reward_for_tagger
    s.taggers.reward[env, i] = reward


@wd.per_env
def end(s: TagState, env: int):
    """The episode ends when no runner is left."""
    s.ended[env] = s.runners_left[env] == 0
