"""The particle world of MPE: discs on a plane that are steered, drift, slow down and push one another apart.

Multi-Agent Particle Environments are by Mordatch and Abbeel (2017, arXiv:1703.04908) and Lowe, Wu, Tamar, Harb, Abbeel
and Mordatch (2017, arXiv:1706.02275). The `mpe_simple_...` environments keep the rules of their published package,
mpe2 1.1, and are tested against it; this module holds what they share. Lengths are in units of half the side of the
square in which episodes begin, time in units of which a step lasts 0.1, and every mass is 1.

Two discs that collide push each other along the line between their centres by 100 times their softened overlap: the
overlap where it is many times the margin 0.001, and next to nothing where they are as far apart. In a step an agent
first moves by its velocity; then a quarter of the velocity is lost, force times 0.1 is added, and what is above its
greatest speed is cut.
"""

from typing import Any

import warp as wp

import warpdrive as wd

__all__ = [
    "ParticleState",
    "SpeechState",
    "at_least",
    "bound",
    "contact",
    "contacts",
    "distance",
    "drift",
    "head_for",
    "hear",
    "landmark_contacts",
    "move_space",
    "overlap",
    "place",
    "place_landmarks",
    "put_color",
    "put_vec",
    "ratio",
    "see_landmarks",
    "see_others",
    "silence",
    "speak",
    "speech_space",
    "steer",
    "view",
]

TIME_STEP = wp.constant(0.1)
KEPT = wp.constant(0.75)  # share of the velocity that a step keeps
STIFFNESS = wp.constant(100.0)  # force of one unit of overlap
MARGIN = wp.constant(1.0e-3)  # over which a contact sets in
OUT_OF_CONTACT = wp.constant(-20.0)  # margins of overlap below which the force, under 1e-9, is left out


class ParticleState(wd.State):
    """Where agents and landmarks are. An environment derives its own state from this one."""

    position: wd.PerAgent[wp.vec2]
    velocity: wd.PerAgent[wp.vec2]
    force: wd.PerAgent[wp.vec2]  # on the agent in this step
    landmark: wd.PerEnv[wp.vec2, "landmarks"]  # type: ignore[name-defined]  # noqa: F821

    num_landmarks: wd.Param[int]
    span: wd.Param[float]  # landmarks are placed from -span to span
    continuous: wd.Param[bool]  # whether actions are numbers and not choices


class SpeechState(ParticleState):
    """The same where agents speak: what is said in a step is heard in the observation after it."""

    message: wd.PerAgent[float, "words"]  # type: ignore[name-defined]  # noqa: F821

    num_words: wd.Param[int]


# ---------------------------------------------------------------- how an episode begins


@wd.per_agent
def place(s: ParticleState, env: int, agent: int):
    """Put one agent at rest at a random place."""
    rng = wd.random(s, env, agent)
    x = wp.randf(rng, -1.0, 1.0)
    y = wp.randf(rng, -1.0, 1.0)
    s.position[env, agent] = wp.vec2(x, y)
    s.velocity[env, agent] = wp.vec2(0.0, 0.0)
    s.force[env, agent] = wp.vec2(0.0, 0.0)


@wd.per_env
def place_landmarks(s: ParticleState, env: int):
    """Put the landmarks at random places."""
    rng = wd.random(s, env, 0)
    for k in range(s.num_landmarks):
        x = wp.randf(rng, -s.span, s.span)
        y = wp.randf(rng, -s.span, s.span)
        s.landmark[env, k] = wp.vec2(x, y)


@wd.per_agent
def silence(s: SpeechState, env: int, agent: int):
    """Nobody has said anything."""
    for word in range(s.num_words):
        s.message[env, agent, word] = 0.0


# ---------------------------------------------------------------- actions


def move_space(continuous: bool) -> wd.Discrete | wd.Box:
    """Actions of an agent that moves: one of nothing, -x, +x, -y, +y, or a number from 0 to 1 for each of them."""
    return wd.Box(0.0, 1.0, 5) if continuous else wd.Discrete(5)


