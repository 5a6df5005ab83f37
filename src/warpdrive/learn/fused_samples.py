"""What the fused kernels of learning share: finding samples, the loss, and sums of gradients over programs.

Triton code and its arguments; the formulas of the loss are those of warpdrive.learn.loss.
"""

import itertools
from typing import Any

import torch
import triton
import triton.language as tl

from warpdrive.env.spaces import ActionSpace, Box
from warpdrive.learn.loss import ENTROPY_OF_UNIT_GAUSSIAN, HALF_LOG_TWO_PI, METRICS
from warpdrive.learn.rollout import Samples
from warpdrive.policy.fused_layers import block
from warpdrive.policy.mlp import ActorCritic

__all__ = ["Sums", "Tower", "locate", "sample_arguments", "surrogate"]

LOG_TWO_PI_HALF = tl.constexpr(HALF_LOG_TWO_PI)
UNIT_ENTROPY = tl.constexpr(ENTROPY_OF_UNIT_GAUSSIAN)
COLUMNS, ROWS = 32, 64  # of the sums that a program adds up at a time


@triton.jit
def locate(row, num_envs, num_agents, envs, GATHERED: tl.constexpr, ENV_FASTEST: tl.constexpr):
    """Step, environment and agent, int64, of each sample of a minibatch, counted in the order of memory."""
    if ENV_FASTEST:
        e, rest = row % num_envs, row // num_envs
        agent, t = rest % num_agents, rest // num_agents
    else:
        agent, rest = row % num_agents, row // num_agents
        e, t = rest % num_envs, rest // num_envs
    if GATHERED:
        e = tl.load(envs + e)
    return t.to(tl.int64), e.to(tl.int64), agent.to(tl.int64)


