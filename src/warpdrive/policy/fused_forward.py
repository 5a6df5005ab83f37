"""An actor-critic's outputs in one kernel, for rollouts: what lies between its layers never leaves the chip."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from warpdrive.policy.fused_layers import activate, bias_tile, block, narrow, normalize, product, weight_tile
from warpdrive.policy.fused_present import list_present

if TYPE_CHECKING:
    from warpdrive.policy.mlp import ActorCritic, Kept, Weights

__all__ = ["ForwardTiles", "forward_tiles", "fused_forward"]


class ForwardTiles(NamedTuple):
    """How the kernel divides its work.

    Attributes:
        rows: samples a program. chunk: features of the first of two hidden layers at a time.
        warps: of a program. stages: how many chunks of weights are on their way at once.
    """

    rows: int
    chunk: int
    warps: int
    stages: int


def forward_tiles(hidden: Sequence[int]) -> ForwardTiles:
    """The division for hidden layers of these widths.

    Of networks that have a layer of at most 128 features no tile is 64 samples high: their products are made by
    mma.sync, not by wgmma, for which ptxas may write wrong code (docs/design.md, "Fused kernels").
    """
    if min(hidden) > 128:
        return ForwardTiles(rows=128, chunk=64, warps=8, stages=2)
    return ForwardTiles(rows=32, chunk=64, warps=4, stages=1)


@triton.jit
def _tower(
    x,
    w1,
    b1,
    w2,
    b2,
    w1_out,
    w1_in,
    w2_out,
    w2_in,
    h1_out,
    row,
    live,
    D: tl.constexpr,
    DP: tl.constexpr,
    H1: tl.constexpr,
    H1P: tl.constexpr,
    H2: tl.constexpr,
    H2P: tl.constexpr,
    LAYERS: tl.constexpr,
    TANH: tl.constexpr,
    KEEP: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """What the last hidden layer gives. Of two layers the first is made chunk by chunk as the second takes it."""
    i = tl.arange(0, DP)
    if LAYERS == 1:
        j = tl.arange(0, H1P)
        z = product(x, weight_tile(w1, i, j, w1_in, w1_out, D, H1), tl.zeros((ROWS, H1P), dtype=tl.float32), PRECISION)
        z += bias_tile(b1, j, H1)[None, :]
    else:
        k = tl.arange(0, H2P)
        z = tl.zeros((ROWS, H2P), dtype=tl.float32)
        for start in tl.range(0, H1P, CHUNK, num_stages=STAGES):
            j = start + tl.arange(0, CHUNK)
            first = product(
                x, weight_tile(w1, i, j, w1_in, w1_out, D, H1), tl.zeros((ROWS, CHUNK), dtype=tl.float32), PRECISION
            )
            h = narrow(activate(first + bias_tile(b1, j, H1)[None, :], TANH, PRECISION), PRECISION)
            if KEEP:
                tl.store(h1_out + row[:, None] * H1P + j[None, :], h, mask=live[:, None])
            z = product(h, weight_tile(w2, j, k, w2_in, w2_out, H1, H2), z, PRECISION)
        z += bias_tile(b2, k, H2)[None, :]
    return narrow(activate(z, TANH, PRECISION), PRECISION)


@triton.jit
def _head(
    h,
    weight,
    bias,
    out,
    row,
    live,
    out_stride,
    wh_out,
    wh_in,
    FIRST: tl.constexpr,
    OUT: tl.constexpr,
    OUTP: tl.constexpr,
    H: tl.constexpr,
    HP: tl.constexpr,
    ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write a head's outputs to columns from FIRST on."""
    j, k = tl.arange(0, OUTP), tl.arange(0, HP)
    y = product(
        h, weight_tile(weight, k, j, wh_in, wh_out, H, OUT), tl.zeros((ROWS, OUTP), dtype=tl.float32), PRECISION
    )
    y += bias_tile(bias, j, OUT)[None, :]
    at = out + row[:, None] + (FIRST + j).to(tl.int64)[None, :] * out_stride
    tl.store(at, y, mask=live[:, None] & (j[None, :] < OUT))


