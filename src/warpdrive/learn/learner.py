"""One policy's learning: advantages, minibatches, losses and optimiser steps over a rollout."""

import contextlib
from typing import TYPE_CHECKING, Any

import torch
import warp as wp
from torch import nn

from warpdrive.env.functions import stream
from warpdrive.env.spaces import ActionSpace
from warpdrive.learn.a2c import A2C
from warpdrive.learn.adam import Adam
from warpdrive.learn.loss import METRICS, SurrogateLoss, loss_arguments
from warpdrive.learn.ppo import PPO
from warpdrive.learn.returns import gae
from warpdrive.learn.rollout import Rollout, Samples
from warpdrive.learn.schedule import linear
from warpdrive.learn.side_by_side import SideBySide
from warpdrive.learn.threads import one_thread
from warpdrive.policy.towers import written_out
from warpdrive.sim.launcher import device_stream
from warpdrive.sim.store import warp_array, warp_device

if TYPE_CHECKING:
    from warpdrive.learn.fused_update import FusedUpdate
    from warpdrive.learn.fused_wide import FusedWide

__all__ = ["Learner", "run_length"]

USE = 1 << 22  # keeps the streams of minibatches apart from those of phases and actions
LONGEST_RUN, LEAST_RUNS = 32, 8  # of environments drawn together; and of such runs in a minibatch
# Samples in one forward and backward pass: bounds the memory of activations, and keeps them in the CPU's cache.
CHUNK = {"cuda": 1 << 19, "cpu": 1 << 14}


@wp.kernel(enable_backward=False)
def _draw_keys(
    seed: wp.array(dtype=wp.int32), update: wp.array(dtype=wp.int32), epoch: int, key_out: wp.array(dtype=wp.int32)
):
    run = wp.tid()
    key_out[run] = int(stream(seed[0], run, epoch, update[0], wp.static(USE)) >> wp.uint32(1))


