"""Lists of the agents that take part, for kernels that leave the others out.

Triton code. Two kernels: one counts the agents of each block, one enters them, in order.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

__all__ = ["Present", "list_present"]

BLOCK = 2048  # flags of a program


class Present(NamedTuple):
    """Which of B rows are those of agents that take part.

    Attributes:
        order: int32 (B,): their indices, ascending; what stands behind them means nothing.
        total: int32 (1,): how many they are.
    """

    order: torch.Tensor
    total: torch.Tensor


@triton.jit
def _flags(present, rows, inner, outer_stride, inner_stride, BLOCK: tl.constexpr):
    """Index of each of this program's rows, int64, and whether it is one that takes part."""
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    flag = tl.load(present + row // inner * outer_stride + row % inner * inner_stride, mask=row < rows, other=0)
    return row, flag != 0


@triton.jit
def _count(present, counts, rows, inner, outer_stride, inner_stride, BLOCK: tl.constexpr):
    """How many of each block's rows take part."""
    _row, flag = _flags(present, rows, inner, outer_stride, inner_stride, BLOCK)
    tl.store(counts + tl.program_id(0), tl.sum(flag.to(tl.int32), 0))


@triton.jit
def _enter(
    present,
    counts,
    order,
    total,
    rows,
    inner,
    outer_stride,
    inner_stride,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Enter the rows that take part behind those of the blocks before; the last block says how many they are."""
    row, flag = _flags(present, rows, inner, outer_stride, inner_stride, BLOCK)
    block = tl.arange(0, BLOCKS)
    before = tl.sum(tl.load(counts + block, mask=block < tl.program_id(0), other=0), 0)
    through = before + tl.cumsum(flag.to(tl.int32), 0)
    tl.store(order + through - 1, row.to(tl.int32), mask=flag)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(total, before + tl.sum(flag.to(tl.int32), 0))


def list_present(present: torch.Tensor) -> Present:
    """List the rows whose flag is set, on PyTorch's current stream.

    Args:
        present: bool (B / n, n), of any strides: the flag of row r is that at (r // n, r % n).
    """
    rows, device = present.numel(), present.device
    blocks = triton.cdiv(rows, BLOCK)
    counts = torch.empty(blocks, dtype=torch.int32, device=device)
    listed = Present(
        torch.empty(rows, dtype=torch.int32, device=device), torch.empty(1, dtype=torch.int32, device=device)
    )
    flags = present.view(torch.uint8)
    at = rows, present.shape[1], *present.stride()
    _count[(blocks,)](flags, counts, *at, BLOCK=BLOCK)
    _enter[(blocks,)](flags, counts, *listed, *at, BLOCK=BLOCK, BLOCKS=triton.next_power_of_2(blocks))
    return listed
