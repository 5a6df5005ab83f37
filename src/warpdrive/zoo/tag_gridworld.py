"""Tag on a grid: taggers who move from point to point close in on one runner, and win together.

The rules are those of the grid world of WarpDrive (Lan, Srinivasa, Wang, Zheng, 2021, arXiv:2108.13976). All agents
move at once; the runner is tagged when, after that, a tagger stands on the same point.
"""

import math
from typing import Any

import warp as wp

import warpdrive as wd
from warpdrive.env.environment import positive_int

__all__ = ["TagGridworld", "TagGridworldState"]

INDEX_BITS = wp.constant(31)  # of a key that orders taggers by distance first and by index second
FARTHEST = wp.constant(wp.int64(2**63 - 1))
MOST_POINTS = 2**15 - 1  # a side up to which squared distances fit above the index in a key


class TagGridworldState(wd.State):
    """Everything that happens in a game. Lengths are in points of the grid, time is in steps."""

    taggers: wd.Agents  # the first agents
    runner: wd.Agents  # the one after them
    position: wd.PerAgent[wp.vec2]  # whole numbers from 0 to side
    caught: wd.PerEnv[int]  # 1 where a tagger stands on the runner, else 0
    nearest: wd.PerEnv[wp.int64]  # of the runner: squared distance and index of the nearest tagger, see `key_of`

    side: wd.Param[int]  # of the grid
    per_point: wd.Param[float]  # one over the side
    per_step: wd.Param[float]  # one over the length of an episode
    random_start: wd.Param[bool]
    wall_hit_penalty: wd.Param[float]
    step_cost_for_tagger: wd.Param[float]
    tag_reward_for_tagger: wd.Param[float]
    tag_penalty_for_runner: wd.Param[float]


# ---------------------------------------------------------------- how an episode begins


@wd.per_agent
def place(s: TagGridworldState, env: int, agent: int):
    """Put the taggers in the middle and the runner into the corner, or everybody anywhere."""
    x = int(0)
    y = int(0)
    if s.random_start:
        rng = wd.random(s, env, agent)
        x = wp.randi(rng, 0, s.side + 1)
        y = wp.randi(rng, 0, s.side + 1)
    elif agent < s.runner.first:
        x = s.side // 2
        y = s.side // 2
    s.position[env, agent] = wp.vec2(float(x), float(y))


@wd.per_env
def begin(s: TagGridworldState, env: int):
    """Nobody has been caught."""
    s.caught[env] = 0


# ---------------------------------------------------------------- what happens in a step


@wp.func
def stepped(place: wp.vec2, action: int):
    """Coordinates of the point that an action leads to from a place, be it in the grid or not."""
    x = place[0]
    y = place[1]
    if action == 1:
        x = x + 1.0
    elif action == 2:
        x = x - 1.0
    elif action == 3:
        y = y + 1.0
    elif action == 4:
        y = y - 1.0
    return x, y


@wp.func
def walk(s: Any, env: int, agent: int, action: int) -> float:
    """Move one agent by its action; returns what it gets for that: the penalty if the edge stopped it."""
    x, y = stepped(s.position[env, agent], action)
    most = float(s.side)
    s.position[env, agent] = wp.vec2(wp.clamp(x, 0.0, most), wp.clamp(y, 0.0, most))
    if x < 0.0 or x > most or y < 0.0 or y > most:
        return -s.wall_hit_penalty
    return 0.0


@wd.per_agent
def move(s: TagGridworldState, env: int, agent: int):
    """Move one agent. The runner is free until a tagger says otherwise."""
    if agent < s.runner.first:
        s.reward[env, agent] = walk(s, env, agent, s.taggers.action[env, agent, 0])
    else:
        s.reward[env, agent] = walk(s, env, agent, s.runner.action[env, 0, 0])
        s.caught[env] = 0


@wd.per_agent("taggers")
def tag(s: TagGridworldState, env: int, i: int):
    """Catch the runner if this tagger stands on it.

    Many may do so at once. The greatest of integers is the same in whichever order they come, so the result is too.
    """
    if s.position[env, i] == s.position[env, s.runner.first]:
        wd.atomic_max(s.caught, env, 1)


@wd.per_agent
def reward(s: TagGridworldState, env: int, agent: int):
    """A catch rewards all taggers, costs the runner, and ends the episode; a step without one does the opposite."""
    caught = s.caught[env] == 1
    gain = -s.step_cost_for_tagger
    if caught:
        gain = s.tag_reward_for_tagger
    if agent >= s.runner.first:
        gain = s.step_cost_for_tagger
        if caught:
            gain = -s.tag_penalty_for_runner
            s.ended[env] = True
    s.reward[env, agent] = s.reward[env, agent] + gain


