"""Kernels are told by their names: those of the simulation, however it is scheduled, from all others."""

import pytest
import torch

import warpdrive as wd
from warpdrive.learn import learner, loss, returns
from warpdrive.measure.shares import kernel_shares, part_of, phase_of
from warpdrive.policy import actions
from warpdrive.sim.over import list_over
from warpdrive.sim.program import Program
from warpdrive.zoo.tag import Tag


def program(variant: str) -> Program:
    return Program.of(Tag(), {"taggers": torch.float16, "runners": torch.float16}, f"shares {variant}")


@pytest.mark.parametrize("unit", ["warp", "block", "strided"])
def test_all_kernels_of_the_simulation_are_known(unit):
    """Those of every schedule, scripted policies, and the one that lists the environments that are over."""
    tag = program(unit)
    made = [tag.fused_kernel(part, unit) for part in ("step", "change", "reset")]
    made += [tag.loop_kernel(only) for only in (False, True)] + [tag.random_kernel("runners")]
    made += [tag.phase_kernel(0), tag.listed_kernel(tag.first_guarded), list_over, *tag.script_kernels.values()]
    for kernel in made:
        assert part_of(f"{kernel.key}_cuda_kernel_forward") == "simulation", kernel.key


def test_phases_have_their_names():
    """By their place in the schedule; kernels of several phases keep their own."""
    phases = [call.function.__name__ for call in program("names").calls]
    at = phases.index("observe")
    assert phase_of(f"phase_{at}_cuda_kernel_forward", phases) == "observe"
    again = phases.index("observe", at + 1)
    assert phase_of(f"listed_{again}_cuda_kernel_forward", phases) == "observe of those that are over"
    assert phase_of("fused_change_cuda_kernel_forward", phases) == "fused_change"


def test_other_kernels_are_told_apart():
    """Warp's by the names that they really have; PyTorch's by some that profilers showed."""
    made = {
        actions._discrete_kernel(4): "sampling",
        actions._sample_continuous: "sampling",
        returns._gae: "advantages",
        loss._discrete_kernel(1, True): "loss",
        loss._continuous_kernel(True): "loss",
        learner._draw_keys: "minibatches",
    }
    for kernel, part in made.items():
        assert part_of(f"{kernel.key}_cuda_kernel_forward") == part, kernel.key
    shown = {
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>": "optimiser",
        "void at::native::radixSortKVInPlace<-2, -1, 32, 32, int, long>": "minibatches",
        "nvjet_hsh_128x128_64x5_1x2_h_bz_coopA_TNT": "matrix products",
        "Memcpy DtoD (Device -> Device)": "copies",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>": "other",
    }
    assert {name: part_of(name) for name in shown} == shown


def test_kernels_of_the_fused_update_are_known():
    """All that are launched, by their names."""
    pytest.importorskip("triton")
    from warpdrive.learn import fused_samples, fused_update, wide_layers
    from warpdrive.policy import fused_forward, fused_present

    wide = (wide_layers.first_layer, wide_layers.layer, wide_layers.back_layer, wide_layers.head, wide_layers.outer)
    for kernel in (fused_update._gradients, fused_samples._add_up, *wide):
        assert part_of(kernel.__name__) == "update", kernel.__name__
    assert part_of(fused_forward._forward.__name__) == "policy forward"
    assert part_of(fused_present._count.__name__) == part_of(fused_present._enter.__name__) == "minibatches"


@pytest.mark.gpu
@pytest.mark.parametrize(("runners", "width"), [(20, 32), (20, 256), (180, 32)])
def test_the_time_of_training_is_accounted_for(runners, width):
    """Shares add up to 1, those of phases to the simulation's, and next to nothing is left over."""
    sim = wd.Simulator(Tag(num_runners=runners), 500, device="cuda")
    trainer = wd.Trainer(sim, {name: wd.MLP(width, width) for name in sim.env.groups}, wd.A2C())
    trainer.step()
    shares = kernel_shares(trainer)
    phases = {name: share for name, share in shares.items() if ":" in name}
    assert sum(shares.values()) - sum(phases.values()) == pytest.approx(1)
    assert sum(phases.values()) == pytest.approx(shares["simulation"]) and shares["simulation"] > 0.02
    assert shares["update"] > 0.1 and shares["sampling"] > 0.005 and shares.get("other", 0.0) < 0.1
