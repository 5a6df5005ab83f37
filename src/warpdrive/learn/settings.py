"""Checks that the algorithms' settings share."""

import math
from typing import Any

from warpdrive.env.environment import positive_int

__all__ = ["check_common", "require"]


def require(settings: Any, name: str, condition: bool, wanted: str) -> None:
    """Raise a ValueError that names the setting and its value unless the condition holds."""
    if not condition:
        raise ValueError(f"{type(settings).__name__}.{name} must be {wanted}, got {getattr(settings, name)!r}")


def check_common(settings: Any) -> None:
    """Check what every algorithm has: rates, discounts, weights and the length of the rollout."""
    for name in ("lr", "lr_final", "entropy", "entropy_final", "value_coef"):
        value = getattr(settings, name)
        optional = name.endswith("_final")
        fine = (value is None and optional) or (value is not None and math.isfinite(value) and value >= 0)
        require(settings, name, fine, "a finite number from 0" + (" or null" if optional else ""))
    for name in ("gamma", "gae_lambda"):
        require(settings, name, 0 <= getattr(settings, name) <= 1, "between 0 and 1")
    for name in ("max_grad_norm", "adam_eps"):
        require(settings, name, getattr(settings, name) > 0, "positive")
    positive_int(f"{type(settings).__name__}.rollout_steps", settings.rollout_steps)
