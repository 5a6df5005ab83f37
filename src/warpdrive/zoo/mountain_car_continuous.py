"""MountainCarContinuous: the car of MountainCar, pushed as strongly as one likes, at a price."""

import warpdrive as wd
from warpdrive.zoo.mountain_car import MountainCarState, arrived, begin, look, mountain, roll

__all__ = ["MountainCarContinuous"]


@wd.per_env
def drive(s: MountainCarState, env: int):
    """Push by the action; its square costs a tenth, and 100 are paid at the goal."""
    push = s.agents.action[env, 0, 0]
    roll(s, env, push)
    s.ended[env] = arrived(s, env)
    reward = -0.1 * push * push
    if s.ended[env]:
        reward += 100.0
    s.agents.reward[env, 0] = reward


class MountainCarContinuous(wd.Env):
    """MountainCarContinuous by the rules of Gymnasium's MountainCarContinuous-v0, after Moore (1990).

    The world has lengths and steps of its own, no metres and seconds. Action: a push from -1, left, to 1, right.
    Observation: position, velocity. Reward is -0.1 times the square of the push, and 100 more in the step that reaches
    the goal, where the episode ends as in MountainCar. The left end of the track stops the car.

    Args:
        force: change of velocity in one step by a push of 1.
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
        force: float = 0.0015,
        gravity: float = 0.0025,
        min_position: float = -1.2,
        max_position: float = 0.6,
        max_speed: float = 0.07,
        goal_position: float = 0.45,
        goal_velocity: float = 0.0,
        episode_length: int = 999,
    ) -> None:
        world = mountain(
            wd.Box(-1.0, 1.0, 1),
            force=force,
            gravity=gravity,
            min_position=min_position,
            max_position=max_position,
            max_speed=max_speed,
            goal_position=goal_position,
            goal_velocity=goal_velocity,
        )
        super().__init__(**world, episode_length=episode_length)
