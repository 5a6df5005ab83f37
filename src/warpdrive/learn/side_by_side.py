"""Gradients of a wd.MLP policy on the CPU: chunks of a minibatch in threads side by side."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from warpdrive.learn.loss import METRICS, SurrogateLoss, loss_arguments
from warpdrive.learn.rollout import Samples
from warpdrive.learn.threads import Threads
from warpdrive.policy.towers import Gradient, Passes, Towers

__all__ = ["SideBySide", "bounds"]

ACTIVATIONS = 1 << 18  # numbers that a layer makes of one chunk: with what belongs to them they stay in a core's cache
LONGEST = 1 << 12  # samples in a chunk
AT_A_TIME = 8  # chunks for each thread, until their gradients are added up
ALIGNED = 16  # samples: chunks begin where a register's load does


def bounds(total: int, size: int) -> list[int]:
    """Where chunks of about `size` samples begin and end: nearly equal, and if there are two, even in number.

    They do not depend on the number of threads.
    """
    parts = -(-total // size)
    parts += parts % 2 if parts > 1 else 0
    return sorted({*(total * i // parts // ALIGNED * ALIGNED for i in range(parts)), total})


class SideBySide:
    """Learns from chunks at the same time, with the same result as from one after the other.

    Each chunk's gradients are kept apart and added in the order of the chunks.

    Args:
        module: an ActorCritic on the CPU.
        samples: of the segments that it acts for.
        coefficients: see SurrogateLoss.

    Attributes:
        threads: their `begin` is to be entered around `gather` and `learn`.
    """

    def __init__(self, module: Any, loss: SurrogateLoss, samples: list[Samples], coefficients: torch.Tensor) -> None:
        self.module, self.samples, self._loss = module, samples, loss
        self.threads = Threads()
        self._towers = Towers(module)
        self._size = max(1, min(LONGEST, ACTIVATIONS // self._towers.widest))
        self._numbers = {"coefficients": coefficients, "moments": torch.zeros(3)}
        self._gathered: dict[int | None, list[_Gathered]] = {}  # by number of environments, None: all
        self._passes: list[Passes] = []  # that no thread uses at the moment
        self._gradients: list[Gradient] = []  # of the chunks at work
        self._total = Gradient(self._towers)

    def gather(self, envs: torch.Tensor | None) -> list["_Gathered"]:
        """The samples of some environments, or of all, of each segment; valid until the next call."""
        count = None if envs is None else len(envs)
        if count not in self._gathered:
            self._gathered[count] = [_Gathered(s, count) for s in self.samples]
            for batch in self._gathered[count]:
                edges = bounds(len(batch.weight), self._size)
                batch.chunks = [self._record(batch, slice(a, b)) for a, b in itertools.pairwise(edges)]
        batches = self._gathered[count]

        def copy(copies: tuple[torch.Tensor, int, torch.Tensor]) -> None:
            assert envs is not None
            source, axis, target = copies
            torch.index_select(source, axis, envs, out=target)

        self.threads.map(copy, [copies for batch in batches for copies in batch.copies])
        for batch in batches:
            batch.weigh()
        return batches

    def learn(self, batches: list["_Gathered"], moments: torch.Tensor) -> torch.Tensor:
        """Set the gradients of the parameters from what `gather` gave.

        Args:
            moments: see SurrogateLoss.

        Returns:
            float32 (5,): the METRICS, sums over all samples.
        """
        self._numbers["moments"].copy_(moments)
        self._towers.refresh()
        chunks = [chunk for batch in batches for chunk in batch.chunks]
        metrics = torch.zeros(len(METRICS))
        self._total.flat.zero_()
        # Some at a time, which bounds the memory of gradients; sums are the same whatever that number is.
        most = AT_A_TIME * self.threads.count
        while len(self._gradients) < min(most, len(chunks)):
            self._gradients.append(Gradient(self._towers))
        for start in range(0, len(chunks), most):
            some = list(zip(chunks[start : start + most], self._gradients, strict=False))
            for terms, (_, gradient) in zip(self.threads.map(self._learn, some), some, strict=True):
                metrics += terms
                self._total.flat.add_(gradient.flat)
        for parameter, part in self._total.of.items():
            if parameter.requires_grad:
                parameter.grad = part
        return metrics

    def _learn(self, item: tuple["_Chunk", Gradient]) -> torch.Tensor:
        chunk, gradient = item
        try:
            passes = self._passes.pop()
        except IndexError:
            passes = Passes(self._towers)
        with torch.no_grad():
            passes.forward(chunk.obs, chunk.out)
            chunk.loss()
            passes.backward(chunk.grad, gradient)
            if chunk.log_std_grad is not None:
                torch.sum(chunk.log_std_grad, 1, out=gradient.log_std)
        self._passes.append(passes)
        return chunk.terms.sum(1)

    def _record(self, batch: "_Gathered", rows: slice) -> "_Chunk":
        count, outputs = rows.stop - rows.start, self.module.num_outputs

        def new(features: int) -> torch.Tensor:
            return torch.empty(features, count)

        log_std = self.module.log_std
        out, grad, terms = new(outputs + 1).t(), new(outputs + 1).t(), new(len(METRICS))
        log_std_grad = None if log_std is None else new(outputs)
        loss = self._loss.record(
            out=out,
            log_std=log_std,
            **loss_arguments(batch, rows),
            **self._numbers,
            grad_out=grad,
            log_std_grad_out=log_std_grad,
            terms_out=terms,
        )
        return _Chunk(batch.obs[rows], out, grad, log_std_grad, terms, loss)


@dataclass
class _Chunk:
    """Some of the samples gathered, and what is made of them: (B, D), (B, P + 1) twice, (P, B) and (5, B)."""

    obs: torch.Tensor
    out: torch.Tensor
    grad: torch.Tensor
    log_std_grad: torch.Tensor | None
    terms: torch.Tensor
    loss: Callable[[], None]


class _Gathered:
    """One segment's samples of some number of environments, at addresses that stay: (B,) or (B, features), as Samples.

    Attributes:
        copies: of each array where it comes from, the axis of environments, and where it goes to. None for all
            environments: they are read where they are.
        chunks: what is learned at a time.
    """

    def __init__(self, s: Samples, count: int | None) -> None:
        self.copies: list[tuple[torch.Tensor, int, torch.Tensor]] = []
        self.chunks: list[_Chunk] = []
        steps, _, agents = s.log_prob.shape

        def take(array: torch.Tensor) -> torch.Tensor:
            if count is None:
                flat = s.flat(array)
                assert flat.data_ptr() == array.data_ptr(), "a view, which shows what is there later"
                return flat
            axis = 2 if s.env_fastest else 1
            inner = (steps, agents, count) if s.env_fastest else (steps, count, agents)
            source = array.transpose(1, 2) if s.env_fastest else array
            if array.dim() == 3:
                target = torch.empty(inner, dtype=array.dtype)
                self.copies.append((source, axis, target))
                return target.view(-1)
            features = array.shape[-1]
            source = source.movedim(-1, 0)
            target = torch.empty((features, *inner), dtype=array.dtype)
            for part in [slice(0, features // 2), slice(features // 2, None)][features < 2 :]:  # for two threads
                self.copies.append((source[part], axis + 1, target[part]))
            return target.view(features, -1).t()

        self.obs = take(s.obs[:steps])
        self.mask = None if s.mask is None else take(s.mask[:steps])
        self.action = take(s.action)
        self.log_prob, self.value = take(s.log_prob), take(s.value[:steps])
        self.advantage, self.target = take(s.advantage), take(s.target)
        self._alive = s.alive if count is None else take(s.alive)
        self._flat = s.flat
        self.weight = torch.empty(len(self.log_prob))

    def weigh(self) -> None:
        """Set `weight` (B,) float32: 1 of who is there."""
        self.weight.copy_(self._flat(self._alive) if self._alive.dim() == 3 else self._alive)
