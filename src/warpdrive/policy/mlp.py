"""The multilayer perceptron: an actor and a critic on shared or separate hidden layers."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import nn

from warpdrive.env.environment import positive_int
from warpdrive.env.spaces import ActionSpace, Box
from warpdrive.policy.normalizer import Normalizer

__all__ = ["MLP", "PRECISIONS", "ActorCritic", "Fusion", "Kept", "Precision", "Weights", "tanh_of_half_"]

Fusion = Literal["whole", "wide", ""]
Precision = Literal["auto", "float32", "tf32", "bf16"]
PRECISIONS = get_args(Precision)


@dataclass(frozen=True, init=False)
class MLP:
    """Description of a multilayer perceptron policy; a trainer builds it when it knows the spaces.

    Args:
        hidden: widths of the hidden layers.
        activation: of the hidden layers.
        normalize_obs: whether observations are normalised by their running mean and variance.
        init_log_std: logarithm of the standard deviation of continuous actions at the start.
        separate_value: whether the critic has hidden layers of its own: slower, but steadier where returns are large
            and would drown the policy's gradients in shared layers.

    Raises:
        ValueError: a width that is no positive integer, an unknown activation, a deviation that is not finite.
    """

    hidden: tuple[int, ...]
    activation: Literal["relu", "tanh"]
    normalize_obs: bool
    init_log_std: float
    separate_value: bool

    def __init__(
        self,
        *hidden: int,
        activation: Literal["relu", "tanh"] = "relu",
        normalize_obs: bool = False,
        init_log_std: float = -0.5,
        separate_value: bool = False,
    ) -> None:
        widths = tuple(positive_int("MLP's hidden width", width) for width in hidden)
        if activation not in ("relu", "tanh"):
            raise ValueError(f"MLP.activation must be 'relu' or 'tanh', got {activation!r}")
        if not math.isfinite(init_log_std):
            raise ValueError(f"MLP.init_log_std must be finite, got {init_log_std!r}")
        for name, value in (
            ("hidden", widths),
            ("activation", activation),
            ("normalize_obs", normalize_obs),
            ("init_log_std", init_log_std),
            ("separate_value", separate_value),
        ):
            object.__setattr__(self, name, value)  # as a frozen dataclass of its own __init__ has to

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


_MINUS_ONE = torch.tensor(-1.0)


def tanh_of_half_(z: torch.Tensor) -> torch.Tensor:
    """tanh(z / 2) in the place of z, as 2 sigmoid(z) - 1: on a CPU in a quarter of the time of PyTorch's tanh.

    It is off by 2e-7 at most.
    """
    return torch.add(_MINUS_ONE, z.sigmoid_(), alpha=2.0, out=z)  # one pass over memory


class _LinearTanh(torch.autograd.Function):
    """tanh(x W^T + b), feature-major all the way, so that no pass over memory meets two orders of it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        if x.is_cuda or x.dtype != torch.float32:
            z = torch.addmm(bias[:, None], weight, x.t()).tanh_()
        else:
            z = tanh_of_half_(torch.addmm(2.0 * bias[:, None], weight, x.t(), alpha=2.0))
        ctx.save_for_backward(x, weight, z)
        return z.t()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        x, weight, y = ctx.saved_tensors
        grad = grads[0].t()
        grad = torch.ops.aten.tanh_backward(grad, y)
        grad_x = (weight.t() @ grad).t() if ctx.needs_input_grad[0] else None
        return grad_x, grad @ x, grad @ torch.ones(grad.shape[1], dtype=grad.dtype, device=grad.device)


class Weights(NamedTuple):
    """Weights and biases, layer by layer, of the hidden layers of actor and critic and of the heads."""

    actor: list[tuple[torch.Tensor, torch.Tensor]]
    critic: list[tuple[torch.Tensor, torch.Tensor]] | None
    heads: list[tuple[torch.Tensor, torch.Tensor]]


class Kept(NamedTuple):
    """Where a fused forward pass in bfloat16 leaves what learning needs again, sample by sample.

    Attributes:
        x: bfloat16 (B, at least D + 1): the observations, normalised if need be, then a 1; 0 beyond.
        hidden: of each hidden layer bfloat16 (B, the least power of two from 16 on that it fits): what comes out of it.
    """

    x: torch.Tensor
    hidden: list[torch.Tensor]


