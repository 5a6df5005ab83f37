"""Work on the CPU in Python threads side by side, each with one of PyTorch's threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from types import TracebackType
from typing import TypeVar

import torch

__all__ = ["Threads"]

T = TypeVar("T")
R = TypeVar("R")


class Threads:
    """Calls a function for many items at once, in as many threads as PyTorch has when it is entered.

    PyTorch shares out each operation, and waits after each. Where operations are small, threads that have whole chains
    of them get more done. Within `with`, the calling thread has one PyTorch thread; afterwards as many as before.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._size = 1  # workers of the pool
        self._threads = 1  # of PyTorch, outside
        self._begun = False

    def __enter__(self) -> "Threads":
        self._threads = torch.get_num_threads()
        if self._threads > 1:
            if self._pool is None or self._size != self._threads:
                self._pool = ThreadPoolExecutor(self._threads, "warpdrive-learn", torch.set_num_threads, (1,))
                self._size = self._threads
            # OpenMP's number belongs to this thread, MKL's to the process: workers have one of both.
            torch.set_num_threads(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._threads > 1:
            torch.set_num_threads(self._threads)

    def map(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """What `work` gives for each item, in their order; an exception of the first that failed is raised.

        Nothing runs on when it returns. The first item of all is worked at alone, in the calling thread: what Warp and
        PyTorch do only the first time (load kernels, import) they are not made to do in several threads at once.
        """
        if self._threads == 1:
            return [work(item) for item in items]
        results = []
        if not self._begun:
            results, items = [work(items[0])], items[1:]
            self._begun = True
        assert self._pool is not None
        futures = [self._pool.submit(work, item) for item in items]
        try:
            results += [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()
            wait(futures)
        return results
