"""Gradients and metrics of the fused kernel against automatic differentiation in float64."""

import itertools

import pytest
import torch
from torch.distributions import Categorical, Normal

from warpdrive.env.spaces import Box, Discrete, MultiDiscrete
from warpdrive.learn.rollout import Samples
from warpdrive.policy.mlp import MLP

pytest.importorskip("triton")
from warpdrive.learn.fused_update import FusedUpdate, UpdateTiles, update_tiles

DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="compiled kernels run on the GPU")),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
EXACT = {"cpu": "ieee", "cuda": "tf32x3"}
T, E, K = 3, 7, 3


def samples(space, features, seed, *, env_fastest=False, masked=False, dtype=torch.float32, device="cpu"):
    """A random rollout of T steps, E environments and K agents, whose dead rows hold NaN, laid out as Rollout does."""
    g = torch.Generator().manual_seed(seed)
    order = (1, 3, 2, 0) if env_fastest else (1, 2, 3, 0)
    inner = (K, E) if env_fastest else (E, K)

    def array(steps, size=1, agents=0):
        # A group of more agents than the segment's: the segment's arrays are strided views.
        lead = (inner[0] + agents, inner[1]) if env_fastest else (inner[0], inner[1] + agents)
        whole = torch.randn(size, steps, *lead, generator=g).permute(order)
        return whole[:, :, agents:] if agents else whole

    alive = torch.rand(T, E, K + 2, generator=g)[:, :, 1:-1] < 0.7
    obs = array(T + 1, features, 2)
    mask = None
    if isinstance(space, Box):
        action = array(T, space.size)
    else:
        action = array(T, space.size)
        for h, n in enumerate(space.heads):
            action[..., h] = torch.randint(n, (T, E, K), generator=g)
        action = action.int()
        if masked:
            mask = (array(T + 1, space.num_outputs, 2) < 0.2).to(torch.uint8)
            start = 0
            for h, n in enumerate(space.heads):  # what was done was allowed
                mask[:T].scatter_(3, (start + action[..., h : h + 1]).long(), 1)
                start += n
    s = Samples(
        segment=None,
        env_fastest=env_fastest,
        obs=obs,
        mask=mask,
        final_obs=obs[:1],
        action=action,
        log_prob=array(T)[..., 0],
        value=array(T + 1)[..., 0],
        final_value=array(1)[..., 0],
        reward=torch.zeros(T, E, K),
        alive=alive,
        terminated=~alive,
        present=alive[0],
    )
    s.advantage.copy_(torch.randn(T, E, K, generator=g))
    s.target.copy_(torch.randn(T, E, K, generator=g))
    dead = ~alive
    for row in (s.log_prob, s.value[:T], s.advantage, s.target):
        row[dead] = float("nan")
    s.obs[:T][dead] = float("nan")
    if mask is not None:
        s.mask[:T][dead] = 0
    s.obs = to(s.obs, device, dtype)
    for name in ("mask", "action", "log_prob", "value", "advantage", "target", "alive"):
        value = getattr(s, name)
        setattr(s, name, None if value is None else to(value, device))
    return s


def to(array, device, dtype=None):
    """The array on a device with its strides."""
    return torch.empty_strided(array.shape, array.stride(), dtype=dtype or array.dtype, device=device).copy_(array)


