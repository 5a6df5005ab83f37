"""Simple Reference of MPE: each of two agents knows where the other is to go, and tells it."""

import warp as wp

import warpdrive as wd
from warpdrive.zoo import particles
from warpdrive.zoo.particles import (
    SpeechState,
    distance,
    drift,
    hear,
    put_color,
    put_vec,
    see_landmarks,
    speak,
    steer,
)

__all__ = ["SimpleReference", "SimpleReferenceState"]

ACCELERATION = wp.constant(5.0)


class SimpleReferenceState(SpeechState):
    """Two agents and three landmarks."""

    agents: wd.Agents
    goal: wd.PerAgent[int]  # the landmark that the other agent is to reach
    local_ratio: wd.Param[float]


@wd.per_agent
def choose_goal(s: SimpleReferenceState, env: int, agent: int):
    """Make one landmark the goal of the other agent."""
    s.goal[env, agent] = wp.randi(wd.random(s, env, agent), 0, s.num_landmarks)


@wd.per_agent("agents")
def act(s: SimpleReferenceState, env: int, i: int):
    """Let one agent move and speak."""
    speak(s, s.agents.action, env, i, i, True, s.continuous)
    s.force[env, i] = steer(s.agents.action, env, i, s.continuous) * ACCELERATION
    drift(s, env, i, 0.0)


@wd.per_agent("agents")
def judge(s: SimpleReferenceState, env: int, i: int):
    """Reward one agent for the other's being near its goal, and both for the mean of that."""
    own = -distance(s, env, 1 - i, s.goal[env, i])
    mean = 0.5 * (own - distance(s, env, i, s.goal[env, 1 - i]))
    s.agents.reward[env, i] = mean * (1.0 - s.local_ratio) + own * s.local_ratio


@wd.per_agent("agents")
def look(s: SimpleReferenceState, env: int, i: int):
    """Write what one agent observes."""
    f = put_vec(s.agents.obs, env, i, 0, s.velocity[env, i])
    f = see_landmarks(s, s.agents.obs, env, i, i, f)
    f = put_color(s.agents.obs, env, i, f, s.goal[env, i], 0.75, 0.25)
    hear(s, s.agents.obs, env, i, 1 - i, f)


class SimpleReference(wd.Env):
    """Simple Reference of MPE (mpe2's simple_reference_v3): two agents tell each other where to go.

    Both are accelerated by 5, say one of ten words in every step, and are in nobody's way. Each knows which of three
    landmarks is the goal of the other. All begin at random places of the square from -1 to 1, at rest. What an agent
    achieves is minus the distance of the other from its goal; it gets that with weight local_ratio, and the mean of
    what both achieve with weight 1 - local_ratio.

    An action is a move and a word, numbered move + 5 word, with moves nothing, -x, +x, -y, +y; with `continuous`
    fifteen numbers from 0 to 1: five, of which the second is taken from the third and the fourth from the fifth, and
    one for each word. An agent observes its velocity, the landmarks relative to itself, the colour of the other's goal
    (0.75 in the channel of its number, else 0.25), and what the other has said.

    Args:
        local_ratio: weight of what an agent achieves itself, from 0 to 1.
        episode_length: steps after which the episode is cut (max_cycles in mpe2).
        continuous: whether actions are numbers and not choices (continuous_actions in mpe2).

    Raises:
        ValueError: an argument out of its range.
    """

    state = SimpleReferenceState
    reset = (particles.place, particles.place_landmarks, particles.silence, choose_goal)
    step = (act, judge)
    observe = (look,)

    def __init__(self, *, local_ratio: float = 0.5, episode_length: int = 25, continuous: bool = False) -> None:
        action = particles.speech_space(10, True, continuous)
        super().__init__(
            groups={"agents": wd.Group(2, obs=21, action=action, float32=True)},
            params={
                "num_landmarks": 3,
                "span": 1.0,
                "continuous": continuous,
                "num_words": 10,
                "local_ratio": particles.ratio("local_ratio", local_ratio),
            },
            sizes={"landmarks": 3, "words": 10},
            episode_length=episode_length,
        )

    def view(self) -> wd.View:
        """Agents as discs."""
        return particles.view(0.05)
