"""Where the time of training goes, from the names of the kernels that ran."""

import re

import torch

from warpdrive.learn.trainer import Trainer
from warpdrive.measure.machine import wait

__all__ = ["kernel_shares"]

# What a kernel is for, by its name; the first pattern that is found in it counts.
PARTS = (
    ("simulation", r"^(phase|fused_step|fused_reset|loop|random)_"),
    ("sampling", r"^_sample_"),
    ("advantages", r"^_gae"),
    ("loss", r"^(_discrete_kernel|_continuous_kernel|discrete|continuous)"),
    ("optimiser", r"[Aa]dam|multi_tensor_apply|LpNorm|clip"),
    ("matrix products", r"gemm|gemv|nvjet|cutlass|xmma|splitK|cublas|_fused_"),
    ("copies", r"copy|Copy|Memcpy|Memset|fill|Fill|index|gather|cat|Cat"),
)


def kernel_shares(trainer: Trainer) -> dict[str, float]:
    """Share of the time on the GPU, by what kernels are for, of one update; those of phases singly as well.

    Names: "simulation", "sampling", "advantages", "loss", "optimiser", "matrix products", "copies", "other".

    Raises:
        ValueError: the trainer runs on the CPU, where kernels are not recorded.
    """
    if trainer.sim.device.type != "cuda":
        raise ValueError("the shares of kernels can be measured on a CUDA device only")
    activity = torch.profiler.ProfilerActivity.CUDA
    wait(trainer.sim.device)
    with torch.profiler.profile(activities=[activity]) as profile:
        trainer.step()
        wait(trainer.sim.device)
    spent: dict[str, float] = {}
    for event in profile.key_averages():
        part = next((name for name, pattern in PARTS if re.search(pattern, event.key)), "other")
        spent[part] = spent.get(part, 0.0) + event.device_time_total
    total = sum(spent.values()) or 1.0
    return {name: spent[name] / total for name in sorted(spent, key=lambda n: -spent[n])}
