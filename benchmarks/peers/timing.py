"""How a repeat is timed: the same for all systems."""

import time
from typing import Any, Protocol

__all__ = ["Measured", "calibrate", "repeat"]


class Measured(Protocol):
    """Work of one system that can be timed.

    Attributes:
        steps_per_call: environment steps that one call makes, over all environments.
    """

    steps_per_call: int

    def call(self) -> None:
        """Enqueue a piece of work that goes on from the last one."""

    def wait(self) -> None:
        """Wait until all of it is done."""

    def facts(self) -> dict[str, Any]:
        """What shows that the work was done: mean reward, length of episodes, return."""


def repeat(work: Measured, calls: int) -> float:
    """Seconds of `calls` calls, from a device at rest to a device at rest."""
    work.wait()
    start = time.perf_counter()
    for _ in range(calls):
        work.call()
    work.wait()
    return time.perf_counter() - start


def calibrate(work: Measured, seconds: float) -> int:
    """Warm up, and find how many calls take about `seconds`."""
    repeat(work, 1)  # compiles, allocates, captures
    once = repeat(work, 1)
    calls = max(1, round(min(seconds, 10 * once) / once))  # a first guess, for clocks to settle
    return max(1, round(seconds * calls / repeat(work, calls)))
