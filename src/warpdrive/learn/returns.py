"""Advantages and returns of a rollout, by generalised advantage estimation."""

import torch
import warp as wp

from warpdrive.sim.launcher import device_stream
from warpdrive.sim.store import warp_array, warp_device

__all__ = ["gae"]


@wp.kernel(enable_backward=False, module_options={"fuse_fp": False}, module="unique")
def _gae(
    reward: wp.array3d(dtype=wp.float32),
    alive: wp.array3d(dtype=wp.bool),
    terminated: wp.array3d(dtype=wp.bool),
    ended: wp.array2d(dtype=wp.bool),
    final_slot: wp.array2d(dtype=wp.int32),
    value: wp.array3d(dtype=wp.float32),
    final_value: wp.array3d(dtype=wp.float32),
    discount: wp.array(dtype=wp.float32),
    advantage_out: wp.array3d(dtype=wp.float32),
    return_out: wp.array3d(dtype=wp.float32),
):
    env, i = wp.tid()
    steps = reward.shape[0]
    gamma = discount[0]
    decay = gamma * discount[1]
    carried = float(0.0)  # lambda-weighted sum of the later errors
    next_alive = bool(True)
    for back in range(steps):
        t = steps - 1 - back
        if alive[t, env, i]:
            going_on = bool(False)
            next_value = float(0.0)
            if not terminated[t, env, i]:
                if ended[t, env]:
                    slot = final_slot[t, env]
                    if slot >= 0:
                        next_value = final_value[slot, env, i]
                elif next_alive:
                    going_on = True
                    next_value = value[t + 1, env, i]
            error = reward[t, env, i] + gamma * next_value - value[t, env, i]
            if going_on:
                carried = error + decay * carried
            else:
                carried = error
            advantage_out[t, env, i] = carried
            return_out[t, env, i] = carried + value[t, env, i]
            next_alive = True
        else:
            carried = 0.0
            advantage_out[t, env, i] = 0.0
            return_out[t, env, i] = 0.0
            next_alive = False


def gae(
    *,
    reward: torch.Tensor,
    alive: torch.Tensor,
    terminated: torch.Tensor,
    ended: torch.Tensor,
    final_slot: torch.Tensor,
    value: torch.Tensor,
    final_value: torch.Tensor,
    discount: torch.Tensor,
    advantage_out: torch.Tensor,
    return_out: torch.Tensor,
) -> None:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438, eq. 11 and 16), in one kernel.

    An agent that was not alive at t has advantage and return 0. The value after a step is 0 where the agent
    terminated; else, where the environment's episode ended, that of the observation it ended on; else that of the
    next step. The sum over later steps stops at either end. Any strides will do.

    Args:
        reward: float32 (T, E, k).
        alive: bool (T, E, k): the agent took part in the step.
        terminated: bool (T, E, k): its episode ended by the rules.
        ended: bool (T, E): the episode of the environment ended, by the rules or by its length.
        final_slot: int32 (T, E): which of the final values belongs to an ended episode, or -1: none, taken as 0.
        value: float32 (T + 1, E, k).
        final_value: float32 (K, E, k).
        discount: float32 (2,): gamma and lambda.
        advantage_out, return_out: float32 (T, E, k).
    """
    wp.launch(
        _gae,
        dim=tuple(reward.shape[1:]),
        inputs=[
            warp_array(reward, wp.float32),
            warp_array(alive, wp.bool),
            warp_array(terminated, wp.bool),
            warp_array(ended, wp.bool),
            warp_array(final_slot, wp.int32),
            warp_array(value, wp.float32),
            warp_array(final_value, wp.float32),
            warp_array(discount, wp.float32),
        ],
        outputs=[warp_array(advantage_out, wp.float32), warp_array(return_out, wp.float32)],
        device=warp_device(reward.device),
        stream=device_stream(reward.device),
    )
