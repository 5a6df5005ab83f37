"""Agents are sorted into cells the same way by every schedule, and cells cover the box as they should."""

import numpy as np
import pytest

import warpdrive as wd
from sim.test_schedules import assert_same, trace
from space.crowd import Crowd, grid_of, look_around, near, simulator
from warpdrive.space.cells import layout, shape_for


@pytest.mark.parametrize("share", [0, 0.5, 1])
@pytest.mark.parametrize("shape", [(1, 1), (4, 3), (30, 30)])
@pytest.mark.parametrize("size", [(1, 1), (20, 30)])
def test_lists_are_sorted_by_cell_and_then_by_index(shape, size, share):
    """The list is a stable sort by cell of all that take part, and starts say where each cell begins."""
    count, rng = sum(size), np.random.default_rng(0)
    position = rng.uniform(-1.3, 1.3, (2, count, 2)).astype(np.float32)
    position[1, : count // 2] = 0.25
    active = rng.random((2, count)) < share
    found = look_around(simulator(*size, shape, 2), position, active, np.ones((2, count), np.float32))
    for env in range(2):
        there = np.flatnonzero(active[env])
        grid = grid_of(shape, len(there), count)
        in_cells = np.clip(np.floor((position[env] + 1) * grid.astype(np.float32) / 2), 0, grid - 1).astype(int)
        cell = np.where(active[env], in_cells[:, 1] * grid[0] + in_cells[:, 0], -1)
        np.testing.assert_array_equal(found["cell"][env], cell)
        members = there[np.argsort(cell[there], kind="stable")]
        nobody = np.full(count - len(there), count)
        np.testing.assert_array_equal(found["cell_members"][env], np.concatenate([members, nobody]))
        starts = np.searchsorted(np.sort(cell[there]), np.arange(grid.prod() + 1))
        np.testing.assert_array_equal(found["cell_start"][env][: len(starts)], starts)


@pytest.mark.parametrize(("share", "grid"), [(0, (1, 1)), (0.01, (3, 2)), (0.25, (15, 10)), (1, (30, 20))])
def test_cells_are_as_many_as_fit_those_who_take_part(share, grid):
    """A quarter of the agents have a quarter of the cells: else most searches would look through empty ones."""
    position = np.random.default_rng(0).uniform(-1, 1, (1, 500, 2)).astype(np.float32)
    active = (np.arange(500) < 500 * share)[None]
    found = look_around(simulator(100, 400, (30, 20)), position, active, np.ones((1, 500), np.float32))
    assert tuple(found["cell_grid"][0]) == (*grid, 1)


def test_all_cells_before_the_first_step():
    """Agents that a reset has let take part are counted when the first step begins: until then all cells are used."""
    sim = wd.Simulator(crowd(30, 100, (20, 15)), 1, device="cpu")
    sim.reset()
    assert int(sim.active.sum()) < 130
    assert sim.state.cell_grid[0].tolist() == [20, 15, 1]
    sim.step()
    assert sim.state.cell_grid[0].tolist() == [*grid_of((20, 15), int(sim.active.sum()), 130), 1]


def crowd(first: int, second: int, shape: tuple[int, ...]) -> Crowd:
    return Crowd(first, second, layout(("position",), (-1.0, -1.0), (1.0, 1.0), first + second, shape))


@pytest.mark.parametrize("shape", [(), (5, 6)])
def test_loop_and_split_agree(shape):
    """One kernel a phase and one loop over all give the same bits in every array, the lists included."""
    one, two = (trace(crowd(10, 30, shape), 5, 7, device="cpu", schedule=schedule) for schedule in ("loop", "split"))
    assert_same(one, two, 5)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(), (5, 6), (1, 1)])
def test_all_schedules_agree_on_cuda(shape):
    """Split, fused and loop, captured and not, give the same bits; and lists and indices are those of the CPU."""
    first = trace(crowd(30, 100, shape), 67, 7, device="cuda", schedule="split")
    for schedule in ("split", "fused", "loop"):
        assert_same(first, trace(crowd(30, 100, shape), 67, 7, device="cuda", schedule=schedule), 67)
        assert_same(first, trace(crowd(30, 100, shape), 67, 7, device="cuda", schedule=schedule, eager=True), 67)


