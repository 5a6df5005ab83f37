"""Functions that phases call: writing observations, drawing random numbers, and counting together."""

from typing import Any

import warp as wp

__all__ = ["atomic_add", "atomic_max", "atomic_min", "put", "random", "stream"]

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


# Of the threads of a warp that meet here with the same environment, one does the atomic operation for all. Integers
# only: their sum, least and greatest are the same in any order, and so the same whatever the schedule.
_TOGETHER = """
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned same = __match_any_sync(__activemask(), env);
    int together = __reduce_{operation}_sync(same, value);
    if ((threadIdx.x & 31) == __ffs(same) - 1) wp::atomic_{operation}(array, env, together);
#else
    wp::atomic_{operation}(array, env, value);
#endif
"""
# A long integer in two halves: the upper one decides, and among those who share it the lower one, without a sign.
_TOGETHER_LONG = """
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned same = __match_any_sync(__activemask(), env);
    int upper = (int)(value >> 32);
    int best = __reduce_{operation}_sync(same, upper);
    unsigned lower = upper == best ? (unsigned)value : {worst};
    lower = __reduce_{operation}_sync(same, lower);
    wp::int64 together = ((wp::int64)best << 32) | (wp::int64)lower;
    if ((threadIdx.x & 31) == __ffs(same) - 1) wp::atomic_{operation}(array, env, together);
#else
    wp::atomic_{operation}(array, env, value);
#endif
"""


@wp.func_native(_TOGETHER.format(operation="add"))
def atomic_add(array: wp.array(dtype=wp.int32), env: int, value: int):  # type: ignore[valid-type]
    """Add `value` to a whole number of the environment, from as many agents at once as there are."""


@wp.func_native(_TOGETHER.format(operation="max"))
def atomic_max(array: wp.array(dtype=wp.int32), env: int, value: int):  # type: ignore[valid-type]
    """Raise a whole number of the environment to `value` where it is less, from many agents at once."""


@wp.func_native(_TOGETHER_LONG.format(operation="max", worst="0u"))  # type: ignore[no-redef]
def atomic_max(array: wp.array(dtype=wp.int64), env: int, value: wp.int64):  # type: ignore[valid-type]  # noqa: F811
    """The same for 64 bits."""


@wp.func_native(_TOGETHER.format(operation="min"))
def atomic_min(array: wp.array(dtype=wp.int32), env: int, value: int):  # type: ignore[valid-type]
    """Lower a whole number of the environment to `value` where it is more, from many agents at once."""


@wp.func_native(_TOGETHER_LONG.format(operation="min", worst="0xffffffffu"))  # type: ignore[no-redef]
def atomic_min(array: wp.array(dtype=wp.int64), env: int, value: wp.int64):  # type: ignore[valid-type]  # noqa: F811
    """The same for 64 bits."""