@triton.jit
def surrogate(
    out,
    part,
    at,
    row_live,
    actions,
    action_feature,
    allowed,
    old_log_prob,
    old_value,
    advantage,
    target,
    log_std,
    clip,
    value_clip,
    entropy_coef,
    value_coef,
    shift,
    scale,
    P: tl.constexpr,
    HEADS: tl.constexpr,
    OUTP: tl.constexpr,
    ROWS: tl.constexpr,
    HAS_VALUE: tl.constexpr,
    BOX: tl.constexpr,
    CLIPPED: tl.constexpr,
):
    """Gradient of the outputs (ROWS, OUTP), of log_std (OUTP,), and of each sample what goes into the METRICS.

    `part` is 1 for samples that count and 0 for others, of which nothing is loaded. Columns: P parameters of the
    distribution, of which those in `allowed` can be chosen, then the value.
    """
    j = tl.arange(0, OUTP)
    grad = tl.zeros((ROWS, OUTP), dtype=tl.float32)
    std_grad = tl.zeros((OUTP,), dtype=tl.float32)
    policy_loss = tl.zeros((ROWS,), dtype=tl.float32)
    value_loss = tl.zeros((ROWS,), dtype=tl.float32)
    entropy = tl.zeros((ROWS,), dtype=tl.float32)
    divergence = tl.zeros((ROWS,), dtype=tl.float32)
    outside = tl.zeros((ROWS,), dtype=tl.float32)
    if P > 0:
        log_prob = tl.zeros((ROWS,), dtype=tl.float32)
        if BOX:
            own = j[None, :] < P
            spread = tl.load(log_std + j, mask=j < P, other=0.0)
            inverse = tl.exp(-spread)[None, :]
            drawn = tl.load(
                actions[:, None] + (j.to(tl.int64) * action_feature)[None, :],
                mask=row_live[:, None] & own,
                other=0.0,
            )
            z = tl.where(own, (drawn - out) * inverse, 0.0)
            log_prob += tl.sum(tl.where(own, -0.5 * z * z - spread[None, :] - LOG_TWO_PI_HALF, 0.0), 1)
            entropy += tl.sum(tl.where(j < P, spread + UNIT_ENTROPY, 0.0), 0)
        else:
            # For every column the logarithm of its head's sum of exponentials, and its head's entropy.
            log_sums = tl.zeros((ROWS, OUTP), dtype=tl.float32)
            entropies = tl.zeros((ROWS, OUTP), dtype=tl.float32)
            chosen = tl.zeros((ROWS, OUTP), dtype=tl.int1)
            start = 0
            for h in tl.static_range(len(HEADS)):
                of_head = (j[None, :] >= start) & (j[None, :] < start + HEADS[h])
                here = of_head & allowed
                top = tl.max(tl.where(here, out, -1.0e30), 1)
                e = tl.where(here, tl.exp(out - top[:, None]), 0.0)
                total = tl.sum(e, 1)
                weighted = tl.sum(tl.where(here, e * out, 0.0), 1)
                log_sum = top + tl.log(total)
                head_entropy = log_sum - weighted / total
                action = tl.load(actions + h * action_feature, mask=row_live, other=0)
                took = j[None, :] == start + action[:, None]
                log_prob += tl.sum(tl.where(took, out, 0.0), 1) - log_sum
                entropy += head_entropy
                log_sums = tl.where(of_head, log_sum[:, None], log_sums)
                entropies = tl.where(of_head, head_entropy[:, None], entropies)
                chosen = chosen | took
                start += HEADS[h]
        a = (tl.load(advantage + at, mask=row_live, other=0.0) - shift) * scale
        change = tl.where(row_live, log_prob - tl.load(old_log_prob + at, mask=row_live, other=0.0), 0.0)
        ratio = tl.exp(change)
        divergence = ratio - 1.0 - change
        if CLIPPED:
            free = ratio * a
            bounded = tl.minimum(tl.maximum(ratio, 1.0 - clip), 1.0 + clip) * a
            outside = tl.where(tl.abs(ratio - 1.0) > clip, 1.0, 0.0)
            policy_loss = tl.where(free <= bounded, -free, -bounded)
            slope = tl.where(free <= bounded, -free, 0.0)
        else:
            policy_loss = -log_prob * a
            slope = -a
        slope = (slope * part)[:, None]
        if BOX:
            grad = slope * z * inverse
            std_grad = tl.sum(tl.where(own, slope * (z * z - 1.0) - entropy_coef * part[:, None], 0.0), 0)
        else:
            log_p = out - log_sums
            p = tl.where(allowed, tl.exp(log_p), 0.0)
            grad = tl.where(chosen, slope, 0.0) - slope * p
            grad += entropy_coef * part[:, None] * tl.where(allowed, p * (log_p + entropies), 0.0)
    if HAS_VALUE:
        value = tl.sum(tl.where(j[None, :] == P, out, 0.0), 1)
        wanted = tl.load(target + at, mask=row_live, other=0.0)
        error = value - wanted
        value_loss = 0.5 * error * error
        # The larger of the squared error and that of the clipped value; value_clip < 0: none.
        old = tl.load(old_value + at, mask=row_live, other=0.0)
        moved = old + tl.minimum(tl.maximum(value - old, -value_clip), value_clip)
        clipped_loss = tl.where(value_clip >= 0.0, 0.5 * (moved - wanted) * (moved - wanted), -1.0)
        larger = clipped_loss > value_loss
        error = tl.where(larger, tl.where(tl.abs(value - old) < value_clip, moved - wanted, 0.0), error)
        value_loss = tl.where(larger, clipped_loss, value_loss)
        grad = tl.where(j[None, :] == P, (value_coef * part * error)[:, None], grad)
    return grad, std_grad, policy_loss, value_loss, entropy, divergence, outside


