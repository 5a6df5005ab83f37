"""Gradients and metrics of the kernels for wide networks against automatic differentiation in float64."""

import pytest
import torch

from warpdrive.env.spaces import Box, Discrete, MultiDiscrete

pytest.importorskip("triton")
from learn.test_fused_update import DEVICES, build, compare, distribution, samples
from warpdrive.learn.fused_wide import FusedWide, WideTiles
from warpdrive.policy.fused_forward import ForwardTiles, fused_forward

# What the way back loses in bfloat16.
TOLERANCE = 2e-2
TILES = WideTiles(16, 16, 16, 2, 4, 16, 16, 4, 1, 16, 3, 16, 4)
SMALL = ForwardTiles(rows=16, chunk=16, warps=4, stages=1)
CASES = {
    "discrete": (Discrete(5), False, (32, 20)),
    "multi": (MultiDiscrete(4, 3, 9), False, (24,)),
    "masked": (MultiDiscrete(4, 3), True, (20, 40)),
    "box": (Box(-1.0, 1.0, 3), False, (32, 32)),
}


def narrow(y):
    """y in bfloat16 as the kernels make it, and gradients as if it were y. Triton's interpreter cuts off the digits."""
    bits = y.detach().float()
    bits = bits.bfloat16() if torch.cuda.is_available() else (bits.view(torch.int32) & -65536).view(torch.float32)
    return y + (bits - y.detach())


def narrowed(module, x):
    """As plain, with what comes out of each hidden layer in bfloat16."""
    act = torch.tanh if module.activation == "tanh" else torch.relu
    if module.normalizer is not None:
        n = module.normalizer
        x = narrow(((x - n.mean) / (n.variance + 1e-5).sqrt()).clamp(-n.limit, n.limit))

    def tower(layers):
        y = x
        for layer in layers:
            y = narrow(act(layer(y)))
        return y

    actor = tower(module.actor)
    critic = actor if module.critic is None else tower(module.critic)
    return torch.cat([module.actor_head(actor), module.critic_head(critic)], 1)


def rounded(module, twin):
    """Both with weights that bfloat16 holds exactly."""
    with torch.no_grad():
        for p, q in zip(module.parameters(), twin.parameters(), strict=True):
            p.copy_(p.bfloat16().float())
            q.copy_(p.double())


