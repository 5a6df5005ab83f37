"""Small environments, each right but for one fault, which the kit must find and name."""

from typing import Any

import warp as wp

import warpdrive as wd


class S(wd.State):
    """State that all of them share, so that each needs to say only what is wrong with it."""

    walkers: wd.Agents
    x: wd.PerAgent[float]
    y: wd.PerAgent[float]
    total: wd.PerEnv[float]
    fallen: wd.PerAgent[bool]


@wd.per_agent
def place(s: S, env: int, agent: int):
    rng = wd.random(s, env, agent)
    s.x[env, agent] = wp.randf(rng)
    s.y[env, agent] = 0.0
    s.fallen[env, agent] = False
    if agent == 0:
        s.total[env] = 0.0


@wd.per_agent
def walk(s: S, env: int, agent: int):
    """All right: each agent goes its way, and agent 1 leaves in the fifth step."""
    if s.active[env, agent]:
        s.x[env, agent] = 0.9 * s.x[env, agent] + 0.1 * float(s.walkers.action[env, agent, 0])
        s.reward[env, agent] = s.x[env, agent]
        if agent == 1 and s.step[env] == 5:
            s.terminated[env, agent] = True


@wd.per_agent
def look(s: S, env: int, agent: int):
    wd.put(s.walkers.obs, env, agent, 0, s.x[env, agent])
    wd.put(s.walkers.obs, env, agent, 1, s.y[env, agent] + s.total[env])


class Sound(wd.Env):
    """Nothing is wrong with this one."""

    state = S
    reset = (place,)
    step = (walk,)
    observe = (look,)
    options: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, episode_length: int | None = 9):
        group = wd.Group(3, obs=2, action=wd.Discrete(3), **self.options)
        super().__init__(groups={"walkers": group}, episode_length=episode_length)


# ---------------------------------------------------------------- data that agents share


@wd.per_agent
def follow(s: S, env: int, agent: int):
    s.x[env, agent] = 0.5 * (s.x[env, agent] + s.x[env, (agent + 1) % s.num_agents])


class Race(Sound):
    """Reads a neighbour's field while the neighbour writes it."""

    step = (walk, follow)


@wd.per_agent
def push(s: S, env: int, agent: int):
    other = (agent + 1) % s.num_agents
    s.y[env, other] = float(agent + 1)


class ForeignWrite(Sound):
    """Writes a neighbour's element: never two at once, so that every order gives the same."""

    step = (walk, push)


@wd.per_agent
def pay(s: S, env: int, agent: int):
    s.reward[env, 0] += 0.25


class LostUpdate(Sound):
    """All agents add to the reward of agent 0; a quarter is exact, so that every order gives the same."""

    step = (walk, pay)


@wd.per_agent
def collect(s: S, env: int, agent: int):
    s.total[env] = s.total[env] + 0.25


class SharedTotal(Sound):
    """All agents add to one number of the environment."""

    step = (walk, collect)


# ---------------------------------------------------------------- arrays and environments


@wd.per_agent
def peek(s: S, env: int, agent: int):
    s.y[env, agent] = s.x[env, agent + 1]


class ReadsOutside(Sound):
    """The last agent reads behind the array."""

    step = (walk, peek)


@wd.per_agent
def look_too_far(s: S, env: int, agent: int):
    for f in range(3):
        wd.put(s.walkers.obs, env, agent, f, s.x[env, agent])


class WritesOutside(Sound):
    """Writes one feature more than there are."""

    observe = (look_too_far,)


@wd.per_env
def spill(s: S, env: int):
    if env > 0:
        s.total[env - 1] = 1.0


class OtherEnvironment(Sound):
    """Writes the element of the environment before."""

    step = (walk, spill)


@wd.per_agent
def crowd(s: S, env: int, agent: int):
    s.y[env, agent] = 1.0 / float(s.x.shape[0])


class NumEnvs(Sound):
    """Divides by the number of environments."""

    step = (walk, crowd)


# ---------------------------------------------------------------- episodes


