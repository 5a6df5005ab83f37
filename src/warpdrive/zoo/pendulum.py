"""Pendulum: a rod on a hinge is swung up and balanced by a motor too weak to lift it."""

import warp as wp

import warpdrive as wd
from warpdrive.env.environment import require_positive
from warpdrive.zoo.angles import wrapped

__all__ = ["Pendulum", "PendulumState"]


class PendulumState(wd.State):
    """The rod; one agent an environment."""

    agents: wd.Agents
    angle: wd.PerEnv[float]  # radians from upright, from -pi to pi
    turn_rate: wd.PerEnv[float]  # radians a second

    gravity: wd.Param[float]
    mass: wd.Param[float]
    length: wd.Param[float]
    max_speed: wd.Param[float]
    seconds: wd.Param[float]


@wd.per_env
def begin(s: PendulumState, env: int):
    """Any angle, and a turning rate between -1 and 1, both uniform."""
    rng = wd.random(s, env, 0)
    s.angle[env] = wp.randf(rng, -wp.PI, wp.PI)
    s.turn_rate[env] = wp.randf(rng, -1.0, 1.0)


@wd.per_env
def swing(s: PendulumState, env: int):
    """Pay for angle, turning rate and torque as they are, then one Euler step of a uniform rod hinged at its end."""
    torque = s.agents.action[env, 0, 0]
    angle = s.angle[env]
    turn_rate = s.turn_rate[env]
    s.agents.reward[env, 0] = -(angle * angle + 0.1 * turn_rate * turn_rate + 0.001 * torque * torque)
    lift = 1.5 * s.gravity / s.length * wp.sin(angle)
    turn = lift + 3.0 / (s.mass * s.length * s.length) * torque
    turn_rate = wp.clamp(turn_rate + turn * s.seconds, -s.max_speed, s.max_speed)
    s.turn_rate[env] = turn_rate
    s.angle[env] = wrapped(angle + turn_rate * s.seconds)


@wd.per_env
def look(s: PendulumState, env: int):
    """Where the free end is, and the turning rate."""
    wd.put(s.agents.obs, env, 0, 0, wp.cos(s.angle[env]))
    wd.put(s.agents.obs, env, 0, 1, wp.sin(s.angle[env]))
    wd.put(s.agents.obs, env, 0, 2, s.turn_rate[env])


class Pendulum(wd.Env):
    """Pendulum by the rules of Gymnasium's Pendulum-v1.

    Action: torque from -max_torque to max_torque [N m]. Observation: cosine and sine of the angle from upright, turning
    rate [rad/s]. Reward is -(angle^2 + 0.1 rate^2 + 0.001 torque^2) with the angle from -pi to pi and both as they were
    when the action was chosen: at most 0, at least -16.3 by default. The episode never ends by the rules.

    Args:
        gravity: metres a second squared.
        mass: of the rod, in kilograms.
        length: of the rod, in metres.
        max_torque: newton metres.
        max_speed: greatest turning rate, in radians a second.
        seconds: of one step.
        episode_length: steps after which it is truncated.

    Raises:
        ValueError: a mass, length, torque, speed or time that is not positive.
    """

    state = PendulumState
    reset = (begin,)
    step = (swing,)
    observe = (look,)

    def __init__(
        self,
        *,
        gravity: float = 10.0,
        mass: float = 1.0,
        length: float = 1.0,
        max_torque: float = 2.0,
        max_speed: float = 8.0,
        seconds: float = 0.05,
        episode_length: int = 200,
    ) -> None:
        positive = {"mass": mass, "length": length, "max_speed": max_speed, "seconds": seconds}
        require_positive(**positive, max_torque=max_torque)
        bound = max(1.0, max_speed)
        action = wd.Box(-max_torque, max_torque, 1)
        super().__init__(
            groups={"agents": wd.Group(1, obs=3, action=action, float32=True, obs_low=-bound, obs_high=bound)},
            params={"gravity": gravity, **positive},
            episode_length=episode_length,
        )
