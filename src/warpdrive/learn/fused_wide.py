"""Gradients of networks whose weights do not fit a multiprocessor, in bfloat16: one pass, then sums of outer products.

The pass goes from observations to the gradients in front of every layer, a tile of samples at a time, and writes what
came out of each layer and the gradient in front of it. A second kernel makes the weights' gradients of that: for each
layer the sum over samples of gradient times input. Sums are kept by program and added up in a fixed order, so that the
same samples give the same bits. Of an H200's time both are near what memory allows (docs/design.md).
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
    block,
    differentiate,
    multiprocessors,
    normalize,
    product,
    weight_tile,
)
from warpdrive.policy.mlp import ActorCritic

__all__ = ["FusedWide", "WideTiles"]

# Samples whose layers are in memory at once: for two layers of 256 features 2.3 KB each.
CHUNK = 1 << 20


class WideTiles(NamedTuple):
    """How the kernels divide their work.

    Attributes:
        rows: samples of the pass at a time. chunk: features of a hidden layer at a time. warps, stages: of the pass.
        programs: of the pass on each multiprocessor.
        sum_rows, sum_stages: samples at a time of the second kernel, and how many such tiles are on their way.
        sum_features, sum_warps: features of its left factor, and its warps.
    """

    rows: int = 128
    chunk: int = 64
    warps: int = 8
    stages: int = 2
    programs: int = 1
    sum_rows: int = 64
    sum_stages: int = 3
    sum_features: int = 128
    sum_warps: int = 8


@triton.jit
def _store(to, value, row, column, width):
    """Write a tile to rows of `width` bfloat16 in memory."""
    tl.store(to + row.to(tl.int64)[:, None] * width + column[None, :], value.to(tl.bfloat16))


@triton.jit
def _add(to, value, mask, FIRST: tl.constexpr):
    """Add to a program's own sums, which the first call overwrites."""
    if not FIRST:
        value += tl.load(to, mask=mask, other=0.0)
    tl.store(to, value, mask=mask)