class ActorCritic(nn.Module):
    """Maps observations (B, D) to (B, P + 1): the parameters of the action distribution, then the value.

    It computes in the type of the observations, or as `precision` says, on weights that are kept in float32. The result
    lies feature-major in memory: its transpose is contiguous. Layers start orthogonal with gain sqrt 2 and biases 0,
    the critic's last with gain 1 and the actor's last with 0.01: a first policy that hardly depends on the observation,
    as Andrychowicz et al. 2021 (arXiv 2006.05990, section 3.2) recommend.

    Attributes:
        activation, hidden: as in the description; obs_size: D; num_outputs: P.
        precision: of the products: "auto" (as the observations), "float32", "tf32" (float32 where there are no fused
            kernels) or "bf16".
        fused: which kernels of Triton it learns by, see warpdrive.policy.fused, or "": none; if any, one computes its
            outputs when no gradients are wanted.
    """

    precision: Precision = "auto"
    fused: Fusion = ""

    def __init__(self, description: MLP, obs_size: int, space: ActionSpace, generator: torch.Generator) -> None:
        super().__init__()
        self.activation, self.hidden = description.activation, description.hidden
        self.obs_size, self.num_outputs = obs_size, space.num_outputs
        self.normalizer = Normalizer(obs_size) if description.normalize_obs else None
        widths = (obs_size, *description.hidden)
        self.actor = _layers(widths, generator)
        self.critic = _layers(widths, generator) if description.separate_value and description.hidden else None
        self.actor_head = _linear(widths[-1], space.num_outputs, 0.01, generator)
        self.critic_head = _linear(widths[-1], 1, 1.0, generator)
        self.log_std: nn.Parameter | None = None
        if isinstance(space, Box):
            self.log_std = nn.Parameter(torch.full((space.size,), float(description.init_log_std)))

    def kind(self, obs_dtype: torch.dtype) -> torch.dtype:
        """The type that weights and activations have for observations of a type."""
        if self.precision == "auto":
            return obs_dtype
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    def products(self, obs_dtype: torch.dtype) -> Literal["bf16", "tf32", "tf32x3"]:
        """What fused kernels make products of: float32 as sums of three products of tf32, with float32's error."""
        if self.kind(obs_dtype) == torch.bfloat16:
            return "bf16"
        return "tf32" if self.precision == "tf32" else "tf32x3"

    def weights(self, kind: torch.dtype) -> "Weights":
        """All weights and biases in the type that is computed in; who calls often without learning makes them once."""

        def cast(layers: nn.ModuleList) -> list[tuple[torch.Tensor, torch.Tensor]]:
            # Transposes contiguous: see _LinearRelu.backward.
            return [(layer.weight.t().contiguous().to(kind).t(), layer.bias.to(kind)) for layer in layers]  # type: ignore[misc, operator]

        actor, critic = self.actor_head, self.critic_head
        heads = [(actor.weight.to(kind), actor.bias.to(kind)), (critic.weight.to(kind), critic.bias.to(kind))]
        if self.critic is None:  # both heads read the same layer: one product
            heads = [(torch.cat([w for w, _ in heads]), torch.cat([b for _, b in heads]))]
        return Weights(cast(self.actor), None if self.critic is None else cast(self.critic), heads)

    def forward(
        self,
        obs: torch.Tensor,
        weights: "Weights | None" = None,
        present: torch.Tensor | None = None,
        keep: "Kept | None" = None,
    ) -> torch.Tensor:
        """(B, P + 1) for `obs` (B, D), float32 or bfloat16, best feature-major (obs.t() contiguous).

        In the type that it computes in, `kind(obs.dtype)`; from a fused kernel always float32. `weights` are what
        `weights(kind)` gave, of who calls often without learning. The fused kernel leaves out samples that are not
        `present`, bool (B / n, n): their outputs mean nothing. And it fills `keep`, where the critic has no layers of
        its own.
        """
        kind = self.kind(obs.dtype)
        if weights is None:
            weights = self.weights(kind)
        if self.fused and not torch.is_grad_enabled():
            from warpdrive.policy.fused_forward import fused_forward  # not everywhere there is Triton

            return fused_forward(self, obs, weights, self.products(obs.dtype), present=present, keep=keep)
        x = (obs if self.normalizer is None else self.normalizer(obs)).to(kind)
        towers = [weights.actor] if weights.critic is None else [weights.actor, weights.critic]
        parts = [
            torch.addmm(bias[:, None], weight, self._hidden(layers, x).t())
            for layers, (weight, bias) in zip(towers, weights.heads, strict=True)
        ]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).t()

    def _hidden(self, layers: list[tuple[torch.Tensor, torch.Tensor]], x: torch.Tensor) -> torch.Tensor:
        for weight, bias in layers:
            if self.activation == "relu":
                x = _LinearRelu.apply(x, weight, bias)
            else:
                x = _LinearTanh.apply(x, weight, bias)
        return x


def _layers(widths: Sequence[int], generator: torch.Generator) -> nn.ModuleList:
    return nn.ModuleList(_linear(a, b, math.sqrt(2.0), generator) for a, b in itertools.pairwise(widths))


def _linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
