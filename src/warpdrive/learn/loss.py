"""The loss of PPO and A2C with its gradient, in one kernel: samples in, gradients of the policy's outputs out."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import warp as wp

from warpdrive.env.spaces import ActionSpace, Box
from warpdrive.sim.launcher import device_stream
from warpdrive.sim.store import warp_array, warp_device

__all__ = ["METRICS", "SurrogateLoss", "loss_arguments"]

METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
HALF_LOG_TWO_PI = 0.9189385332046727
ENTROPY_OF_UNIT_GAUSSIAN = 0.5 + HALF_LOG_TWO_PI


@wp.func
def _policy_term(log_prob: float, old: float, advantage: float, clip: float, clipped: int) -> wp.vec4:
    """Loss, its derivative by log_prob, approximate KL, and whether the ratio was clipped.

    KL is estimated by (r - 1) - log r, with r the probability ratio (Schulman 2020, "Approximating KL divergence").
    """
    change = log_prob - old
    ratio = wp.exp(change)
    divergence = ratio - 1.0 - change
    if clipped == 0:
        return wp.vec4(-log_prob * advantage, -advantage, divergence, 0.0)
    free = ratio * advantage
    bounded = wp.clamp(ratio, 1.0 - clip, 1.0 + clip) * advantage
    outside = float(0.0)
    if wp.abs(ratio - 1.0) > clip:
        outside = float(1.0)
    if free <= bounded:
        return wp.vec4(-free, -free, divergence, outside)
    return wp.vec4(-bounded, 0.0, divergence, outside)


@wp.func
def _value_term(value: float, old: float, target: float, clip: float) -> wp.vec2:
    """Half the squared error and its derivative; with `clip` >= 0 the larger of it and that of the clipped value."""
    error = value - target
    loss = 0.5 * error * error
    slope = error
    if clip >= 0.0:
        moved = old + wp.clamp(value - old, -clip, clip)
        bounded = 0.5 * (moved - target) * (moved - target)
        if bounded > loss:
            loss = bounded
            slope = float(0.0)
            if wp.abs(value - old) < clip:
                slope = moved - target
    return wp.vec2(loss, slope)


@functools.cache
def _discrete_kernel(num_heads: int, clipped: bool) -> Any:
    """The kernel for `num_heads` heads: known to the compiler, so that their sums stay in registers."""
    heads_f = wp.types.vector(length=num_heads, dtype=wp.float32)

    @wp.kernel(enable_backward=False, module="unique")
    def discrete(
        out: wp.array2d(dtype=Any),
        heads: wp.array(dtype=wp.int32),
        mask: wp.array2d(dtype=wp.uint8),
        action: wp.array2d(dtype=wp.int32),
        old_log_prob: wp.array(dtype=wp.float32),
        old_value: wp.array(dtype=wp.float32),
        advantage: wp.array(dtype=wp.float32),
        target: wp.array(dtype=wp.float32),
        weight: wp.array(dtype=wp.float32),
        coefficients: wp.array(dtype=wp.float32),
        moments: wp.array(dtype=wp.float32),
        out_grad_out: wp.array2d(dtype=Any),
        terms_out: wp.array2d(dtype=wp.float32),
    ):
        b = wp.tid()
        part = weight[b] * moments[2]
        width = out.shape[1]
        if part == 0.0:
            for j in range(width):
                out_grad_out[b, j] = out.dtype(0.0)
            for k in range(5):
                terms_out[k, b] = 0.0
            return
        # Of each head: the logarithm of the sum of exponentials, and the entropy.
        log_sums = heads_f()
        entropies = heads_f()
        log_prob = float(0.0)
        entropy = float(0.0)
        start = int(0)
        for h in range(wp.static(num_heads)):
            end = start + heads[h]
            # One pass with a running maximum: sums so far are scaled when a larger logit comes.
            top = float(-1.0e30)
            total = float(0.0)
            weighted = float(0.0)
            for j in range(start, end):
                if mask.shape[0] == 0 or mask[b, j] != wp.uint8(0):
                    logit = float(out[b, j])
                    if logit > top:
                        scale = wp.exp(top - logit)
                        total = total * scale
                        weighted = weighted * scale
                        top = logit
                    e = wp.exp(logit - top)
                    total += e
                    weighted += e * logit
            log_sum = top + wp.log(total)
            log_sums[h] = log_sum
            entropies[h] = log_sum - weighted / total
            log_prob += float(out[b, start + action[b, h]]) - log_sum
            entropy += entropies[h]
            start = end
        policy = _policy_term(
            log_prob,
            old_log_prob[b],
            (advantage[b] - moments[0]) * moments[1],
            coefficients[0],
            wp.static(int(clipped)),
        )
        value = _value_term(float(out[b, start]), old_value[b], target[b], coefficients[1])
        start = int(0)
        for h in range(wp.static(num_heads)):
            end = start + heads[h]
            for j in range(start, end):
                slope = float(0.0)
                if mask.shape[0] == 0 or mask[b, j] != wp.uint8(0):
                    log_p = float(out[b, j]) - log_sums[h]
                    p = wp.exp(log_p)
                    slope = -policy[1] * p + coefficients[2] * p * (log_p + entropies[h])
                    if j == start + action[b, h]:
                        slope += policy[1]
                out_grad_out[b, j] = out.dtype(part * slope)
            start = end
        out_grad_out[b, start] = out.dtype(part * coefficients[3] * value[1])
        terms_out[0, b] = part * policy[0]
        terms_out[1, b] = part * value[0]
        terms_out[2, b] = part * entropy
        terms_out[3, b] = part * policy[2]
        terms_out[4, b] = part * policy[3]

    return discrete


@functools.cache
def _continuous_kernel(clipped: bool) -> Any:
    @wp.kernel(enable_backward=False, module="unique")
    def continuous(
        out: wp.array2d(dtype=Any),
        log_std: wp.array(dtype=wp.float32),
        action: wp.array2d(dtype=wp.float32),
        old_log_prob: wp.array(dtype=wp.float32),
        old_value: wp.array(dtype=wp.float32),
        advantage: wp.array(dtype=wp.float32),
        target: wp.array(dtype=wp.float32),
        weight: wp.array(dtype=wp.float32),
        coefficients: wp.array(dtype=wp.float32),
        moments: wp.array(dtype=wp.float32),
        out_grad_out: wp.array2d(dtype=Any),
        log_std_grad_out: wp.array2d(dtype=wp.float32),
        terms_out: wp.array2d(dtype=wp.float32),
    ):
        b = wp.tid()
        part = weight[b] * moments[2]
        size = log_std.shape[0]
        if part == 0.0:
            for k in range(size):
                out_grad_out[b, k] = out.dtype(0.0)
                log_std_grad_out[k, b] = 0.0
            out_grad_out[b, size] = out.dtype(0.0)
            for k in range(5):
                terms_out[k, b] = 0.0
            return
        log_prob = float(0.0)
        entropy = float(0.0)
        for k in range(size):
            z = (action[b, k] - float(out[b, k])) * wp.exp(-log_std[k])
            log_prob += -0.5 * z * z - log_std[k] - wp.static(HALF_LOG_TWO_PI)
            entropy += log_std[k] + wp.static(ENTROPY_OF_UNIT_GAUSSIAN)
        policy = _policy_term(
            log_prob,
            old_log_prob[b],
            (advantage[b] - moments[0]) * moments[1],
            coefficients[0],
            wp.static(int(clipped)),
        )
        value = _value_term(float(out[b, size]), old_value[b], target[b], coefficients[1])
        for k in range(size):
            inverse = wp.exp(-log_std[k])
            z = (action[b, k] - float(out[b, k])) * inverse
            out_grad_out[b, k] = out.dtype(part * policy[1] * z * inverse)
            log_std_grad_out[k, b] = part * (policy[1] * (z * z - 1.0) - coefficients[2])
        out_grad_out[b, size] = out.dtype(part * coefficients[3] * value[1])
        terms_out[0, b] = part * policy[0]
        terms_out[1, b] = part * value[0]
        terms_out[2, b] = part * entropy
        terms_out[3, b] = part * policy[2]
        terms_out[4, b] = part * policy[3]

    return continuous


class _Seed(torch.autograd.Function):
    """A number whose backward pass hands a gradient to a tensor.

    To begin a backward pass with gradients, PyTorch imports its symbolic shapes: two seconds of every start. To begin
    it at a number it does not.
    """

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gradient)
        return tensor.new_empty(())

    @staticmethod
    def backward(ctx: Any, one: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.saved_tensors[0], None


def loss_arguments(batch: Any, rows: slice) -> dict[str, torch.Tensor | None]:
    """What SurrogateLoss takes of some samples of a batch that has action, log_prob, value, ... and a mask or None."""
    return {
        "action": batch.action[rows],
        "old_log_prob": batch.log_prob[rows],
        "old_value": batch.value[rows],
        "advantage": batch.advantage[rows],
        "target": batch.target[rows],
        "weight": batch.weight[rows],
        "mask": None if batch.mask is None else batch.mask[rows],
    }


class SurrogateLoss:
    """The loss of a batch of samples, as the gradient of what the policy gave for them.

    loss = sum over samples of weight / count * (policy + value_coef * value - entropy_coef * entropy), where
    policy is -min(r A, clip(r) A) if `clipped` (PPO, Schulman et al. 2017, eq. 7) and -log_prob A otherwise (A2C),
    value half the squared error (with a value clip the larger of it and that of the clipped value), A = (advantage -
    shift) * scale. A sample of weight 0 takes no part, whatever stands in its row.

    Args:
        space: of the actions.
        clipped: PPO's policy term instead of A2C's.
    """

    def __init__(self, space: ActionSpace, *, clipped: bool) -> None:
        self.space = space
        self._heads: torch.Tensor | None = None
        self._kernel = _continuous_kernel(clipped) if isinstance(space, Box) else _discrete_kernel(space.size, clipped)

    def backward(self, *, out: torch.Tensor, log_std: torch.Tensor | None, **batch: Any) -> torch.Tensor:
        """Add the gradient of the loss to the parameters behind `out` and `log_std`.

        Args:
            out: (B, P + 1) float32 or bfloat16, part of a graph: distribution parameters, then the value.
            log_std: float32 (P,), for a Box.
            batch: action (B, size) as drawn; old_log_prob, old_value, advantage, target, weight, float32 (B,); mask,
                uint8 (B, P) or None; coefficients, float32 (4,): clip, value clip (negative: none), entropy_coef,
                value_coef; moments, float32 (3,): shift, scale, and one over count.

        Returns:
            float32 (5,): the METRICS, each a sum over samples of weight / count times its value.
        """
        grad = torch.empty_like(out)
        terms = torch.empty((len(METRICS), out.shape[0]), dtype=torch.float32, device=out.device)
        log_std_grad = None
        if isinstance(self.space, Box):
            log_std_grad = torch.empty((self.space.size, out.shape[0]), dtype=torch.float32, device=out.device)
        outputs = {"grad_out": grad, "log_std_grad_out": log_std_grad, "terms_out": terms}
        self._launch(out=out, log_std=log_std, **batch, **outputs)
        roots = [_Seed.apply(out, grad)]
        if log_std is not None and log_std_grad is not None and log_std.requires_grad:
            roots.append(_Seed.apply(log_std, log_std_grad.sum(1)))
        torch.autograd.backward(roots)
        return terms.sum(1)

    def record(self, **arrays: Any) -> Callable[[], None]:
        """A launch, for the CPU, of the loss of these arrays, whatever they hold then; it does not keep them alive.

        Args:
            arrays: as of `backward`, and what is written: grad_out (B, P + 1), the gradient of `out`; of each sample
                log_std_grad_out (P, B), or None but for a Box, and terms_out (5, B), of which the sums are wanted.
        """
        launch: Callable[[], None] = self._launch(**arrays, record_cmd=True).launch
        return launch

    def _launch(
        self,
        *,
        out: torch.Tensor,
        log_std: torch.Tensor | None,
        action: torch.Tensor,
        old_log_prob: torch.Tensor,
        old_value: torch.Tensor,
        advantage: torch.Tensor,
        target: torch.Tensor,
        weight: torch.Tensor,
        mask: torch.Tensor | None,
        coefficients: torch.Tensor,
        moments: torch.Tensor,
        grad_out: torch.Tensor,
        log_std_grad_out: torch.Tensor | None,
        terms_out: torch.Tensor,
        record_cmd: bool = False,
    ) -> Any:
        kind = wp.dtype_from_torch(out.dtype)
        inputs: list[Any] = [warp_array(out.detach(), kind)]
        outputs = [warp_array(grad_out, kind)]
        if isinstance(self.space, Box):
            assert log_std is not None
            assert log_std_grad_out is not None
            inputs += [warp_array(log_std.detach(), wp.float32), warp_array(action, wp.float32)]
            outputs.append(warp_array(log_std_grad_out, wp.float32))
        else:
            if self._heads is None:
                self._heads = torch.tensor(self.space.heads, dtype=torch.int32, device=out.device)
            inputs += [warp_array(self._heads, wp.int32), None if mask is None else warp_array(mask, wp.uint8)]
            inputs.append(warp_array(action, wp.int32))
        floats = [old_log_prob, old_value, advantage, target, weight, coefficients, moments]
        return wp.launch(
            self._kernel,
            dim=out.shape[0],
            inputs=inputs + [warp_array(x, wp.float32) for x in floats],
            outputs=[*outputs, warp_array(terms_out, wp.float32)],
            device=warp_device(out.device),
            stream=device_stream(out.device),
            record_cmd=record_cmd,
        )
