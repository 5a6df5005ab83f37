"""Simple Speaker Listener of MPE: one knows where to go and cannot move, the other moves and does not know."""

import warp as wp

import warpdrive as wd
from warpdrive.zoo import particles
from warpdrive.zoo.particles import SpeechState, drift, hear, put_color, put_vec, see_landmarks, speak, steer

__all__ = ["SimpleSpeakerListener", "SimpleSpeakerListenerState"]

ACCELERATION = wp.constant(5.0)
SPEAKER, LISTENER = wp.constant(0), wp.constant(1)


class SimpleSpeakerListenerState(SpeechState):
    """A speaker, a listener and three landmarks."""

    speaker: wd.Agents
    listener: wd.Agents
    goal: wd.PerEnv[int]  # the landmark that the listener is to reach


@wd.per_env
def choose_goal(s: SimpleSpeakerListenerState, env: int):
    """Make one landmark the goal."""
    s.goal[env] = wp.randi(wd.random(s, env, 0), 0, s.num_landmarks)


@wd.per_agent
def act(s: SimpleSpeakerListenerState, env: int, agent: int):
    """Let the speaker say its word and the listener move."""
    if agent == SPEAKER:
        speak(s, s.speaker.action, env, 0, SPEAKER, False, s.continuous)
    else:
        s.force[env, agent] = steer(s.listener.action, env, 0, s.continuous) * ACCELERATION
        drift(s, env, agent, 0.0)


@wd.per_agent
def judge(s: SimpleSpeakerListenerState, env: int, agent: int):
    """Reward both for the listener's being near the goal."""
    way = s.position[env, LISTENER] - s.landmark[env, s.goal[env]]
    s.reward[env, agent] = -wp.dot(way, way)


@wd.per_agent("speaker")
def look_speaker(s: SimpleSpeakerListenerState, env: int, i: int):
    """Write what the speaker observes: the colour of the goal."""
    put_color(s.speaker.obs, env, i, 0, s.goal[env], 0.65, 0.15)


@wd.per_agent("listener")
def look_listener(s: SimpleSpeakerListenerState, env: int, i: int):
    """Write what the listener observes."""
    f = put_vec(s.listener.obs, env, i, 0, s.velocity[env, LISTENER])
    f = see_landmarks(s, s.listener.obs, env, i, LISTENER, f)
    hear(s, s.listener.obs, env, i, SPEAKER, f)


class SimpleSpeakerListener(wd.Env):
    """Simple Speaker Listener of MPE (mpe2's simple_speaker_listener_v4): a speaker leads a listener to a landmark.

    The speaker stays where it is and says one of three words in every step; the listener, accelerated by 5, hears it.
    One of three landmarks is the goal. All begin at random places of the square from -1 to 1, at rest. In every step
    both get minus the square of the listener's distance from the goal.

    The speaker's action is a word, and the listener's one of nothing, -x, +x, -y, +y; with `continuous` three numbers
    from 0 to 1, and five, of which the second is taken from the third and the fourth from the fifth. The speaker
    observes the colour of the goal (0.65 in the channel of its number, else 0.15); the listener its velocity, the
    landmarks relative to itself, and what the speaker has said.

    Args:
        episode_length: steps after which the episode is cut (max_cycles in mpe2).
        continuous: whether actions are numbers and not choices (continuous_actions in mpe2).
    """

    state = SimpleSpeakerListenerState
    reset = (particles.place, particles.place_landmarks, particles.silence, choose_goal)
    step = (act, judge)
    observe = (look_speaker, look_listener)

    def __init__(self, *, episode_length: int = 25, continuous: bool = False) -> None:
        say = particles.speech_space(3, False, continuous)
        super().__init__(
            groups={
                "speaker": wd.Group(1, obs=3, action=say, float32=True),
                "listener": wd.Group(1, obs=11, action=particles.move_space(continuous), float32=True),
            },
            params={"num_landmarks": 3, "span": 1.0, "continuous": continuous, "num_words": 3},
            sizes={"landmarks": 3, "words": 3},
            episode_length=episode_length,
        )

    def view(self) -> wd.View:
        """Agents as discs."""
        return particles.view(0.075)
