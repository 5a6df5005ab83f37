"""Random actions: uniform over what an agent may do, for benchmarks, checks and baselines."""

from typing import Any

import torch
import warp as wp

from warpdrive.env.functions import stream
from warpdrive.env.spaces import Box
from warpdrive.sim.launcher import device_stream
from warpdrive.sim.store import Store, warp_array, warp_device

__all__ = ["RandomActions"]

USE = 1 << 20  # keeps these streams apart from those of the phases


@wp.kernel(enable_backward=False, module_options={"fuse_fp": False}, module="unique")
def _discrete(
    seed: wp.array(dtype=wp.int32),
    clock: wp.array(dtype=wp.int32),
    env_offset: int,
    agent_offset: int,
    heads: wp.array(dtype=wp.int32),
    mask: wp.array3d(dtype=wp.uint8),
    action_out: wp.array3d(dtype=wp.int32),
):
    env, i = wp.tid()
    rng = stream(seed[0], env_offset + env, agent_offset + i, clock[env], wp.static(USE))
    start = int(0)
    for head in range(heads.shape[0]):
        allowed = heads[head]
        if mask.shape[0] > 0:
            allowed = int(0)
            for choice in range(heads[head]):
                if mask[env, i, start + choice] != wp.uint8(0):
                    allowed += 1
        picked = wp.min(int(wp.randf(rng) * float(allowed)), allowed - 1)
        if mask.shape[0] > 0:
            left = picked
            picked = int(0)
            for choice in range(heads[head]):
                if mask[env, i, start + choice] != wp.uint8(0):
                    if left == 0:
                        picked = choice
                    left -= 1
        action_out[env, i, head] = wp.max(picked, 0)
        start += heads[head]


@wp.kernel(enable_backward=False, module_options={"fuse_fp": False}, module="unique")
def _continuous(
    seed: wp.array(dtype=wp.int32),
    clock: wp.array(dtype=wp.int32),
    env_offset: int,
    agent_offset: int,
    low: wp.array(dtype=wp.float32),
    high: wp.array(dtype=wp.float32),
    action_out: wp.array3d(dtype=wp.float32),
):
    env, i = wp.tid()
    rng = stream(seed[0], env_offset + env, agent_offset + i, clock[env], wp.static(USE))
    for k in range(low.shape[0]):
        action_out[env, i, k] = wp.min(low[k] + wp.randf(rng) * (high[k] - low[k]), high[k])


class RandomActions:
    """Fills the actions of one group, uniformly over its space and within its mask.

    Args:
        store: the simulation's arrays.
        group: name of the group.
        mask: the group's mask (E, n, A), or None.
        env_offset: index of the first environment among those of all processes.
    """

    def __init__(self, store: Store, group: str, mask: torch.Tensor | None, env_offset: int = 0) -> None:
        self.device = store.device
        space = store.env.groups[group].action
        device = warp_device(store.device)
        seed, clock = (warp_array(store.fields[name], wp.int32) for name in ("seed", "clock"))
        inputs: list[Any] = [seed, clock, env_offset, store.env.first_agent[group]]
        if isinstance(space, Box):
            kernel = _continuous
            inputs += [wp.array(bound, dtype=wp.float32, device=device) for bound in (space.low, space.high)]
            action = warp_array(store.action[group], wp.float32)
        else:
            kernel = _discrete
            allowed = None if mask is None else warp_array(mask, wp.uint8)
            inputs += [wp.array(space.heads, dtype=wp.int32, device=device), allowed]
            action = warp_array(store.action[group], wp.int32)
        shape = tuple(store.action[group].shape[:2])
        self._command = wp.launch(kernel, shape, inputs, outputs=[action], device=device, record_cmd=True)
        self._keep = (inputs, store, mask)  # the launch holds addresses only

    def __call__(self) -> None:
        """Enqueue on PyTorch's current stream."""
        self._command.launch(device_stream(self.device))
