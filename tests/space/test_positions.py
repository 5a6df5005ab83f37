"""Positions in one, two and three dimensions, in one field or one a dimension, as floats or whole numbers."""

import functools
from typing import Any

import numpy as np
import pytest
import torch
import warp as wp

import warpdrive as wd
from space.crowd import F, nearest, within
from space.crowd import count as take_count
from warpdrive import space

K = 3
SEARCHES = {
    "line": (space.Search("line", dimensions=1), ["line"]),
    "plane": (space.Search(("column", "row")), ["column", "row"]),
    "volume": (space.Search("volume", dimensions=3), ["volume"]),
    "three fields": (space.Search(("line", "height", "row")), ["line", "height", "row"]),
}


@wp.func
def count(s: Any, env: int, agent: int, other: int, distance: float, total: int) -> int:
    return total + 1


class PlacesState(space.Cells):
    agents: wd.Agents
    line: wd.PerAgent[float]
    height: wd.PerAgent[wp.float64]
    column: wd.PerAgent[int]
    row: wd.PerAgent[wp.int16]
    volume: wd.PerAgent[wp.vec3]
    found: wd.PerAgent[int, K]
    close: wd.PerAgent[int]


@functools.cache
def look_phase(name: str) -> wd.per_agent:
    near, _ = SEARCHES[name]
    find, crowd = near.nearest(K), near.fold(count)

    @wd.per_agent("agents")
    def look(s: PlacesState, env: int, i: int):
        index, distance = find(s, env, i)
        for j in range(K):
            s.found[env, i, j] = index[j]
        s.close[env, i] = crowd(s, env, i, 2.5, 0)
        wd.put(s.agents.obs, env, i, 0, distance[0])

    return look


class Places(wd.Env):
    state = PlacesState

    def __init__(self, name: str, agents: int, cells: bool):
        near, _ = SEARCHES[name]
        low, high = (-3.0,) * near.dimensions, (3.0,) * near.dimensions
        layout = near.layout(agents, low, high, neighbours=K, cells=cells)
        self.observe = (*layout.phases, look_phase(name))
        group = wd.Group(agents, obs=1, action=wd.Discrete(2))
        super().__init__(groups={"agents": group}, params=layout.params, sizes=layout.sizes)


@pytest.mark.parametrize(("name", "cells"), [("plane", False), *((name, True) for name in SEARCHES)])
@pytest.mark.parametrize("share", [0, 0.05, 0.4, 1])
def test_every_kind_of_position(name, cells, share):
    """What is found agrees with NumPy, however many take part; of one agent nobody is found, of two one."""
    rng = np.random.default_rng(0)
    for agents in (1, 2, 60):
        sim = wd.Simulator(Places(name, agents, cells), 1, device="cpu")
        sim.reset()
        columns = []
        for field in SEARCHES[name][1]:
            value = getattr(sim.state, field)
            new = rng.normal(0, 2, value.shape)
            value.copy_(torch.as_tensor(new if value.is_floating_point() else new.round()))
            columns.append(value[0].numpy().astype(F).reshape(agents, -1))
        active = rng.permutation(agents) < share * agents
        sim.active.copy_(torch.as_tensor(active))
        take_count(sim)
        sim.refresh()
        place = np.concatenate(columns, 1)
        assert place.shape[1] == SEARCHES[name][0].dimensions
        np.testing.assert_array_equal(sim.state.found[0].numpy(), nearest(place, active, K)[0])
        np.testing.assert_array_equal(sim.state.close[0].numpy(), within(place, active, 2.5).sum(1))
        if share == 1:
            assert (agents == 1) == (sim.obs["agents"][0, 0, 0].item() == float("inf"))
