"""Continuous Tag: taggers on a square chase runners, who leave the game when they are caught.

The rules are those of Tag in WarpDrive (Lan, Srinivasa, Wang, Zheng, 2021, arXiv:2108.13976), with two differences:
every episode begins at a new random place unless `fixed_start` is set, and no reward is lost when several runners
are tagged in one step.
"""

import functools
import math
from typing import Any

import warp as wp

import warpdrive as wd
from warpdrive.env.environment import positive_int

__all__ = ["Tag", "TagState"]

TWO_PI = wp.constant(2.0 * math.pi)
PER_TURN = wp.constant(1.0 / (2.0 * math.pi))
QUARTER_TURN = wp.constant(0.5 * math.pi)
MANY_TAGGERS = 24  # from so many on runners look at those nearby only
LEAST_SQUARES = 6  # along a side of the grid for that


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


# ---------------------------------------------------------------- how an episode begins


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


# ---------------------------------------------------------------- what happens in a step


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


# Among many taggers a runner looks only at those in the squares around it. They stand in a hash table with a slot for
# each square, row after row. Who finds another in its slot goes on to the next, and the least index stays: in the end
# the table is the same whoever came first (Amble and Knuth 1974, "Ordered hash tables").


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


# ---------------------------------------------------------------- what an agent sees


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


# ---------------------------------------------------------------- scripted policies


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


# ---------------------------------------------------------------- the environment