@pytest.mark.parametrize("shape", [(), (3, 3)])
def test_the_kit_finds_no_fault(shape):
    """No order of agents, strange content or band around an array shows in what is found."""
    report = wd.check(crowd(3, 5, shape), steps=12, num_envs=2, device="cpu")
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("extent", "cells", "shape"),
    [
        ((2, 1), 50, (10, 5)),
        ((1, 1), 0.3, (1, 1)),
        ((1,), 7, (7,)),
        ((1, 100), 20, (1, 20)),
        ((4, 4, 4), 64, (4, 4, 4)),
    ],
)
def test_cells_are_about_as_long_as_wide(extent, cells, shape):
    """So many cells over the box; a thin box has one row of them."""
    assert shape_for(extent, cells) == shape


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: near.layout(0, (0, 0), (1, 1)), "agents must be a positive integer, got 0"),
        (lambda: near.layout(5, (0, 0), (1, 1), neighbours=-1), "neighbours must be a positive integer, got -1"),
        (lambda: near.layout(5, (0, 0, 0), (1, 1)), r"low must be 2 finite numbers, one a dimension, got \(0, 0, 0\)"),
        (lambda: near.layout(5, (0, 0), 1.0), "high must be 2 finite numbers, one a dimension, got 1.0"),
        (lambda: near.layout(5, (0, 0), (1, float("inf"))), "high must be 2 finite numbers"),
        (lambda: near.layout(5, (0, 1), (1, 1)), r"high must be greater than low on every axis, got \(1, 1\)"),
        (
            lambda: near.layout(5, (0, 0), (1, 1e-13), cells=True),
            "cells would be 1e-13 long, .* another unit of length",
        ),
        (lambda: wd.space.Search("p", cells=True).layout(5, (0, 0), (1, 1), cells=False), "cells must not be False"),
        (lambda: near.layout(5, ("a", "b"), (1, 1)), "low must be 2 finite numbers"),
        (lambda: near.layout(5, (0, 0), (10**400, 1)), "high must be 2 finite numbers"),
        (lambda: near.layout(5, (-1e308, 0), (1e308, 1)), "high - low must be finite"),
        (lambda: near.layout(5, (0, 0), (1, 1), cells="no"), "cells must be True, False or None, got 'no'"),
        (lambda: wd.space.Search("p", dimensions=True), "dimensions must be 1, 2 or 3, got True"),
        (lambda: wd.space.Search("class"), "got 'class'"),
        (lambda: near.nearest(2, among="a b"), "among must be a group's name or None, got 'a b'"),
        (lambda: near.nearest_to(2, among=3), "among must be a group's name or None, got 3"),
        (lambda: near.fold(3), "function must be a @wp.func, got 3"),
        (lambda: near.nearest_phases(3, into="class"), "into must be a field's name, got 'class'"),
        (lambda: near.nearest_phases(3, into="no name"), "into must be a field's name, got 'no name'"),
        (lambda: near.nearest(0), "k must be a positive integer, got 0"),
        (lambda: wd.space.Search("no name"), "position must be a field's name or a tuple of names, got 'no name'"),
        (lambda: wd.space.Search(()), r"position must be a field's name or a tuple of names, got \(\)"),
        (lambda: wd.space.Search("p", dimensions=4), "dimensions must be 1, 2 or 3, got 4"),
        (lambda: wd.space.Search(("x", "y"), dimensions=3), r"one for each of 3 dimensions, got \('x', 'y'\)"),
        (lambda: wd.space.Search("p", cells=2), "cells must be True, False or None, got 2"),
    ],
)
def test_refuses(call, message):
    """An argument that does not fit is named, with its value and what would be right."""
    with pytest.raises(ValueError, match=message):
        call()