def speech_space(words: int, moves: bool, continuous: bool) -> wd.Discrete | wd.Box:
    """Actions of an agent that speaks: a word, or a number from 0 to 1 for each; with `moves` a move as well.

    The choice of a word and a move is numbered move + 5 word; of numbers those of the move come first.
    """
    if continuous:
        return wd.Box(0.0, 1.0, words + (5 if moves else 0))
    return wd.Discrete(words * (5 if moves else 1))


@wp.func
def speak(s: Any, action: Any, env: int, i: int, agent: int, moves: bool, continuous: bool):
    """Say what an action asks for; see speech_space."""
    first = int(0)
    word = int(0)
    if continuous:
        if moves:
            first = 5
    else:
        word = int(action[env, i, 0])
        if moves:
            word = word // 5
    for w in range(s.num_words):
        if continuous:
            s.message[env, agent, w] = float(action[env, i, first + w])
        else:
            s.message[env, agent, w] = wp.where(w == word, 1.0, 0.0)


@wp.func
def steer(action: Any, env: int, i: int, continuous: bool) -> wp.vec2:
    """The direction that an action asks for; each component is from -1 to 1."""
    if continuous:
        x = float(action[env, i, 2]) - float(action[env, i, 1])
        y = float(action[env, i, 4]) - float(action[env, i, 3])
        return wp.vec2(x, y)
    choice = int(action[env, i, 0]) % 5  # more than 4 where a word goes with it
    if choice == 1:
        return wp.vec2(-1.0, 0.0)
    if choice == 2:
        return wp.vec2(1.0, 0.0)
    if choice == 3:
        return wp.vec2(0.0, -1.0)
    if choice == 4:
        return wp.vec2(0.0, 1.0)
    return wp.vec2(0.0, 0.0)


@wp.func
def head_for(action: Any, env: int, i: int, way: wp.vec2, continuous: bool):
    """Write the action that `steer` reads as the direction nearest to `way`; nothing where that is zero."""
    x = wp.abs(way[0])
    y = wp.abs(way[1])
    most = wp.max(x, y)
    if continuous:
        scale = float(0.0)
        if most > 0.0:
            scale = 1.0 / most
        action[env, i, 0] = action.dtype(0)
        action[env, i, 1] = action.dtype(wp.max(-way[0] * scale, 0.0))
        action[env, i, 2] = action.dtype(wp.max(way[0] * scale, 0.0))
        action[env, i, 3] = action.dtype(wp.max(-way[1] * scale, 0.0))
        action[env, i, 4] = action.dtype(wp.max(way[1] * scale, 0.0))
    else:
        choice = int(0)
        if most > 0.0:
            if x >= y:
                choice = int(1)
                if way[0] > 0.0:
                    choice = int(2)
            else:
                choice = int(3)
                if way[1] > 0.0:
                    choice = int(4)
        action[env, i, 0] = action.dtype(choice)


# ---------------------------------------------------------------- motion


@wp.func
def contact(here: wp.vec2, there: wp.vec2, reach: float) -> wp.vec2:
    """The force on a disc at `here` from one at `there`; their radii add up to `reach`."""
    away = here - there
    distance = wp.length(away)
    depth = (reach - distance) / MARGIN
    if depth < OUT_OF_CONTACT or distance == 0.0:  # of two at one place neither knows where to go
        return wp.vec2(0.0, 0.0)
    soft = (wp.max(depth, 0.0) + wp.log(1.0 + wp.exp(-wp.abs(depth)))) * MARGIN
    return away * (STIFFNESS * soft / distance)


@wp.func
def contacts(s: Any, env: int, agent: int, first: int, count: int, reach: float) -> wp.vec2:
    """The force on one agent from `count` agents, itself left out."""
    here = s.position[env, agent]
    force = wp.vec2(0.0, 0.0)
    for other in range(first, first + count):
        if other != agent:
            force = force + contact(here, s.position[env, other], reach)
    return force


