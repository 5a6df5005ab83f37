"""Acrobot: two links hang from a bar, and a motor between them swings the free end up."""

import math
from typing import Any

import warp as wp

import warpdrive as wd
from warpdrive.env.environment import require_positive
from warpdrive.zoo.angles import wrapped

__all__ = ["Acrobot", "AcrobotState"]

MOST_RATE_1 = wp.constant(4.0 * math.pi)  # greatest turning rates, in radians a second
MOST_RATE_2 = wp.constant(9.0 * math.pi)


class AcrobotState(wd.State):
    """The two links; one agent an environment."""

    agents: wd.Agents
    angle_1: wd.PerEnv[float]  # of the upper link from hanging down, in radians from -pi to pi
    angle_2: wd.PerEnv[float]  # of the lower link from the direction of the upper one
    rate_1: wd.PerEnv[float]  # radians a second
    rate_2: wd.PerEnv[float]

    gravity: wd.Param[float]
    mass_1: wd.Param[float]
    mass_2: wd.Param[float]
    length_1: wd.Param[float]
    centre_1: wd.Param[float]
    centre_2: wd.Param[float]
    inertia: wd.Param[float]
    torque: wd.Param[float]
    seconds: wd.Param[float]


@wd.per_env
def begin(s: AcrobotState, env: int):
    """Hanging nearly still: all four numbers uniform between -0.1 and 0.1."""
    rng = wd.random(s, env, 0)
    s.angle_1[env] = wp.randf(rng, -0.1, 0.1)
    s.angle_2[env] = wp.randf(rng, -0.1, 0.1)
    s.rate_1[env] = wp.randf(rng, -0.1, 0.1)
    s.rate_2[env] = wp.randf(rng, -0.1, 0.1)


@wp.func
def change(s: Any, y: wp.vec4, torque: float):
    """Rate of change of (angle_1, angle_2, rate_1, rate_2) by Sutton and Barto 1998, section 11.3.

    d_1, d_2, phi_1 and phi_2 are the terms of their equations of motion.
    """
    reach = s.mass_2 * s.length_1 * s.centre_2
    own = s.mass_2 * s.centre_2 * s.centre_2 + s.inertia
    cosine = wp.cos(y[1])
    bend = reach * wp.sin(y[1])
    d_1 = (
        s.mass_1 * s.centre_1 * s.centre_1 + s.mass_2 * s.length_1 * s.length_1 + s.inertia + own + 2.0 * reach * cosine
    )
    d_2 = own + reach * cosine
    phi_2 = s.mass_2 * s.centre_2 * s.gravity * wp.sin(y[0] + y[1])
    weight = (s.mass_1 * s.centre_1 + s.mass_2 * s.length_1) * s.gravity * wp.sin(y[0])
    phi_1 = weight + phi_2 - bend * y[3] * (y[3] + 2.0 * y[2])
    turn_2 = (torque + d_2 / d_1 * phi_1 - bend * y[2] * y[2] - phi_2) / (own - d_2 * d_2 / d_1)
    turn_1 = -(d_2 * turn_2 + phi_1) / d_1
    return wp.vec4(y[2], y[3], turn_1, turn_2)


@wd.per_env
def swing(s: AcrobotState, env: int):
    """One step of the classical Runge-Kutta method of fourth order; each costs 1 until the free end is high enough."""
    torque = float(s.agents.action[env, 0, 0] - 1) * s.torque
    y = wp.vec4(s.angle_1[env], s.angle_2[env], s.rate_1[env], s.rate_2[env])
    half = 0.5 * s.seconds
    k_1 = change(s, y, torque)
    k_2 = change(s, y + half * k_1, torque)
    k_3 = change(s, y + half * k_2, torque)
    k_4 = change(s, y + s.seconds * k_3, torque)
    y = y + s.seconds / 6.0 * (k_1 + 2.0 * k_2 + 2.0 * k_3 + k_4)
    s.angle_1[env] = wrapped(y[0])
    s.angle_2[env] = wrapped(y[1])
    s.rate_1[env] = wp.clamp(y[2], -MOST_RATE_1, MOST_RATE_1)
    s.rate_2[env] = wp.clamp(y[3], -MOST_RATE_2, MOST_RATE_2)
    s.ended[env] = -wp.cos(y[0]) - wp.cos(y[0] + y[1]) > 1.0
    s.agents.reward[env, 0] = -1.0
    if s.ended[env]:
        s.agents.reward[env, 0] = 0.0


@wd.per_env
def look(s: AcrobotState, env: int):
    """Cosine and sine of both angles, and the turning rates."""
    wd.put(s.agents.obs, env, 0, 0, wp.cos(s.angle_1[env]))
    wd.put(s.agents.obs, env, 0, 1, wp.sin(s.angle_1[env]))
    wd.put(s.agents.obs, env, 0, 2, wp.cos(s.angle_2[env]))
    wd.put(s.agents.obs, env, 0, 3, wp.sin(s.angle_2[env]))
    wd.put(s.agents.obs, env, 0, 4, s.rate_1[env])
    wd.put(s.agents.obs, env, 0, 5, s.rate_2[env])


class Acrobot(wd.Env):
    """Acrobot by the rules of Gymnasium's Acrobot-v1, after Sutton (1996), without its optional noise.

    Action: 0, 1 and 2 are a torque of -torque, 0 and torque [N m] between the links. Observation: cosine and sine of
    the angle of the upper link from hanging down and of the lower from the upper, turning rates of both [rad/s], at
    most 4 pi and 9 pi. Reward is -1 a step and 0 in the one that reaches the goal, where the episode ends:
    -cos(angle_1) - cos(angle_1 + angle_2) > 1, with links of one metre the free end is a metre above the bar.

    Args:
        gravity: metres a second squared.
        mass_1: of the upper link, in kilograms.
        mass_2: of the lower link.
        length_1: of the upper link, in metres; that of the lower one plays no part.
        centre_1: of mass of the upper link, in metres from the bar.
        centre_2: of mass of the lower link, in metres from the joint.
        inertia: of either link about its centre of mass, in kilogram metres squared.
        torque: newton metres.
        seconds: of one step.
        episode_length: steps after which it is truncated.

    Raises:
        ValueError: a mass, length, inertia or time that is not positive.
    """

    state = AcrobotState
    reset = (begin,)
    step = (swing,)
    observe = (look,)

    def __init__(
        self,
        *,
        gravity: float = 9.8,
        mass_1: float = 1.0,
        mass_2: float = 1.0,
        length_1: float = 1.0,
        centre_1: float = 0.5,
        centre_2: float = 0.5,
        inertia: float = 1.0,
        torque: float = 1.0,
        seconds: float = 0.2,
        episode_length: int = 500,
    ) -> None:
        positive = {"mass_1": mass_1, "mass_2": mass_2, "length_1": length_1, "centre_1": centre_1}
        positive |= {"centre_2": centre_2, "inertia": inertia, "seconds": seconds}
        require_positive(**positive)
        bound = float(MOST_RATE_2)
        action = wd.Discrete(3)
        super().__init__(
            groups={"agents": wd.Group(1, obs=6, action=action, float32=True, obs_low=-bound, obs_high=bound)},
            params={"gravity": gravity, "torque": torque, **positive},
            episode_length=episode_length,
        )
