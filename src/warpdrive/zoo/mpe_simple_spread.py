"""Simple Spread of MPE: agents share out among landmarks without running into one another."""

import warp as wp

import warpdrive as wd
from warpdrive.zoo import particles
from warpdrive.zoo.particles import ParticleState, contacts, drift, overlap, put_vec, see_landmarks, see_others, steer

__all__ = ["SimpleSpread", "SimpleSpreadState"]

RADIUS = wp.constant(0.15)
ACCELERATION = wp.constant(5.0)
COVERED = wp.constant(0.1)  # a landmark is covered by an agent nearer than this


class SimpleSpreadState(ParticleState):
    """Agents and as many landmarks."""

    agents: wd.Agents
    nearest: wd.PerAgent[float]  # distance of landmark i from the agent that is nearest to it
    local_ratio: wd.Param[float]


@wd.per_agent("agents")
def push(s: SimpleSpreadState, env: int, i: int):
    """Add up the forces on one agent."""
    own = steer(s.agents.action, env, i, s.continuous) * ACCELERATION
    s.force[env, i] = own + contacts(s, env, i, 0, s.agents.count, 2.0 * RADIUS)


@wd.per_agent("agents")
def move(s: SimpleSpreadState, env: int, i: int):
    """Move one agent."""
    drift(s, env, i, 0.0)


@wd.per_agent("agents")
def measure(s: SimpleSpreadState, env: int, i: int):
    """Find how near the nearest agent is to landmark i: there are as many landmarks as agents."""
    least = float(wp.inf)
    for other in range(s.agents.count):
        least = wp.min(least, wp.length(s.position[env, other] - s.landmark[env, i]))
    s.nearest[env, i] = least


@wd.per_agent("agents")
def judge(s: SimpleSpreadState, env: int, i: int):
    """Reward one agent for what all cover, and for not running into others."""
    together = float(0.0)
    for k in range(s.num_landmarks):
        together -= s.nearest[env, k]
    alone = float(0.0)
    for other in range(s.agents.count):
        if other != i and overlap(s.position[env, i], s.position[env, other], 2.0 * RADIUS):
            alone -= 1.0
    s.agents.reward[env, i] = together * (1.0 - s.local_ratio) + alone * s.local_ratio


@wd.per_env
def end(s: SimpleSpreadState, env: int):
    """End the episode when all landmarks are covered; in its last step it is cut all the same, as in mpe2."""
    covered = int(0)
    for k in range(s.num_landmarks):
        if s.nearest[env, k] < COVERED:
            covered += 1
    s.ended[env] = covered == s.num_landmarks and s.step[env] != s.episode_length


@wd.per_agent("agents")
def look(s: SimpleSpreadState, env: int, i: int):
    """Write what one agent observes."""
    f = put_vec(s.agents.obs, env, i, 0, s.velocity[env, i])
    f = put_vec(s.agents.obs, env, i, f, s.position[env, i])
    f = see_landmarks(s, s.agents.obs, env, i, i, f)
    f = see_others(s, s.agents.obs, env, i, i, f)
    for k in range(2 * (s.agents.count - 1)):
        wd.put(s.agents.obs, env, i, f + k, 0.0)


class SimpleSpread(wd.Env):
    """Simple Spread of MPE (mpe2's simple_spread_v3): agents share out among as many landmarks.

    Agents are discs of radius 0.15 that push one another and are accelerated by 5; landmarks are in nobody's way. All
    begin at random places of the square from -1 to 1, at rest. Everybody is rewarded with minus the sum, over all
    landmarks, of the distance of the nearest agent (weight 1 - local_ratio), and with -1 for each agent that it
    overlaps (weight local_ratio).

    An agent's action is one of nothing, -x, +x, -y, +y; with `continuous` five numbers from 0 to 1, of which the
    second is taken from the third and the fourth from the fifth. It observes its velocity and place, the landmarks and
    the other agents relative to itself, and two zeros for each other agent, which could speak in other scenarios:
    6 * num_agents numbers, 18 by default.

    Args:
        num_agents: number of agents, and of landmarks (N in mpe2).
        local_ratio: weight of what an agent does alone, from 0 to 1.
        episode_length: steps after which the episode is cut (max_cycles in mpe2).
        continuous: whether actions are numbers and not choices (continuous_actions in mpe2).
        terminate_on_success: whether the episode ends when to every landmark some agent is nearer than 0.1.

    Raises:
        ValueError: an argument out of its range.
    """

    state = SimpleSpreadState
    reset = (particles.place, particles.place_landmarks)
    step = (push, move, measure, judge)
    observe = (look,)

    def __init__(
        self,
        *,
        num_agents: int = 3,
        local_ratio: float = 0.5,
        episode_length: int = 25,
        continuous: bool = False,
        terminate_on_success: bool = False,
    ) -> None:
        particles.at_least(1, "num_agents", num_agents)
        if terminate_on_success:
            self.step = (*self.step, end)
        group = wd.Group(num_agents, obs=6 * num_agents, action=particles.move_space(continuous), float32=True)
        super().__init__(
            groups={"agents": group},
            params={
                "num_landmarks": num_agents,
                "span": 1.0,
                "continuous": continuous,
                "local_ratio": particles.ratio("local_ratio", local_ratio),
            },
            sizes={"landmarks": num_agents},
            episode_length=episode_length,
        )

    def view(self) -> wd.View:
        """Agents as discs."""
        return particles.view(0.15)