@wp.func
def landmark_contacts(s: Any, env: int, agent: int, count: int, reach: float) -> wp.vec2:
    """The force on one agent from the first `count` landmarks."""
    here = s.position[env, agent]
    force = wp.vec2(0.0, 0.0)
    for k in range(count):
        force = force + contact(here, s.landmark[env, k], reach)
    return force


@wp.func
def drift(s: Any, env: int, agent: int, max_speed: float):
    """Move one agent by a step and change its velocity by its force; a `max_speed` of 0 is none."""
    velocity = s.velocity[env, agent]
    s.position[env, agent] = s.position[env, agent] + velocity * TIME_STEP
    velocity = velocity * KEPT + s.force[env, agent] * TIME_STEP
    speed = wp.length(velocity)
    if max_speed > 0.0 and speed > max_speed:
        velocity = velocity * (max_speed / speed)
    s.velocity[env, agent] = velocity


# ---------------------------------------------------------------- rewards


@wp.func
def distance(s: Any, env: int, agent: int, landmark: int) -> float:
    """How far an agent is from a landmark."""
    return wp.length(s.position[env, agent] - s.landmark[env, landmark])


@wp.func
def overlap(a: wp.vec2, b: wp.vec2, reach: float) -> bool:
    """Whether two discs overlap whose radii add up to `reach`."""
    return wp.length(a - b) < reach


@wp.func
def bound(place: wp.vec2) -> float:
    """What it costs to be near the edge of the square or outside: 0 up to 0.9, 1 at 1, at most 10; both axes added."""
    cost = float(0.0)
    for k in range(2):
        x = wp.abs(place[k])
        if x >= 1.0:
            cost += wp.min(wp.exp(2.0 * x - 2.0), 10.0)
        elif x >= 0.9:
            cost += (x - 0.9) * 10.0
    return cost


# ---------------------------------------------------------------- observations


@wp.func
def put_vec(obs: Any, env: int, i: int, feature: int, value: wp.vec2) -> int:
    """Write two features; returns the index of the next."""
    wd.put(obs, env, i, feature, value[0])
    wd.put(obs, env, i, feature + 1, value[1])
    return feature + 2


@wp.func
def put_color(obs: Any, env: int, i: int, feature: int, channel: int, high: float, low: float) -> int:
    """Write a colour, three features: `high` in one channel and `low` in the others; returns the index of the next."""
    for k in range(3):
        wd.put(obs, env, i, feature + k, wp.where(k == channel, high, low))
    return feature + 3


@wp.func
def hear(s: Any, obs: Any, env: int, i: int, speaker: int, feature: int) -> int:
    """Write what an agent has said; returns the index of the next feature."""
    for w in range(s.num_words):
        wd.put(obs, env, i, feature + w, s.message[env, speaker, w])
    return feature + s.num_words


@wp.func
def see_landmarks(s: Any, obs: Any, env: int, i: int, agent: int, feature: int) -> int:
    """Write where all landmarks are, as seen from one agent; returns the index of the next feature."""
    here = s.position[env, agent]
    for k in range(s.num_landmarks):
        put_vec(obs, env, i, feature + 2 * k, s.landmark[env, k] - here)
    return feature + 2 * s.num_landmarks


@wp.func
def see_others(s: Any, obs: Any, env: int, i: int, agent: int, feature: int) -> int:
    """Write where all other agents are, as seen from one agent; returns the index of the next feature."""
    here = s.position[env, agent]
    slot = int(feature)
    for other in range(s.num_agents):
        if other != agent:
            put_vec(obs, env, i, slot, s.position[env, other] - here)
            slot += 2
    return slot


# ---------------------------------------------------------------- descriptions


def at_least(least: int, name: str, value: Any) -> int:
    """Return `value` if it is an integer of at least `least`, else raise a ValueError that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return value


def ratio(name: str, value: Any) -> float:
    """Return `value` if it is a number from 0 to 1, else raise a ValueError that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")
    return float(value)


def view(radius: float) -> wd.View:
    """Agents as discs, on the square in which they begin and a little around it."""
    return wd.View(position="position", low=(-1.25, -1.25), high=(1.25, 1.25), radius=radius)
