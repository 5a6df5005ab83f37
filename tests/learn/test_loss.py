"""The loss kernel against plain PyTorch in float64: value, metrics and gradients."""

import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

from warpdrive.env.spaces import Box, Discrete, MultiDiscrete
from warpdrive.learn.loss import METRICS, SurrogateLoss

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
B = 61


def batch(space, seed, masked=False, dead=0.3):
    """Random samples of a rollout, float32 on the CPU."""
    g = torch.Generator().manual_seed(seed)
    out = torch.randn(space.num_outputs + 1, B, generator=g).t()
    log_std, mask = None, None
    if isinstance(space, Box):
        action = torch.randn(B, space.size, generator=g)
        log_std = 0.3 * torch.randn(space.size, generator=g)
    else:
        action = torch.stack([torch.randint(n, (B,), generator=g) for n in space.heads], 1).int()
        if masked:
            mask = (torch.rand(B, space.num_outputs, generator=g) < 0.6).to(torch.uint8)
            start = 0
            for h, n in enumerate(space.heads):  # what was done was allowed
                mask[torch.arange(B), start + action[:, h]] = 1
                start += n
    return dict(
        out=out,
        log_std=log_std,
        action=action,
        mask=mask,
        noise=0.4 * torch.randn(B, generator=g),
        old_value=torch.randn(B, generator=g),
        advantage=torch.randn(B, generator=g),
        target=torch.randn(B, generator=g),
        weight=(torch.rand(B, generator=g) >= dead).float(),
    )


def log_probs(space, out, log_std, action, mask):
    """Log-probability and entropy (B,) by torch.distributions."""
    if isinstance(space, Box):
        d = Normal(out[:, :-1], log_std.exp())
        return d.log_prob(action).sum(1), d.entropy().sum(1)
    total, entropy, start = 0.0, 0.0, 0
    for h, n in enumerate(space.heads):
        logits = out[:, start : start + n]
        if mask is not None:
            logits = logits.masked_fill(mask[:, start : start + n] == 0, float("-inf"))
        d = Categorical(logits=logits)
        total = total + d.log_prob(action[:, h].long())
        p = d.probs
        entropy = entropy - torch.where(p > 0, p * p.clamp(min=1e-300).log(), 0.0).sum(1)
        start += n
    return total, entropy


def reference(space, b, coefficients, moments, clipped):
    """Metrics, gradient of out and of log_std in float64."""
    clip, value_clip, entropy_coef, value_coef = coefficients
    shift, scale, share = moments
    out = b["out"].double().requires_grad_()
    log_std = None if b["log_std"] is None else b["log_std"].double().requires_grad_()
    log_prob, entropy = log_probs(space, out, log_std, b["action"], b["mask"])
    a = (b["advantage"].double() - shift) * scale
    change = log_prob - b["old_log_prob"].double()
    ratio = change.exp()
    if clipped:
        policy = -torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a)
    else:
        policy = -log_prob * a
    value, old, target = out[:, -1], b["old_value"].double(), b["target"].double()
    error = 0.5 * (value - target) ** 2
    if value_clip >= 0:
        moved = old + (value - old).clamp(-value_clip, value_clip)
        error = torch.maximum(error, 0.5 * (moved - target) ** 2)
    w = b["weight"].double() * share
    outside = ((ratio - 1).abs() > clip).double() if clipped else torch.zeros_like(ratio)
    metrics = torch.stack([(w * x).sum() for x in (policy, error, entropy, ratio - 1 - change, outside)])
    loss = metrics[0] + value_coef * metrics[1] - entropy_coef * metrics[2]
    loss.backward()
    return metrics.detach(), out.grad, None if log_std is None else log_std.grad


