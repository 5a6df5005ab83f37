"""Simple Crypto of MPE: Alice sends Bob one of two messages by a key that both have, and Eve listens."""

from typing import Any

import warp as wp

import warpdrive as wd
from warpdrive.zoo import particles
from warpdrive.zoo.particles import hear, speak

__all__ = ["SimpleCrypto", "SimpleCryptoState"]

EVE, BOB, ALICE = wp.constant(0), wp.constant(1), wp.constant(2)
MESSAGES = wp.constant(2)  # that there are


class SimpleCryptoState(wd.State):
    """Three agents who speak and do not move."""

    eve: wd.Agents
    bob: wd.Agents
    alice: wd.Agents
    message: wd.PerAgent[float, "words"]  # type: ignore[name-defined]  # noqa: F821 - said in this step
    secret: wd.PerEnv[int]  # what Alice is to tell Bob
    key: wd.PerEnv[int]

    num_words: wd.Param[int]
    continuous: wd.Param[bool]  # whether actions are numbers and not choices


@wd.per_env
def draw(s: SimpleCryptoState, env: int):
    """Draw the secret and the key."""
    rng = wd.random(s, env, 0)
    s.secret[env] = wp.randi(rng, 0, MESSAGES)
    s.key[env] = wp.randi(rng, 0, MESSAGES)


@wd.per_agent
def talk(s: SimpleCryptoState, env: int, agent: int):
    """Let everybody speak."""
    if agent == EVE:
        speak(s, s.eve.action, env, 0, EVE, False, s.continuous)
    elif agent == BOB:
        speak(s, s.bob.action, env, 0, BOB, False, s.continuous)
    else:
        speak(s, s.alice.action, env, 0, ALICE, False, s.continuous)


@wp.func
def error(s: Any, env: int, agent: int) -> float:
    """The squared distance of what an agent has said from the secret; 0 if it has said nothing."""
    total = float(0.0)
    said = bool(False)
    for word in range(s.num_words):
        value = s.message[env, agent, word]
        wanted = wp.where(word == s.secret[env], 1.0, 0.0)
        said = said or value != 0.0
        total += (value - wanted) * (value - wanted)
    return wp.where(said, total, 0.0)


@wd.per_agent
def judge(s: SimpleCryptoState, env: int, agent: int):
    """Eve is to say the secret; Alice and Bob are rewarded when Bob says it and Eve does not."""
    reward = -error(s, env, EVE)
    if agent != EVE:
        reward = error(s, env, EVE) - error(s, env, BOB)
    s.reward[env, agent] = reward


@wp.func
def put_code(s: Any, obs: Any, env: int, i: int, feature: int, code: int) -> int:
    """Write a secret or a key: 1 in its place; returns the index of the next feature."""
    for word in range(s.num_words):
        wd.put(obs, env, i, feature + word, wp.where(word == code, 1.0, 0.0))
    return feature + s.num_words


@wd.per_agent("eve")
def look_eve(s: SimpleCryptoState, env: int, i: int):
    """Write what Eve observes: what Alice has said."""
    hear(s, s.eve.obs, env, i, ALICE, 0)


@wd.per_agent("bob")
def look_bob(s: SimpleCryptoState, env: int, i: int):
    """Write what Bob observes: the key, and what Alice has said."""
    f = put_code(s, s.bob.obs, env, i, 0, s.key[env])
    hear(s, s.bob.obs, env, i, ALICE, f)


@wd.per_agent("alice")
def look_alice(s: SimpleCryptoState, env: int, i: int):
    """Write what Alice observes: the secret and the key."""
    f = put_code(s, s.alice.obs, env, i, 0, s.secret[env])
    put_code(s, s.alice.obs, env, i, f, s.key[env])


class SimpleCrypto(wd.Env):
    """Simple Crypto of MPE (mpe2's simple_crypto_v3): Alice tells Bob a secret that Eve is not to find out.

    The secret and the key are one of two each, drawn when an episode begins. In every step all three say one of four
    words, of which the first two stand for the secrets. Eve gets minus her error, and Alice and Bob get Eve's error
    less Bob's, where an error is the squared distance of what was said from the secret, as vectors of four numbers,
    and 0 for who has said nothing.

    An action is a word; with `continuous` four numbers from 0 to 1. Alice observes the secret and the key, Bob the key
    and what Alice has said, Eve what Alice has said; each is four numbers.

    Args:
        episode_length: steps after which the episode is cut (max_cycles in mpe2).
        continuous: whether actions are numbers and not choices (continuous_actions in mpe2).
    """

    state = SimpleCryptoState
    reset = (particles.silence, draw)
    step = (talk, judge)
    observe = (look_eve, look_bob, look_alice)

    def __init__(self, *, episode_length: int = 25, continuous: bool = False) -> None:
        action = particles.speech_space(4, False, continuous)
        super().__init__(
            groups={
                "eve": wd.Group(1, obs=4, action=action, float32=True),
                "bob": wd.Group(1, obs=8, action=action, float32=True),
                "alice": wd.Group(1, obs=8, action=action, float32=True),
            },
            params={"num_words": 4, "continuous": continuous},
            sizes={"words": 4},
            episode_length=episode_length,
        )
