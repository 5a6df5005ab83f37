"""Action spaces say how many numbers an action has and how many a policy gives, and refuse what is none."""

import copy
import math
import pickle

import pytest

import warpdrive as wd


def test_discrete():
    """One head of n choices."""
    space = wd.Discrete(5)
    assert (space.heads, space.n, space.size, space.num_outputs) == ((5,), 5, 1, 5)


def test_multi_discrete():
    """A number a head, a logit a choice."""
    space = wd.MultiDiscrete(21, 3, 1)
    assert (space.heads, space.size, space.num_outputs) == ((21, 3, 1), 3, 25)


@pytest.mark.parametrize(
    "low,high,size,lows,highs",
    [
        (-1, 1, None, (-1.0,), (1.0,)),
        (-1, 1, 3, (-1.0,) * 3, (1.0,) * 3),
        ((-1, 0), 1, None, (-1.0, 0.0), (1.0, 1.0)),
        (-2, [1, 2], 2, (-2.0, -2.0), (1.0, 2.0)),
    ],
)
def test_box(low, high, size, lows, highs):
    """Bounds are one number for all components, or one each."""
    space = wd.Box(low, high, size)
    assert (space.low, space.high, space.size, space.num_outputs) == (lows, highs, len(lows), len(lows))


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "3", None])
def test_numbers_of_choices_are_positive_integers(count):
    """Anything else is refused, in either class."""
    for make, name in ((wd.Discrete, "Discrete"), (lambda n: wd.MultiDiscrete(2, n), "MultiDiscrete")):
        with pytest.raises(ValueError) as caught:
            make(count)
        assert str(caught.value) == f"{name} needs positive integers as numbers of choices, got {count!r}"


def test_multi_discrete_needs_a_head():
    """No head at all is refused with an example."""
    with pytest.raises(ValueError, match=r"at least one number of choices, e\.g\. MultiDiscrete\(21, 21\)"):
        wd.MultiDiscrete()


@pytest.mark.parametrize("low,high", [(1, 1), (2, 1), (0, math.inf), (math.nan, 1), ((0, 0), (1, 0)), (0, 1e39)])
def test_bounds_are_finite_and_ordered(low, high):
    """Bounds that float32 cannot hold, or that leave no room, are refused."""
    with pytest.raises(ValueError, match="Box needs finite bounds with low < high"):
        wd.Box(low, high)


@pytest.mark.parametrize("low,high,size", [((0, 0), (1, 1, 1), None), ((0, 0), 1, 3), (0, 1, 0), ((), 1, None)])
def test_bounds_have_one_length(low, high, size):
    """Lengths that differ or are nought are refused."""
    with pytest.raises(ValueError, match="Box needs bounds of one positive length"):
        wd.Box(low, high, size)


@pytest.mark.parametrize("space", [wd.Discrete(3), wd.MultiDiscrete(3, 4), wd.Box((0, 1), 2)])
def test_spaces_are_values(space):
    """A space is equal to its copies, hashable, and cannot be changed."""
    assert copy.deepcopy(space) == pickle.loads(pickle.dumps(space)) == space and hash(space) == hash(copy.copy(space))
    assert space != wd.Discrete(4)
    with pytest.raises(AttributeError):
        space.heads = (1,)