@pytest.fixture
def few_programs(monkeypatch):
    """Two programs, so that few samples are several parts."""
    monkeypatch.setattr("warpdrive.learn.fused_wide.multiprocessors", lambda device: 2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("clipped", [True, False])
def test_gradients_agree_with_float64(device, kind, clipped, few_programs):
    """Random minibatches of every kind of action, in parts of 32 and 13 samples; the same bits again."""
    space, masked, hidden = CASES[kind]
    separate = (len(kind) + clipped) % 2 == 0
    number = len(kind) + 2 * clipped
    s = samples(space, 7, number, env_fastest=number % 2 == 0, masked=masked, dtype=torch.bfloat16, device=device)
    module, twin = build(space, hidden, 7, activation="tanh" if clipped else "relu", separate_value=separate)
    rounded(module, twin)
    live, noise = s.alive.cpu(), torch.Generator().manual_seed(1)
    mask = None if s.mask is None else s.mask.cpu()[:3][live]
    with torch.no_grad():
        out = narrowed(twin, s.obs.cpu()[:3][live].double())
        if kind == "box":  # actions that the policy could have drawn: log-probabilities of others magnify every error
            drawn = out[:, :-1] + twin.log_std.exp() * torch.randn(out[:, :-1].shape, generator=noise)
            s.action[s.alive] = drawn.float().to(device)
        now, _ = distribution(space, out, twin.log_std, s.action.cpu()[live].double(), mask)
    apart = 0.6 * torch.randn(now.shape, generator=noise)
    s.log_prob[s.alive] = (now + apart).float().to(device)
    coefficients, moments = (0.3, 0.3 if clipped else -1.0, 0.05, 0.7), (0.1, 1.3)
    envs = torch.tensor([5, 0, 2, 6, 1])
    work = FusedWide(module.to(device), space, clipped=clipped, samples=[s], tiles=TILES, chunk=32)
    tensors = [torch.tensor(x, device=device) for x in (coefficients, moments)]
    work.run(envs.to(device), *tensors)
    compare(twin, space, [(s, envs)], work, coefficients, moments, clipped, TOLERANCE, narrowed)
    first = work.sums.total.clone()
    work.sums.total.fill_(float("nan"))
    work.run(envs.to(device), *tensors)
    assert torch.equal(work.sums.total, first)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("hidden", [(33,), (17, 40)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_several_segments_all_environments_and_normalised(device, hidden, activation, monkeypatch):
    """One policy for segments of two layouts, all environments in place, a normaliser, one or two hidden layers."""
    # Five tiles, which the two or one programs that add up a layer do not share evenly.
    monkeypatch.setattr("warpdrive.learn.fused_wide.multiprocessors", lambda device: 5)
    space = Discrete(3)
    module, twin = build(space, hidden, 15, seed=3, activation=activation, normalize_obs=True)
    rounded(module, twin)
    module = module.to(device)
    segments = [samples(space, 15, seed, env_fastest=seed == 1, dtype=torch.bfloat16, device=device) for seed in (1, 2)]
    coefficients, moments = (0.2, -1.0, 0.01, 0.5), (0.0, 1.0)
    work = FusedWide(module, space, clipped=False, samples=segments, tiles=TILES)
    work.run(None, *[torch.tensor(x, device=device) for x in (coefficients, moments)])
    compare(twin, space, [(s, None) for s in segments], work, coefficients, moments, False, TOLERANCE, narrowed)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("hidden", [(33,), (17, 40)])
@pytest.mark.parametrize("normalize", [False, True])
def test_layers_kept_by_the_rollout(device, hidden, normalize, few_programs):
    """What a forward pass over each step's samples kept is learned from, and nothing is computed again."""
    space = MultiDiscrete(4, 3)
    module, twin = build(space, hidden, 15, seed=3, normalize_obs=normalize)
    rounded(module, twin)
    module = module.to(device)
    segments = [samples(space, 15, seed, env_fastest=seed == 1, dtype=torch.bfloat16, device=device) for seed in (1, 2)]
    coefficients, moments = (0.2, -1.0, 0.01, 0.5), (0.0, 1.0)
    work = FusedWide(module, space, clipped=False, samples=segments, once=True, tiles=TILES, chunk=32)
    for s in segments:
        seen = s.obs.clone()
        for t, kept in enumerate(s.kept):
            present = s.alive[t].t() if s.env_fastest else s.alive[t]
            weights = module.weights(torch.bfloat16)
            fused_forward(module, s.flat(s.obs[t : t + 1]), weights, "bf16", SMALL, present, kept)
        s.obs.fill_(float("nan"))
        s.seen = seen
    work.run(None, *[torch.tensor(x, device=device) for x in (coefficients, moments)])
    for s in segments:
        s.obs.copy_(s.seen)
    compare(twin, space, [(s, None) for s in segments], work, coefficients, moments, False, TOLERANCE, narrowed)


def test_what_takes_too_much_memory_is_not_kept(monkeypatch):
    """By its share of all the GPU's memory; and never of critics with layers of their own, nor for several passes."""
    space = Discrete(3)

    def kept(**options):
        s = samples(space, 5, 1, dtype=torch.bfloat16, device="cpu")
        separate = options.pop("separate_value", False)
        module, _ = build(space, (16,), 5, separate_value=separate)
        FusedWide(module, space, clipped=False, samples=[s], tiles=TILES, **options)
        return s.kept

    x, hidden = kept(once=True)[0]
    needed = sum(array.untyped_storage().nbytes() for array in (x, *hidden))
    assert not kept(once=False)
    assert not kept(once=True, separate_value=True)
    monkeypatch.setattr("warpdrive.learn.fused_wide.total_memory", lambda device: 8 * needed)
    assert kept(once=True)
    monkeypatch.setattr("warpdrive.learn.fused_wide.total_memory", lambda device: 8 * needed - 1)
    assert not kept(once=True)


@pytest.mark.gpu
@pytest.mark.parametrize("separate", [True, False])
def test_layers_of_256(separate):
    """The division that training has, at the sizes of Tag."""
    space = MultiDiscrete(21, 21)
    s = samples(space, 71, 4, dtype=torch.bfloat16, device="cuda")
    module, twin = build(space, (256, 256), 71, separate_value=separate)
    rounded(module, twin)
    coefficients, moments = (0.2, -1.0, 0.05, 0.7), (0.1, 1.3)
    work = FusedWide(module.cuda(), space, clipped=False, samples=[s])
    work.run(None, *[torch.tensor(x, device="cuda") for x in (coefficients, moments)])
    compare(twin, space, [(s, None)], work, coefficients, moments, False, TOLERANCE, narrowed)


def test_no_sample_gives_zero():
    """A minibatch in which nobody takes part moves nothing."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    space = Discrete(3)
    module, _ = build(space, (16,), 5)
    s = samples(space, 5, 1, dtype=torch.bfloat16, device=device)
    s.alive.zero_()
    work = FusedWide(module.to(device), space, clipped=True, samples=[s], tiles=TILES)
    work.run(None, torch.ones(4, device=device), torch.ones(2, device=device))
    assert torch.equal(work.sums.total, torch.zeros_like(work.sums.total))
