"""The search from slots, which runs on GPUs only, finds on the CPU what NumPy finds."""

import numpy as np
import pytest
import torch
import warp as wp

import warpdrive as wd
from space.crowd import count, nearest
from space.test_search import KINDS, places
from warpdrive.space import in_order

K = 6


@wp.func
def on_gpu() -> bool:
    return True


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """The phases are compiled as if for a GPU."""
    monkeypatch.setattr(in_order, "on_gpu", on_gpu)


# Not from the cache: compiled with the function above they must serve no other test.
make = in_order.nearest_phases.__wrapped__
find = make(("position",), 2, True, K, None, "found")
find_second = make(("position",), 2, True, K, "second", "found_second")


class SlotsState(wd.space.Cells):
    first: wd.Agents
    second: wd.Agents
    position: wd.PerAgent[wp.vec2]
    found: wd.PerEnv[int, "agents", K]  # noqa: F821
    found_second: wd.PerEnv[int, "agents", K]  # noqa: F821
    stays: wd.PerAgent[bool]


@wd.per_agent
def swap(s: SlotsState, env: int, agent: int):
    """Some leave and some join, between sorting and searching."""
    s.active[env, agent] = s.stays[env, agent]


@wd.per_agent("first")
def tell_first(s: SlotsState, env: int, i: int):
    wd.put(s.first.obs, env, i, 0, 0.0)


@wd.per_agent("second")
def tell_second(s: SlotsState, env: int, i: int):
    wd.put(s.second.obs, env, i, 0, 0.0)


class Slots(wd.Env):
    state = SlotsState

    def __init__(self, first: int, second: int):
        layout = wd.space.Search("position").layout(first + second, (-1, -1), (1, 1), neighbours=K, cells=True)
        self.observe = (*layout.phases, swap, *find, *find_second, tell_first, tell_second)
        group = {"obs": 1, "action": wd.Discrete(2)}
        super().__init__(
            groups={"first": wd.Group(first, **group), "second": wd.Group(second, **group)},
            params=layout.params,
            sizes={**layout.sizes, "agents": first + second},
        )


def expect(size: tuple[int, int], position: np.ndarray, active: np.ndarray, stays: np.ndarray) -> None:
    """At these places (E, N, 2) the phases find what NumPy does among those who were sorted and are there still."""
    first, agents = size[0], sum(size)
    sim = wd.Simulator(Slots(*size), len(position), device="cpu")
    sim.reset()
    for name, value in (("position", position), ("active", active), ("stays", stays)):
        getattr(sim.state, name).copy_(torch.as_tensor(value))
    for found in (sim.state.found, sim.state.found_second):
        found.fill_(-7)  # so that a row that nobody writes shows
    count(sim)
    sim.refresh()
    there = active & stays
    for env in range(len(position)):
        for found, group in ((sim.state.found, slice(None)), (sim.state.found_second, slice(first, agents))):
            expected, _ = nearest(position[env], there[env], K, group=group)
            expected[~there[env]] = -1
            np.testing.assert_array_equal(found[env].numpy(), expected)


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (20, 44), (100, 29), (100, 500)])
@pytest.mark.parametrize("kind", KINDS)
def test_slots_find_what_numpy_finds(kind, size):
    """Also where many are equally near, or nearer to each other than a cut distance can tell."""
    agents = sum(size)
    rng = np.random.default_rng(agents)
    position = np.stack([places(rng, kind, agents) for _ in range(3)]).astype(np.float32)
    position[1:] *= 1 + 1e-6 * rng.random((2, agents, 1), np.float32)
    active = rng.random((3, agents)) < 0.8
    expect(size, position, active, active)


@pytest.mark.parametrize("kind", ["anywhere", "one point", "border"])
def test_however_many_take_part(kind):
    """From nobody to all, less than are sought among them; some leave or join after they were sorted."""
    rng, agents = np.random.default_rng(1), 300
    position = np.stack([places(rng, kind, agents) for _ in range(12)]).astype(np.float32)
    active = rng.permuted(np.arange(agents) < agents * np.array([0, 0.01, 0.1, 0.5, 0.99, 1])[:, None], axis=1)
    active = np.concatenate([active, active])
    stays = active.copy()
    stays[6:] = rng.random((6, agents)) < np.array([0.5, 0.5, 0.5, 0.9, 0.1, 0])[:, None]
    expect((60, 240), position, active, stays)


class AxesState(wd.space.Cells):
    all: wd.Agents
    x: wd.PerAgent[float]
    y: wd.PerAgent[float]
    z: wd.PerAgent[float]
    found: wd.PerEnv[int, "agents", K]  # noqa: F821


@wd.per_agent("all")
def tell(s: AxesState, env: int, i: int):
    wd.put(s.all.obs, env, i, 0, 0.0)


class Axes(wd.Env):
    state = AxesState

    def __init__(self, axes: tuple[str, ...], agents: int):
        dimensions = len(axes)
        low, high = (-1,) * dimensions, (1,) * dimensions
        layout = wd.space.Search(axes).layout(agents, low, high, neighbours=K, cells=True)
        self.observe = (*layout.phases, *make(axes, dimensions, True, K, None, "found"), tell)
        super().__init__(
            groups={"all": wd.Group(agents, obs=1, action=wd.Discrete(2))},
            params=layout.params,
            sizes={**layout.sizes, "agents": agents},
        )


@pytest.mark.parametrize("axes", [("x",), ("x", "y", "z")])
def test_along_a_line_and_in_space_too(axes):
    """Inside the box and far outside of it, where rings are looked into that most cells of are left out."""
    agents = 400
    rng = np.random.default_rng(len(axes))
    position = rng.uniform(-1.5, 1.5, (4, agents, len(axes))).astype(np.float32)
    position[2:] = (position[2:] ** 3).round(2)  # crowded in the middle, many alike
    sim = wd.Simulator(Axes(axes, agents), 4, device="cpu")
    sim.reset()
    for axis, name in enumerate(axes):
        getattr(sim.state, name).copy_(torch.as_tensor(position[..., axis]))
    sim.state.found.fill_(-7)
    sim.refresh()
    for env in range(4):
        expected, _ = nearest(position[env], np.ones(agents, bool), K)
        np.testing.assert_array_equal(sim.state.found[env].numpy(), expected)
