"""CartPole: a pole stands on a cart that is pushed left or right; keep it up."""

import math

import warp as wp

import warpdrive as wd

__all__ = ["CartPole", "CartPoleState"]


class CartPoleState(wd.State):
    """Cart and pole; one agent an environment."""

    agents: wd.Agents
    position: wd.PerEnv[float]  # metres
    velocity: wd.PerEnv[float]  # metres a second
    angle: wd.PerEnv[float]  # radians from upright
    turn_rate: wd.PerEnv[float]  # radians a second

    gravity: wd.Param[float]
    pole_mass: wd.Param[float]
    total_mass: wd.Param[float]
    half_length: wd.Param[float]
    push: wd.Param[float]
    seconds: wd.Param[float]
    most_angle: wd.Param[float]
    most_position: wd.Param[float]


@wd.per_env
def begin(s: CartPoleState, env: int):
    """All four numbers start uniform between -0.05 and 0.05."""
    rng = wd.random(s, env, 0)
    s.position[env] = wp.randf(rng, -0.05, 0.05)
    s.velocity[env] = wp.randf(rng, -0.05, 0.05)
    s.angle[env] = wp.randf(rng, -0.05, 0.05)
    s.turn_rate[env] = wp.randf(rng, -0.05, 0.05)


@wd.per_env
def move(s: CartPoleState, env: int):
    """One Euler step of cart and pole without friction (Barto, Sutton, Anderson 1983; Florian 2007, eq. 23 and 24)."""
    force = -s.push
    if s.agents.action[env, 0, 0] == 1:
        force = s.push
    sine = wp.sin(s.angle[env])
    cosine = wp.cos(s.angle[env])
    moment = s.pole_mass * s.half_length
    turn_rate = s.turn_rate[env]
    pressed = (force + moment * turn_rate * turn_rate * sine) / s.total_mass
    turn = (s.gravity * sine - cosine * pressed) / (
        s.half_length * (4.0 / 3.0 - s.pole_mass * cosine * cosine / s.total_mass)
    )
    acceleration = pressed - moment * turn * cosine / s.total_mass
    s.position[env] = s.position[env] + s.seconds * s.velocity[env]
    s.velocity[env] = s.velocity[env] + s.seconds * acceleration
    s.angle[env] = s.angle[env] + s.seconds * turn_rate
    s.turn_rate[env] = turn_rate + s.seconds * turn
    s.agents.reward[env, 0] = 1.0
    s.ended[env] = wp.abs(s.position[env]) > s.most_position or wp.abs(s.angle[env]) > s.most_angle


@wd.per_env
def observe(s: CartPoleState, env: int):
    """The four numbers, as they are."""
    wd.put(s.agents.obs, env, 0, 0, s.position[env])
    wd.put(s.agents.obs, env, 0, 1, s.velocity[env])
    wd.put(s.agents.obs, env, 0, 2, s.angle[env])
    wd.put(s.agents.obs, env, 0, 3, s.turn_rate[env])


class CartPole(wd.Env):
    """CartPole by the rules of Gymnasium's CartPole-v1.

    Action: 0 pushes left, 1 right. Observation: position [m], velocity [m/s], angle [rad], turning rate [rad/s]. Reward
    is 1 a step, also in the last. The episode ends when the cart leaves the track or the pole leans too far.

    Args:
        gravity: metres a second squared.
        cart_mass: kilograms.
        pole_mass: kilograms.
        half_length: half the length of the pole, in metres.
        push: force of an action, in newtons.
        seconds: of one step.
        most_angle: lean at which the episode ends, in degrees.
        most_position: place at which it ends, in metres from the middle.
        episode_length: steps after which it is truncated.
    """

    state = CartPoleState
    reset = (begin,)
    step = (move,)
    observe = (observe,)

    def __init__(
        self,
        *,
        gravity: float = 9.8,
        cart_mass: float = 1.0,
        pole_mass: float = 0.1,
        half_length: float = 0.5,
        push: float = 10.0,
        seconds: float = 0.02,
        most_angle: float = 12.0,
        most_position: float = 2.4,
        episode_length: int = 500,
    ) -> None:
        for name, value in (("cart_mass", cart_mass), ("pole_mass", pole_mass), ("half_length", half_length)):
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value!r}")
        super().__init__(
            groups={"agents": wd.Group(1, obs=4, action=wd.Discrete(2), float32=True)},
            params={
                "gravity": gravity,
                "pole_mass": pole_mass,
                "total_mass": cart_mass + pole_mass,
                "half_length": half_length,
                "push": push,
                "seconds": seconds,
                "most_angle": math.radians(most_angle),
                "most_position": most_position,
            },
            episode_length=episode_length,
        )
