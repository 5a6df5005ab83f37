"""The multilayer perceptron: an actor and a critic on shared or separate hidden layers."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn

from warpdrive.env.environment import positive_int
from warpdrive.env.spaces import ActionSpace, Box
from warpdrive.policy.normalizer import Normalizer

__all__ = ["MLP", "ActorCritic"]


class MLP:
    """Description of a multilayer perceptron policy; a trainer builds it when it knows the spaces.

    Args:
        hidden: widths of the hidden layers.
        activation: of the hidden layers.
        normalize_obs: whether observations are normalised by their running mean and variance.
        init_log_std: logarithm of the standard deviation of continuous actions at the start.
        separate_value: whether the critic has hidden layers of its own.

    Raises:
        ValueError: a width that is no positive integer, an unknown activation, a deviation that is not finite.
    """

    def __init__(
        self,
        *hidden: int,
        activation: Literal["relu", "tanh"] = "relu",
        normalize_obs: bool = False,
        init_log_std: float = -0.5,
        separate_value: bool = False,
    ) -> None:
        self.hidden = tuple(positive_int("MLP's hidden width", width) for width in hidden)
        if activation not in ("relu", "tanh"):
            raise ValueError(f"MLP.activation must be 'relu' or 'tanh', got {activation!r}")
        if not math.isfinite(init_log_std):
            raise ValueError(f"MLP.init_log_std must be finite, got {init_log_std!r}")
        self.activation: Literal["relu", "tanh"] = activation
        self.normalize_obs, self.init_log_std, self.separate_value = normalize_obs, init_log_std, separate_value

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which `MLP.from_dict` makes an equal description."""
        return {**vars(self), "hidden": list(self.hidden)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "MLP":
        """The description that `to_dict` gave."""
        options = dict(data)
        return cls(*options.pop("hidden"), **options)

    def build(self, obs_size: int, space: ActionSpace, *, generator: torch.Generator) -> "ActorCritic":
        """The network for observations of `obs_size` features and actions of `space`, on the CPU."""
        return ActorCritic(self, obs_size, space, generator)


class _LinearRelu(torch.autograd.Function):
    """relu(x W^T + b) in one call, keeping for the way back only what goes in and what comes out."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        y = torch._addmm_activation(bias, x, weight.t())
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        x, weight, y = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grads[0], y, 0)
        grad_x = grad @ weight if ctx.needs_input_grad[0] else None
        # As products, and laid out so that no leading dimension is an odd number of features: on an H200 a sum over
        # the samples took 156 us where the product takes 60, and a product with a leading dimension of 71 took 20
        # times as long as with one of 256.
        ones = torch.ones((1, grad.shape[0]), dtype=grad.dtype, device=grad.device)
        return grad_x, (x.t() @ grad).t(), (ones @ grad)[0]


class ActorCritic(nn.Module):
    """Maps observations (B, D) to (B, P + 1): the parameters of the action distribution, then the value.

    It computes in the type of the observations, on weights that are kept in float32. The result lies feature-major in
    memory: its transpose is contiguous. Layers start orthogonal with gain sqrt 2 (actor's last 0.01, critic's last 1)
    and biases 0, as Andrychowicz et al. 2021 (arXiv 2006.05990, section 3.2) found good.
    """

    def __init__(self, description: MLP, obs_size: int, space: ActionSpace, generator: torch.Generator) -> None:
        super().__init__()
        self.activation = description.activation
        self.normalizer = Normalizer(obs_size) if description.normalize_obs else None
        widths = (obs_size, *description.hidden)
        self.actor = _layers(widths, generator)
        self.critic = _layers(widths, generator) if description.separate_value and description.hidden else None
        self.actor_head = _linear(widths[-1], space.num_outputs, 0.01, generator)
        self.critic_head = _linear(widths[-1], 1, 1.0, generator)
        self.log_std: nn.Parameter | None = None
        if isinstance(space, Box):
            self.log_std = nn.Parameter(torch.full((space.size,), float(description.init_log_std)))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """(B, P + 1) in the type of `obs` (B, D), float32 or bfloat16, best feature-major (obs.t() contiguous)."""
        kind = obs.dtype
        x = obs if self.normalizer is None else self.normalizer(obs).to(kind)
        hidden = self._hidden(self.actor, x)
        actor, critic = self.actor_head, self.critic_head
        if self.critic is None:
            weight = torch.cat([actor.weight, critic.weight]).to(kind)
            bias = torch.cat([actor.bias, critic.bias]).to(kind)
            return torch.addmm(bias[:, None], weight, hidden.t()).t()
        value = self._hidden(self.critic, x)
        return torch.cat(
            [
                torch.addmm(actor.bias.to(kind)[:, None], actor.weight.to(kind), hidden.t()),
                torch.addmm(critic.bias.to(kind)[:, None], critic.weight.to(kind), value.t()),
            ]
        ).t()

    def _hidden(self, layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            assert isinstance(layer, nn.Linear)
            # Its transpose contiguous: see _LinearRelu.backward.
            weight, bias = layer.weight.t().contiguous().to(x.dtype).t(), layer.bias.to(x.dtype)
            if self.activation == "relu":
                x = _LinearRelu.apply(x, weight, bias)
            else:
                x = torch.tanh(torch.addmm(bias, x, weight.t()))
        return x


def _layers(widths: Sequence[int], generator: torch.Generator) -> nn.ModuleList:
    return nn.ModuleList(_linear(a, b, math.sqrt(2.0), generator) for a, b in itertools.pairwise(widths))


def _linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
