"""Schedules: numbers that change while training goes on."""

__all__ = ["linear"]


def linear(start: float, final: float | None, progress: float) -> float:
    """The value at `progress` (0 to 1) on the line from `start` to `final`; `start` where `final` is None."""
    return start if final is None else start + (final - start) * min(max(progress, 0.0), 1.0)