def reference(module, space, parts, coefficients, moments, clipped, network):
    """Metrics and gradients of all parameters in float64: `parts` are (samples, environments) pairs."""
    clip, value_clip, entropy_coef, value_coef = coefficients
    shift, scale = moments
    terms = []
    for s, envs in parts:
        envs = torch.arange(E) if envs is None else envs
        live = s.alive.cpu()[:, envs]
        rows = {n: getattr(s, n).cpu()[:T, envs][live] for n in ("log_prob", "value", "advantage", "target", "action")}
        out = network(module, s.obs.cpu()[:T, envs][live].double())
        rows = {n: value.double() for n, value in rows.items()}
        mask = None if s.mask is None else s.mask.cpu()[:T, envs][live]
        log_prob, entropy = distribution(space, out, module.log_std, rows["action"], mask)
        a = (rows["advantage"] - shift) * scale
        change = log_prob - rows["log_prob"]
        ratio = change.exp()
        policy = -torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a) if clipped else -log_prob * a
        value, old, target = out[:, -1], rows["value"], rows["target"]
        error = 0.5 * (value - target) ** 2
        if value_clip >= 0:
            moved = old + (value - old).clamp(-value_clip, value_clip)
            error = torch.maximum(error, 0.5 * (moved - target) ** 2)
        outside = ((ratio - 1).abs() > clip).double() if clipped else torch.zeros_like(ratio)
        terms.append(torch.stack([policy, error, entropy, ratio - 1 - change, outside]))
    metrics = torch.cat(terms, 1).mean(1)
    loss = metrics[0] + value_coef * metrics[1] - entropy_coef * metrics[2]
    return metrics.detach(), torch.autograd.grad(loss, list(module.parameters()))


def plain(module, x):
    """What the module gives, layer by layer."""
    act = torch.tanh if module.activation == "tanh" else torch.relu
    if module.normalizer is not None:
        n = module.normalizer
        x = ((x - n.mean) / (n.variance + 1e-5).sqrt()).clamp(-n.limit, n.limit)

    def tower(layers, y):
        for layer in layers:
            y = act(layer(y))
        return y

    actor = tower(module.actor, x)
    critic = actor if module.critic is None else tower(module.critic, x)
    return torch.cat([module.actor_head(actor), module.critic_head(critic)], 1)


def distribution(space, out, log_std, action, mask):
    """Log-probability and entropy (B,) by torch.distributions."""
    if isinstance(space, Box):
        d = Normal(out[:, :-1], log_std.exp())
        return d.log_prob(action).sum(1), d.entropy().sum(1)
    total, entropy, start = 0.0, 0.0, 0
    for h, n in enumerate(space.heads):
        logits = out[:, start : start + n]
        if mask is not None:
            logits = logits.masked_fill(mask[:, start : start + n] == 0, -1e9)
        d = Categorical(logits=logits)
        total = total + d.log_prob(action[:, h].long())
        entropy = entropy + d.entropy()
        start += n
    return total, entropy


def build(space, hidden, features, seed=0, **options):
    """A module in float32 whose heads are not nearly 0, and its copy in float64."""
    made = []
    for _ in range(2):
        g = torch.Generator().manual_seed(seed)
        module = MLP(*hidden, **options).build(features, space, generator=g)
        for p in module.parameters():
            p.data += 0.3 * torch.randn(p.shape, generator=g)
        if module.normalizer is not None:
            module.normalizer.mean.normal_(generator=g)
            module.normalizer.variance.uniform_(0.5, 2.0, generator=g)
        made.append(module)
    return made[0], made[1].double()


def compare(module, space, parts, update, coefficients, moments, clipped, tolerance, network=None):
    wanted_metrics, wanted = reference(module, space, parts, coefficients, moments, clipped, network or plain)
    torch.testing.assert_close(update.sums.metrics.cpu().double(), wanted_metrics, rtol=tolerance, atol=tolerance)
    for (name, _), grad, want in zip(module.named_parameters(), update.sums.gradients, wanted, strict=True):
        error = (grad.cpu().double() - want).norm() / want.norm().clamp(min=1e-3)
        assert error < tolerance, (name, float(error))


