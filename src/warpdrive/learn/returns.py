"""Advantages and returns of a rollout, by generalised advantage estimation."""

import torch
import warp as wp

from warpdrive.sim.launcher import device_stream
from warpdrive.sim.store import warp_array, warp_device

__all__ = ["gae"]

AHEAD = 8  # steps that are read at a time
ALIVE, TERMINATED, ENDED = 1, 2, 4  # bits of a step's state
Floats, Ints = wp.types.vector(AHEAD, float), wp.types.vector(AHEAD, int)


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
    later = value[steps, env, i]
    for done in range(0, steps, wp.static(AHEAD)):
        # Steps depend on one another, what they read does not: all of it first, so that it is under way together.
        rewards = Floats()
        values = Floats()
        states = Ints()
        slots = Ints()
        for k in range(wp.static(AHEAD)):
            t = wp.max(steps - 1 - done - k, 0)
            rewards[k] = reward[t, env, i]
            values[k] = value[t, env, i]
            slots[k] = final_slot[t, env]
            states[k] = (
                wp.where(alive[t, env, i], wp.static(ALIVE), 0)
                + wp.where(terminated[t, env, i], wp.static(TERMINATED), 0)
                + wp.where(ended[t, env], wp.static(ENDED), 0)
            )
        for k in range(wp.static(AHEAD)):
            t = steps - 1 - done - k
            if t >= 0:
                if (states[k] & wp.static(ALIVE)) != 0:
                    going_on = bool(False)
                    next_value = float(0.0)
                    if (states[k] & wp.static(TERMINATED)) == 0:
                        if (states[k] & wp.static(ENDED)) != 0:
                            if slots[k] >= 0:
                                next_value = final_value[slots[k], env, i]
                        elif next_alive:
                            going_on = True
                            next_value = later
                    error = rewards[k] + gamma * next_value - values[k]
                    if going_on:
                        carried = error + decay * carried
                    else:
                        carried = error
                    advantage_out[t, env, i] = carried
                    return_out[t, env, i] = carried + values[k]
                    next_alive = True
                else:
                    carried = 0.0
                    advantage_out[t, env, i] = 0.0
                    return_out[t, env, i] = 0.0
                    next_alive = False
            later = values[k]


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
