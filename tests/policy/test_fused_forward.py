"""The fused forward pass against plain layers in float64."""

import pytest
import torch

from warpdrive.env.spaces import Box, Discrete, MultiDiscrete
from warpdrive.policy.mlp import MLP, Kept

pytest.importorskip("triton")
from warpdrive.policy.fused_forward import ForwardTiles, forward_tiles, fused_forward

DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="compiled kernels run on the GPU")),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
D, B = 19, 45
TOLERANCE = {"ieee": 1e-5, "tf32x3": 1e-5, "tf32": 5e-3, "bf16": 5e-2}


def build(hidden, space=None, **options):
    """A module whose heads are not nearly 0, with a normaliser that does something, and its copy in float64."""
    made = []
    for _ in range(2):
        g = torch.Generator().manual_seed(len(hidden))
        module = MLP(*hidden, **options).build(D, space or MultiDiscrete(4, 3), generator=g)
        for p in module.parameters():
            p.data += 0.2 * torch.randn(p.shape, generator=g)
        if module.normalizer is not None:
            module.normalizer.mean.normal_(generator=g)
            module.normalizer.variance.uniform_(0.5, 2.0, generator=g)
        made.append(module)
    return made[0], made[1].double()


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
    return torch.cat([module.actor_head(actor), module.critic_head(critic)], 1).detach()


def layers_of(module, x):
    """What comes out of each of the actor's hidden layers, for normalised observations."""
    outs = []
    for layer in module.actor:
        x = torch.relu(layer(x)).detach()
        outs.append(x)
    return outs


def check(module, twin, obs, precision, tiles, device):
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    module = module.to(device)
    placed = torch.empty_strided(obs.shape, obs.stride(), dtype=obs.dtype, device=device).copy_(obs)
    out = fused_forward(module, placed, module.weights(kind), precision, tiles)
    wanted = plain(twin, obs.double())
    assert out.shape == wanted.shape
    assert out.dtype == torch.float32
    assert out.t().is_contiguous()
    error = (out.cpu().double() - wanted).norm() / wanted.norm()
    assert error < TOLERANCE[precision]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("hidden", [(17,), (64,), (130,), (40, 72), (130, 20)])
@pytest.mark.parametrize("separate", [False, True])
def test_it_agrees_with_float64(device, hidden, separate):
    """One and two layers of any width, both kinds of critic, with a normaliser, a batch that fills no tile."""
    module, twin = build(hidden, activation="tanh", separate_value=separate, normalize_obs=True)
    obs = torch.randn(D, B, generator=torch.Generator().manual_seed(1)).t()
    check(module, twin, obs, "ieee" if device == "cpu" else "tf32x3", ForwardTiles(16, 16, 4, 1), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_low_precision_is_near(device, precision, dtype, activation):
    """Products of tf32 and bfloat16 lose what they must, for observations of both types, strided as a step's are."""
    module, twin = build((64, 48), Box(-1.0, 1.0, 3), activation=activation)
    block = torch.randn(D, 3, B, generator=torch.Generator().manual_seed(2)).to(dtype)
    check(module, twin, block[:, 1].t(), precision, None, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("hidden", [(32, 32), (64, 32), (32, 64), (16, 16)])
@pytest.mark.parametrize("separate", [False, True])
def test_narrow_layers_of_bfloat16(device, hidden, separate):
    """Networks for which ptxas wrote reads outside shared memory; as the library divides them they are right."""
    made = MLP(*hidden, separate_value=separate).build(21, Discrete(5), generator=torch.Generator().manual_seed(0))
    twin = MLP(*hidden, separate_value=separate).build(21, Discrete(5), generator=torch.Generator().manual_seed(0))
    obs = torch.randn(21, 4 * 64, generator=torch.Generator().manual_seed(3)).bfloat16().t()
    check(made, twin.double(), obs, "bf16", None, device)


def test_narrow_layers_stay_clear_of_wgmma():
    """Triton takes wgmma for results of a multiple of 64 rows: see docs/design.md, "Fused kernels"."""
    for hidden in ((16,), (32, 32), (64, 64), (128, 128), (256, 32), (128, 256)):
        assert forward_tiles(hidden).rows == 32
    assert forward_tiles((256, 256)).rows == 128


def test_a_fused_module_still_gives_gradients():
    """With gradients wanted it computes by layers, and without them by the kernel, to the same values."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    module, _ = build((16, 16))
    module = module.to(device)
    obs = torch.randn(D, B, device=device).t()
    layers = module(obs)
    module.fused = "whole"
    assert torch.equal(module(obs), layers)
    assert module(obs).requires_grad
    with torch.no_grad():
        fused = module(obs)
    assert not fused.requires_grad
    torch.testing.assert_close(fused, layers.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("hidden", [(20,), (20, 33)])
def test_who_is_absent_is_left_out_and_layers_are_kept(device, hidden):
    """Observations of those absent may be anything; the others' outputs are the same bits, and so are their layers."""
    module, _ = build(hidden, normalize_obs=True)
    module = module.to(device)
    g = torch.Generator().manual_seed(1)
    obs = torch.randn(D, B, generator=g).bfloat16().t()
    present = torch.rand(3, B // 3, generator=g) < 0.4
    there = present.reshape(-1)
    weights, tiles = module.weights(torch.bfloat16), ForwardTiles(16, 16, 4, 1)
    wanted = fused_forward(module, obs.to(device), weights, "bf16", tiles)
    obs[~there] = float("nan")
    keep = Kept(
        torch.full((B, 24), 7.0, dtype=torch.bfloat16, device=device),
        [torch.full((B, w), 7.0, dtype=torch.bfloat16, device=device) for w in (32, 64)[: len(hidden)]],
    )
    out = fused_forward(module, obs.to(device), weights, "bf16", tiles, present.to(device), keep)
    # In the interpreter the products are NumPy's, which on some processors round by where in a tile a row stands.
    torch.testing.assert_close(out[there], wanted[there], rtol=0, atol=0 if device == "cuda" else 1e-6)
    n = module.normalizer
    y = ((obs.to(device).float() - n.mean) / (n.variance + 1e-5).sqrt()).clamp(-n.limit, n.limit)
    x = torch.cat([y, torch.ones(B, 1, device=device), torch.zeros(B, 24 - D - 1, device=device)], 1)
    for rows, width, values in zip((keep.x, *keep.hidden), (24, *hidden), (x, *layers_of(module, y)), strict=True):
        torch.testing.assert_close(rows[there][:, :width].float(), values[there][:, :width], rtol=2e-2, atol=2e-2)
        assert bool((rows[there][:, width:] == 0).all())
        assert bool((rows[~there] == 7.0).all())