@wd.per_agent
def tire(s: S, env: int, agent: int):
    s.y[env, agent] = s.y[env, agent] + 0.01


@wd.per_agent
def place_half(s: S, env: int, agent: int):
    rng = wd.random(s, env, agent)
    s.x[env, agent] = wp.randf(rng)
    s.fallen[env, agent] = False
    if agent == 0:
        s.total[env] = 0.0


class Leak(Sound):
    """How tired an agent is survives the reset."""

    reset = (place_half,)
    step = (walk, tire)


@wd.per_agent
def place_fallen(s: S, env: int, agent: int):
    rng = wd.random(s, env, agent)
    s.x[env, agent] = wp.randf(rng)
    s.y[env, agent] = 0.0
    if agent == 0:
        s.total[env] = 0.0


@wd.per_agent
def fall(s: S, env: int, agent: int):
    if s.step[env] == 4:
        s.fallen[env, agent] = True
    if s.fallen[env, agent]:
        s.terminated[env, agent] = True


class Termination(Sound):
    """Who has fallen once is fallen in every later episode."""

    reset = (place_fallen,)
    step = (walk, fall)


@wd.per_agent
def place_dead(s: S, env: int, agent: int):
    s.active[env, agent] = False


class StillBorn(Sound):
    """Episodes begin with nobody in them."""

    reset = (place, place_dead)


@wd.per_agent
def thank(s: S, env: int, agent: int):
    s.reward[env, agent] = s.reward[env, agent] + 0.5


class RewardAfterLeaving(Sound):
    """Rewards agents whether they are there or not."""

    step = (walk, thank)


# ---------------------------------------------------------------- numbers


@wd.per_agent
def place_alike(s: S, env: int, agent: int):
    rng = wp.rand_init(42, agent)
    s.x[env, agent] = wp.randf(rng)
    s.y[env, agent] = 0.0
    s.fallen[env, agent] = False
    if agent == 0:
        s.total[env] = 0.0


class Randomness(Sound):
    """Draws from a stream of its own."""

    reset = (place_alike,)


@wd.per_agent
def sink(s: S, env: int, agent: int):
    s.y[env, agent] = 0.1 * wp.sqrt(float(6 - s.step[env]))


class NotFinite(Sound):
    """The root of a negative number, from the seventh step on."""

    step = (walk, sink)


@wd.per_agent
def rise(s: S, env: int, agent: int):
    s.y[env, agent] = 0.3 * float(s.step[env])


class ObsBounds(Sound):
    """An observation passes its bound in the seventh step."""

    step = (walk, rise)
    options = {"obs_low": 0.0, "obs_high": 2.0}  # noqa: RUF012


@wd.per_agent
def forbid(s: S, env: int, agent: int):
    for choice in range(3):
        s.walkers.mask[env, agent, choice] = wp.uint8(1)
        if agent == 2 and s.step[env] == 3:
            s.walkers.mask[env, agent, choice] = wp.uint8(0)


class Mask(Sound):
    """Forbids agent 2 everything in the third step."""

    observe = (look, forbid)
    options = {"mask": True}  # noqa: RUF012


@wd.per_agent
def rewind(s: S, env: int, agent: int):
    if agent == 0 and s.step[env] == 6:
        s.step[env] = 5


class SimulatorField(Sound):
    """Sets the simulator's step counter."""

    step = (walk, rewind)


# ---------------------------------------------------------------- right, though it looks wrong


class CountState(S):
    """Adds a whole number that agents count together."""

    crowd: wd.PerEnv[int]


@wd.per_env
def nobody(s: CountState, env: int):
    s.crowd[env] = 0


@wd.per_agent
def count(s: CountState, env: int, agent: int):
    if s.x[env, agent] > 0.5:
        wp.atomic_add(s.crowd, env, 1)


@wd.per_agent
def tell(s: CountState, env: int, agent: int):
    s.y[env, agent] = 0.1 * float(s.crowd[env])


class Counting(Sound):
    """Atomic additions of whole numbers are exact in every order."""

    state = CountState
    reset = (place, nobody)
    step = (walk, nobody, count, tell)
