"""Small environments whose every number can be computed by hand."""

# ruff: noqa: F821 - the names of axes stand in annotations as text

from typing import Any

import warp as wp

import warpdrive as wd

IDLE, COUNT, LEAVE, VANISH, RETURN, FINISH = range(6)  # the actions of Script


# ---------------------------------------------------------------- Script: agents do what their actions say


class ScriptState(wd.State):
    pairs: wd.Agents
    lone: wd.Agents
    count: wd.PerAgent[int]
    episode: wd.PerEnv[int]
    late: wd.Param[int]


@wd.per_env
def open_episode(s: ScriptState, env: int):
    s.episode[env] = s.episode[env] + 1


@wd.per_agent
def come(s: ScriptState, env: int, agent: int):
    s.count[env, agent] = 0
    if agent >= s.num_agents - s.late:
        s.active[env, agent] = False


@wp.func
def obey(s: Any, env: int, agent: int, action: int):
    if action == wp.static(COUNT):
        s.count[env, agent] = s.count[env, agent] + 1
    if action == wp.static(LEAVE):
        s.terminated[env, agent] = True
    if action == wp.static(VANISH):
        s.active[env, agent] = False
    if action == wp.static(RETURN):
        s.active[env, agent] = True
    s.reward[env, agent] = float(agent + 1) + 0.5 * float(s.count[env, agent])


@wd.per_agent("pairs")
def obey_pair(s: ScriptState, env: int, i: int):
    obey(s, env, s.pairs.first + i, s.pairs.action[env, i, 0])


@wd.per_agent("lone")
def obey_lone(s: ScriptState, env: int, i: int):
    obey(s, env, s.lone.first + i, s.lone.action[env, i, 0])


@wd.per_env
def finish(s: ScriptState, env: int):
    for i in range(s.pairs.count):
        if s.pairs.action[env, i, 0] == wp.static(FINISH):
            s.ended[env] = True


@wd.per_agent("pairs")
def see_pair(s: ScriptState, env: int, i: int):
    wd.put(s.pairs.obs, env, i, 0, float(s.count[env, s.pairs.first + i]))
    wd.put(s.pairs.obs, env, i, 1, float(s.step[env]))
    wd.put(s.pairs.obs, env, i, 2, float(s.episode[env]))


@wd.per_agent("lone")
def see_lone(s: ScriptState, env: int, i: int):
    total = int(0)
    for agent in range(s.num_agents):
        total = total + s.count[env, agent]
    wd.put(s.lone.obs, env, i, 0, float(total))
    wd.put(s.lone.obs, env, i, 1, 0.1)


class Script(wd.Env):
    """Counts, leaves, comes back and ends when told to by an action. Rewards are whole or half numbers."""

    state = ScriptState
    reset = (open_episode, come)
    step = (obey_pair, obey_lone, finish)
    observe = (see_pair, see_lone)

    def __init__(self, episode_length: int | None = 4, late: int = 0, pairs: int = 2):
        super().__init__(
            groups={
                "pairs": wd.Group(pairs, obs=3, action=wd.Discrete(6)),
                "lone": wd.Group(1, obs=2, action=wd.Discrete(6), float32=True),
            },
            params={"late": late},
            episode_length=episode_length,
        )


# ---------------------------------------------------------------- Dice: every draw is written down


class DiceState(wd.State):
    left: wd.Agents
    right: wd.Agents
    placed: wd.PerAgent[float]
    thrown: wd.PerAgent[float, 2]  # two draws of one stream
    again: wd.PerAgent[float]
    weather: wd.PerEnv[float]
    stream: wd.PerAgent[int]
    walk: wd.PerAgent[wp.vec2]


@wd.per_agent
def lay(s: DiceState, env: int, agent: int):
    rng = wd.random(s, env, agent)
    s.placed[env, agent] = wp.randf(rng)
    s.walk[env, agent] = wp.vec2(0.0, 0.0)


@wd.per_agent
def throw(s: DiceState, env: int, agent: int):
    rng = wd.random(s, env, agent)
    s.stream[env, agent] = int(rng)
    s.thrown[env, agent, 0] = wp.randf(rng)
    s.thrown[env, agent, 1] = wp.randf(rng)


@wd.per_agent
def throw_again(s: DiceState, env: int, agent: int):
    rng = wd.random(s, env, agent)
    s.again[env, agent] = wp.randf(rng)


@wd.per_env
def blow(s: DiceState, env: int):
    rng = wd.random(s, env, 0)
    s.weather[env] = wp.randf(rng)


@wd.per_agent
def stroll(s: DiceState, env: int, agent: int):
    angle = 6.2831853 * s.thrown[env, agent, 0]
    way = wp.vec2(wp.cos(angle), wp.sin(angle))
    s.walk[env, agent] = s.walk[env, agent] * 0.9 + way * (0.3 + s.weather[env] * s.thrown[env, agent, 1])
    s.reward[env, agent] = wp.length(s.walk[env, agent]) * 0.7 + s.again[env, agent] / 3.0
    s.terminated[env, agent] = s.again[env, agent] < 0.1


