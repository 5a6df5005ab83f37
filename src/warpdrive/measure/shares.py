"""Where the time of training goes, from the names of the kernels that ran."""

import re
from collections.abc import Sequence

import torch

from warpdrive.learn.trainer import Trainer
from warpdrive.measure.machine import wait

__all__ = ["kernel_shares"]

# What a kernel is for, by its name; the first pattern that is found in it counts.
PARTS = (
    ("simulation", r"^(phase|fused|listed|list_over|loop|random|script)_"),
    ("sampling", r"sample_(discrete|continuous)"),
    ("advantages", r"^_gae"),
    ("policy forward", r"^_forward$"),
    # The fused update: forward, loss and backward in one kernel, or in one for each layer, and sums of gradients.
    ("update", r"^(_gradients|first_layer|layer|head|back_layer|outer|_add_up)$"),
    ("loss", r"^_(discrete|continuous)_kernel"),
    ("optimiser", r"[Aa]dam|multi_tensor_apply|LpNorm|clip"),
    ("matrix products", r"gemm|gemv|nvjet|cutlass|xmma|splitK|cublas"),
    ("minibatches", r"^(_draw_keys|_count$|_enter$)|[Ss]ort"),
    ("copies", r"copy|Copy|Memcpy|Memset|fill|Fill|index|gather|cat|Cat"),
)


def part_of(kernel: str) -> str:
    """What a kernel of this name is for."""
    return next((part for part, pattern in PARTS if re.search(pattern, kernel)), "other")


def phase_of(kernel: str, phases: Sequence[str]) -> str:
    """What a kernel of the simulation does: the phase's name, or its own where it is of several.

    Args:
        kernel: its name.
        phases: names of the phases in the order of the schedule.
    """
    stem = kernel.split("_cuda_kernel")[0]
    single = re.fullmatch(r"(phase|listed)_(\d+)", stem)
    if single is None:
        return stem
    return phases[int(single[2])] + (" of those that are over" if single[1] == "listed" else "")


def kernel_shares(trainer: Trainer) -> dict[str, float]:
    """Share of the time on the GPU, by what kernels are for, of one update.

    Names: "simulation", "sampling", "advantages", "policy forward", "update", "loss", "optimiser", "matrix products",
    "minibatches", "copies", "other", which add up to 1. Where learning is fused, "update" holds its forward pass, the
    loss and the way back; where PyTorch does it, forward and backward are "matrix products" and "other". What the
    simulation consists of is there as well, as "simulation: find_nearest", by phase or fused kernel.

    Raises:
        ValueError: the trainer runs on the CPU, where kernels are not recorded.
    """
    if trainer.sim.device.type != "cuda":
        raise ValueError("the shares of kernels can be measured on a CUDA device only")
    phases = [call.function.__name__ for call in trainer.sim.launcher.program.calls]
    activity = torch.profiler.ProfilerActivity.CUDA
    wait(trainer.sim.device)
    with torch.profiler.profile(activities=[activity]) as profile:
        trainer.step()
        wait(trainer.sim.device)
    spent: dict[str, float] = {}
    for event in profile.key_averages():
        part = part_of(event.key)
        names = [part, f"{part}: {phase_of(event.key, phases)}"] if part == "simulation" else [part]
        for name in names:
            spent[name] = spent.get(name, 0.0) + event.device_time_total
    total = sum(time for name, time in spent.items() if ":" not in name) or 1.0
    return {name: spent[name] / total for name in sorted(spent, key=lambda n: -spent[n])}
