"""Random actions: uniform over what an agent may do, for benchmarks, checks and baselines."""

from typing import Any

import warp as wp

from warpdrive.env.functions import stream

__all__ = ["continuous", "discrete"]

USE = 1 << 20  # keeps these streams apart from those of the phases


@wp.func
def discrete(s: Any, group: Any, env: int, i: int):
    """Give one agent of a group a choice for each head, uniform over what its mask allows."""
    rng = stream(s.seed[0], s.env_offset + env, group.first + i, s.clock[env], wp.static(USE))
    masked = group.mask.shape[0] > 0
    start = int(0)
    for head in range(group.heads.shape[0]):
        choices = group.heads[head]
        allowed = int(choices)
        if masked:
            allowed = int(0)
            for choice in range(choices):
                if group.mask[env, i, start + choice] != wp.uint8(0):
                    allowed += 1
        picked = wp.min(int(wp.randf(rng) * float(allowed)), allowed - 1)
        if masked:
            left = int(picked)
            picked = int(0)
            for choice in range(choices):
                if group.mask[env, i, start + choice] != wp.uint8(0):
                    if left == 0:
                        picked = int(choice)
                    left -= 1
        group.action[env, i, head] = wp.max(picked, 0)
        start += choices


@wp.func
def continuous(s: Any, group: Any, env: int, i: int):
    """Give one agent of a group an action uniform between its bounds."""
    rng = stream(s.seed[0], s.env_offset + env, group.first + i, s.clock[env], wp.static(USE))
    for k in range(group.low.shape[0]):
        low = group.low[k]
        high = group.high[k]
        group.action[env, i, k] = wp.min(low + wp.randf(rng) * (high - low), high)
