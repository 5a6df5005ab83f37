"""Angles, kept within one turn so that float32 stays fine."""

import warp as wp

__all__ = ["wrapped"]


@wp.func
def wrapped(angle: float):
    """The same direction as an angle from -pi to pi, in radians."""
    return angle - wp.TAU * wp.floor((angle + wp.PI) / wp.TAU)