def run_length(num_envs: int, minibatches: int) -> int:
    """How many neighbouring environments are drawn together: a power of two that leaves plenty to draw from."""
    length, most = 1, min(LONGEST_RUN, num_envs // (LEAST_RUNS * minibatches))
    while 2 * length <= most and num_envs % (2 * length) == 0:
        length *= 2
    return length


class Learner:
    """Trains one policy on what its agents did.

    Everything that changes from one update to the next lies in tensors on the device, so that `update` can be
    captured as a graph and replayed.

    Args:
        name: the policy's name, for messages.
        module: maps observations (B, D) to (B, P + 1), see warpdrive.policy.mlp.
        space: of its actions.
        algorithm: PPO or A2C.
        samples: of the segments that it acts for.
        rollout: that they belong to.
        seed: int32 (1,), the seed of the simulation, on the device.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        space: ActionSpace,
        algorithm: PPO | A2C,
        samples: list[Samples],
        rollout: Rollout,
        seed: torch.Tensor,
    ) -> None:
        self.name, self.module, self.space, self.algorithm = name, module, space, algorithm
        self.samples, self.rollout, self._seed = samples, rollout, seed
        self.device = seed.device
        self.num_envs = rollout.sim.num_envs
        self.epochs = getattr(algorithm, "epochs", 1)
        self.minibatches = getattr(algorithm, "minibatches", 1)
        self._moments_of_minibatch = getattr(algorithm, "advantage_over", "rollout") == "minibatch"
        if self.minibatches > self.num_envs:
            raise ValueError(
                f"algorithm.minibatches must be at most num_envs, for a minibatch holds whole environments; got "
                f"{self.minibatches} with {self.num_envs} environments"
            )
        device = self.device
        self.rate = torch.tensor(float(algorithm.lr), device=device)
        self.coefficients = torch.zeros(4, device=device)  # clip, value clip, entropy, value: see SurrogateLoss
        self.discount = torch.tensor([algorithm.gamma, algorithm.gae_lambda], device=device)
        self.counter = torch.zeros(1, dtype=torch.int32, device=device)  # updates done
        self.metrics = torch.zeros(len(METRICS) + 1, device=device)  # the last one: gradient norm
        self._run_length = run_length(self.num_envs, self.minibatches)
        self._keys = torch.zeros(self.num_envs // self._run_length, dtype=torch.int32, device=device)
        parameters = [p for p in module.parameters() if p.requires_grad]
        if not parameters:
            raise ValueError(f"policy {name!r} has no trainable parameter; list it in frozen")
        self.parameters = parameters
        self.optimizer = Adam(parameters, self.rate, algorithm.adam_eps)
        clipped = isinstance(algorithm, PPO)
        self._loss = SurrogateLoss(space, clipped=clipped)
        self._fused: FusedUpdate | FusedWide | None = None
        fused = getattr(module, "fused", "")
        self._side_by_side: SideBySide | None = None
        if not fused and all(written_out(module, s.obs) for s in samples):
            self._side_by_side = SideBySide(module, self._loss, samples, self.coefficients)
        if fused:
            from warpdrive.learn import fused_update, fused_wide  # not everywhere there is Triton

            if fused == "wide":
                once = self.epochs * self.minibatches == 1
                self._fused = fused_wide.FusedWide(module, space, clipped=clipped, samples=samples, once=once)
            else:
                self._fused = fused_update.FusedUpdate(
                    module, space, clipped=clipped, samples=samples, precision=module.products(samples[0].obs.dtype)
                )

    def set_progress(self, progress: float) -> None:
        """Set what follows a schedule, for `progress` from 0 to 1 of training."""
        a = self.algorithm
        self.rate.fill_(linear(a.lr, a.lr_final, progress))
        clip = linear(a.clip, a.clip_final, progress) if isinstance(a, PPO) else 0.0
        value_clip = a.value_clip if isinstance(a, PPO) and a.value_clip is not None else -1.0
        entropy = linear(a.entropy, a.entropy_final, progress)
        for i, value in enumerate((clip, value_clip, entropy, a.value_coef)):
            self.coefficients[i].fill_(value)

    # ------------------------------------------------------------------ one update

    def estimate(self) -> None:
        """Values of the observations that the rollout stopped at, then advantages and returns."""
        outputs = self.rollout.outputs
        with torch.no_grad(), one_thread(self._side_by_side is not None):
            for s in self.samples:
                last = self.module(s.flat(s.obs[-1:]))
                self._put(s, s.value[-1:], last)
                self._put(s, s.final_value, self.module(s.flat(s.final_obs)))
                gae(
                    reward=s.reward,
                    alive=s.alive,
                    terminated=s.terminated,
                    ended=outputs["over"],
                    final_slot=outputs["final_slot"],
                    value=s.value,
                    final_value=s.final_value,
                    discount=self.discount,
                    advantage_out=s.advantage,
                    return_out=s.target,
                )

    @staticmethod
    def _put(s: Samples, target: torch.Tensor, out: torch.Tensor) -> None:
        """Write the values in the last column of `out` (B, P + 1) to `target` (T', E, k)."""
        shape = target.transpose(1, 2).shape if s.env_fastest else target.shape
        value = out[:, -1].float().view(shape)
        target.copy_(value.transpose(1, 2) if s.env_fastest else value)

    def update(self) -> None:
        """All epochs and minibatches of one update."""
        with contextlib.nullcontext() if self._side_by_side is None else self._side_by_side.threads.begin():
            self._update()

    def _update(self) -> None:
        weights = [s.flat(s.alive).float() for s in self.samples]
        moments = self._advantage_moments([s.flat(s.advantage) for s in self.samples], weights)
        total = torch.zeros_like(self.metrics)
        step = self._minibatch if self._fused is None else self._fused_minibatch
        for epoch in range(self.epochs):
            for part in self._minibatches(epoch):
                total += step(part, moments)
        self.metrics.copy_(total / (self.epochs * self.minibatches))
        normalizer = getattr(self.module, "normalizer", None)
        if normalizer is not None:
            for s, weight in zip(self.samples, weights, strict=True):
                normalizer.update(s.flat(s.obs[:-1]), weight)
        self.counter.add_(1)

    def _advantage_moments(self, advantages: list[torch.Tensor], weights: list[torch.Tensor]) -> torch.Tensor:
        """Mean, and one over the standard deviation, of the advantages of agents that took part: (2,)."""
        if not self.algorithm.normalize_advantage:
            return torch.arange(2.0, device=self.device)
        count = sum(w.sum() for w in weights).clamp(min=1.0)  # type: ignore[union-attr]
        mean = sum((a * w).sum() for a, w in zip(advantages, weights, strict=True)) / count
        square = sum(((a - mean).square() * w).sum() for a, w in zip(advantages, weights, strict=True)) / count
        return torch.stack([mean, 1.0 / (square.sqrt() + 1e-8)])

    def _minibatches(self, epoch: int) -> list[torch.Tensor | None]:
        """Indices of the environments of each minibatch; None means all, in place.

        What is drawn are runs of neighbouring environments, so that their samples are read from neighbouring addresses;
        environments are copies that know nothing of one another, and which of them go together does not matter.
        """
        if self.minibatches == 1:
            return [None]
        wp.launch(
            _draw_keys,
            len(self._keys),
            [warp_array(self._seed, wp.int32), warp_array(self.counter, wp.int32), epoch],
            [warp_array(self._keys, wp.int32)],
            device=warp_device(self.device),
            stream=device_stream(self.device),
        )
        runs = torch.argsort(self._keys, stable=True)
        order = (runs[:, None] * self._run_length + torch.arange(self._run_length, device=self.device)).flatten()
        return list(torch.tensor_split(order, self.minibatches))

    def _fused_minibatch(self, envs: torch.Tensor | None, moments: torch.Tensor) -> torch.Tensor:
        """As _minibatch, by fused kernels."""
        fused = self._fused
        assert fused is not None
        if self._moments_of_minibatch:
            advantages = [s.taken(s.advantage, envs) for s in self.samples]
            moments = self._advantage_moments(advantages, [s.taken(s.alive, envs).float() for s in self.samples])
        fused.run(envs, self.coefficients, moments)
        norm = torch.linalg.vector_norm(fused.sums.flat_gradient)
        fused.sums.flat_gradient.mul_((self.algorithm.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        for parameter, gradient in zip(self.parameters, fused.sums.gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        return torch.cat([fused.sums.metrics, norm.reshape(1)])

    def _minibatch(self, envs: torch.Tensor | None, moments: torch.Tensor) -> torch.Tensor:
        """One optimiser step, with advantages shifted and scaled by `moments`; returns its metrics."""
        side = self._side_by_side
        batches: list[Any] = [_Batch(s, envs) for s in self.samples] if side is None else side.gather(envs)
        if self._moments_of_minibatch:
            moments = self._advantage_moments([b.advantage for b in batches], [b.weight for b in batches])
        count = sum(b.weight.sum() for b in batches).clamp(min=1.0)  # type: ignore[union-attr]
        moments = torch.cat([moments, (1.0 / count).reshape(1)])
        metrics = self._one_after_another(batches, moments) if side is None else side.learn(batches, moments)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.algorithm.max_grad_norm, foreach=True)
        self.optimizer.step()
        return torch.cat([metrics, norm.detach().float().reshape(1)])

    def _one_after_another(self, batches: list["_Batch"], moments: torch.Tensor) -> torch.Tensor:
        """Gradients of a minibatch by PyTorch's backward passes, chunk after chunk; returns its metrics."""
        for parameter in self.parameters:
            parameter.grad = None
        metrics = torch.zeros(len(METRICS), device=self.device)
        for batch in batches:
            for rows in batch.chunks(CHUNK[self.device.type]):
                metrics += self._loss.backward(
                    out=self.module(batch.obs[rows]),
                    log_std=getattr(self.module, "log_std", None),
                    **loss_arguments(batch, rows),
                    coefficients=self.coefficients,
                    moments=moments,
                )
        return metrics

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Optimiser state and counters; the weights are the module's."""
        moments = [{key: value.cpu().clone() for key, value in moment.items()} for moment in self.optimizer.state]
        return {"optimizer": moments, "counter": self.counter.cpu().clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state_dict; tensors stay where they are."""
        for moment, saved in zip(self.optimizer.state, state["optimizer"], strict=True):
            for key, value in saved.items():
                moment[key].copy_(value)
        self.counter.copy_(state["counter"])


class _Batch:
    """One segment's samples, of all environments or of those given."""

    def __init__(self, s: Samples, envs: torch.Tensor | None) -> None:
        def take(array: torch.Tensor) -> torch.Tensor:
            return s.taken(array, envs)

        steps = s.log_prob.shape[0]
        self.obs = take(s.obs[:steps])
        self.mask = None if s.mask is None else take(s.mask[:steps])
        self.action = take(s.action)
        self.log_prob, self.value = take(s.log_prob), take(s.value[:steps])
        self.advantage, self.target = take(s.advantage), take(s.target)
        self.weight = take(s.alive).float()

    def chunks(self, size: int) -> list[slice]:
        """Runs of at most `size` samples, of nearly equal length."""
        total = len(self.weight)
        parts = -(-total // size)
        return [slice(total * i // parts, total * (i + 1) // parts) for i in range(parts)]
