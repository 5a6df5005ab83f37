"""Kernels for layers of wide networks in bfloat16: forwards, loss and backwards, and sums of outer products.

Triton code. Tiles hold samples along the first axis, features along the second; what lies between the kernels are rows
of bfloat16, a power of two of features wide.

Only samples of agents that took part are worked on: `order` lists their indices in the minibatch, counted as in
fused_samples.locate, and `count` says how many they are. A call is for a part of the list, `size` rows from `first_row`
on; kernels have programs for all of them, and those behind the end of the list return at once. What a rollout has kept
(KEPT) lies by the sample's index; what the kernels make, row by row of the part.
"""

import triton
import triton.language as tl

from warpdrive.learn.fused_samples import locate, surrogate
from warpdrive.policy.fused_layers import activate, bias_tile, differentiate, normalize, product, weight_tile

__all__ = ["back_layer", "first_layer", "head", "layer", "outer"]


@triton.jit
def _add(to, value, mask, FIRST: tl.constexpr):
    """Add to a program's own sums, which the first call overwrites."""
    if not FIRST:
        value += tl.load(to, mask=mask, other=0.0)
    tl.store(to, value, mask=mask)


@triton.jit
def _rows(count, first_row, size):
    """How many rows of the part there are."""
    return tl.minimum(tl.maximum(tl.load(count) - first_row, 0), size)


@triton.jit
def _of(order, row, rows, first_row, KEPT: tl.constexpr):
    """Where what belongs to a part's rows lies: by the sample's index if it was kept, row by row if not."""
    if KEPT:
        row = tl.load(order + first_row + row, mask=row < rows, other=0).to(tl.int64)
    return row


