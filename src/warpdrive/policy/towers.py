"""Passes forward and back through a wd.MLP policy on the CPU, written out: into memory that is used again and again."""

import itertools
from typing import Any, NamedTuple

import torch
from torch import nn

from warpdrive.policy.mlp import ActorCritic, tanh_of_half_

__all__ = ["Gradient", "Passes", "Towers", "written_out"]

_tanh_backward: Any = torch.ops.aten.tanh_backward.grad_input
_relu_backward: Any = torch.ops.aten.threshold_backward.grad_input


def written_out(module: nn.Module, obs: torch.Tensor) -> bool:
    """Whether passes of `module` over such observations can be written out: our own module, on the CPU, in float32.

    Of a module of another class nothing is known: it may draw random numbers or keep buffers.
    """
    return type(module) is ActorCritic and obs.device.type == "cpu" and module.kind(obs.dtype) == torch.float32


class _Stage:
    """The same layer of actor and critic, one above the other: rows (outputs) of several nn.Linear.

    Attributes:
        weight, bias: (outputs, inputs of each) and (outputs, 1), copies.
        blocks: of each product the rows that it makes and the rows of the stage below that it reads.
    """

    def __init__(self, layers: list[nn.Linear], blocks: list[tuple[slice, slice]]) -> None:
        self.layers, self.blocks = layers, blocks
        self.rows = sum(layer.out_features for layer in layers)
        self.weight = torch.empty(self.rows, layers[0].in_features)
        self.bias = torch.empty(self.rows, 1)

    def refresh(self, scale: float) -> None:
        torch.cat([layer.weight.detach() for layer in self.layers], out=self.weight)
        torch.cat([layer.bias.detach()[:, None] for layer in self.layers], out=self.bias)
        self.bias.mul_(scale)


class Towers:
    """The layers of an ActorCritic on the CPU, in float32.

    What both towers do to the same numbers is one operation: the product of the first layer, and the activations. Call
    `refresh` when the parameters have changed.
    """

    def __init__(self, module: ActorCritic) -> None:
        self.module = module
        towers = [module.actor] if module.critic is None else [module.actor, module.critic]
        whole = slice(None)
        self.stages = []
        for layer, width in enumerate(module.hidden):
            own = [slice(i * width, (i + 1) * width) for i in range(len(towers))]
            below = module.hidden[layer - 1]
            read = [slice(i * below, (i + 1) * below) for i in range(len(towers))]
            blocks = [(whole, whole)] if layer == 0 else list(zip(own, read, strict=True))
            self.stages.append(_Stage([tower[layer] for tower in towers], blocks))  # type: ignore[misc]
        blocks = [(whole, whole)]
        if module.critic is not None:
            width, rows = module.hidden[-1], module.num_outputs
            blocks = [(slice(0, rows), slice(0, width)), (slice(rows, None), slice(width, None))]
        self.stages.append(_Stage([module.actor_head, module.critic_head], blocks))
        # tanh z = 2 sigmoid(2 z) - 1: the inner factor goes into product and bias, where it is exact.
        self.scale = 2.0 if module.activation == "tanh" else 1.0
        self.refresh()

    def refresh(self) -> None:
        """Take over the parameters as they are now."""
        for stage in self.stages[:-1]:
            stage.refresh(self.scale)
        self.stages[-1].refresh(1.0)

    @property
    def widest(self) -> int:
        """Most numbers that one stage makes of one sample."""
        return max(stage.rows for stage in self.stages)


class Gradient:
    """Gradients of all parameters of a module, in one vector.

    Attributes:
        flat: the vector. of: parameter -> its part. stages: of each stage the parts of its blocks, and of its biases.
    """

    def __init__(self, towers: Towers) -> None:
        module = towers.module
        self.flat = torch.zeros(sum(p.numel() for p in module.parameters()))
        self.of: dict[torch.Tensor, torch.Tensor] = {}
        self.stages: list[tuple[list[torch.Tensor], torch.Tensor]] = []
        start = 0

        def take(*shape: int) -> torch.Tensor:
            nonlocal start
            part = self.flat[start:].as_strided(shape, (shape[1], 1) if len(shape) == 2 else (1,))
            start += part.numel()
            return part

        for stage in towers.stages:
            weight, bias = take(*stage.weight.shape), take(stage.rows)
            self.stages.append(([weight[rows] for rows, _ in stage.blocks], bias))
            ends = itertools.accumulate((layer.out_features for layer in stage.layers), initial=0)
            for layer, (a, b) in zip(stage.layers, itertools.pairwise(ends), strict=True):
                self.of[layer.weight], self.of[layer.bias] = weight[a:b], bias[a:b]
        self.log_std: torch.Tensor | None = None
        if module.log_std is not None:
            self.log_std = self.of[module.log_std] = take(module.log_std.numel())