@triton.jit
def _forward(
    obs,
    out,
    mean,
    variance,
    limit,
    aw1,
    ab1,
    aw2,
    ab2,
    awh,
    abh,
    cw1,
    cb1,
    cw2,
    cb2,
    cwh,
    cbh,
    rows,
    obs_row,
    obs_feature,
    out_stride,
    w1_out,
    w1_in,
    w2_out,
    w2_in,
    wh_out,
    wh_in,
    x_out,
    h1_out,
    h2_out,
    order,
    count,
    D: tl.constexpr,
    DP: tl.constexpr,
    DX: tl.constexpr,
    H1: tl.constexpr,
    H1P: tl.constexpr,
    H2: tl.constexpr,
    H2P: tl.constexpr,
    P: tl.constexpr,
    OUTP: tl.constexpr,
    LAYERS: tl.constexpr,
    TANH: tl.constexpr,
    SEPARATE: tl.constexpr,
    NORMALIZE: tl.constexpr,
    LISTED: tl.constexpr,
    KEEP: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    if LISTED:
        rows = tl.load(count)
        if tl.program_id(0) * ROWS >= rows:
            return
        live = row < rows
        row = tl.load(order + row, mask=live, other=0).to(tl.int64)
    else:
        live = row < rows
    i = tl.arange(0, DP)
    at = obs + row[:, None] * obs_row + i.to(tl.int64)[None, :] * obs_feature
    x = tl.load(at, mask=live[:, None] & (i[None, :] < D), other=0.0).to(tl.float32)
    if NORMALIZE:
        x = normalize(x, mean, variance, limit, i, D)
    if KEEP:
        with_one = tl.where(i[None, :] == D, 1.0, x)
        tl.store(x_out + row[:, None] * DX + i[None, :], with_one, mask=live[:, None] & (i[None, :] < DX))
    x = narrow(x, PRECISION)
    # fmt: off
    h = _tower(
        x, aw1, ab1, aw2, ab2, w1_out, w1_in, w2_out, w2_in, h1_out, row, live,
        D, DP, H1, H1P, H2, H2P, LAYERS, TANH, KEEP, ROWS, CHUNK, STAGES, PRECISION,
    )
    if KEEP:
        tl.store(h2_out + row[:, None] * H2P + tl.arange(0, H2P)[None, :], h, mask=live[:, None])
    if SEPARATE:
        _head(h, awh, abh, out, row, live, out_stride, wh_out, wh_in, 0, P, OUTP, H2, H2P, ROWS, PRECISION)
        h = _tower(
            x, cw1, cb1, cw2, cb2, w1_out, w1_in, w2_out, w2_in, h1_out, row, live,
            D, DP, H1, H1P, H2, H2P, LAYERS, TANH, False, ROWS, CHUNK, STAGES, PRECISION,
        )
        _head(h, cwh, cbh, out, row, live, out_stride, wh_out, wh_in, P, 1, 16, H2, H2P, ROWS, PRECISION)
    else:
        _head(h, awh, abh, out, row, live, out_stride, wh_out, wh_in, 0, P + 1, OUTP, H2, H2P, ROWS, PRECISION)
    # fmt: on


def fused_forward(
    module: "ActorCritic",
    obs: torch.Tensor,
    weights: "Weights",
    precision: str,
    tiles: ForwardTiles | None = None,
    present: torch.Tensor | None = None,
    keep: "Kept | None" = None,
) -> torch.Tensor:
    """What `module` gives for `obs`, without a graph for gradients, in one launch on PyTorch's current stream.

    Args:
        module: with one or two hidden layers.
        obs: (B, D) float32 or bfloat16, best feature-major.
        weights: module.weights(kind): bfloat16 for "bf16", else float32.
        precision: of the products: "ieee", "tf32x3", "tf32" or "bf16". All sums are float32.
        tiles: None: those of forward_tiles.
        present: bool (B / n, n): samples that are not are left out, and their outputs mean nothing; None: all are.
        keep: filled for those present, if given: for networks whose critic has no layers of its own, by products of
            "bf16".

    Returns:
        float32 (B, P + 1), feature-major.
    """
    rows, features = obs.shape
    layers = len(weights.actor)
    first, last = weights.actor[0], weights.actor[-1]
    h1, h2 = first[0].shape[0], last[0].shape[0]
    separate = weights.critic is not None
    outputs = sum(weight.shape[0] for weight, _ in weights.heads)
    tiles = tiles or forward_tiles(module.hidden)
    out = torch.empty((outputs, rows), dtype=torch.float32, device=obs.device).t()
    critic = weights.actor if weights.critic is None else weights.critic
    actor_head, critic_head = weights.heads[0], weights.heads[-1]
    normalizer = module.normalizer
    listed = (obs, obs) if present is None else list_present(present)
    kept = (obs, obs, obs)
    if keep is not None:
        assert precision == "bf16" and not separate, "what is kept is one tower's, in bfloat16"
        kept = (keep.x, keep.hidden[0], keep.hidden[-1])
    # The head's strides are those of the actor's; the critic's single row needs only the one along its inputs.
    _forward[(triton.cdiv(rows, tiles.rows),)](
        obs,
        out,
        obs if normalizer is None else normalizer.mean,
        obs if normalizer is None else normalizer.variance,
        0.0 if normalizer is None else normalizer.limit,
        *first,
        *last,
        *actor_head,
        *critic[0],
        *critic[-1],
        *critic_head,
        rows,
        *obs.stride(),
        out.stride(1),
        *first[0].stride(),
        *last[0].stride(),
        *actor_head[0].stride(),
        *kept,
        *listed,
        D=features,
        DP=block(features if keep is None else features + 1),
        DX=1 if keep is None else keep.x.shape[1],
        H1=h1,
        H1P=block(h1),
        H2=h2,
        H2P=block(h2),
        P=outputs - 1,
        OUTP=block(outputs - 1 if separate else outputs),
        LAYERS=layers,
        TANH=module.activation == "tanh",
        SEPARATE=separate,
        NORMALIZE=normalizer is not None,
        LISTED=present is not None,
        KEEP=keep is not None,
        ROWS=tiles.rows,
        CHUNK=min(tiles.chunk, block(h1)),
        STAGES=tiles.stages,
        PRECISION=precision,
        num_warps=tiles.warps,
    )
    return out