@triton.jit
def _pass(
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
    wh,
    bh,
    x_out,
    h1_out,
    h2_out,
    grad1_out,
    grad2_out,
    grad_out,
    partial,
    first_row,
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
    w1_out,
    w1_in,
    w2_out,
    w2_in,
    wh_out,
    wh_in,
    partial_stride,
    to_ba,
    to_bc,
    to_log_std,
    to_metrics,
    D: tl.constexpr,
    DP: tl.constexpr,
    DX: tl.constexpr,
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
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
    TURNS: tl.constexpr,
    FIRST: tl.constexpr,
):
    i, k, o = tl.arange(0, DP), tl.arange(0, H2P), tl.arange(0, OUTP)
    outputs: tl.constexpr = P + HAS_VALUE
    clip, value_clip = tl.load(coefficients), tl.load(coefficients + 1)
    entropy_coef, value_coef = tl.load(coefficients + 2), tl.load(coefficients + 3)
    shift, scale = tl.load(moments), tl.load(moments + 1)
    head_bias_sum = tl.zeros((OUTP,), dtype=tl.float32)
    std_sum = tl.zeros((OUTP,), dtype=tl.float32)
    policy_sum = tl.zeros((ROWS,), dtype=tl.float32)
    value_sum = tl.zeros((ROWS,), dtype=tl.float32)
    entropy_sum = tl.zeros((ROWS,), dtype=tl.float32)
    divergence_sum = tl.zeros((ROWS,), dtype=tl.float32)
    outside_sum = tl.zeros((ROWS,), dtype=tl.float32)
    count_sum = tl.zeros((ROWS,), dtype=tl.float32)

    for turn in range(TURNS):
        here = (turn * tl.num_programs(0) + tl.program_id(0)) * ROWS + tl.arange(0, ROWS)
        row = first_row + here
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
        x = x.to(tl.bfloat16)
        # One more feature that is 1 everywhere: its weights' gradient is that of the biases.
        with_one = tl.where(i[None, :] == D, 1.0, x.to(tl.float32)).to(tl.bfloat16)
        tl.store(x_out + here.to(tl.int64)[:, None] * DX + i[None, :], with_one, mask=i[None, :] < DX)

        if LAYERS == 2:
            z2 = tl.zeros((ROWS, H2P), dtype=tl.float32)
            for start in tl.range(0, H1P, CHUNK, num_stages=STAGES):
                j = start + tl.arange(0, CHUNK)
                weight = weight_tile(w1, i, j, w1_in, w1_out, D, H1)
                z1 = product(x, weight, tl.zeros((ROWS, CHUNK), dtype=tl.float32), "bf16")
                h1 = activate(z1 + bias_tile(b1, j, H1)[None, :], TANH, "bf16").to(tl.bfloat16)
                _store(h1_out, h1, here, j, H1P)
                z2 = product(h1, weight_tile(w2, j, k, w2_in, w2_out, H1, H2), z2, "bf16")
            bias2 = bias_tile(b2, k, H2)
        else:
            weight = weight_tile(w1, i, k, w1_in, w1_out, D, H1)
            z2 = product(x, weight, tl.zeros((ROWS, H2P), dtype=tl.float32), "bf16")
            bias2 = bias_tile(b1, k, H1)
        h2 = activate(z2 + bias2[None, :], TANH, "bf16").to(tl.bfloat16)
        _store(h2_out, h2, here, k, H2P)
        head = weight_tile(wh, k, o, wh_in, wh_out, H2, outputs)
        out = product(h2, head, tl.zeros((ROWS, OUTP), dtype=tl.float32), "bf16")
        out += bias_tile(bh, o, outputs)[None, :]

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
        grad = grad.to(tl.bfloat16)
        _store(grad_out, grad, here, o, OUTP)

        head_back = weight_tile(wh, o, k, wh_out, wh_in, outputs, H2)
        back = product(grad, head_back, tl.zeros((ROWS, H2P), dtype=tl.float32), "bf16")
        tl.debug_barrier()  # what is read now other threads may have written
        h2 = tl.load(h2_out + here.to(tl.int64)[:, None] * H2P + k[None, :])  # kept, it would crowd the registers
        grad2 = differentiate(back, h2, TANH).to(tl.bfloat16)
        _store(grad2_out, grad2, here, k, H2P)
        if LAYERS == 2:
            for start in tl.range(0, H1P, CHUNK, num_stages=STAGES):
                j = start + tl.arange(0, CHUNK)
                weight = weight_tile(w2, k, j, w2_out, w2_in, H2, H1)
                back1 = product(grad2, weight, tl.zeros((ROWS, CHUNK), dtype=tl.float32), "bf16")
                h1 = tl.load(h1_out + here.to(tl.int64)[:, None] * H1P + j[None, :])
                _store(grad1_out, differentiate(back1, h1, TANH), here, j, H1P)

    partial += tl.program_id(0).to(tl.int64) * partial_stride
    metrics = partial + to_metrics + tl.arange(0, 1)
    always = tl.arange(0, 1) == 0
    if P > 0:
        _add(partial + to_ba + o, head_bias_sum, o < P, FIRST)
        if BOX:
            _add(partial + to_log_std + o, std_sum, o < P, FIRST)
        _add(metrics, tl.sum(policy_sum, 0), always, FIRST)
        _add(metrics + 2, tl.sum(entropy_sum, 0), always, FIRST)
        _add(metrics + 3, tl.sum(divergence_sum, 0), always, FIRST)
        _add(metrics + 4, tl.sum(outside_sum, 0), always, FIRST)
        _add(metrics + 5, tl.sum(count_sum, 0), always, FIRST)
    if HAS_VALUE:
        _add(partial + to_bc + o - P, head_bias_sum, o == P, FIRST)
        _add(metrics + 1, tl.sum(value_sum, 0), always, FIRST)


