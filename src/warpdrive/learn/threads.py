"""Work on the CPU in Python threads side by side, each with one of PyTorch's threads."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Barrier
from typing import TypeVar

import torch

__all__ = ["Threads", "one_thread"]

T = TypeVar("T")
R = TypeVar("R")


@contextlib.contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Within, PyTorch has one thread (OpenMP in the calling thread, MKL in the process), then as many as before.

    Args:
        wanted: False: nothing changes.
    """
    count = torch.get_num_threads()
    if not wanted or count == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)


class Threads:
    """Calls a function for many items at once, in as many threads as PyTorch has.

    PyTorch shares out each operation, and waits after each. Where operations are small, threads that have whole chains
    of them get more done.

    Attributes:
        count: how many threads there are, since `begin`.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self.count = 1

    @contextlib.contextmanager
    def begin(self) -> Iterator[None]:
        """To be entered around calls of `map`: within, the calling thread has one PyTorch thread."""
        count = torch.get_num_threads()
        if count > 1 and count != self.count:
            self._pool = ThreadPoolExecutor(count, "warpdrive-learn")
            # OpenMP's number of threads belongs to a thread, MKL's to the process: all are told before work begins,
            # for one that came late would take MKL's threads away from whoever has them by then.
            barrier = Barrier(count)
            for future in [self._pool.submit(_begin, barrier) for _ in range(count)]:
                future.result()
            torch.set_num_threads(count)
        self.count = count
        with one_thread():
            yield

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """What `work` gives for each item, in their order; nothing runs on when it returns.

        Raises:
            Exception: of the first item that failed.
        """
        if self.count == 1 or len(items) == 1:
            return [work(item) for item in items]
        assert self._pool is not None
        futures = [self._pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
            wait(futures)


def _begin(barrier: Barrier) -> None:
    torch.set_num_threads(1)
    barrier.wait()