SPACES = {
    "discrete": (Discrete(5), False),
    "multi": (MultiDiscrete(4, 3, 9), False),
    "masked": (MultiDiscrete(4, 3), True),
    "box": (Box(-1.0, 1.0, 3), False),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("clipped", [True, False])
@pytest.mark.parametrize("separate", [True, False])
def test_gradients_agree_with_float64(device, kind, clipped, separate):
    """Random minibatches of every kind of action, with dead rows of NaN, for both losses and both kinds of critic."""
    space, masked = SPACES[kind]
    number = len(kind) + 2 * clipped + separate
    s = samples(space, 7, number, env_fastest=number % 2 == 0, masked=masked, device=device)
    module, twin = build(space, (24, 17), 7, activation="tanh", separate_value=separate)
    module = module.to(device)
    # Old log-probabilities near the present ones, so that some ratios are clipped and some are not.
    live = s.alive.cpu()
    mask = None if s.mask is None else s.mask.cpu()[:T][live]
    with torch.no_grad():
        out = plain(twin, s.obs.cpu()[:T][live].double())
        now, _ = distribution(space, out, twin.log_std, s.action.cpu()[live].double(), mask)
    noise = 0.3 * torch.randn(now.shape, generator=torch.Generator().manual_seed(1))
    s.log_prob[s.alive] = (now + noise).float().to(device)
    coefficients, moments = (0.2, 0.3 if clipped else -1.0, 0.05, 0.7), (0.1, 1.3)
    envs = torch.tensor([5, 0, 2, 6, 1])
    update = FusedUpdate(
        module, space, clipped=clipped, samples=[s], precision=EXACT[device], tiles=UpdateTiles(16, 4, 1)
    )
    tensors = [torch.tensor(x, device=device) for x in (coefficients, moments)]
    update.run(envs.to(device), *tensors)
    compare(twin, space, [(s, envs)], update, coefficients, moments, clipped, 1e-4)
    if clipped:
        assert 0.0 < float(update.sums.metrics[4]) < 1.0
    first = update.sums.total.clone()
    update.sums.total.fill_(float("nan"))
    update.run(envs.to(device), *tensors)
    assert torch.equal(update.sums.total, first)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("hidden", [(16,), (40,), (33, 65)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_several_segments_all_environments_and_normalised(device, hidden, activation):
    """One policy for segments of two layouts, all environments in place, a normaliser, one or two hidden layers."""
    space = Discrete(3)
    module, twin = build(space, hidden, 19, seed=3, activation=activation, normalize_obs=True)
    module = module.to(device)
    segments = [samples(space, 19, seed, env_fastest=seed == 1, device=device) for seed in (1, 2)]
    coefficients, moments = (0.2, -1.0, 0.01, 0.5), (0.0, 1.0)
    update = FusedUpdate(
        module, space, clipped=True, samples=segments, precision=EXACT[device], tiles=UpdateTiles(32, 4, 1)
    )
    update.run(None, *[torch.tensor(x, device=device) for x in (coefficients, moments)])
    compare(twin, space, [(s, None) for s in segments], update, coefficients, moments, True, 2e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("precision", "dtype"), itertools.product(["tf32", "bf16"], [torch.float32, torch.bfloat16]))
def test_low_precision_is_near(device, precision, dtype):
    """With products of tf32 or bfloat16 the gradients stay within what such products lose."""
    space = MultiDiscrete(4, 3)
    module, twin = build(space, (64, 32), 18, seed=5, activation="tanh", separate_value=True)
    s = samples(space, 18, 9, dtype=dtype, device=device)
    coefficients, moments = (0.2, -1.0, 0.01, 0.5), (0.0, 1.0)
    update = FusedUpdate(module.to(device), space, clipped=False, samples=[s], precision=precision)
    update.run(None, *[torch.tensor(x, device=device) for x in (coefficients, moments)])
    compare(twin, space, [(s, None)], update, coefficients, moments, False, 5e-2 if precision == "bf16" else 1e-2)


def test_narrow_layers_stay_clear_of_wgmma():
    """Triton takes wgmma for a multiple of four warps: see docs/design.md, "Fused kernels"."""
    for hidden in ((16,), (32, 32), (64, 32), (32, 128)):
        assert update_tiles(hidden).warps == 2
    assert update_tiles((33, 64)).warps == 4
    assert update_tiles((64, 65)).warps == 8


def test_no_sample_gives_zero():
    """A minibatch in which nobody takes part moves nothing."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    space = Discrete(3)
    module, _ = build(space, (16,), 5)
    s = samples(space, 5, 1, device=device)
    s.alive.zero_()
    update = FusedUpdate(module.to(device), space, clipped=True, samples=[s], precision="tf32")
    update.run(None, torch.ones(4, device=device), torch.ones(2, device=device))
    assert torch.equal(update.sums.total, torch.zeros_like(update.sums.total))