@triton.jit
def _outer(
    left,
    right,
    partial,
    partial_stride,
    to_weight,
    to_extra,
    to_bias,
    m_stride,
    n_stride,
    M: tl.constexpr,
    M_TILE: tl.constexpr,
    M_WIDTH: tl.constexpr,
    N: tl.constexpr,
    N_TILE: tl.constexpr,
    N_WIDTH: tl.constexpr,
    EXTRA: tl.constexpr,
    BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
    FIRST: tl.constexpr,
):
    """Sums over samples of left[row, m] right[row, n]; of an extra column of `right`, and of left[row, m] alone."""
    m = tl.program_id(0) * M_TILE + tl.arange(0, M_TILE)
    n = tl.arange(0, N_TILE)
    sums = tl.zeros((M_TILE, N_TILE), dtype=tl.float32)
    bias = tl.zeros((M_TILE, 16), dtype=tl.float32)
    ones = tl.full((ROWS, 16), 1.0, dtype=tl.bfloat16)
    for turn in tl.range(0, TILES // SPLITS + (TILES % SPLITS > 0), num_stages=STAGES):
        tile = turn * SPLITS + tl.program_id(1)
        row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        there = tl.full((ROWS, 1), 1, dtype=tl.int1) & (tile < TILES)
        a = tl.load(left + row[:, None] * M_WIDTH + m[None, :], mask=there & (m[None, :] < M_WIDTH), other=0.0)
        b = tl.load(right + row[:, None] * N_WIDTH + n[None, :], mask=there & (n[None, :] < N_WIDTH), other=0.0)
        sums = product(tl.trans(a), b, sums, "bf16")
        if BIAS:
            bias = product(tl.trans(a), ones, bias, "bf16")
    partial += tl.program_id(1).to(tl.int64) * partial_stride
    at = partial + to_weight + m[:, None] * m_stride + n[None, :] * n_stride
    _add(at, sums, (m[:, None] < M) & (n[None, :] < N), FIRST)
    if EXTRA:
        at = partial + to_extra + m[:, None] + (n[None, :] - N)
        _add(at, sums, (m[:, None] < M) & (n[None, :] == N), FIRST)
    if BIAS:
        once = tl.arange(0, 16)[None, :]
        _add(partial + to_bias + m[:, None] + once, bias, (m[:, None] < M) & (once == 0), FIRST)


class FusedWide:
    """Gradients and metrics of a minibatch for an ActorCritic of one or two wide hidden layers, in bfloat16.

    Args:
        module: all of whose parameters learn.
        space: of its actions.
        clipped: PPO's loss, otherwise A2C's.
        samples: of the segments that it acts for.
        tiles: how the kernels divide their work.
        chunk: samples whose layers are in memory at once.

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
        tiles: WideTiles | None = None,
        chunk: int = CHUNK,
    ) -> None:
        self.module, self.samples, self.tiles, self.chunk = module, list(samples), tiles or WideTiles(), chunk
        if self.tiles.rows % self.tiles.sum_rows:
            raise ValueError(f"tiles.rows must be a multiple of sum_rows, {self.tiles.sum_rows}, got {self.tiles.rows}")
        self._device = samples[0].obs.device
        count = multiprocessors(self._device)
        self._programs = self.tiles.programs * count
        self.sums = Sums(module, self._programs)
        alone = [False] if module.critic is None else [False, True]
        self._towers = [Tower(module, space, self.sums, critic, clipped) for critic in alone]

    def run(self, envs: torch.Tensor | None, coefficients: torch.Tensor, moments: torch.Tensor) -> None:
        """Enqueue on PyTorch's current stream; arguments as FusedUpdate.run's."""
        weights = self.module.weights(torch.bfloat16)
        hidden = [weights.actor, weights.critic or []]
        for index, tower in enumerate(self._towers):
            # With one tower both heads are one product; with two each has its own.
            layers = (hidden[index][0], hidden[index][-1], weights.heads[index])
            first = True
            for s in self.samples:
                arguments = sample_arguments(s, envs, self.module, coefficients, moments)
                rows = arguments[1][0]
                # Parts of equal size, in which every program of the pass has equally many tiles.
                whole = self.tiles.rows * self._programs
                size = -(-rows // (-(-rows // self.chunk) * whole)) * whole
                for start in range(0, rows, size):
                    self._part(tower, layers, arguments, start, size, first)
                    first = False
        self.sums.add_up()

    def _part(self, tower: Tower, layers: tuple, arguments: tuple, start: int, size: int, first: bool) -> None:
        """One tower's share of the sums by `size` samples from `start` on, of which those beyond the end are none."""
        arrays, numbers, constants = arguments
        tiles, partial = self.tiles, self.sums.partial
        features, hidden1, hidden2 = constants["D"], constants["H1P"], constants["H2P"]
        outputs, policy = tower.constants["OUTP"], tower.constants["P"]
        two = constants["LAYERS"] == 2
        inputs = -(-(features + 1) // 8) * 8  # and the one, in whole 16 bytes

        def new(width: int) -> torch.Tensor:
            return torch.empty(size, width, dtype=torch.bfloat16, device=self._device)

        x, h2, grad2, grad = new(inputs), new(hidden2), new(hidden2), new(outputs)
        h1, grad1 = (new(hidden1), new(hidden1)) if two else (h2, grad2)
        to_w1, to_b1, to_w2, to_b2, to_wa, to_ba, to_wc, to_bc, to_log_std, to_metrics = tower.to
        _pass[(self._programs,)](
            *arrays,
            *[tensor for layer in layers for tensor in layer],
            x,
            h1,
            h2,
            grad1,
            grad2,
            grad,
            partial,
            start,
            *numbers,
            *[stride for weight, _ in layers for stride in weight.stride()],
            partial.stride(0),
            to_ba,
            to_bc,
            to_log_std,
            to_metrics,
            **{**constants, "DP": block(features + 1)},
            **tower.constants,
            DX=inputs,
            ROWS=tiles.rows,
            CHUNK=min(tiles.chunk, hidden1),
            STAGES=tiles.stages,
            TURNS=size // (tiles.rows * self._programs),
            FIRST=first,
            num_warps=tiles.warps,
        )
        wide1, wide2 = constants["H1"], constants["H2"]
        # Of the first layer the column of ones gives the biases; of the heads the last column is the critic's.
        self._sum(grad1, wide1, x, features, (to_w1, features, 1), extra=to_b1, first=first)
        if two:
            self._sum(grad2, wide2, h1, wide1, (to_w2, wide1, 1), bias=to_b2, first=first)
        value = to_wc if tower.constants["HAS_VALUE"] else None
        self._sum(h2, wide2, grad, policy, (to_wa, 1, wide2), extra=value, first=first)

    def _sum(
        self,
        left: torch.Tensor,
        m: int,
        right: torch.Tensor,
        n: int,
        to: tuple[int, int, int],
        *,
        extra: int | None = None,
        bias: int | None = None,
        first: bool,
    ) -> None:
        """Add up left[row, :m] right[row, :n] to `to`, offset and strides; and right's column n and left alone."""
        tiles, partial = self.tiles, self.sums.partial
        width = left.shape[1]
        features = min(tiles.sum_features, width)
        count = len(left) // tiles.sum_rows
        splits = max(1, min(count, self._programs // (width // features)))
        _outer[(width // features, splits)](
            left,
            right,
            partial,
            partial.stride(0),
            to[0],
            extra or 0,
            bias or 0,
            *to[1:],
            M=m,
            M_TILE=features,
            M_WIDTH=width,
            N=n,
            N_TILE=block(right.shape[1]),
            N_WIDTH=right.shape[1],
            EXTRA=extra is not None,
            BIAS=bias is not None,
            ROWS=tiles.sum_rows,
            TILES=count,
            SPLITS=splits,
            STAGES=tiles.sum_stages,
            FIRST=first,
            num_warps=tiles.sum_warps,
        )