@triton.jit
def _tile(WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """This program's rows, int64, and columns of a matrix of WIDTH columns; neighbours share their rows."""
    across: tl.constexpr = WIDTH // COLUMNS
    row = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    return row, (tl.program_id(0) % across) * COLUMNS + tl.arange(0, COLUMNS)


@triton.jit
def first_layer(
    obs,
    order,
    count,
    envs,
    mean,
    variance,
    limit,
    weight,
    bias,
    x_out,
    h_out,
    first_row,
    size,
    num_envs,
    num_agents,
    obs_t,
    obs_e,
    obs_k,
    obs_f,
    w_out,
    w_in,
    D: tl.constexpr,
    DP: tl.constexpr,
    DX: tl.constexpr,
    H: tl.constexpr,
    WIDTH: tl.constexpr,
    TANH: tl.constexpr,
    NORMALIZE: tl.constexpr,
    GATHERED: tl.constexpr,
    ENV_FASTEST: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """h = act(x W^T + b) of observations x, which are written as well, with one more feature that is 1."""
    rows = _rows(count, first_row, size)
    if tl.program_id(0) // (WIDTH // COLUMNS) * ROWS >= rows:
        return
    here, j = _tile(WIDTH, ROWS, COLUMNS)
    i = tl.arange(0, DP)
    live = here < rows
    sample = tl.load(order + first_row + here, mask=live, other=0)
    t, e, agent = locate(sample, num_envs, num_agents, envs, GATHERED, ENV_FASTEST)
    x = tl.load(
        obs + (t * obs_t + e * obs_e + agent * obs_k)[:, None] + (i.to(tl.int64) * obs_f)[None, :],
        mask=live[:, None] & (i[None, :] < D),
        other=0.0,
    )
    if NORMALIZE:
        x = normalize(x.to(tl.float32), mean, variance, limit, i, D)
    x = x.to(tl.bfloat16)
    if tl.program_id(0) % (WIDTH // COLUMNS) == 0:
        # The weights' gradient of the feature that is 1 is that of the biases.
        with_one = tl.where(i[None, :] == D, 1.0, x.to(tl.float32)).to(tl.bfloat16)
        tl.store(x_out + here[:, None] * DX + i[None, :], with_one, mask=i[None, :] < DX)
    w = weight_tile(weight, i, j, w_in, w_out, D, H)
    z = product(x, w, tl.zeros((ROWS, COLUMNS), dtype=tl.float32), "bf16")
    h = activate(z + bias_tile(bias, j, H)[None, :], TANH, "bf16").to(tl.bfloat16)
    tl.store(h_out + here[:, None] * WIDTH + j[None, :], h)


@triton.jit
def layer(
    x,
    weight,
    bias,
    h_out,
    count,
    first_row,
    size,
    w_out,
    w_in,
    N: tl.constexpr,
    N_WIDTH: tl.constexpr,
    H: tl.constexpr,
    WIDTH: tl.constexpr,
    TANH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """h = act(x W^T + b), x of N features and h of H."""
    if tl.program_id(0) // (WIDTH // COLUMNS) * ROWS >= _rows(count, first_row, size):
        return
    row, j = _tile(WIDTH, ROWS, COLUMNS)
    z = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in tl.range(0, N_WIDTH, CHUNK, num_stages=STAGES):
        k = start + tl.arange(0, CHUNK)
        part = tl.load(x + row[:, None] * N_WIDTH + k[None, :])
        z = product(part, weight_tile(weight, k, j, w_in, w_out, N, H), z, "bf16")
    h = activate(z + bias_tile(bias, j, H)[None, :], TANH, "bf16").to(tl.bfloat16)
    tl.store(h_out + row[:, None] * WIDTH + j[None, :], h)


@triton.jit
def back_layer(
    grad,
    h,
    weight,
    grad_out,
    order,
    count,
    first_row,
    size,
    w_out,
    w_in,
    N: tl.constexpr,
    N_WIDTH: tl.constexpr,
    H: tl.constexpr,
    WIDTH: tl.constexpr,
    TANH: tl.constexpr,
    KEPT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The gradient in front of a layer's activation, (grad W) act'(h), from that in front of the next one's.

    `grad` has N features, the next layer's, and `h` has H.
    """
    rows = _rows(count, first_row, size)
    if tl.program_id(0) // (WIDTH // COLUMNS) * ROWS >= rows:
        return
    row, j = _tile(WIDTH, ROWS, COLUMNS)
    back = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in tl.range(0, N_WIDTH, CHUNK, num_stages=STAGES):
        k = start + tl.arange(0, CHUNK)
        part = tl.load(grad + row[:, None] * N_WIDTH + k[None, :], mask=row[:, None] < rows, other=0.0)
        back = product(part, weight_tile(weight, k, j, w_out, w_in, N, H), back, "bf16")
    at = _of(order, row, rows, first_row, KEPT)[:, None] * WIDTH + j[None, :]
    hidden = tl.load(h + at, mask=row[:, None] < rows, other=0.0)
    tl.store(grad_out + row[:, None] * WIDTH + j[None, :], differentiate(back, hidden, TANH).to(tl.bfloat16))


@triton.jit
def head(
    mask,
    actions,
    order,
    count,
    old_log_prob,
    old_value,
    advantage,
    target,
    envs,
    coefficients,
    moments,
    log_std,
    h,
    weight,
    bias,
    h_grad_out,
    grad_out,
    partial,
    first_row,
    size,
    num_envs,
    num_agents,
    mask_t,
    mask_e,
    mask_k,
    mask_f,
    action_t,
    action_e,
    action_k,
    action_f,
    flat_t,
    flat_e,
    flat_k,
    w_out,
    w_in,
    partial_stride,
    to_ba,
    to_bc,
    to_log_std,
    to_metrics,
    H: tl.constexpr,
    WIDTH: tl.constexpr,
    P: tl.constexpr,
    HEADS: tl.constexpr,
    OUTP: tl.constexpr,
    TANH: tl.constexpr,
    HAS_VALUE: tl.constexpr,
    BOX: tl.constexpr,
    CLIPPED: tl.constexpr,
    MASKED: tl.constexpr,
    GATHERED: tl.constexpr,
    ENV_FASTEST: tl.constexpr,
    KEPT: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    STAGES: tl.constexpr,
    FIRST: tl.constexpr,
):
    """The outputs of the last hidden layer h, the loss, and the gradients of the outputs and in front of h.

    What is summed over samples besides, the biases' gradients and metrics, is added to the program's row of `partial`.
    """
    o = tl.arange(0, OUTP)
    outputs: tl.constexpr = P + HAS_VALUE
    clip, value_clip = tl.load(coefficients), tl.load(coefficients + 1)
    entropy_coef, value_coef = tl.load(coefficients + 2), tl.load(coefficients + 3)
    shift, scale = tl.load(moments), tl.load(moments + 1)
    bias_sum = tl.zeros((OUTP,), dtype=tl.float32)
    std_sum = tl.zeros((OUTP,), dtype=tl.float32)
    policy_sum = tl.zeros((ROWS,), dtype=tl.float32)
    value_sum = tl.zeros((ROWS,), dtype=tl.float32)
    entropy_sum = tl.zeros((ROWS,), dtype=tl.float32)
    divergence_sum = tl.zeros((ROWS,), dtype=tl.float32)
    outside_sum = tl.zeros((ROWS,), dtype=tl.float32)
    count_sum = tl.zeros((ROWS,), dtype=tl.float32)

    rows = _rows(count, first_row, size)
    turns = tl.cdiv(rows, ROWS * tl.num_programs(0))
    for turn in range(turns):
        here = (turn * tl.num_programs(0) + tl.program_id(0)).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        live = here < rows
        sample = tl.load(order + first_row + here, mask=live, other=0).to(tl.int64)
        kept = sample if KEPT else here
        t, e, agent = locate(sample, num_envs, num_agents, envs, GATHERED, ENV_FASTEST)
        at = t * flat_t + e * flat_e + agent * flat_k
        part = live.to(tl.float32)
        out = tl.zeros((ROWS, OUTP), dtype=tl.float32)
        for start in tl.range(0, WIDTH, CHUNK, num_stages=STAGES):
            k = start + tl.arange(0, CHUNK)
            hidden = tl.load(h + kept[:, None] * WIDTH + k[None, :], mask=live[:, None], other=0.0)
            out = product(hidden, weight_tile(weight, k, o, w_in, w_out, H, outputs), out, "bf16")
        out += bias_tile(bias, o, outputs)[None, :]

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
        bias_sum += tl.sum(grad, 0)
        grad = grad.to(tl.bfloat16)
        tl.store(grad_out + here[:, None] * OUTP + o[None, :], grad)
        for start in tl.range(0, WIDTH, CHUNK, num_stages=STAGES):
            k = start + tl.arange(0, CHUNK)
            w = weight_tile(weight, o, k, w_out, w_in, outputs, H)
            back = product(grad, w, tl.zeros((ROWS, CHUNK), dtype=tl.float32), "bf16")
            hidden = tl.load(h + kept[:, None] * WIDTH + k[None, :], mask=live[:, None], other=0.0)
            h_grad = differentiate(back, hidden, TANH).to(tl.bfloat16)
            tl.store(h_grad_out + here[:, None] * WIDTH + k[None, :], h_grad)

    partial += tl.program_id(0).to(tl.int64) * partial_stride
    metrics = partial + to_metrics + tl.arange(0, 1)
    always = (tl.arange(0, 1) == 0) & (FIRST | (turns > 0))
    own = (o < P) & (FIRST | (turns > 0))
    if P > 0:
        _add(partial + to_ba + o, bias_sum, own, FIRST)
        if BOX:
            _add(partial + to_log_std + o, std_sum, own, FIRST)
        _add(metrics, tl.sum(policy_sum, 0), always, FIRST)
        _add(metrics + 2, tl.sum(entropy_sum, 0), always, FIRST)
        _add(metrics + 3, tl.sum(divergence_sum, 0), always, FIRST)
        _add(metrics + 4, tl.sum(outside_sum, 0), always, FIRST)
        _add(metrics + 5, tl.sum(count_sum, 0), always, FIRST)
    if HAS_VALUE:
        _add(partial + to_bc + o - P, bias_sum, (o == P) & (FIRST | (turns > 0)), FIRST)
        _add(metrics + 1, tl.sum(value_sum, 0), always, FIRST)


@triton.jit
def outer(
    left,
    right,
    partial,
    order,
    count,
    first_row,
    size,
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
    LEFT_KEPT: tl.constexpr,
    RIGHT_KEPT: tl.constexpr,
    ROWS: tl.constexpr,
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
    rows = _rows(count, first_row, size)
    turns = tl.cdiv(rows, ROWS * SPLITS)
    for turn in tl.range(0, turns, num_stages=STAGES):
        row = (turn * SPLITS + tl.program_id(1)).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        there = (row < rows)[:, None]
        of_left = _of(order, row, rows, first_row, LEFT_KEPT)[:, None] * M_WIDTH
        of_right = _of(order, row, rows, first_row, RIGHT_KEPT)[:, None] * N_WIDTH
        a = tl.load(left + of_left + m[None, :], mask=there & (m[None, :] < M_WIDTH), other=0.0)
        b = tl.load(right + of_right + n[None, :], mask=there & (n[None, :] < N_WIDTH), other=0.0)
        sums = product(tl.trans(a), b, sums, "bf16")
        if BIAS:
            bias = product(tl.trans(a), ones, bias, "bf16")
    partial += tl.program_id(1).to(tl.int64) * partial_stride
    of_m = (m[:, None] < M) & (FIRST | (turns > 0))
    at = partial + to_weight + m[:, None] * m_stride + n[None, :] * n_stride
    _add(at, sums, of_m & (n[None, :] < N), FIRST)
    if EXTRA:
        at = partial + to_extra + m[:, None] + (n[None, :] - N)
        _add(at, sums, of_m & (n[None, :] == N), FIRST)
    if BIAS:
        once = tl.arange(0, 16)[None, :]
        _add(partial + to_bias + m[:, None] + once, bias, of_m & (once == 0), FIRST)
