"""Confidence intervals agree with SciPy's, and hold what they promise."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from warpdrive.learn.interval import half_width, student_t


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_quantiles_equal_scipys(confidence):
    """Student's quantiles for few degrees of freedom and many, odd and even."""
    for degrees in (1, 2, 3, 4, 5, 10, 29, 30, 99, 1000, 100_001):
        expected = stats.t.ppf(0.5 + confidence / 2, degrees)
        assert student_t(confidence, degrees) == pytest.approx(expected, rel=1e-9), degrees


@pytest.mark.parametrize("count", [2, 3, 17, 400])
def test_intervals_equal_scipys(count):
    """Half the width for random values, as SciPy has it from the same values."""
    values = np.random.default_rng(count).normal(3.0, 5.0, count)
    low, high = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert half_width(torch.tensor(values)) == pytest.approx((high - low) / 2, rel=1e-9)


def test_one_value_has_no_interval():
    """The deviation of one value is not known."""
    assert math.isnan(half_width(torch.tensor([1.0])))


def test_an_interval_holds_the_mean_as_often_as_it_promises():
    """Of 4000 samples of five values about 95 % have the true mean in their interval; 1.96 deviations would fail."""
    samples = torch.tensor(np.random.default_rng(0).normal(1.0, 2.0, (4000, 5)))
    held = np.mean([abs(float(row.mean()) - 1.0) <= half_width(row) for row in samples])
    assert abs(held - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)
    assert np.mean([abs(float(row.mean()) - 1.0) <= 1.96 * float(row.std()) / 5**0.5 for row in samples]) < 0.92
