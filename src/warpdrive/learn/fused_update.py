"""A minibatch's gradients in one kernel: forward pass, loss and backward pass without leaving the chip.

For networks whose weights fit a multiprocessor. Programs run over tiles of samples, read where the rollout left them,
and keep the sums of the weights' gradients to themselves; a second kernel adds up the programs' sums in a fixed order,
so that the same samples give the same bits. The formulas of the loss are those of warpdrive.learn.loss.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from warpdrive.env.spaces import ActionSpace, Box
from warpdrive.learn.loss import ENTROPY_OF_UNIT_GAUSSIAN, HALF_LOG_TWO_PI, METRICS
from warpdrive.learn.rollout import Samples
from warpdrive.policy.fused_layers import (
    activate,
    bias_tile,
    block,
    differentiate,
    narrow,
    normalize,
    product,
    weight_tile,
)
from warpdrive.policy.mlp import ActorCritic

__all__ = ["FusedUpdate", "UpdateTiles", "update_tiles"]

LOG_TWO_PI_HALF = tl.constexpr(HALF_LOG_TWO_PI)
UNIT_ENTROPY = tl.constexpr(ENTROPY_OF_UNIT_GAUSSIAN)
REDUCED = 64  # columns that one program of the second kernel adds up


class UpdateTiles(NamedTuple):
    """How the first kernel divides its work.

    Attributes:
        rows: samples at a time. warps: of a program. programs: on each multiprocessor.
        registers: of a thread at most; None: as many as the compiler likes.
    """

    rows: int
    warps: int
    programs: int
    registers: int | None = None


def update_tiles(widest: int) -> UpdateTiles:
    """The division that was fastest on an H200 (benchmarks/fused.py) for hidden layers of up to `widest` features."""
    if widest > 64:
        return UpdateTiles(rows=64, warps=8, programs=1)
    return UpdateTiles(rows=64, warps=4, programs=2)


@triton.jit
def _loss(
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
def _gradients(
    obs,
    mask,
    actions,
    alive,
    old_log_prob,
    old_value,
    advantage,
    target,
    envs,
    coefficients,
    moments,
    log_std,
    mean,
    variance,
    limit,
    w1,
    b1,
    w2,
    b2,
    wa,
    ba,
    wc,
    bc,
    partial,
    rows,
    num_envs,
    num_agents,
    obs_t,
    obs_e,
    obs_k,
    obs_f,
    mask_t,
    mask_e,
    mask_k,
    mask_f,
    action_t,
    action_e,
    action_k,
    action_f,
    alive_t,
    alive_e,
    alive_k,
    flat_t,
    flat_e,
    flat_k,
    partial_stride,
    to_w1,
    to_b1,
    to_w2,
    to_b2,
    to_wa,
    to_ba,
    to_wc,
    to_bc,
    to_log_std,
    to_metrics,
    D: tl.constexpr,
    DP: tl.constexpr,
    H1: tl.constexpr,
    H1P: tl.constexpr,
    H2: tl.constexpr,
    H2P: tl.constexpr,
    P: tl.constexpr,
    HEADS: tl.constexpr,
    OUTP: tl.constexpr,
    LAYERS: tl.constexpr,
    TANH: tl.constexpr,
    HAS_VALUE: tl.constexpr,
    NORMALIZE: tl.constexpr,
    BOX: tl.constexpr,
    CLIPPED: tl.constexpr,
    MASKED: tl.constexpr,
    GATHERED: tl.constexpr,
    ENV_FASTEST: tl.constexpr,
    ROWS: tl.constexpr,
    TURNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    i, j, k, o = tl.arange(0, DP), tl.arange(0, H1P), tl.arange(0, H2P), tl.arange(0, OUTP)
    # Weights as they lie in memory, (out, in), and the hidden layers' sums of gradients in the same order.
    weight1 = narrow(weight_tile(w1, j, i, D, 1, H1, D), PRECISION)
    bias1 = bias_tile(b1, j, H1)
    weight2, bias2 = weight1, bias1
    w2_sum, b2_sum = tl.zeros((H2P, H1P), dtype=tl.float32), tl.zeros((H2P,), dtype=tl.float32)
    if LAYERS == 2:
        weight2 = narrow(weight_tile(w2, k, j, H1, 1, H2, H1), PRECISION)
        bias2 = bias_tile(b2, k, H2)
    head = tl.zeros((OUTP, H2P), dtype=tl.float32)
    head_bias = tl.zeros((OUTP,), dtype=tl.float32)
    if P > 0:
        head += weight_tile(wa, o, k, H2, 1, P, H2)
        head_bias += bias_tile(ba, o, P)
    if HAS_VALUE:
        value_row = (o[:, None] == P) & (k[None, :] < H2)
        head += tl.load(wc + k[None, :] + tl.zeros((OUTP, 1), dtype=tl.int32), mask=value_row, other=0.0)
        head_bias += tl.load(bc + tl.zeros((OUTP,), dtype=tl.int32), mask=o == P, other=0.0)
    head = narrow(head, PRECISION)
    clip, value_clip = tl.load(coefficients), tl.load(coefficients + 1)
    entropy_coef, value_coef = tl.load(coefficients + 2), tl.load(coefficients + 3)
    shift, scale = tl.load(moments), tl.load(moments + 1)

    w1_sum, b1_sum = tl.zeros((H1P, DP), dtype=tl.float32), tl.zeros((H1P,), dtype=tl.float32)
    head_sum, head_bias_sum = tl.zeros((H2P, OUTP), dtype=tl.float32), tl.zeros((OUTP,), dtype=tl.float32)
    std_sum = tl.zeros((OUTP,), dtype=tl.float32)
    policy_sum = tl.zeros((ROWS,), dtype=tl.float32)
    value_sum = tl.zeros((ROWS,), dtype=tl.float32)
    entropy_sum = tl.zeros((ROWS,), dtype=tl.float32)
    divergence_sum = tl.zeros((ROWS,), dtype=tl.float32)
    outside_sum = tl.zeros((ROWS,), dtype=tl.float32)
    count_sum = tl.zeros((ROWS,), dtype=tl.float32)

    for turn in range(TURNS):
        # Which step, environment and agent each row is of, in the order of memory.
        row = (turn * tl.num_programs(0) + tl.program_id(0)) * ROWS + tl.arange(0, ROWS)
        if ENV_FASTEST:
            e, rest = row % num_envs, row // num_envs
            agent, t = rest % num_agents, rest // num_agents
        else:
            agent, rest = row % num_agents, row // num_agents
            e, t = rest % num_envs, rest // num_envs
        if GATHERED:
            e = tl.load(envs + e)
        e, t, agent = e.to(tl.int64), t.to(tl.int64), agent.to(tl.int64)
        live = tl.load(alive + t * alive_t + e * alive_e + agent * alive_k, mask=row < rows, other=0) != 0
        at = t * flat_t + e * flat_e + agent * flat_k
        part = live.to(tl.float32)
        # What stands in the row of an absent agent may be anything: it is not loaded.
        x = tl.load(
            obs + (t * obs_t + e * obs_e + agent * obs_k)[:, None] + (i.to(tl.int64) * obs_f)[None, :],
            mask=live[:, None] & (i[None, :] < D),
            other=0.0,
        ).to(tl.float32)
        if NORMALIZE:
            x = normalize(x, mean, variance, limit, i, D)
        x = narrow(x, PRECISION)

        z1 = product(x, tl.trans(weight1), tl.zeros((ROWS, H1P), dtype=tl.float32), PRECISION)
        h1 = narrow(activate(z1 + bias1[None, :], TANH, PRECISION), PRECISION)
        h2 = h1
        if LAYERS == 2:
            z2 = product(h1, tl.trans(weight2), tl.zeros((ROWS, H2P), dtype=tl.float32), PRECISION)
            h2 = narrow(activate(z2 + bias2[None, :], TANH, PRECISION), PRECISION)
        out = product(h2, tl.trans(head), tl.zeros((ROWS, OUTP), dtype=tl.float32), PRECISION)
        out += head_bias[None, :]

        allowed = tl.broadcast_to(o[None, :] < P, (ROWS, OUTP))
        if MASKED:
            mask_at = mask + (t * mask_t + e * mask_e + agent * mask_k)[:, None] + (o.to(tl.int64) * mask_f)[None, :]
            allowed = allowed & (tl.load(mask_at, mask=live[:, None] & allowed, other=1) != 0)
        # fmt: off
        grad, std_grad, policy, value, entropy, divergence, outside = _loss(
            out, part, at, live, actions + t * action_t + e * action_e + agent * action_k, action_f,
            allowed, old_log_prob, old_value, advantage, target, log_std,
            clip, value_clip, entropy_coef, value_coef, shift, scale,
            P, HEADS, OUTP, ROWS, HAS_VALUE, BOX, CLIPPED,
        )
        # fmt: on
        std_sum += std_grad
        policy_sum += part * policy
        value_sum += part * value
        entropy_sum += part * entropy
        divergence_sum += part * divergence
        outside_sum += part * outside
        count_sum += part

        head_bias_sum += tl.sum(grad, 0)
        grad = narrow(grad, PRECISION)
        head_sum = product(tl.trans(h2), grad, head_sum, PRECISION)
        back = product(grad, head, tl.zeros((ROWS, H2P), dtype=tl.float32), PRECISION)
        if LAYERS == 2:
            back = differentiate(back, h2, TANH)
            b2_sum += tl.sum(back, 0)
            back = narrow(back, PRECISION)
            w2_sum = product(tl.trans(back), h1, w2_sum, PRECISION)
            back = product(back, weight2, tl.zeros((ROWS, H1P), dtype=tl.float32), PRECISION)
        back = differentiate(back, h1, TANH)
        b1_sum += tl.sum(back, 0)
        w1_sum = product(tl.trans(narrow(back, PRECISION)), x, w1_sum, PRECISION)

    partial += tl.program_id(0).to(tl.int64) * partial_stride
    at1 = partial + to_w1 + j[:, None] * D + i[None, :]
    tl.store(at1, w1_sum, mask=(j[:, None] < H1) & (i[None, :] < D))
    tl.store(partial + to_b1 + j, b1_sum, mask=j < H1)
    if LAYERS == 2:
        at2 = partial + to_w2 + k[:, None] * H1 + j[None, :]
        tl.store(at2, w2_sum, mask=(k[:, None] < H2) & (j[None, :] < H1))
        tl.store(partial + to_b2 + k, b2_sum, mask=k < H2)
    at_metrics = partial + to_metrics
    if P > 0:
        at_head = partial + to_wa + o[None, :] * H2 + k[:, None]
        tl.store(at_head, head_sum, mask=(o[None, :] < P) & (k[:, None] < H2))
        tl.store(partial + to_ba + o, head_bias_sum, mask=o < P)
        if BOX:
            tl.store(partial + to_log_std + o, std_sum, mask=o < P)
        tl.store(at_metrics, tl.sum(policy_sum, 0))
        tl.store(at_metrics + 2, tl.sum(entropy_sum, 0))
        tl.store(at_metrics + 3, tl.sum(divergence_sum, 0))
        tl.store(at_metrics + 4, tl.sum(outside_sum, 0))
        tl.store(at_metrics + 5, tl.sum(count_sum, 0))
    if HAS_VALUE:
        at_value = partial + to_wc + (o[None, :] - P) + k[:, None]
        tl.store(at_value, head_sum, mask=(o[None, :] == P) & (k[:, None] < H2))
        tl.store(partial + to_bc + o - P, head_bias_sum, mask=o == P)
        tl.store(at_metrics + 1, tl.sum(value_sum, 0))


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


class FusedUpdate:
    """Gradients and metrics of a minibatch for an ActorCritic of one or two hidden layers.

    Args:
        module: all of whose parameters learn.
        space: of its actions.
        clipped: PPO's loss, otherwise A2C's.
        samples: of the segments that it acts for.
        precision: of the products: "ieee", "tf32x3", "tf32" or "bf16". All sums are float32.
        tiles: None: the division known to be fast.

    Attributes:
        total: float32, what `run` leaves: the gradients of all parameters end to end, then the METRICS.
        flat_gradient: the view of `total` that holds the gradients.
        gradients: parameter by parameter the view of `total` that holds its gradient.
        metrics: the view of `total` that holds the METRICS.
    """

    def __init__(
        self,
        module: ActorCritic,
        space: ActionSpace,
        *,
        clipped: bool,
        samples: Sequence[Samples],
        precision: str,
        tiles: UpdateTiles | None = None,
    ) -> None:
        self.module, self.space, self.samples, self.precision = module, space, list(samples), precision
        parameters = list(module.parameters())
        device = parameters[0].device
        layers = [module.actor] if module.critic is None else [module.actor, module.critic]
        self.tiles = tiles or update_tiles(max(module.hidden))
        ends = list(itertools.accumulate((p.numel() for p in parameters), initial=0))
        offsets = {p: start for p, start in zip(parameters, ends[:-1], strict=True)}
        columns = ends[-1] + len(METRICS)
        if device.type == "cuda":
            self._programs = self.tiles.programs * torch.cuda.get_device_properties(device).multi_processor_count
        else:
            self._programs = 3
        self._partial = torch.zeros(len(self.samples) * self._programs, columns + 1, device=device)
        self.total = torch.zeros(columns, device=device)
        self.gradients = [self.total[start : start + p.numel()].view_as(p) for p, start in offsets.items()]
        self.flat_gradient, self.metrics = self.total[: ends[-1]], self.total[ends[-1] :]
        self._towers = [self._tower(tower, i, offsets, ends[-1]) for i, tower in enumerate(layers)]
        self._clipped = clipped

    def _tower(self, layers: torch.nn.ModuleList, index: int, offsets: dict, metrics: int) -> dict:
        """What the kernel takes for the tower that bears the actor's head (0), or the critic's alone (1)."""
        module = self.module
        own = [
            p for layer in (layers[0], layers[-1], module.actor_head, module.critic_head) for p in layer.parameters()
        ]
        log_std = own[0] if module.log_std is None else module.log_std
        policy = self.space.num_outputs if index == 0 else 0
        has_value = module.critic is None or index == 1
        return {
            "weights": own,
            "log_std": log_std,
            "to": [*(offsets[p] for p in own), offsets[log_std], metrics],
            "constants": {
                "P": policy,
                "HEADS": () if isinstance(self.space, Box) else tuple(self.space.heads),
                "OUTP": block(policy + has_value),
                "HAS_VALUE": has_value,
            },
        }

    def run(self, envs: torch.Tensor | None, coefficients: torch.Tensor, moments: torch.Tensor) -> None:
        """Enqueue on PyTorch's current stream.

        Args:
            envs: indices of the minibatch's environments; None: all.
            coefficients: float32 (4,): clip, value clip (negative: none), entropy_coef, value_coef.
            moments: float32 (2,) or more: shift and scale of the advantages.
        """
        for i, s in enumerate(self.samples):
            partial = self._partial[i * self._programs :]
            for tower in self._towers:
                self._launch(s, tower, partial, envs, coefficients, moments)
        columns = len(self.total)
        _add_up[(triton.cdiv(columns, REDUCED),)](
            self._partial, self.total, columns, columns + 1, PROGRAMS=len(self._partial), COLUMNS=REDUCED, ROWS=32
        )

    def _launch(
        self,
        s: Samples,
        tower: dict,
        partial: torch.Tensor,
        envs: torch.Tensor | None,
        coefficients: torch.Tensor,
        moments: torch.Tensor,
    ) -> None:
        steps, all_envs, agents = s.log_prob.shape
        num_envs = all_envs if envs is None else len(envs)
        rows = steps * num_envs * agents
        alive = s.alive.view(torch.uint8)
        normalizer = self.module.normalizer
        mask = s.mask if s.mask is not None else s.obs
        h1, h2 = self.module.hidden[0], self.module.hidden[-1]
        _gradients[(self._programs,)](
            s.obs,
            mask,
            s.action,
            alive,
            s.log_prob,
            s.value,
            s.advantage,
            s.target,
            s.log_prob if envs is None else envs,
            coefficients,
            moments,
            tower["log_std"],
            s.log_prob if normalizer is None else normalizer.mean,
            s.log_prob if normalizer is None else normalizer.variance,
            0.0 if normalizer is None else normalizer.limit,
            *tower["weights"],
            partial,
            rows,
            num_envs,
            agents,
            *s.obs.stride(),
            *mask.stride(),
            *s.action.stride(),
            *alive.stride(),
            *s.log_prob.stride(),
            partial.stride(0),
            *tower["to"],
            D=s.obs.shape[-1],
            DP=block(s.obs.shape[-1]),
            H1=h1,
            H1P=block(h1),
            H2=h2,
            H2P=block(h2),
            LAYERS=len(self.module.hidden),
            TANH=self.module.activation == "tanh",
            NORMALIZE=normalizer is not None,
            BOX=isinstance(self.space, Box),
            CLIPPED=self._clipped,
            MASKED=s.mask is not None,
            GATHERED=envs is not None,
            ENV_FASTEST=s.env_fastest,
            ROWS=self.tiles.rows,
            TURNS=triton.cdiv(rows, self.tiles.rows * self._programs),
            PRECISION=self.precision,
            num_warps=self.tiles.warps,
            maxnreg=self.tiles.registers,
            **tower["constants"],
        )