class Tag(wd.Env):
    """Continuous Tag: taggers on a square chase runners.

    An action is a pair (change of acceleration, turn): 0 is none, then come the levels from the least to the greatest.
    An agent observes the nearest others in the game: seven blocks of relative x, relative y, relative speed, relative
    acceleration, relative heading, tagger or not, in the game or not; then the time. A number of every block belongs
    to one other agent, nearest first; all is zero where there is none, and for an agent that is out of the game.
    Rewards and penalties are added as they are: a penalty is a negative number.

    Scripted policies: `chaser` of taggers, `runner` of runners.

    Args:
        num_taggers: number of taggers.
        num_runners: number of runners.
        grid_length: side of the square.
        episode_length: steps after which the game is over.
        max_speed: the most way an agent of skill level 1 makes in a step.
        num_acceleration_levels: number of changes of acceleration to choose from, besides none.
        num_turn_levels: number of turns to choose from, besides none.
        max_acceleration: greatest change of acceleration in a step.
        min_acceleration: least change of acceleration in a step (negative: slows down).
        max_turn: greatest turn in a step, in radians.
        min_turn: least turn in a step, in radians (negative: the other way round).
        tagging_distance: a runner is tagged by its nearest tagger when that is closer than this, as a share of
            grid_length.
        edge_hit_penalty: for an agent in each step in which it runs against the edge.
        step_penalty_for_tagger: for a tagger in each step.
        step_reward_for_runner: for a runner in each step that it begins in the game.
        tag_reward_for_tagger: for a tagger, for each runner that it tags.
        tag_penalty_for_runner: for a runner that is tagged.
        end_of_game_reward_for_runner: for a runner that is in the game after the last step.
        runner_exits_game_after_tagged: whether a tagged runner leaves the game; if not it can be tagged again.
        num_other_agents_observed: number of nearest other agents that an agent observes.
        use_full_observation: whether an agent observes all others, in index order, in place of the nearest.
        egocentric: whether relative places are given in the frame of the observing agent (x ahead of it, y to its left)
            and not of the square. Without it nothing that an agent observes tells it which way it faces, so it cannot
            learn to steer at another.
        skill_level_tagger: factor on the greatest speed of taggers.
        skill_level_runner: factor on the greatest speed of runners.
        fixed_start: whether all episodes of all environments begin with the same places and headings.
        start_seed: which places and headings those are; it does not depend on the simulator's seed.

    Raises:
        ValueError: an argument out of its range.
    """

    state = TagState
    reset = (place,)
    step = (move_tagger, move_runner, tag_runner, reward_tagger, end)
    scripted = (chaser, runner)

    def __init__(
        self,
        *,
        num_taggers: int = 5,
        num_runners: int = 20,
        grid_length: float = 20.0,
        episode_length: int = 500,
        max_speed: float = 1.0,
        num_acceleration_levels: int = 20,
        num_turn_levels: int = 20,
        max_acceleration: float = 0.1,
        min_acceleration: float = -0.1,
        max_turn: float = 2.356,
        min_turn: float = -2.356,
        tagging_distance: float = 0.02,
        edge_hit_penalty: float = 0.0,
        step_penalty_for_tagger: float = 0.0,
        step_reward_for_runner: float = 0.0,
        tag_reward_for_tagger: float = 10.0,
        tag_penalty_for_runner: float = -10.0,
        end_of_game_reward_for_runner: float = 1.0,
        runner_exits_game_after_tagged: bool = True,
        num_other_agents_observed: int = 10,
        use_full_observation: bool = False,
        egocentric: bool = False,
        skill_level_tagger: float = 1.0,
        skill_level_runner: float = 1.0,
        fixed_start: bool = False,
        start_seed: int = 0,
    ) -> None:
        given = dict(locals())
        for name in ("num_taggers", "num_runners", "num_acceleration_levels", "num_turn_levels"):
            positive_int(name, given[name])
        positive_int("episode_length", episode_length)
        positive_int("num_other_agents_observed", num_other_agents_observed)
        for name in ("grid_length", "max_speed", "tagging_distance", "skill_level_tagger", "skill_level_runner"):
            if not (math.isfinite(given[name]) and given[name] > 0):
                raise ValueError(f"{name} must be a positive number, got {given[name]!r}")
        for name in ("acceleration", "turn"):
            low, high = given[f"min_{name}"], given[f"max_{name}"]
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(f"max_{name} must be greater than min_{name}, got {high!r} and {low!r}")
        if isinstance(start_seed, bool) or not isinstance(start_seed, int) or not 0 <= start_seed < 2**31:
            raise ValueError(f"start_seed must be an integer from 0 to 2**31 - 1, got {start_seed!r}")

        self.grid_length = grid_length
        num_others = num_taggers + num_runners - 1
        slots = num_others if use_full_observation else num_other_agents_observed
        near, agents, corner = wd.space.Search("position"), num_taggers + num_runners, (grid_length, grid_length)
        cells = False if use_full_observation else None
        layout = near.layout(agents, (0.0, 0.0), corner, neighbours=slots, cells=cells)
        listed = bool(layout.shape)
        find = wd.space.Search("position", cells=True).nearest_phases(slots, into="near") if listed else ()
        look = observe_all if use_full_observation else observe_nearest(slots, listed)
        self.observe = (*layout.phases, *find, look)
        squares = squares_along(num_taggers, grid_length, tagging_distance * grid_length)
        if squares:
            self.step = (move_tagger, move_runner, clear_squares, enter_square, tag_runner_nearby, reward_tagger, end)
        action = wd.MultiDiscrete(num_acceleration_levels + 1, num_turn_levels + 1)
        super().__init__(
            groups={
                "taggers": wd.Group(num_taggers, obs=7 * slots + 1, action=action),
                "runners": wd.Group(num_runners, obs=7 * slots + 1, action=action),
            },
            params={
                **layout.params,
                "side": grid_length,
                "per_diagonal": 1.0 / (math.sqrt(2.0) * grid_length),
                "per_speed": 1.0 / max_speed,
                "per_step": 1.0 / episode_length,
                "max_speed_tagger": max_speed * skill_level_tagger,
                "max_speed_runner": max_speed * skill_level_runner,
                "first_change": min_acceleration,
                "change_levels": num_acceleration_levels,
                "change_spacing": (max_acceleration - min_acceleration) / max(1, num_acceleration_levels - 1),
                "first_turn": min_turn,
                "turn_levels": num_turn_levels,
                "turn_spacing": (max_turn - min_turn) / max(1, num_turn_levels - 1),
                "reach": tagging_distance * grid_length,
                "squares": squares,
                "edge_hit_penalty": edge_hit_penalty,
                "step_penalty_for_tagger": step_penalty_for_tagger,
                "step_reward_for_runner": step_reward_for_runner,
                "tag_reward_for_tagger": tag_reward_for_tagger,
                "tag_penalty_for_runner": tag_penalty_for_runner,
                "end_of_game_reward_for_runner": end_of_game_reward_for_runner,
                "runner_exits": runner_exits_game_after_tagged,
                "egocentric": egocentric,
                "fixed_start": fixed_start,
                "start_seed": start_seed,
            },
            sizes={
                **layout.sizes,
                "near_agents": agents if listed else 1,
                "near_slots": slots if listed else 1,
                "square_slots": squares * squares + num_taggers + 1 if squares else 1,
            },
            episode_length=episode_length,
        )

    def view(self) -> wd.View:
        """Agents as discs on the square, with their heading."""
        return wd.View(
            position="position", heading="heading", low=(0.0, 0.0), high=(self.grid_length, self.grid_length)
        )
