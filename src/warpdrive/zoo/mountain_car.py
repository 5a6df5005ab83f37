"""MountainCar: a car too weak for the hill swings back and forth in the valley until it gets up."""

from typing import Any

import warp as wp

import warpdrive as wd

__all__ = ["MountainCar", "MountainCarState", "arrived", "begin", "look", "mountain", "roll"]


class MountainCarState(wd.State):
    """The car, in lengths of its world and steps of time; one agent an environment."""

    agents: wd.Agents
    position: wd.PerEnv[float]
    velocity: wd.PerEnv[float]  # a step

    force: wd.Param[float]
    gravity: wd.Param[float]
    min_position: wd.Param[float]
    max_position: wd.Param[float]
    max_speed: wd.Param[float]
    goal_position: wd.Param[float]
    goal_velocity: wd.Param[float]


@wd.per_env
def begin(s: MountainCarState, env: int):
    """At rest, uniform between -0.6 and -0.4: near the lowest place of the valley, -pi / 6."""
    s.position[env] = wp.randf(wd.random(s, env, 0), -0.6, -0.4)
    s.velocity[env] = 0.0


@wp.func
def roll(s: Any, env: int, push: float):
    """One step of the car under `push`, a force from -1 to 1, on a hill of height sin 3x; the left end stops it."""
    velocity = s.velocity[env] + push * s.force - s.gravity * wp.cos(3.0 * s.position[env])
    velocity = wp.clamp(velocity, -s.max_speed, s.max_speed)
    position = wp.clamp(s.position[env] + velocity, s.min_position, s.max_position)
    if position == s.min_position and velocity < 0.0:
        velocity = 0.0
    s.position[env] = position
    s.velocity[env] = velocity


@wp.func
def arrived(s: Any, env: int):
    """Whether the car is at the goal or beyond, and fast enough."""
    return s.position[env] >= s.goal_position and s.velocity[env] >= s.goal_velocity


@wd.per_env
def drive(s: MountainCarState, env: int):
    """Push left, not at all or right; each step costs 1."""
    roll(s, env, float(s.agents.action[env, 0, 0] - 1))
    s.agents.reward[env, 0] = -1.0
    s.ended[env] = arrived(s, env)


@wd.per_env
def look(s: MountainCarState, env: int):
    """Position and velocity, as they are."""
    wd.put(s.agents.obs, env, 0, 0, s.position[env])
    wd.put(s.agents.obs, env, 0, 1, s.velocity[env])


def mountain(
    action: wd.Discrete | wd.Box,
    *,
    force: float,
    gravity: float,
    min_position: float,
    max_position: float,
    max_speed: float,
    goal_position: float,
    goal_velocity: float,
) -> dict[str, Any]:
    """Groups and parameters of either car, after a check of the numbers.

    Raises:
        ValueError: a place or speed that does not fit.
    """
    if not min_position < -0.6:
        raise ValueError(f"min_position must be below -0.6, where cars may begin, got {min_position!r}")
    if not max_position > -0.4:
        raise ValueError(f"max_position must be above -0.4, where cars may begin, got {max_position!r}")
    if not max_speed > 0:
        raise ValueError(f"max_speed must be positive, got {max_speed!r}")
    low, high = min(min_position, -max_speed), max(max_position, max_speed)
    return {
        "groups": {"agents": wd.Group(1, obs=2, action=action, float32=True, obs_low=low, obs_high=high)},
        "params": {
            "force": force,
            "gravity": gravity,
            "min_position": min_position,
            "max_position": max_position,
            "max_speed": max_speed,
            "goal_position": goal_position,
            "goal_velocity": goal_velocity,
        },
    }


class MountainCar(wd.Env):
    """MountainCar by the rules of Gymnasium's MountainCar-v0, after Moore (1990) and Sutton (1996).

    The world has lengths and steps of its own, no metres and seconds. Action: 0 pushes left, 1 not at all, 2 right.
    Observation: position, velocity. Reward is -1 a step, also in the last. The episode ends when the car is at the goal
    or beyond and at least as fast as `goal_velocity`. The left end of the track stops the car.

    Args:
        force: change of velocity in one step by a push.
        gravity: change of velocity in one step where the hill is steepest.
        min_position: left end of the track.
        max_position: right end.
        max_speed: greatest speed, in lengths a step.
        goal_position: place of the goal.
        goal_velocity: least velocity there, in lengths a step.
        episode_length: steps after which it is truncated.

    Raises:
        ValueError: a place or speed that does not fit.
    """

    state = MountainCarState
    reset = (begin,)
    step = (drive,)
    observe = (look,)

    def __init__(
        self,
        *,
        force: float = 0.001,
        gravity: float = 0.0025,
        min_position: float = -1.2,
        max_position: float = 0.6,
        max_speed: float = 0.07,
        goal_position: float = 0.5,
        goal_velocity: float = 0.0,
        episode_length: int = 200,
    ) -> None:
        world = mountain(
            wd.Discrete(3),
            force=force,
            gravity=gravity,
            min_position=min_position,
            max_position=max_position,
            max_speed=max_speed,
            goal_position=goal_position,
            goal_velocity=goal_velocity,
        )
        super().__init__(**world, episode_length=episode_length)
