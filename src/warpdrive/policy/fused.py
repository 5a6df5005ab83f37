"""Whether, and how, a policy's forward and backward passes run as kernels of Triton."""

import functools
import importlib.util
import os
import shutil

import torch
from torch import nn

from warpdrive.policy.mlp import ActorCritic, Fusion

__all__ = ["can_run_triton", "fusion"]

WIDE = True  # whether networks too wide for one kernel learn by two (warpdrive.learn.fused_wide)


@functools.cache
def can_run_triton() -> bool:
    """Whether Triton is installed, with the C compiler that it makes launchers with."""
    if importlib.util.find_spec("triton") is None:
        return False
    return any(shutil.which(name) for name in (os.environ.get("CC", ""), "gcc", "clang") if name)


def fusion(module: nn.Module, obs_dtype: torch.dtype, device: torch.device) -> Fusion:
    """How a policy that computes in its `products` of `obs_dtype` observations runs on a device.

    Returns:
        "whole": forward, loss and backward in one kernel (warpdrive.learn.fused_update), for weights, their gradients
        and a tile of samples that fit a multiprocessor's registers and shared memory; "wide": by the kernels of
        warpdrive.learn.fused_wide, for layers of 65 to 256 features in bfloat16; "": by PyTorch's layers.
    """
    if type(module) is not ActorCritic or device.type != "cuda" or not can_run_triton():
        return ""
    parameters = list(module.parameters())
    if not all(p.is_contiguous() and p.dtype == torch.float32 for p in parameters):
        return ""
    if len({p.requires_grad for p in parameters}) > 1:  # some of it learns and some does not
        return ""
    return _fits(module, module.products(obs_dtype))


def _fits(module: ActorCritic, products: str) -> Fusion:
    if not 1 <= len(module.hidden) <= 2:
        return ""
    outputs = module.num_outputs + 1
    # What the compiler's report on registers and shared memory allows (docs/design.md).
    narrow = module.obs_size <= 32 and outputs <= 16
    most = {"bf16": 128 if narrow else 64, "tf32": 128 if narrow else 64, "tf32x3": 64 if narrow else 0}[products]
    if outputs > 64:
        return ""
    if max(module.hidden) <= most and module.obs_size <= 128:
        return "whole"
    wide = products == "bf16" and min(module.hidden) > 64 and max(module.hidden) <= 256 and module.obs_size < 128
    return "wide" if WIDE and wide else ""
