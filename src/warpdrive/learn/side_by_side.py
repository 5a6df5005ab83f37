"""Gradients of a wd.MLP policy on the CPU: chunks of a minibatch in threads side by side."""

from typing import Any

import torch

from warpdrive.learn.loss import SurrogateLoss
from warpdrive.learn.threads import Threads
from warpdrive.policy.mlp import ActorCritic
from warpdrive.policy.towers import Gradient, Passes, Towers

__all__ = ["SideBySide"]

ACTIVATIONS = 1 << 18  # numbers that a layer makes of one chunk: with what belongs to them they stay in a core's cache
LONGEST = 1 << 12  # samples in a chunk


class SideBySide:
    """Learns from chunks at the same time, with the same result as from one after the other.

    Each chunk's gradients are kept apart and added in the order of the chunks, whose size has nothing to do with the
    number of threads.

    Attributes:
        threads: to be entered around `learn`. chunk: how many samples a chunk is to have at most.
    """

    def __init__(self, module: ActorCritic, loss: SurrogateLoss) -> None:
        self.module, self._loss = module, loss
        self.threads = Threads()
        self._towers = Towers(module)
        self.chunk = max(1, min(LONGEST, ACTIVATIONS // self._towers.widest))
        self._passes: list[Passes] = []  # that no thread uses at the moment
        self._gradients: list[Gradient] = []  # of each chunk

    def learn(self, chunks: list[tuple[torch.Tensor, dict[str, Any]]]) -> torch.Tensor:
        """Set the gradients of the parameters.

        Args:
            chunks: of each the observations (B, D), and what else SurrogateLoss.gradients needs beside `out`.

        Returns:
            float32 (5,): the METRICS, sums over all chunks.
        """
        self._towers.refresh()
        while len(self._gradients) < len(chunks):
            self._gradients.append(Gradient(self._towers))
        metrics, *more = self.threads.map(self._learn_one, [(i, *chunk) for i, chunk in enumerate(chunks)])
        total = self._gradients[0]
        for terms, gradient in zip(more, self._gradients[1:], strict=False):
            metrics += terms
            total.flat += gradient.flat
        for parameter, part in total.of.items():
            if parameter.requires_grad:
                parameter.grad = part
        return metrics

    def _learn_one(self, chunk: tuple[int, torch.Tensor, dict[str, Any]]) -> torch.Tensor:
        index, obs, batch = chunk
        try:
            passes = self._passes.pop()
        except IndexError:
            passes = Passes(self._towers)
        with torch.no_grad():
            metrics, grad, log_std_grad = self._loss.gradients(out=passes.forward(obs), **batch)
            gradient = self._gradients[index]
            passes.backward(grad, gradient)
            if gradient.log_std is not None and log_std_grad is not None:
                gradient.log_std.copy_(log_std_grad)
        self._passes.append(passes)
        return metrics