@wd.per_agent("left")
def peek_left(s: DiceState, env: int, i: int):
    rng = wd.random(s, env, i)
    wd.put(s.left.obs, env, i, 0, wp.randf(rng))
    wd.put(s.left.obs, env, i, 1, s.walk[env, i][0] * 1.7 + s.walk[env, i][1])


@wd.per_agent("right")
def peek_right(s: DiceState, env: int, i: int):
    rng = wd.random(s, env, i)
    wd.put(s.right.obs, env, i, 0, wp.randf(rng))


class Dice(wd.Env):
    """Draws random numbers in every kind of phase, and walks by them."""

    state = DiceState
    reset = (lay,)
    step = (throw, throw_again, blow, stroll)
    observe = (peek_left, peek_right)

    def __init__(self, left: int = 2, right: int = 3, episode_length: int = 5):
        super().__init__(
            groups={
                "left": wd.Group(left, obs=2, action=wd.MultiDiscrete(3, 4)),
                "right": wd.Group(right, obs=1, action=wd.Box(-0.1, 0.2)),
            },
            episode_length=episode_length,
        )


# ---------------------------------------------------------------- Kinds: fields of every type, masks, bounds


class KindsState(wd.State):
    masked: wd.Agents
    boxed: wd.Agents
    real: wd.PerAgent[float]
    whole: wd.PerAgent[int]
    flag: wd.PerAgent[bool]
    byte: wd.PerAgent[wp.uint8]
    large: wd.PerAgent[wp.int64]
    fine: wd.PerAgent[wp.float64]
    plane: wd.PerAgent[wp.vec2]
    solid: wd.PerAgent[wp.vec3]
    matrix: wd.PerAgent[wp.mat22]
    three: wd.PerAgent[float, 3]
    named: wd.PerAgent[int, "slots"]
    grid: wd.PerAgent[wp.vec2, 2, "slots"]
    env_real: wd.PerEnv[float]
    env_grid: wd.PerEnv[wp.uint8, "slots", 3, 2]
    scale: wd.Param[float]
    shift: wd.Param[wp.vec2]
    turn: wd.Param[wp.mat22]
    enabled: wd.Param[bool]


@wd.per_agent
def fill(s: KindsState, env: int, agent: int):
    x = 10 * env + agent
    s.real[env, agent] = float(x) * s.scale
    s.whole[env, agent] = -x
    s.flag[env, agent] = s.enabled and agent == 1
    s.byte[env, agent] = wp.uint8(200 + agent)
    s.large[env, agent] = wp.int64(x) * wp.int64(10000000000)
    s.fine[env, agent] = wp.float64(1.0) / wp.float64(3.0)
    s.plane[env, agent] = wp.vec2(float(x), float(agent)) + s.shift
    s.solid[env, agent] = wp.vec3(float(env), float(agent), 1.0)
    s.matrix[env, agent] = s.turn * float(x)
    for k in range(3):
        s.three[env, agent, k] = float(100 * x + k)
    for k in range(s.named.shape[2]):
        s.named[env, agent, k] = 100 * x + k
        for j in range(2):
            s.grid[env, agent, j, k] = wp.vec2(float(x), float(10 * j + k))


@wd.per_env
def fill_env(s: KindsState, env: int):
    s.env_real[env] = float(env)
    for a in range(s.env_grid.shape[1]):
        for b in range(3):
            for c in range(2):
                s.env_grid[env, a, b, c] = wp.uint8(100 * a + 10 * b + c)


@wd.per_agent("masked")
def forbid(s: KindsState, env: int, i: int):
    """Head 0 allows all but choice `i`, head 1 nothing but the odd choices."""
    wd.put(s.masked.obs, env, i, 0, 1.0 / 3.0)
    for choice in range(3):
        s.masked.mask[env, i, choice] = wp.uint8(1)
        if choice == i:
            s.masked.mask[env, i, choice] = wp.uint8(0)
    for choice in range(4):
        s.masked.mask[env, i, 3 + choice] = wp.uint8(255 * (choice % 2))


@wd.per_agent("boxed")
def look(s: KindsState, env: int, i: int):
    wd.put(s.boxed.obs, env, i, 0, 1.0 / 3.0)
    wd.put(s.boxed.obs, env, i, 1, s.boxed.action[env, i, 1])


class Kinds(wd.Env):
    """A field of every kind, set to what its indices say; one group with masks, one with continuous actions."""

    state = KindsState
    step = (fill, fill_env)
    observe = (forbid, look)

    def __init__(self, slots: int = 4, scale: float = 0.5):
        super().__init__(
            groups={
                "masked": wd.Group(2, obs=1, action=wd.MultiDiscrete(3, 4), mask=True),
                "boxed": wd.Group(1, obs=2, action=wd.Box((-1.0, 0.1), (1.0, 0.3)), float32=True),
            },
            params={"scale": scale, "shift": (1.0, 2.0), "turn": ((1.0, 2.0), (3.0, 4.0)), "enabled": True},
            sizes={"slots": slots},
        )
