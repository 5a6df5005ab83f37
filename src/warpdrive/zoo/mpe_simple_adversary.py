"""Simple Adversary of MPE: agents who know which landmark is the goal keep it from one who does not."""

import warp as wp

import warpdrive as wd
from warpdrive.zoo import particles
from warpdrive.zoo.particles import ParticleState, distance, drift, put_vec, see_landmarks, see_others, steer

__all__ = ["SimpleAdversary", "SimpleAdversaryState"]

ACCELERATION = wp.constant(5.0)


class SimpleAdversaryState(ParticleState):
    """One adversary, good agents, and as many landmarks as these."""

    adversary: wd.Agents
    good: wd.Agents
    goal: wd.PerEnv[int]  # the landmark


@wd.per_env
def choose_goal(s: SimpleAdversaryState, env: int):
    """Make one landmark the goal."""
    s.goal[env] = wp.randi(wd.random(s, env, 0), 0, s.num_landmarks)


@wd.per_agent
def move(s: SimpleAdversaryState, env: int, agent: int):
    """Move one agent; nobody is in anybody's way."""
    if agent == 0:
        s.force[env, agent] = steer(s.adversary.action, env, 0, s.continuous) * ACCELERATION
    else:
        s.force[env, agent] = steer(s.good.action, env, agent - 1, s.continuous) * ACCELERATION
    drift(s, env, agent, 0.0)


@wd.per_agent
def judge(s: SimpleAdversaryState, env: int, agent: int):
    """Reward the adversary for being near the goal, and the others for the nearest of them and its being far."""
    far = distance(s, env, 0, s.goal[env])
    reward = -far
    if agent > 0:
        nearest = float(wp.inf)
        for other in range(1, s.num_agents):
            nearest = wp.min(nearest, distance(s, env, other, s.goal[env]))
        reward = far - nearest
    s.reward[env, agent] = reward


@wd.per_agent("adversary")
def look_adversary(s: SimpleAdversaryState, env: int, i: int):
    """Write what the adversary observes: not which landmark is the goal."""
    f = see_landmarks(s, s.adversary.obs, env, i, 0, 0)
    see_others(s, s.adversary.obs, env, i, 0, f)


@wd.per_agent("good")
def look_good(s: SimpleAdversaryState, env: int, i: int):
    """Write what one good agent observes."""
    agent = 1 + i
    f = put_vec(s.good.obs, env, i, 0, s.landmark[env, s.goal[env]] - s.position[env, agent])
    f = see_landmarks(s, s.good.obs, env, i, agent, f)
    see_others(s, s.good.obs, env, i, agent, f)


class SimpleAdversary(wd.Env):
    """Simple Adversary of MPE (mpe2's simple_adversary_v3): good agents hide from an adversary which landmark counts.

    Agents are accelerated by 5 and nobody is in anybody's way. One of the landmarks is the goal. All begin at random
    places of the square from -1 to 1, at rest. In every step the adversary gets minus its distance from the goal; each
    good agent gets that distance, less the distance of the good agent that is nearest to the goal.

    An action is one of nothing, -x, +x, -y, +y; with `continuous` five numbers from 0 to 1, of which the second is
    taken from the third and the fourth from the fifth. An agent observes all landmarks and then all other agents
    relative to itself; good agents before them the goal.

    Args:
        num_good: number of good agents, and of landmarks (N in mpe2).
        episode_length: steps after which the episode is cut (max_cycles in mpe2).
        continuous: whether actions are numbers and not choices (continuous_actions in mpe2).

    Raises:
        ValueError: an argument out of its range.
    """

    state = SimpleAdversaryState
    reset = (particles.place, particles.place_landmarks, choose_goal)
    step = (move, judge)
    observe = (look_adversary, look_good)

    def __init__(self, *, num_good: int = 2, episode_length: int = 25, continuous: bool = False) -> None:
        particles.at_least(1, "num_good", num_good)
        action = particles.move_space(continuous)
        super().__init__(
            groups={
                "adversary": wd.Group(1, obs=4 * num_good, action=action, float32=True),
                "good": wd.Group(num_good, obs=4 * num_good + 2, action=action, float32=True),
            },
            params={"num_landmarks": num_good, "span": 1.0, "continuous": continuous},
            sizes={"landmarks": num_good},
            episode_length=episode_length,
        )

    def view(self) -> wd.View:
        """Agents as discs."""
        return particles.view(0.15)
