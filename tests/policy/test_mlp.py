"""The multilayer perceptron against plain layers, and its description."""

import dataclasses

import pytest
import torch
from torch import nn

from warpdrive.env.spaces import Box, Discrete, MultiDiscrete
from warpdrive.policy import mlp
from warpdrive.policy.mlp import MLP

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
D, B = 7, 33


def build(description, space=None, seed=0):
    return description.build(D, space or MultiDiscrete(4, 3), generator=torch.Generator().manual_seed(seed))


def plain(module, activation):
    """The same network of nn.Sequential parts, in float64."""
    act = nn.ReLU if activation == "relu" else nn.Tanh

    def tower(layers):
        return nn.Sequential(*[m for layer in layers for m in (layer, act())]).double()

    actor = tower(module.actor)
    critic = tower(module.critic) if module.critic is not None else actor
    heads = module.actor_head.double(), module.critic_head.double()
    return lambda x: torch.cat([heads[0](actor(x)), heads[1](critic(x))], 1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("hidden", [(16, 8), ()])
def test_values_and_gradients_are_those_of_plain_layers(device, activation, separate, hidden):
    """Outputs, and gradients of every weight, agree with nn.Sequential in float64."""
    description = MLP(*hidden, activation=activation, separate_value=separate)
    module = build(description).to(device)
    twin = build(description)
    torch.manual_seed(1)
    x = torch.randn(D, B).t()
    out = module(x.to(device))
    assert out.shape == (B, 8)
    assert out.t().is_contiguous()
    weights = torch.randn(B, 8)
    (out * weights.to(device)).sum().backward()
    wanted = plain(twin, activation)(x.double())
    (wanted * weights.double()).sum().backward()
    torch.testing.assert_close(out.cpu().double(), wanted, rtol=1e-4, atol=1e-4)
    for (name, a), (_, b) in zip(module.named_parameters(), twin.named_parameters(), strict=True):
        assert a.grad is not None, name
        torch.testing.assert_close(a.grad.cpu().double(), b.grad, rtol=1e-3, atol=1e-3)


def test_bfloat16_is_near_float32_and_trains_float32_weights():
    """In bfloat16 outputs and gradients stay within its precision, and weights and gradients are float32."""
    module = build(MLP(32, 32))
    x = torch.randn(D, B, generator=torch.Generator().manual_seed(2)).t().bfloat16()
    exact = module(x.float())
    out = module(x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), exact, rtol=5e-2, atol=5e-2)
    out.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in module.parameters())


def test_the_generator_decides_the_weights():
    """The same seed builds the same network, another seed another; the first policy is nearly uniform."""
    a, b, c = (build(MLP(16), seed=s) for s in (0, 0, 1))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.actor[0].weight, c.actor[0].weight)
    assert a(torch.randn(B, D))[:, :-1].abs().max() < 0.2


def test_a_box_has_a_deviation_for_each_component():
    """log_std is a trainable vector that starts where it was told to; discrete policies have none."""
    module = build(MLP(8, init_log_std=-1.5), Box(-1.0, 1.0, 2))
    assert module.log_std is not None
    assert module.log_std.tolist() == [-1.5, -1.5]
    assert build(MLP(8), Discrete(3)).log_std is None


def test_a_description_survives_being_written_down():
    """from_dict of to_dict describes the same network."""
    description = MLP(16, 8, activation="tanh", normalize_obs=True, init_log_std=-1.0, separate_value=True)
    assert MLP.from_dict(description.to_dict()) == description
    assert MLP.from_dict(MLP(16, 8).to_dict()) != description


def test_a_description_cannot_change():
    """Descriptions are frozen: networks already built from them would not follow."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        MLP(8).hidden = (16,)


def test_normalised_observations_reach_the_layers():
    """With normalize_obs the outputs are those of the layers on normalised observations, in the type given."""
    module, plain_module = build(MLP(16, normalize_obs=True)), build(MLP(16))
    rows = torch.randn(D, B, generator=torch.Generator().manual_seed(3)).t() * 4 + 2
    module.normalizer.update(rows, torch.ones(B))
    torch.testing.assert_close(module(rows), plain_module(module.normalizer(rows)))
    assert module(rows.bfloat16()).dtype == torch.bfloat16
    assert plain_module.normalizer is None


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: MLP(0), "MLP's hidden width must be a positive integer, got 0"),
        (lambda: MLP(8, activation="sigmoid"), "MLP.activation must be 'relu' or 'tanh', got 'sigmoid'"),
        (lambda: MLP(8, init_log_std=float("nan")), "MLP.init_log_std must be finite, got nan"),
    ],
)
def test_bad_descriptions_are_refused(make, sentence):
    """A wrong argument is named with its value."""
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value) == sentence


def test_layers_of_tanh_are_those_of_float64():
    """What comes out is off by the rounding of numbers near 1, and the gradients are those of torch.tanh."""
    generator = torch.Generator().manual_seed(0)
    x = torch.cat([torch.linspace(-12, 12, 2001), torch.logspace(-12, 0, 500)])[:, None].requires_grad_()
    weight, bias = torch.ones(1, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    out = mlp._LinearTanh.apply(x, weight, bias)
    assert float((out.double() - x.double().tanh()).detach().abs().max()) < 2e-7
    toward = torch.randn(out.shape, generator=generator)
    gradients = torch.autograd.grad((out * toward).sum(), (x, weight, bias))
    wide = [tensor.detach().double().requires_grad_() for tensor in (x, weight, bias)]
    expected = torch.autograd.grad(((wide[0] @ wide[1].t() + wide[2]).tanh() * toward).sum(), wide)
    for found, wanted in zip(gradients, expected, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