class _Product(NamedTuple):
    """One block of a stage over a chunk: what it reads and makes, and the gradients of both."""

    weight: torch.Tensor
    back: torch.Tensor  # the transposed weight
    bias: torch.Tensor
    read: torch.Tensor | None  # None: the observations
    read_back: torch.Tensor | None  # its transpose
    made: torch.Tensor | None  # None: the outputs, given
    grad_read: torch.Tensor | None
    grad_made: torch.Tensor | None  # None: of the outputs, given


class _Chunk:
    """Views of a memory for one number of samples."""

    def __init__(self, towers: Towers, memory: list[torch.Tensor], samples: int) -> None:
        def view(flat: torch.Tensor, stage: _Stage) -> torch.Tensor:
            return flat[: stage.rows * samples].view(stage.rows, samples)

        stages = towers.stages
        hidden = stages[:-1]
        self.made = [view(flat, stage) for flat, stage in zip(memory, hidden, strict=False)]
        # The gradient in front of a stage is needed until the one below is made: two memories take turns.
        self.grads = [view(memory[len(hidden) + i % 2], stage) for i, stage in enumerate(hidden)]
        self.products: list[list[_Product]] = []
        for i, stage in enumerate(stages):
            products = []
            for rows, below in stage.blocks:
                read = None if i == 0 else self.made[i - 1][below]
                products.append(
                    _Product(
                        weight=stage.weight[rows],
                        back=stage.weight[rows].t(),
                        bias=stage.bias[rows],
                        read=read,
                        read_back=None if read is None else read.t(),
                        made=None if stage is stages[-1] else self.made[i][rows],
                        grad_read=None if i == 0 else self.grads[i - 1][below],
                        grad_made=None if stage is stages[-1] else self.grads[i][rows],
                    )
                )
            self.products.append(products)


class Passes:
    """Memory for passes over chunks of samples, one at a time; threads need one each.

    PyTorch would ask the system for each activation and give it back, and the first touch of a page costs more than
    what is computed on it; and to make views anew takes Python long enough for another thread to wait.
    """

    def __init__(self, towers: Towers) -> None:
        self.towers = towers
        self._memory: list[torch.Tensor] = []
        self._most = 0  # samples that the memory holds
        self._chunks: dict[int, _Chunk] = {}

    def _chunk(self, samples: int) -> _Chunk:
        if samples > self._most:
            self._chunks.clear()
            self._most = samples
            rows = [*(stage.rows for stage in self.towers.stages[:-1]), self.towers.widest, self.towers.widest]
            self._memory = [torch.empty(count * samples) for count in rows]
        if samples not in self._chunks:
            self._chunks[samples] = _Chunk(self.towers, self._memory, samples)
        return self._chunks[samples]

    def forward(self, obs: torch.Tensor, out: torch.Tensor) -> None:
        """Write to `out` (B, P + 1) float32 what the module gives for `obs` (B, D); both feature-major."""
        module = self.towers.module
        chunk = self._chunk(len(obs))
        x = (obs if module.normalizer is None else module.normalizer(obs)).float().t()
        out = out.t()
        scale, tanh = self.towers.scale, module.activation == "tanh"
        for stage, products, made in zip(self.towers.stages, chunk.products, [*chunk.made, None], strict=True):
            for (rows, _), p in zip(stage.blocks, products, strict=True):
                read = x if p.read is None else p.read
                if made is None:
                    torch.addmm(p.bias, p.weight, read, out=out[rows])
                else:
                    torch.addmm(p.bias, p.weight, read, alpha=scale, out=p.made)
            if made is not None and tanh:
                tanh_of_half_(made)
            elif made is not None:
                made.relu_()
        self._x = x

    def backward(self, grad_out: torch.Tensor, gradient_out: Gradient) -> None:
        """Gradients of the layers' parameters for the gradient (B, P + 1) of what `forward` has just given."""
        chunk = self._chunk(len(grad_out))
        x_back, grad = self._x.t(), grad_out.t()
        tanh = self.towers.module.activation == "tanh"
        for i in reversed(range(len(chunk.products))):
            weights, bias = gradient_out.stages[i]
            if i < len(chunk.grads):
                grad = chunk.grads[i]
            torch.sum(grad, 1, out=bias)
            for (rows, _), p, weight in zip(self.towers.stages[i].blocks, chunk.products[i], weights, strict=True):
                made = grad[rows] if p.grad_made is None else p.grad_made
                torch.mm(made, x_back if p.read_back is None else p.read_back, out=weight)
                if p.grad_read is not None:
                    torch.mm(p.back, made, out=p.grad_read)
            if i > 0:
                below, y = chunk.grads[i - 1], chunk.made[i - 1]
                if tanh:
                    _tanh_backward(below, y, grad_input=below)
                else:
                    _relu_backward(below, y, 0, grad_input=below)
