"""Functions that phases call: writing observations and drawing random numbers."""

from typing import Any

import warp as wp

__all__ = ["put", "random", "stream"]

# Multipliers and start of the hash below (MurmurHash3, Appleby, public domain); START is 2**32 over the golden ratio.
C1, C2, C3 = wp.uint32(0xCC9E2D51), wp.uint32(0x1B873593), wp.uint32(0xE6546B64)
C4, C5, START = wp.uint32(0x85EBCA6B), wp.uint32(0xC2B2AE35), wp.uint32(0x9E3779B9)


@wp.func
def put(obs: Any, env: int, i: int, feature: int, value: float):
    """Write one feature of an observation, in whichever type the observations of this simulator have."""
    obs[env, i, feature] = obs.dtype(value)


@wp.func
def _mixed(hashed: wp.uint32, value: wp.uint32) -> wp.uint32:
    # One round of MurmurHash3, then its finaliser: each input bit reaches each output bit.
    k = value * C1
    k = (k << wp.uint32(15)) | (k >> wp.uint32(17))
    h = hashed ^ (k * C2)
    h = ((h << wp.uint32(13)) | (h >> wp.uint32(19))) * wp.uint32(5) + C3
    h = (h ^ (h >> wp.uint32(16))) * C4
    h = (h ^ (h >> wp.uint32(13))) * C5
    return h ^ (h >> wp.uint32(16))


@wp.func
def stream(seed: int, env: int, agent: int, step: int, use: int) -> wp.uint32:
    """Start of the random stream of one (seed, environment, agent, step, use), for wp.randf and its like."""
    h = _mixed(START, wp.uint32(seed))
    h = _mixed(h, wp.uint32(step))
    h = _mixed(h, wp.uint32(env))
    h = _mixed(h, wp.uint32(agent))
    return _mixed(h, wp.uint32(use))


@wp.func
def random(s: Any, env: int, agent: int) -> wp.uint32:
    """The random stream of one agent (or, with agent 0, of an environment) in this phase of this step.

    Take it once in a phase and draw from it as often as needed: `rng = wd.random(s, env, agent)`, then
    `wp.randf(rng)`. The numbers depend on the seed, the environment, the agent, the step and the phase alone.
    """
    return stream(s.seed[0], s.env_offset + env, agent, s.clock[env], s.use)
