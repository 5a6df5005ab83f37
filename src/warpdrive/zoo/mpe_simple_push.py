"""Simple Push of MPE: an adversary pushes an agent away from the landmark that it wants to reach."""

import warp as wp

import warpdrive as wd
from warpdrive.zoo import particles
from warpdrive.zoo.particles import (
    ParticleState,
    contacts,
    distance,
    drift,
    put_color,
    put_vec,
    see_landmarks,
    see_others,
    steer,
)

__all__ = ["SimplePush", "SimplePushState"]

RADIUS, ACCELERATION = wp.constant(0.05), wp.constant(5.0)


class SimplePushState(ParticleState):
    """An adversary, an agent and two landmarks."""

    adversary: wd.Agents
    good: wd.Agents
    goal: wd.PerEnv[int]  # the landmark


@wd.per_env
def choose_goal(s: SimplePushState, env: int):
    """Make one landmark the goal."""
    s.goal[env] = wp.randi(wd.random(s, env, 0), 0, s.num_landmarks)


@wd.per_agent
def push(s: SimplePushState, env: int, agent: int):
    """Add up the forces on one agent."""
    own = wp.vec2(0.0, 0.0)
    if agent == 0:
        own = steer(s.adversary.action, env, 0, s.continuous)
    else:
        own = steer(s.good.action, env, 0, s.continuous)
    s.force[env, agent] = own * ACCELERATION + contacts(s, env, agent, 0, s.num_agents, 2.0 * RADIUS)


@wd.per_agent
def move(s: SimplePushState, env: int, agent: int):
    """Move one agent."""
    drift(s, env, agent, 0.0)


@wd.per_agent
def judge(s: SimplePushState, env: int, agent: int):
    """Reward the agent for being near the goal, the adversary for being nearer."""
    away = distance(s, env, 1, s.goal[env])
    reward = -away
    if agent == 0:
        reward = away - distance(s, env, 0, s.goal[env])
    s.reward[env, agent] = reward


@wd.per_agent("adversary")
def look_adversary(s: SimplePushState, env: int, i: int):
    """Write what the adversary observes: not which landmark is the goal."""
    f = put_vec(s.adversary.obs, env, i, 0, s.velocity[env, 0])
    f = see_landmarks(s, s.adversary.obs, env, i, 0, f)
    see_others(s, s.adversary.obs, env, i, 0, f)


@wd.per_agent("good")
def look_good(s: SimplePushState, env: int, i: int):
    """Write what the agent observes."""
    f = put_vec(s.good.obs, env, i, 0, s.velocity[env, 1])
    f = put_vec(s.good.obs, env, i, f, s.landmark[env, s.goal[env]] - s.position[env, 1])
    f = put_color(s.good.obs, env, i, f, s.goal[env] + 1, 0.75, 0.25)
    f = see_landmarks(s, s.good.obs, env, i, 1, f)
    f = put_color(s.good.obs, env, i, f, 1, 0.9, 0.1)
    f = put_color(s.good.obs, env, i, f, 2, 0.9, 0.1)
    see_others(s, s.good.obs, env, i, 1, f)


class SimplePush(wd.Env):
    """Simple Push of MPE (mpe2's simple_push_v3): an adversary keeps an agent from the landmark that is its goal.

    Both are discs of radius 0.05 that push each other and are accelerated by 5. One of two landmarks is the goal. All
    begin at random places of the square from -1 to 1, at rest. In every step the agent gets minus its distance from the
    goal, and the adversary that distance less its own.

    An action is one of nothing, -x, +x, -y, +y; with `continuous` five numbers from 0 to 1, of which the second is
    taken from the third and the fourth from the fifth. The adversary observes its velocity, and both landmarks and the
    agent relative to itself. The agent observes its velocity, the goal relative to itself, its own colour, which tells
    the goal (0.75 in channel goal + 1, else 0.25), both landmarks relative to itself, their colours (0.9 in channel 1
    and 2, else 0.1) and the adversary relative to itself.

    Args:
        episode_length: steps after which the episode is cut (max_cycles in mpe2).
        continuous: whether actions are numbers and not choices (continuous_actions in mpe2).
    """

    state = SimplePushState
    reset = (particles.place, particles.place_landmarks, choose_goal)
    step = (push, move, judge)
    observe = (look_adversary, look_good)

    def __init__(self, *, episode_length: int = 25, continuous: bool = False) -> None:
        action = particles.move_space(continuous)
        super().__init__(
            groups={
                "adversary": wd.Group(1, obs=8, action=action, float32=True),
                "good": wd.Group(1, obs=19, action=action, float32=True),
            },
            params={"num_landmarks": 2, "span": 1.0, "continuous": continuous},
            sizes={"landmarks": 2},
            episode_length=episode_length,
        )

    def view(self) -> wd.View:
        """Agents as discs."""
        return particles.view(0.05)