# ---------------------------------------------------------------- what an agent sees


@wp.func
def see_all(s: Any, obs: Any, env: int, i: int, agent: int):
    """Write the places and kinds of all agents, which of them one is, and the time."""
    n = s.num_agents
    for other in range(n):
        kind = 0.0
        if other < s.runner.first:
            kind = 1.0
        self = 0.0
        if other == agent:
            self = 1.0
        wd.put(obs, env, i, other, s.position[env, other][0] * s.per_point)
        wd.put(obs, env, i, n + other, s.position[env, other][1] * s.per_point)
        wd.put(obs, env, i, 2 * n + other, kind)
        wd.put(obs, env, i, 3 * n + other, self)
    wd.put(obs, env, i, 4 * n, float(s.step[env]) * s.per_step)


@wd.per_agent
def look_at_all(s: TagGridworldState, env: int, agent: int):
    """The full observation of one agent."""
    if agent < s.runner.first:
        see_all(s, s.taggers.obs, env, agent, agent)
    else:
        see_all(s, s.runner.obs, env, 0, agent)


@wp.func
def key_of(s: Any, env: int, i: int) -> wp.int64:
    """Squared distance of tagger i from the runner, and below it i: the least key is the nearest, ties by index."""
    way = s.position[env, i] - s.position[env, s.runner.first]
    dx = wp.int64(way[0])
    dy = wp.int64(way[1])
    return ((dx * dx + dy * dy) << wp.int64(INDEX_BITS)) + wp.int64(i)


@wd.per_env
def seek(s: TagGridworldState, env: int):
    """Begin the search for the tagger that is nearest to the runner."""
    s.nearest[env] = FARTHEST


@wd.per_agent("taggers")
def come_near(s: TagGridworldState, env: int, i: int):
    """Be the nearest tagger if no other is nearer: the least of integers, in whichever order they come."""
    wd.atomic_min(s.nearest, env, key_of(s, env, i))


@wp.func
def see_one(s: Any, obs: Any, env: int, i: int, here: wp.vec2, there: wp.vec2, kind: float):
    """Write one's own place, that of one other agent, one's kind, and the time."""
    wd.put(obs, env, i, 0, here[0] * s.per_point)
    wd.put(obs, env, i, 1, here[1] * s.per_point)
    wd.put(obs, env, i, 2, there[0] * s.per_point)
    wd.put(obs, env, i, 3, there[1] * s.per_point)
    wd.put(obs, env, i, 4, kind)
    wd.put(obs, env, i, 5, float(s.step[env]) * s.per_step)


@wd.per_agent
def look_at_one(s: TagGridworldState, env: int, agent: int):
    """The partial observation of one agent: a tagger sees the runner, and the runner the nearest tagger."""
    here = s.position[env, agent]
    if agent < s.runner.first:
        see_one(s, s.taggers.obs, env, agent, here, s.position[env, s.runner.first], 1.0)
    else:
        tagger = int(s.nearest[env] & ((wp.int64(1) << wp.int64(INDEX_BITS)) - wp.int64(1)))
        see_one(s, s.runner.obs, env, 0, here, s.position[env, tagger], 0.0)


# ---------------------------------------------------------------- scripted policies


@wd.per_agent("taggers")
def chaser(s: TagGridworldState, env: int, i: int):
    """Step towards the runner along the longer axis of the way there; along any of two that are equally long."""
    way = s.position[env, s.runner.first] - s.position[env, s.taggers.first + i]
    x = wp.abs(way[0])
    y = wp.abs(way[1])
    rng = wd.random(s, env, s.taggers.first + i)
    action = int(0)
    if x > y or (x == y and x > 0.0 and wp.randf(rng) < 0.5):
        action = 1
        if way[0] < 0.0:
            action = 2
    elif y > 0.0:
        action = 3
        if way[1] < 0.0:
            action = 4
    s.taggers.action[env, i, 0] = action


