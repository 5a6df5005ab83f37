"""Work of several policies that does not depend on one another, side by side on a GPU."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import warp as wp
from torch import nn

__all__ = ["branches", "together"]


def branches(sizes: Mapping[str, int], policies: Mapping[str, nn.Module]) -> list[list[str]]:
    """Which policies may work side by side: those with fused kernels, each by itself, and all others in turn.

    (Modules of a user's own may share what they change.)

    Args:
        sizes: policy -> number of agents that it acts for; the branch with the most comes first.
    """
    alone = [[name] for name in sizes if getattr(policies[name], "fused", "")]
    others = [name for name in sizes if [name] not in alone]
    return sorted([*alone, *([others] if others else [])], key=lambda names: -sum(sizes[name] for name in names))


@functools.cache
def _stream(device: torch.device, number: int) -> torch.cuda.Stream:
    """A stream for all work of a number: as many as there are branches at most, for libraries keep memory for each."""
    stream = torch.cuda.Stream(device)
    wp.stream_from_torch(stream)  # known to Warp before a capture begins
    return stream


def together(works: Sequence[Callable[[], Any]], device: torch.device) -> None:
    """Enqueue on PyTorch's current stream what may run in any order, or at the same time.

    On a GPU all but the first get streams of their own, which begin where the current one is and which it then waits
    for; in a captured graph they are branches. So what is too small to fill the GPU runs beside what is not.
    """
    if device.type != "cuda" or len(works) < 2:
        for work in works:
            work()
        return
    main = torch.cuda.current_stream(device)
    streams = [_stream(device, number) for number in range(1, len(works))]
    for stream, work in zip(streams, works[1:], strict=True):
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            work()
    works[0]()
    for stream in streams:
        main.wait_stream(stream)
