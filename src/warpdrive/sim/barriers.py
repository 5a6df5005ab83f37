"""What the threads of a block, or of a warp, do together in fused kernels; on the CPU each of them is alone."""

import warp as wp

__all__ = ["block_any", "block_barrier", "warp_any", "warp_barrier"]


@wp.func_native("""
#if defined(__CUDA_ARCH__)
    __syncthreads();
#endif
""")
def block_barrier():
    """The threads of a block wait for one another."""


@wp.func_native("""
#if defined(__CUDA_ARCH__)
    __syncwarp();
#endif
""")
def warp_barrier():
    """The threads of a warp wait for one another."""


@wp.func_native("""
#if defined(__CUDA_ARCH__)
    return __syncthreads_or(here);
#else
    return here;
#endif
""")
def block_any(here: bool) -> bool:  # type: ignore[empty-body]
    """Whether any thread of a block says so; a barrier as well."""


@wp.func_native("""
#if defined(__CUDA_ARCH__)
    return __any_sync(0xffffffffu, here);
#else
    return here;
#endif
""")
def warp_any(here: bool) -> bool:  # type: ignore[empty-body]
    """Whether any thread of a warp says so; a barrier as well."""