SPACES = {
    "discrete": (Discrete(5), False),
    "multi": (MultiDiscrete(4, 3, 2), False),
    "masked": (MultiDiscrete(4, 3), True),
    "many": (MultiDiscrete(*[2] * 18), True),
    "box": (Box(-1.0, 1.0, 3), False),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("clipped", [True, False])
@pytest.mark.parametrize("value_clip", [-1.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_agrees_with_float64(device, kind, clipped, value_clip, dtype):
    """Metrics and gradients of random samples agree with automatic differentiation in float64."""
    space, masked = SPACES[kind]
    b = batch(space, seed=len(kind), masked=masked)
    b["out"] = b["out"].to(dtype).float()
    now, _ = log_probs(space, b["out"], b["log_std"], b["action"], b["mask"])
    b["old_log_prob"] = now + b["noise"]
    coefficients, moments = (0.2, value_clip, 0.05, 0.7), (0.1, 1.3, 1.0 / float(b["weight"].sum()))
    wanted, wanted_out, wanted_std = reference(space, b, coefficients, moments, clipped)

    leaf = b["out"].to(dtype).to(device).requires_grad_()
    log_std = None if b["log_std"] is None else b["log_std"].to(device).requires_grad_()
    out = leaf * 1.0
    rows = ("action", "old_log_prob", "old_value", "advantage", "target", "weight")
    metrics = SurrogateLoss(space, clipped=clipped).backward(
        out=out,
        log_std=log_std,
        mask=None if b["mask"] is None else b["mask"].to(device),
        coefficients=torch.tensor(coefficients, device=device),
        moments=torch.tensor(moments, device=device),
        **{name: b[name].to(device) for name in rows},
    )
    assert len(METRICS) == metrics.numel()
    torch.testing.assert_close(metrics.cpu().double(), wanted, rtol=1e-4, atol=1e-5)
    tolerance = dict(rtol=1e-4, atol=1e-6) if dtype == torch.float32 else dict(rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(leaf.grad.cpu().double(), wanted_out, **tolerance)
    if log_std is not None:
        torch.testing.assert_close(log_std.grad.cpu().double(), wanted_std, rtol=1e-4, atol=1e-6)
    if b["mask"] is not None:
        assert bool((leaf.grad.cpu()[:, :-1][b["mask"] == 0] == 0).all())


def test_dead_samples_take_no_part_whatever_they_hold():
    """NaN in the rows of agents that had left changes neither metrics nor gradients."""
    space = MultiDiscrete(4, 3)
    results = []
    for poison in (0.0, float("nan")):
        b = batch(space, seed=1)
        dead = b["weight"] == 0
        assert 0 < int(dead.sum()) < B
        for name in ("advantage", "target", "old_value"):
            b[name][dead] += poison
        b["out"][dead] += poison
        leaf = b["out"].clone().requires_grad_()
        metrics = SurrogateLoss(space, clipped=True).backward(
            out=leaf * 1.0,
            log_std=None,
            mask=None,
            old_log_prob=b["noise"],
            coefficients=torch.tensor([0.2, -1.0, 0.05, 0.5]),
            moments=torch.tensor([0.0, 1.0, 1.0 / float(b["weight"].sum())]),
            **{name: b[name] for name in ("action", "old_value", "advantage", "target", "weight")},
        )
        results.append((metrics, leaf.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert bool((results[0][1][dead] == 0).all())


def test_approximate_kl_is_near_the_true_one():
    """Averaged over draws of the old policy, the estimate is the KL divergence from old to new."""
    torch.manual_seed(0)
    old, new = torch.randn(5), torch.randn(5) * 0.3
    new = old + new
    d_old, d_new = Categorical(logits=old), Categorical(logits=new)
    count = 20_000
    action = d_old.sample((count,)).int()[:, None]
    out = torch.cat([new, torch.zeros(1)]).expand(count, 6).clone().requires_grad_()
    zeros = torch.zeros(count)
    metrics = SurrogateLoss(Discrete(5), clipped=True).backward(
        out=out * 1.0,
        log_std=None,
        mask=None,
        action=action,
        old_log_prob=d_old.log_prob(action[:, 0]),
        old_value=zeros,
        advantage=zeros,
        target=zeros,
        weight=torch.ones(count),
        coefficients=torch.tensor([0.2, -1.0, 0.0, 0.5]),
        moments=torch.tensor([0.0, 1.0, 1.0 / count]),
    )
    assert metrics[3].item() == pytest.approx(kl_divergence(d_old, d_new).item(), rel=0.1)


@pytest.mark.parametrize("layout", ["feature-major", "row-major", "strided"])
@pytest.mark.parametrize("kind", ["masked", "box"])
def test_the_memory_order_of_outputs_changes_nothing(layout, kind):
    """Metrics and gradients are the same to the bit however the policy's outputs lie in memory."""
    space, masked = SPACES[kind]
    b = batch(space, seed=3, masked=masked)

    def run(leaf):
        metrics = SurrogateLoss(space, clipped=True).backward(
            out=leaf,
            log_std=b["log_std"],
            mask=b["mask"],
            old_log_prob=b["noise"],
            coefficients=torch.tensor([0.2, -1.0, 0.05, 0.5]),
            moments=torch.tensor([0.0, 1.0, 1.0 / float(b["weight"].sum())]),
            **{name: b[name] for name in ("action", "old_value", "advantage", "target", "weight")},
        )
        return metrics, leaf.grad

    wide = torch.zeros(B, 2 * b["out"].shape[1])
    wide[:, ::2] = b["out"]
    leaf = {
        "feature-major": b["out"].detach(),
        "row-major": b["out"].contiguous(),
        "strided": wide[:, ::2],
    }[layout]
    metrics, grad = run(leaf.requires_grad_())
    wanted_metrics, wanted_grad = run(b["out"].contiguous().clone().requires_grad_())
    assert torch.equal(metrics, wanted_metrics)
    assert torch.equal(grad, wanted_grad)


def test_a_batch_of_dead_samples_has_no_loss():
    """Where nobody was alive, metrics and gradients are exactly 0."""
    space = Box(-1.0, 1.0, 2)
    b = batch(space, seed=5, dead=1.1)
    leaf, log_std = b["out"].clone().requires_grad_(), b["log_std"].requires_grad_()
    metrics = SurrogateLoss(space, clipped=True).backward(
        out=leaf * 1.0,
        log_std=log_std,
        mask=None,
        old_log_prob=b["noise"],
        coefficients=torch.tensor([0.2, -1.0, 0.05, 0.5]),
        moments=torch.tensor([0.0, 1.0, 1.0]),
        **{name: b[name] for name in ("action", "old_value", "advantage", "target", "weight")},
    )
    for tensor in (metrics, leaf.grad, log_std.grad):
        assert bool((tensor == 0).all())
