"""Passes that are written out against the module that they are of."""

import pytest
import torch

from warpdrive.env.spaces import Box, MultiDiscrete
from warpdrive.policy.mlp import MLP, ActorCritic
from warpdrive.policy.towers import Gradient, Passes, Towers, written_out

D = 7


def build(description, space=None):
    return description.build(D, space or MultiDiscrete(4, 3), generator=torch.Generator().manual_seed(0))


def samples(count, seed):
    return torch.randn(D, count, generator=torch.Generator().manual_seed(seed)).t()


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("hidden", [(16, 8, 12), (16, 16), (8,), ()])
@pytest.mark.parametrize("normalize", [False, True])
def test_outputs_and_gradients_are_the_modules(activation, separate, hidden, normalize):
    """For chunks of several lengths one after the other, in the same memory, with biases that are not zero."""
    module = build(MLP(*hidden, activation=activation, separate_value=separate, normalize_obs=normalize))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    if normalize:
        module.normalizer.update(3.0 * samples(99, 2) + 1.0, torch.ones(99))
    towers = Towers(module)
    passes, gradient = Passes(towers), Gradient(towers)
    for count in (33, 48, 5, 33):
        obs, toward = samples(count, count), torch.randn(8, count, generator=generator).t()
        out = torch.full((8, count), float("nan")).t()
        gradient.flat.fill_(float("nan"))
        passes.forward(obs, out)
        passes.backward(toward, gradient)
        wanted = module(obs)
        torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-5)
        grads = torch.autograd.grad((wanted * toward).sum(), list(module.parameters()))
        assert len(gradient.of) == len(grads)
        for (name, parameter), grad in zip(module.named_parameters(), grads, strict=True):
            torch.testing.assert_close(gradient.of[parameter], grad, rtol=1e-4, atol=1e-4, msg=name)


def test_new_weights_are_taken_over_when_asked():
    """Until `refresh` a pass is that of the weights before."""
    module = build(MLP(8, activation="tanh"))
    passes, obs, out = Passes(towers := Towers(module)), samples(20, 0), torch.empty(8, 20).t()
    before = module(obs).detach()
    with torch.no_grad():
        module.actor[0].weight.mul_(3.0)
        module.actor_head.bias.add_(1.0)
    after = module(obs).detach()
    passes.forward(obs, out)
    torch.testing.assert_close(out, before)
    towers.refresh()
    passes.forward(obs, out)
    torch.testing.assert_close(out, after)
    assert not torch.allclose(before, after)


def test_only_our_own_module_is_written_out():
    """Not one of another class, nor one that computes in bfloat16."""

    class Other(ActorCritic):
        pass

    module, obs = build(MLP(8), Box(-1.0, 1.0, 2)), samples(4, 0)
    assert written_out(module, obs)
    assert not written_out(module, obs.bfloat16())
    module.precision = "float32"
    assert written_out(module, obs.bfloat16())
    module.precision = "bf16"
    assert not written_out(module, obs)
    module.precision = "auto"
    module.__class__ = Other
    assert not written_out(module, obs)
    assert not written_out(torch.nn.Linear(D, 3), obs)
