"""Training with fused kernels against training by PyTorch's layers."""

import pytest
import torch

import warpdrive as wd
from learn.bandit import Bandit
from warpdrive.learn import trainer as trainer_module
from warpdrive.policy.fused import can_run_triton, fusion
from warpdrive.policy.mlp import MLP

pytest.importorskip("triton")
from warpdrive.learn.fused_wide import WideTiles

TINY = WideTiles(16, 16, 16, 2, 4, 16, 16, 4, 1, 16, 3, 16, 4)
DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="compiled kernels run on the GPU")),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
ALGORITHMS = {
    "ppo": wd.PPO(rollout_steps=4, epochs=2, minibatches=2, value_clip=0.2),
    "a2c": wd.A2C(rollout_steps=4),
}


def train(device, algorithm, fuse, updates, **options):
    sim = wd.Simulator(Bandit(), num_envs=6, seed=3, device=device, obs_dtype=torch.float32)
    policies = {
        "left": wd.MLP(16, 20, normalize_obs=True),
        "right": wd.MLP(16, activation="tanh", separate_value=True),
    }
    trainer = wd.Trainer(sim, policies, ALGORITHMS[algorithm], fuse=fuse, **options)
    for _ in range(updates):
        trainer.step()
    return trainer


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_updates_are_those_of_the_layers(device, algorithm, monkeypatch):
    """Weights, metrics and normalisers after two updates agree; one policy is discrete, one continuous."""
    if device == "cpu":  # in Triton's interpreter
        monkeypatch.setattr(trainer_module, "fusion", lambda *_: "whole")
    fused, plain = (train(device, algorithm, fuse, 2) for fuse in (True, False))
    assert all(p.fused == "whole" for p in fused.policies.values())
    assert not any(p.fused for p in plain.policies.values())
    for name, policy in fused.policies.items():
        for (key, a), b in zip(policy.state_dict().items(), plain.policies[name].state_dict().values(), strict=True):
            torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5, msg=f"{name} {key}")
        torch.testing.assert_close(
            fused.learners[name].metrics, plain.learners[name].metrics, rtol=1e-3, atol=1e-4, msg=name
        )
    start = train(device, algorithm, False, 0)
    moved = fused.policies["left"].actor_head.weight - start.policies["left"].actor_head.weight
    assert float(moved.detach().norm()) > 1e-4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_wide_updates_are_near_those_of_the_layers(device, algorithm, monkeypatch):
    """In bfloat16 two updates move the weights nearly as by the layers: Adam magnifies what small gradients lose."""
    # Small tiles, in which the division of training would be slow in the interpreter.
    monkeypatch.setattr("warpdrive.learn.fused_wide.WideTiles", lambda: TINY)
    monkeypatch.setattr(trainer_module, "fusion", lambda *_: "wide")
    start, fused, plain = (
        train(device, algorithm, fuse, updates, precision="bf16")
        for fuse, updates in ((False, 0), (True, 2), (False, 2))
    )
    assert all(p.fused == "wide" for p in fused.policies.values())
    # One pass over the data, and layers that the critic shares.
    kept = {s.segment.policy: s.kept is not None for s in fused.rollout.samples}
    assert kept == {"left": algorithm == "a2c", "right": False}
    for name in fused.policies:
        parts = zip(*(t.policies[name].parameters() for t in (fused, plain, start)), strict=True)
        moves = [(a - c, b - c) for a, b, c in parts]
        one, other = (torch.cat([move[i].detach().flatten() for move in moves]) for i in (0, 1))
        assert float(other.norm()) > 1e-3
        assert float(torch.cosine_similarity(one, other, dim=0)) > 0.9, name
        metrics = fused.learners[name].metrics
        torch.testing.assert_close(metrics, plain.learners[name].metrics, rtol=5e-2, atol=5e-2, msg=name)


def test_an_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="precision must be one of auto, float32, tf32, bf16, got 'fp8'"):
        train("cpu", "ppo", True, 0, precision="fp8")


def test_bf16_products_with_float32_observations():
    """The policy's precision may be less than the observations'."""
    trainer = train("cpu", "a2c", False, 1, precision="bf16")
    policy = trainer.policies["left"]
    assert policy(torch.zeros(3, 2)).dtype == torch.bfloat16
    assert policy.actor_head.weight.grad.dtype == torch.float32


def test_what_runs_fused(monkeypatch):
    """On CUDA with Triton, plain policies within the limits; nothing elsewhere."""
    monkeypatch.setattr("warpdrive.policy.fused.can_run_triton", lambda: True)
    cuda = torch.device("cuda")

    def how(*hidden, features=18, choices=5, precision="auto", dtype=torch.bfloat16, device=cuda):
        module = MLP(*hidden).build(features, wd.Discrete(choices), generator=torch.Generator())
        module.precision = precision
        return fusion(module, dtype, device)

    assert how(64, 64) == "whole"
    assert how(256, 256, features=71, choices=42) == "wide"
    assert how(100) == "whole"
    assert how(100, features=71) == "wide"
    assert how(256, 256, dtype=torch.float32) == ""
    assert how(256, 256, features=128) == ""
    assert how(256, 256, choices=64) == ""
    assert how(256, 64) == ""
    assert how(256, 257) == ""
    assert how(64, 64, dtype=torch.float32) == "whole"
    assert how(64, 64, features=129) == ""
    assert how(64, 64, device=torch.device("cpu")) == ""
    assert how() == ""
    assert how(64, 64, 64) == ""
    assert how(128, 128, dtype=torch.float32) == ""
    assert how(128, 128, dtype=torch.float32, precision="tf32") == "whole"
    half = MLP(16).build(3, wd.Discrete(2), generator=torch.Generator())
    half.actor_head.requires_grad_(False)
    assert fusion(half, torch.bfloat16, cuda) == ""
    monkeypatch.setattr("warpdrive.policy.fused.can_run_triton", lambda: False)
    assert how(64, 64) == ""


def test_triton_needs_a_compiler(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    can_run_triton.cache_clear()
    try:
        assert not can_run_triton()
    finally:
        can_run_triton.cache_clear()