@triton.jit
def _add_up(partial, total, columns, stride, PROGRAMS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    """total = sum of the programs' rows, over the number of samples, which the last column counts."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    counts = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, PROGRAMS, ROWS):
        row = start + tl.arange(0, ROWS)
        here = partial + row.to(tl.int64)[:, None] * stride + column[None, :]
        sums += tl.load(here, mask=(row[:, None] < PROGRAMS) & (column[None, :] < columns), other=0.0)
        counts += tl.load(partial + row.to(tl.int64) * stride + columns, mask=row < PROGRAMS, other=0.0)
    tl.store(total + column, tl.sum(sums, 0) / tl.maximum(tl.sum(counts, 0), 1.0), mask=column < columns)


def sample_arguments(
    s: Samples, envs: torch.Tensor | None, module: ActorCritic, coefficients: torch.Tensor, moments: torch.Tensor
) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """What both kernels take for a segment's samples: arrays, then numbers and strides, then constants."""
    steps, all_envs, agents = s.log_prob.shape
    num_envs = all_envs if envs is None else len(envs)
    alive = s.alive.view(torch.uint8)
    n = module.normalizer
    mask = s.obs if s.mask is None else s.mask
    unused = s.log_prob
    arrays = [
        s.obs,
        mask,
        s.action,
        alive,
        s.log_prob,
        s.value,
        s.advantage,
        s.target,
        unused if envs is None else envs,
    ]
    arrays += [coefficients, moments, unused if module.log_std is None else module.log_std]
    arrays += [unused, unused, 0.0] if n is None else [n.mean, n.variance, n.limit]  # type: ignore[list-item]
    numbers = [steps * num_envs * agents, num_envs, agents]
    for array in (s.obs, mask, s.action, alive, s.log_prob):
        numbers += array.stride()
    constants = {
        "D": s.obs.shape[-1],
        "DP": block(s.obs.shape[-1]),
        "H1": module.hidden[0],
        "H1P": block(module.hidden[0]),
        "H2": module.hidden[-1],
        "H2P": block(module.hidden[-1]),
        "LAYERS": len(module.hidden),
        "TANH": module.activation == "tanh",
        "NORMALIZE": n is not None,
        "MASKED": s.mask is not None,
        "GATHERED": envs is not None,
        "ENV_FASTEST": s.env_fastest,
    }
    return arrays, numbers, constants


class Tower:
    """Hidden layers with the heads that they bear: the actor's with or without the critic's, or the critic's alone.

    Attributes:
        parameters: weight and bias of the first and last hidden layer and of the heads of actor and critic.
        to: where their gradients begin in the sums, then those of log_std and of the metrics.
        constants: of the kernels.
    """

    def __init__(self, module: ActorCritic, space: ActionSpace, sums: "Sums", alone: bool, clipped: bool) -> None:
        layers = module.critic if alone else module.actor
        assert layers is not None
        used = (layers[0], layers[-1], module.actor_head, module.critic_head)
        self.parameters = [p for layer in used for p in layer.parameters()]
        log_std = self.parameters[0] if module.log_std is None else module.log_std
        self.to = [*(sums.offsets[p] for p in self.parameters), sums.offsets[log_std], sums.num_gradients]
        policy = 0 if alone else space.num_outputs
        has_value = alone or module.critic is None
        self.constants = {
            "P": policy,
            "HEADS": () if isinstance(space, Box) else tuple(space.heads),
            "OUTP": block(policy + has_value),
            "HAS_VALUE": has_value,
            "BOX": isinstance(space, Box),
            "CLIPPED": clipped,
        }


class Sums:
    """Sums over samples, of each program by itself, and what they add up to.

    Attributes:
        partial: float32 (programs, n + 6): gradients of all parameters end to end, the METRICS, the number of samples.
        total: float32 (n + 5,): the same over all programs, divided by the number of samples.
        flat_gradient, metrics: views of it. gradients: parameter by parameter the view that holds its gradient.
        offsets: parameter -> where its gradient begins. num_gradients: n.
    """

    def __init__(self, module: ActorCritic, programs: int) -> None:
        parameters = list(module.parameters())
        ends = list(itertools.accumulate((p.numel() for p in parameters), initial=0))
        self.num_gradients = ends[-1]
        self.offsets = dict(zip(parameters, ends[:-1], strict=True))
        device = parameters[0].device
        self.partial = torch.zeros(programs, ends[-1] + len(METRICS) + 1, device=device)
        self.total = torch.zeros(ends[-1] + len(METRICS), device=device)
        self.flat_gradient, self.metrics = self.total[: ends[-1]], self.total[ends[-1] :]
        self.gradients = [self.total[start : start + p.numel()].view_as(p) for p, start in self.offsets.items()]

    def add_up(self) -> None:
        """Enqueue the sum over programs, in a fixed order."""
        columns = len(self.total)
        _add_up[(triton.cdiv(columns, COLUMNS),)](
            self.partial, self.total, columns, columns + 1, PROGRAMS=len(self.partial), COLUMNS=COLUMNS, ROWS=ROWS
        )
