"""Schedules: lines between two numbers."""

import pytest

from warpdrive.learn.schedule import linear


@pytest.mark.parametrize(("progress", "wanted"), [(0.0, 4.0), (0.25, 3.5), (1.0, 2.0), (-1.0, 4.0), (3.0, 2.0)])
def test_linear_goes_straight_from_start_to_final_and_stays_there(progress, wanted):
    """Between 0 and 1 it is the line; before and after it keeps the nearer end."""
    assert linear(4.0, 2.0, progress) == wanted


def test_without_a_final_value_it_is_constant():
    """None means that nothing changes."""
    assert linear(4.0, None, 0.7) == 4.0