@wd.per_agent("runner")
def runner(s: TagGridworldState, env: int, i: int):
    """Take the step, within the grid, after which the nearest tagger has most steps to go; any of equally good ones."""
    here = s.position[env, s.runner.first]
    most = float(s.side)
    rng = wd.random(s, env, s.runner.first)
    best = float(-1.0)
    equal = int(0)
    for action in range(5):
        x, y = stepped(here, action)
        if x >= 0.0 and x <= most and y >= 0.0 and y <= most:
            least = float(wp.inf)
            for t in range(s.taggers.count):
                there = s.position[env, s.taggers.first + t]
                least = wp.min(least, wp.abs(there[0] - x) + wp.abs(there[1] - y))
            if least > best:
                best = least
                equal = int(0)
            if least == best:
                equal += 1
                if wp.randf(rng) * float(equal) < 1.0:  # so that in the end each of them is kept as likely
                    s.runner.action[env, i, 0] = action


# ---------------------------------------------------------------- the environment


class TagGridworld(wd.Env):
    """Tag on a grid: taggers close in on one runner, and are rewarded together when one of them stands on it.

    Both coordinates of a place are whole numbers from 0 to grid_length. Actions: 0 stay, 1 +x, 2 -x, 3 +y, 4 -y; all
    move at once, and two that change places do not meet. The taggers begin in the middle and the runner at (0, 0).

    Rewards of a step: -wall_hit_penalty for an agent that tried to leave the grid, where it stays; and, if a tagger
    stands on the runner, tag_reward_for_tagger for every tagger and -tag_penalty_for_runner for the runner, which ends
    the episode; else -step_cost_for_tagger for every tagger and +step_cost_for_tagger for the runner.

    Observations, with places over grid_length and kind 1 for a tagger and 0 for the runner. Full, 4 N + 1 numbers for N
    agents: x of all, y of all, kind of all, 1 for oneself and 0 for the others, steps over episode_length. Partial, 6
    numbers: own x and y; x and y of the runner, or for the runner of the nearest tagger (by straight distance, the
    lower index of equally near); own kind; steps over episode_length.

    Scripted policies: `chaser` of taggers, `runner` of the runner.

    Args:
        num_taggers: number of taggers.
        grid_length: the greatest coordinate, in points, at most 32767.
        episode_length: steps after which the game is over.
        wall_hit_penalty: what a step against the edge of the grid costs.
        step_cost_for_tagger: what a step without a catch costs every tagger, and gives the runner.
        tag_reward_for_tagger: for every tagger, when one of them catches the runner.
        tag_penalty_for_runner: what it costs the runner to be caught.
        use_full_observation: whether agents observe everybody, or only themselves and one other.
        random_start: whether everybody begins at a random point; a tagger that begins on the runner has not caught it.

    Raises:
        ValueError: an argument out of its range.
    """

    state = TagGridworldState
    reset = (place, begin)
    step = (move, tag, reward)
    scripted = (chaser, runner)

    def __init__(
        self,
        *,
        num_taggers: int = 4,
        grid_length: int = 100,
        episode_length: int = 100,
        wall_hit_penalty: float = 0.1,
        step_cost_for_tagger: float = 0.01,
        tag_reward_for_tagger: float = 10.0,
        tag_penalty_for_runner: float = 5.0,
        use_full_observation: bool = True,
        random_start: bool = False,
    ) -> None:
        given = dict(locals())
        for name in ("num_taggers", "grid_length", "episode_length"):
            positive_int(name, given[name])
        if grid_length > MOST_POINTS:
            raise ValueError(f"grid_length must be at most {MOST_POINTS}, got {grid_length}")
        prices = ("wall_hit_penalty", "step_cost_for_tagger", "tag_reward_for_tagger", "tag_penalty_for_runner")
        for name in prices:
            if not (math.isfinite(given[name]) and given[name] >= 0):
                raise ValueError(f"{name} must be a number that is not negative, got {given[name]!r}")

        self.grid_length = grid_length
        if use_full_observation:
            size = 4 * (num_taggers + 1) + 1
            self.observe = (look_at_all,)
        else:
            size = 6
            self.observe = (seek, come_near, look_at_one)
        action = wd.Discrete(5)
        super().__init__(
            groups={"taggers": wd.Group(num_taggers, size, action), "runner": wd.Group(1, size, action)},
            params={
                "side": grid_length,
                "per_point": 1.0 / grid_length,
                "per_step": 1.0 / episode_length,
                "random_start": random_start,
            }
            | {name: given[name] for name in prices},
            episode_length=episode_length,
        )

    def view(self) -> wd.View:
        """Agents as discs on the grid."""
        return wd.View(position="position", low=(0.0, 0.0), high=(self.grid_length, self.grid_length))
