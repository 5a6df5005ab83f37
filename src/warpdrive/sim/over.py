"""The environments that are over, listed: few are in a step, and only these are begun anew."""

from typing import Any

import torch
import warp as wp

from warpdrive.sim.store import warp_array, warp_device

__all__ = ["OverList"]

THREADS = 1024  # of the one block that goes through all environments


# One thread on a CPU, one block on a GPU, where the list's order is that in which threads come to it.
@wp.func_native("""
#if defined(__CUDA_ARCH__)
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (int env = threadIdx.x; env < over.shape[0]; env += blockDim.x)
        if (*wp::address(over, env)) *wp::address(listed, atomicAdd(&count, 1)) = env;
    __syncthreads();
    if (threadIdx.x == 0) *wp::address(number, 0) = count;
#else
    int count = 0;
    for (int env = 0; env < over.shape[0]; ++env)
        if (*wp::address(over, env)) *wp::address(listed, count++) = env;
    *wp::address(number, 0) = count;
#endif
""")
def _list(over: wp.array(dtype=wp.bool), listed: wp.array(dtype=int), number: wp.array(dtype=int)): ...  # type: ignore[valid-type]


@wp.kernel(enable_backward=False, module="unique")
def list_over(over: wp.array(dtype=wp.bool), listed: wp.array(dtype=int), number: wp.array(dtype=int)):  # type: ignore[valid-type]
    _list(over, listed, number)


class OverList:
    """The indices of the environments that are over, and their number, in memory that stays.

    Args:
        num_envs: number of environments, E.
        device: where they are.
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self._envs = torch.zeros(num_envs, dtype=torch.int32, device=device)
        self._number = torch.zeros(1, dtype=torch.int32, device=device)
        self.arrays = [warp_array(self._envs, wp.int32), warp_array(self._number, wp.int32)]

    def record(self, over: torch.Tensor) -> Any:
        """The launch that lists the environments that are over by `over` (E,) bool, which must stay as well."""
        device, threads = warp_device(over.device), THREADS if over.device.type == "cuda" else 1
        inputs = [warp_array(over, wp.bool), *self.arrays]
        return wp.launch(list_over, dim=threads, inputs=inputs, device=device, block_dim=threads, record_cmd=True)
