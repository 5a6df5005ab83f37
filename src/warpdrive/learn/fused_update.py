"""A minibatch's gradients in one kernel: forward pass, loss and backward pass without leaving the chip.

For networks whose weights fit a multiprocessor. Programs run over tiles of samples, read where the rollout left them,
and keep the sums of the weights' gradients to themselves; a second kernel adds up the programs' sums in a fixed order,
so that the same samples give the same bits.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from warpdrive.env.spaces import ActionSpace
from warpdrive.learn.fused_samples import Sums, Tower, locate, sample_arguments, surrogate
from warpdrive.learn.rollout import Samples
from warpdrive.policy.fused_layers import (
    activate,
    bias_tile,
    differentiate,
    multiprocessors,
    narrow,
    normalize,
    product,
    weight_tile,
)
from warpdrive.policy.mlp import ActorCritic

__all__ = ["FusedUpdate", "UpdateTiles", "update_tiles"]


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


def update_tiles(hidden: Sequence[int]) -> UpdateTiles:
    """The division for hidden layers of these widths.

    With a layer of at most 32 features a program has two warps: its products are then made by mma.sync, not by wgmma,
    for which ptxas may write wrong code (docs/design.md, "Fused kernels"). The others were fastest on an H200.
    """
    if min(hidden) <= 32:
        return UpdateTiles(rows=32, warps=2, programs=4)
    if max(hidden) > 64:
        return UpdateTiles(rows=64, warps=8, programs=1)
    return UpdateTiles(rows=64, warps=4, programs=2)


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
        row = (turn * tl.num_programs(0) + tl.program_id(0)) * ROWS + tl.arange(0, ROWS)
        t, e, agent = locate(row, num_envs, num_agents, envs, GATHERED, ENV_FASTEST)
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
        grad, std_grad, policy, value, entropy, divergence, outside = surrogate(
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


class FusedUpdate:
    """Gradients and metrics of a minibatch for an ActorCritic of one or two hidden layers.

    Args:
        module: all of whose parameters learn.
        space: of its actions.
        clipped: PPO's loss, otherwise A2C's.
        samples: of the segments that it acts for.
        precision: of the products: "ieee", "tf32x3", "tf32" or "bf16". All sums are float32.
        tiles: None: those of update_tiles.

    Attributes:
        sums: their totals are what `run` leaves.
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
        self.module, self.samples, self.precision = module, list(samples), precision
        self.tiles = tiles or update_tiles(module.hidden)
        self._programs = self.tiles.programs * multiprocessors(samples[0].obs.device)
        self.sums = Sums(module, len(self.samples) * self._programs)
        alone = [False] if module.critic is None else [False, True]
        self._towers = [Tower(module, space, self.sums, critic, clipped) for critic in alone]

    def run(self, envs: torch.Tensor | None, coefficients: torch.Tensor, moments: torch.Tensor) -> None:
        """Enqueue on PyTorch's current stream.

        Args:
            envs: indices of the minibatch's environments; None: all.
            coefficients: float32 (4,): clip, value clip (negative: none), entropy_coef, value_coef.
            moments: float32 (2,) or more: shift and scale of the advantages.
        """
        for i, s in enumerate(self.samples):
            arrays, numbers, constants = sample_arguments(s, envs, self.module, coefficients, moments)
            partial = self.sums.partial[i * self._programs :]
            for tower in self._towers:
                _gradients[(self._programs,)](
                    *arrays,
                    *tower.parameters,
                    partial,
                    *numbers,
                    partial.stride(0),
                    *tower.to,
                    **constants,
                    **tower.constants,
                    ROWS=self.tiles.rows,
                    TURNS=triton.cdiv(numbers[0], self.tiles.rows * self._programs),
                    PRECISION=self.precision,
                    num_warps=self.tiles.warps,
                    maxnreg=self.tiles.registers,
                )
        self.sums.add_up()
