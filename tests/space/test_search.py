"""Searches find what NumPy and SciPy find, wherever agents stand and however many there are."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from space.crowd import MANY, K, expect, look_around, near, nearest, simulator, swap, within

SHAPES = [(), (1, 1), (8, 8), (3, 17), (40, 1)]
SIZES = [(1, 1), (2, 5), (30, 70)]


def places(rng: np.random.Generator, kind: str, count: int) -> np.ndarray:
    """Places (N, 2) of one kind, on and around the square from -1 to 1."""
    if kind == "anywhere":
        return rng.uniform(-1, 1, (count, 2))
    if kind == "one point":
        return np.broadcast_to(rng.uniform(-1, 1, 2), (count, 2))
    if kind == "lattice":  # many equally near ones, and cells whose sides they stand on
        return rng.integers(-4, 5, (count, 2)) / 4
    if kind == "border":
        place = rng.uniform(-1, 1, (count, 2))
        place[np.arange(count), rng.integers(0, 2, count)] = rng.choice([-1, 1], count)
        return place
    if kind == "outside":
        return rng.normal(0, 3, (count, 2))
    if kind == "far outside":
        return rng.choice([-1, 1], (count, 2)) * 10 ** rng.uniform(0, 20, (count, 2))
    if kind == "heap":
        return 0.3 + rng.normal(0, 1, (count, 2)) * 10 ** rng.uniform(-6, 0, (count, 1))
    if kind == "tiny":  # squares of distances lose their last digits, or vanish
        return rng.choice([0, 1, 2, 3], (count, 2)) * 1e-22
    raise AssertionError(kind)


KINDS = ["anywhere", "one point", "lattice", "border", "outside", "far outside", "heap", "tiny"]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", SIZES)
def test_equals_numpy(kind, shape, size, device):
    """All searches of all agents, some of whom take no part, in several environments at once."""
    rng = np.random.default_rng(len(kind) + sum(shape))
    count = sum(size)
    position = np.stack([places(rng, kind, count) for _ in range(4)]).astype(np.float32)
    active = rng.random((4, count)) < np.array([1, 0.8, 0.1, 0])[:, None]
    radius = rng.choice([-1, 0, 0.25, 0.5, 1.3, np.inf], (4, count)).astype(np.float32)
    found = look_around(simulator(*size, shape, 4, device=device), position, active, radius)
    for env in range(4):
        expect(found, env, size[0], position[env], active[env], radius[env])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", ["anywhere", "one point", "border"])
@pytest.mark.parametrize("shape", [(8, 8), (40, 1)])
def test_equals_numpy_however_many_take_part(kind, shape, device):
    """From nobody to nearly all, in turn in the same environments: the lists grow and shrink."""
    rng, first, count = np.random.default_rng(3), 60, 300
    sim = simulator(first, count - first, shape, 6, device=device)
    for _ in range(2):
        position = np.stack([places(rng, kind, count) for _ in range(6)]).astype(np.float32)
        active = np.arange(count) < count * rng.permutation([0, 0, 0.01, 0.1, 0.5, 0.99])[:, None]
        active = rng.permuted(active, axis=1)
        radius = rng.choice([0.25, 1.3, np.inf], (6, count)).astype(np.float32)
        found = look_around(sim, position, active, radius)
        for env in range(6):
            expect(found, env, first, position[env], active[env], radius[env])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", ["anywhere", "one point"])
def test_who_leaves_or_joins_after_sorting_is_not_found(kind, device):
    """All still search for themselves; of `nearest_phases` those have a result who were sorted and are there still."""
    rng, first, count = np.random.default_rng(4), 20, 60
    position = places(rng, kind, count)[None].astype(np.float32)
    sorted_, stays = rng.random((2, 1, count)) < 0.6
    radius = np.full((1, count), 0.5, np.float32)
    sim = simulator(first, count - first, (4, 5), 1, (swap,), device=device)
    sim.state.stays.copy_(torch.as_tensor(stays))
    found = look_around(sim, position, sorted_, radius)
    there = (sorted_ & stays)[0]
    assert 10 < there.sum() < min(sorted_.sum(), stays.sum())
    expected = nearest(position[0], there, K)[0]
    np.testing.assert_array_equal(found["few"][0], expected)
    np.testing.assert_array_equal(found["listed"][0], np.where(there[:, None], expected, -1))
    np.testing.assert_array_equal(found["crowd"][0][:, 0], within(position[0], there, radius[0]).sum(1))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([(1, 1), (3, 1), (9, 40)]),
    shape=st.sampled_from([(1, 1), (2, 9), (16, 16)]),
    scale=st.sampled_from([1e-6, 0.1, 1, 3, 1e6]),
    digits=st.integers(0, 3),
)
def test_equals_numpy_for_any_places(seed, size, shape, scale, digits):
    """Places with few digits, so that distances are equal and cells' sides are met, at any scale."""
    rng = np.random.default_rng(seed)
    count = sum(size)
    position = (rng.normal(0, 1, (1, count, 2)).round(digits) * scale).astype(np.float32)
    active = rng.random((1, count)) < rng.random()
    radius = (rng.exponential(scale, (1, count)).round(digits)).astype(np.float32)
    found = look_around(simulator(*size, shape), position, active, radius)
    expect(found, 0, size[0], position[0], active[0], radius[0])


@pytest.mark.parametrize("shape", [(), (13, 13)])
def test_equals_scipy(shape):
    """Distances are those of cKDTree, and so are the neighbours where no two are equally near."""
    count, rng = 500, np.random.default_rng(1)
    position = rng.uniform(-1, 1, (1, count, 2)).astype(np.float32)
    radius = np.full((1, count), 0.21, np.float32)
    found = look_around(simulator(100, 400, shape), position, np.ones((1, count), bool), radius)
    tree = cKDTree(position[0])
    distance, index = tree.query(position[0], MANY + 1)
    np.testing.assert_allclose(found["few_distance"][0], distance[:, 1 : K + 1], rtol=1e-5)
    clear = (np.diff(distance, axis=1) > 1e-6).all(1)
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(found["many"][0][clear], index[clear, 1:])
    counts = tree.query_ball_point(position[0], 0.21, return_length=True) - 1
    np.testing.assert_array_equal(found["crowd"][0][:, 0], counts)


def test_a_thousand_agents_have_lists_and_few_have_none():
    """By size alone: many are sorted, few are compared; a single agent finds nobody."""
    assert near.layout(2, (0, 0), (1, 1)).shape == () and near.layout(2, (0, 0), (1, 1)).phases == ()
    many = near.layout(3000, (0, 0), (2, 1))
    assert len(many.phases) == 4 and many.shape[0] == pytest.approx(2 * many.shape[1], abs=2)
    sim, rng = simulator(1000, 1000, None), np.random.default_rng(2)
    assert sim.env.params["cell_columns"] > 1
    position = rng.uniform(-1, 1, (1, 2000, 2)).astype(np.float32)
    active, radius = rng.random((1, 2000)) < 0.9, np.full((1, 2000), 0.1, np.float32)
    expect(look_around(sim, position, active, radius), 0, 1000, position[0], active[0], radius[0])
