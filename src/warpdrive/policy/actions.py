"""Drawing actions from what a policy gives, with their log-probabilities, in one kernel."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import warp as wp

from warpdrive.env.functions import stream
from warpdrive.env.spaces import ActionSpace, Box
from warpdrive.sim.launcher import device_stream
from warpdrive.sim.store import warp_array, warp_device

__all__ = ["NOT_FINITE", "NO_ACTION", "ActionSampler"]

USE = 1 << 21  # keeps these streams apart from those of phases and minibatches
NOT_FINITE, NO_ACTION = 1, 2  # kinds of fault
HALF_LOG_TWO_PI = 0.9189385332046727
HELD = 32  # choices of a head whose logits are kept in registers


@wp.func
def _report(fault: wp.array(dtype=wp.int32), kind: int, env: int, i: int, step: int):
    if wp.atomic_cas(fault, 0, 0, kind) == 0:  # the first one stays
        fault[1] = env
        fault[2] = i
        fault[3] = step


@wp.func
def _draw_from_memory(out: Any, mask: Any, env: int, i: int, start: int, end: int, u: float):
    """As `_draw_from_registers`, of any number of choices: its logits are read as often as they are needed."""
    best = int(-1)
    top = float(0.0)
    for j in range(start, end):
        logit = float(out[env, i, j])
        if not wp.isfinite(logit):
            return wp.static(-NOT_FINITE), 0.0
        if (mask.shape[0] == 0 or mask[env, i, j] != wp.uint8(0)) and (best < 0 or logit > top):
            best = j
            top = logit
    if best < 0:
        return wp.static(-NO_ACTION), 0.0
    total = float(0.0)
    for j in range(start, end):
        if mask.shape[0] == 0 or mask[env, i, j] != wp.uint8(0):
            total += wp.exp(float(out[env, i, j]) - top)
    chosen = best
    left = u * total
    if left >= 0.0:
        for j in range(start, end):
            if mask.shape[0] == 0 or mask[env, i, j] != wp.uint8(0):
                left -= wp.exp(float(out[env, i, j]) - top)
                if left < 0.0:
                    chosen = j
                    break
    return chosen - start, float(out[env, i, chosen]) - top - wp.log(total)


@functools.cache
def _draw_from_registers(most: int) -> Any:
    """The Warp function `(out, mask, env, i, start, end, u)` that draws from a head of at most so many choices.

    It returns the choice by the inverse of the cumulative distribution at `u` from 0 to 1, or the likeliest where u is
    negative, and its log-probability; or in place of the choice the kind of fault, negative. What rounding leaves over
    goes to the likeliest. Loops are unrolled, so that a GPU keeps the logits in registers and reads all at once.
    """
    Row, Flags = wp.types.vector(most, float), wp.types.vector(most, wp.uint8)

    @wp.func
    def draw(out: Any, mask: Any, env: int, i: int, start: int, end: int, u: float):
        logits = Row()
        for k in range(most):  # beyond the end the last one again: without a branch all reads are under way together
            logits[k] = float(out[env, i, wp.min(start + k, end - 1)])
        finite = bool(True)
        for k in range(most):
            finite = finite and wp.isfinite(logits[k])
        if not finite:
            return wp.static(-NOT_FINITE), 0.0
        if mask.shape[0] > 0:
            allowed = Flags()
            for k in range(most):
                allowed[k] = mask[env, i, wp.min(start + k, end - 1)]
            for k in range(most):
                logits[k] = wp.where(allowed[k] == wp.uint8(0), -wp.inf, logits[k])
        for k in range(most):
            logits[k] = wp.where(start + k < end, logits[k], -wp.inf)
        best = int(-1)
        top = float(-wp.inf)
        for k in range(most):
            if logits[k] > top:
                best = k
                top = logits[k]
        if best < 0:
            return wp.static(-NO_ACTION), 0.0
        weights = Row()
        total = float(0.0)
        for k in range(most):
            weights[k] = wp.exp(logits[k] - top)
            total += weights[k]
        chosen = int(-1)
        logit = float(top)
        left = u * total
        if left >= 0.0:
            for k in range(most):
                left -= weights[k]
                if left < 0.0 and chosen < 0:
                    chosen = k
                    logit = logits[k]
        if chosen < 0:
            chosen = best
        return chosen, logit - top - wp.log(total)

    return draw


@functools.cache
def _discrete_kernel(most: int) -> Any:
    """The kernel for heads of at most so many choices; 0: of any number."""
    draw = _draw_from_registers(most) if most else _draw_from_memory

    @wp.kernel(enable_backward=False, module_options={"fuse_fp": False, "max_unroll": HELD}, module="unique")
    def sample_discrete(
        out: wp.array3d(dtype=Any),
        heads: wp.array(dtype=wp.int32),
        mask: wp.array3d(dtype=wp.uint8),
        active: wp.array2d(dtype=wp.bool),
        seed: wp.array(dtype=wp.int32),
        clock: wp.array(dtype=wp.int32),
        env_offset: int,
        agent_offset: int,
        greedy: int,
        fault: wp.array(dtype=wp.int32),
        action_out: wp.array3d(dtype=wp.int32),
        raw_out: wp.array3d(dtype=wp.int32),
        log_prob_out: wp.array2d(dtype=wp.float32),
        value_out: wp.array2d(dtype=wp.float32),
    ):
        env, i = wp.tid()
        log_prob = float(0.0)
        value = float(0.0)
        sound = bool(True)
        here = active[env, i]
        rng = stream(seed[0], env_offset + env, agent_offset + i, clock[env], wp.static(USE))
        start = int(0)
        for head in range(heads.shape[0]):
            end = start + heads[head]
            action = int(0)
            if here:
                u = float(-1.0)
                if greedy == 0:
                    u = wp.randf(rng)
                action, log_p = draw(out, mask, env, i, start, end, u)
                log_prob += log_p
                if action < 0:
                    _report(fault, -action, env, i, clock[env])
                    sound = False
                    action = 0
            action_out[env, i, head] = action
            raw_out[env, i, head] = action
            start = end
        if here:
            value = float(out[env, i, start])
            if not wp.isfinite(value):
                _report(fault, wp.static(NOT_FINITE), env, i, clock[env])
                value = float(0.0)
        if not sound:
            log_prob = 0.0
        log_prob_out[env, i] = log_prob
        value_out[env, i] = value

    return sample_discrete


@wp.kernel(enable_backward=False, module_options={"fuse_fp": False}, module="unique")
def _sample_continuous(
    out: wp.array3d(dtype=Any),
    log_std: wp.array(dtype=wp.float32),
    low: wp.array(dtype=wp.float32),
    high: wp.array(dtype=wp.float32),
    active: wp.array2d(dtype=wp.bool),
    seed: wp.array(dtype=wp.int32),
    clock: wp.array(dtype=wp.int32),
    env_offset: int,
    agent_offset: int,
    greedy: int,
    fault: wp.array(dtype=wp.int32),
    action_out: wp.array3d(dtype=wp.float32),
    raw_out: wp.array3d(dtype=wp.float32),
    log_prob_out: wp.array2d(dtype=wp.float32),
    value_out: wp.array2d(dtype=wp.float32),
):
    env, i = wp.tid()
    size = low.shape[0]
    rng = stream(seed[0], env_offset + env, agent_offset + i, clock[env], wp.static(USE))
    log_prob = float(0.0)
    value = float(0.0)
    sound = bool(True)
    here = active[env, i]
    for k in range(size):
        raw = float(0.0)
        if here:
            mean = float(out[env, i, k])
            if wp.isfinite(mean) and wp.isfinite(log_std[k]):
                noise = float(0.0)
                if greedy == 0:
                    noise = wp.randn(rng)
                raw = mean + wp.exp(log_std[k]) * noise
                log_prob += -0.5 * noise * noise - log_std[k] - wp.static(HALF_LOG_TWO_PI)
            else:
                _report(fault, wp.static(NOT_FINITE), env, i, clock[env])
                sound = False
        raw_out[env, i, k] = raw
        action_out[env, i, k] = wp.clamp(low[k] + 0.5 * (raw + 1.0) * (high[k] - low[k]), low[k], high[k])
    if here:
        value = float(out[env, i, size])
        if not wp.isfinite(value):
            _report(fault, wp.static(NOT_FINITE), env, i, clock[env])
            value = float(0.0)
    if not sound:
        log_prob = 0.0
    log_prob_out[env, i] = log_prob
    value_out[env, i] = value


class ActionSampler:
    """Draws the actions of a segment, k agents of one group in each of E environments.

    Discrete heads: a softmax over the logits of each head; a masked choice has probability 0. Box: a Gaussian with the
    policy's means and its `log_std`; what the environment receives is the draw, mapped so that -1 and 1 meet the
    bounds, and clipped to them, while the log-probability is that of the draw before clipping. An agent that is not
    active gets draw, log-probability and value 0 (for a Box, draw 0 is the middle of the bounds). The draw depends on
    (seed, environment, agent, the environment's clock) alone.

    Args:
        space: the group's actions.
        action: (E, k, size), where the environment reads them; int32, or float32 for a Box.
        active: bool (E, k).
        seed, clock: int32 (1,) and (E,): the simulation's seed, and each environment's count of steps.
        fault: int32 (4,): kind, environment, agent and step of the first fault, where a policy's outputs are not finite
            (NOT_FINITE) or a mask forbids everything (NO_ACTION); such a head draws 0, and the log-probability is 0.
            All zero: none.
        env_offset, agent_offset: index of the first environment and agent among all.
        log_std: float32 (P,), for a Box only.
        greedy: take the likeliest action, or the mean, instead of drawing.
    """

    def __init__(
        self,
        space: ActionSpace,
        *,
        action: torch.Tensor,
        active: torch.Tensor,
        seed: torch.Tensor,
        clock: torch.Tensor,
        fault: torch.Tensor,
        env_offset: int = 0,
        agent_offset: int = 0,
        log_std: torch.Tensor | None = None,
        greedy: bool = False,
    ) -> None:
        device = warp_device(action.device)
        self.shape = tuple(action.shape[:2])
        self._device, self._wp_device, self._fault = action.device, device, fault
        common: list[Any] = [
            warp_array(active, wp.bool),
            warp_array(seed, wp.int32),
            warp_array(clock, wp.int32),
            env_offset,
            agent_offset,
            int(greedy),
            warp_array(fault, wp.int32),
        ]
        if isinstance(space, Box):
            if log_std is None:
                raise ValueError("a policy for wd.Box actions must have a parameter log_std, one number a component")
            constants = [
                torch.tensor(bound, dtype=torch.float32, device=action.device) for bound in (space.low, space.high)
            ]
            bounds = [warp_array(bound, wp.float32) for bound in constants]
            self._kernel, self._dtype, self._mask_index = _sample_continuous, wp.float32, -1
            self._inputs = [warp_array(log_std.detach(), wp.float32), *bounds, *common]
        else:
            constants = [torch.tensor(space.heads, dtype=torch.int32, device=action.device)]
            most = max(space.heads)
            self._kernel = _discrete_kernel(most if most <= HELD else 0)
            self._dtype, self._mask_index = wp.int32, 1
            self._inputs = [warp_array(constants[0], wp.int32), None, *common]
        self._action = warp_array(action, self._dtype)
        self._keep = (constants, log_std, action, active, seed, clock, fault)  # Warp holds addresses only

    def __call__(
        self,
        out: torch.Tensor,
        mask: torch.Tensor | None,
        raw: torch.Tensor,
        log_prob: torch.Tensor,
        value: torch.Tensor,
    ) -> None:
        """Enqueue on PyTorch's current stream.

        Args:
            out: (E, k, P + 1) float32 or bfloat16: the parameters of the distribution, then the value.
            mask: uint8 (E, k, P) or None.
            raw: (E, k, size), takes the draws. log_prob, value: float32 (E, k).
        """
        self._launch(out, mask, raw, log_prob, value)

    def record(self, *arrays: torch.Tensor | None) -> Callable[[], None]:
        """A launch, for the CPU, of a call with these arrays, whatever they hold then; it does not keep them alive."""
        launch: Callable[[], None] = self._launch(*arrays, record_cmd=True).launch
        return launch

    def _launch(self, out: Any, mask: Any, raw: Any, log_prob: Any, value: Any, *, record_cmd: bool = False) -> Any:
        inputs = list(self._inputs)
        if self._mask_index >= 0 and mask is not None:
            inputs[self._mask_index] = warp_array(mask, wp.uint8)
        return wp.launch(
            self._kernel,
            dim=self.shape,
            inputs=[warp_array(out, wp.dtype_from_torch(out.dtype)), *inputs],
            outputs=[
                self._action,
                warp_array(raw, self._dtype),
                warp_array(log_prob, wp.float32),
                warp_array(value, wp.float32),
            ],
            device=self._wp_device,
            stream=device_stream(self._device),
            record_cmd=record_cmd,
        )
