"""Confidence intervals of means, by Student's t distribution.

Of n independent values with mean m and standard deviation s (with n - 1 below the sum of squares) the interval is
m +- t s / sqrt(n), where t is the quantile of Student's distribution with n - 1 degrees of freedom (Student 1908, "The
probable error of a mean"; NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.5.2).
"""

import functools
import math

import numpy as np
import torch

__all__ = ["CONFIDENCE", "half_width", "student_t"]

CONFIDENCE = 0.95


def _probability(angle: float, degrees: int) -> float:
    """Probability that |T| <= sqrt(degrees) tan(angle): Abramowitz and Stegun 1964, 26.7.3 and 26.7.4."""
    odd = degrees % 2
    # Each term has two more powers of the cosine, and a factor k / (k + 1): k even for odd degrees and the reverse.
    k = np.arange(2 if odd else 1, degrees - 2, 2)
    series = 1.0 + float(np.cumprod(k / (k + 1) * math.cos(angle) ** 2).sum())
    if not odd:
        return math.sin(angle) * series
    return 2.0 / math.pi * (angle + (math.sin(angle) * math.cos(angle) * series if degrees > 1 else 0.0))


@functools.cache
def student_t(confidence: float, degrees: int) -> float:
    """The t for which Student's distribution lies between -t and t with probability `confidence`.

    Args:
        confidence: between 0 and 1, both excluded.
        degrees: of freedom, at least 1.
    """
    low, high = 0.0, math.pi / 2
    while high - low > 1e-15:  # the probability grows with the angle: halve until float64 has no finer
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _probability(middle, degrees) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(0.5 * (low + high))


def half_width(values: torch.Tensor, confidence: float = CONFIDENCE) -> float:
    """Half the width of the confidence interval of the mean of independent values (n,); NaN for fewer than two."""
    count = len(values)
    if count < 2:
        return math.nan
    return student_t(confidence, count - 1) * float(values.double().std()) / math.sqrt(count)
