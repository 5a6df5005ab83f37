"""Positions in one, two and three dimensions, in one field or one a dimension, as floats or whole numbers."""

import numpy as np
import pytest
import torch
import warp as wp

import warpdrive as wd
from space.crowd import F, nearest, within
from warpdrive import space

K = 3
SEARCHES = {
    "line": space.Search("line", dimensions=1),
    "one of one": space.Search(("line",)),
    "plane": space.Search(("line", "height")),
    "whole": space.Search(("column", "row")),
    "volume": space.Search("volume", dimensions=3),
    "three": space.Search(("line", "height", "depth")),
}


@wp.func
def count(s: space.Cells, env: int, agent: int, other: int, distance: float, total: int) -> int:
    return total + 1


class PlacesState(space.Cells):
    agents: wd.Agents
    line: wd.PerAgent[float]
    height: wd.PerAgent[float]
    depth: wd.PerAgent[wp.float64]
    column: wd.PerAgent[int]
    row: wd.PerAgent[int]
    volume: wd.PerAgent[wp.vec3]
    found: wd.PerAgent[int, K]
    close: wd.PerAgent[int]


def make(name: str, agents: int, cells: bool) -> wd.Env:
    near = SEARCHES[name]
    find, crowd = near.nearest(K), near.fold(count)

    @wd.per_agent("agents")
    def look(s: PlacesState, env: int, i: int):
        index, distance = find(s, env, i)
        for j in range(K):
            s.found[env, i, j] = index[j]
        s.close[env, i] = crowd(s, env, i, 2.5, 0)
        wd.put(s.agents.obs, env, i, 0, distance[0])

    low, high = (-3.0,) * near.dimensions, (3.0,) * near.dimensions
    layout = near.layout(agents, low, high, neighbours=K, cells=cells)

    class Places(wd.Env):
        state = PlacesState
        observe = (*layout.phases, look)

    group = wd.Group(agents, obs=1, action=wd.Discrete(2))
    return Places(groups={"agents": group}, params=layout.params, sizes=layout.sizes)


@pytest.mark.parametrize("cells", [False, True])
@pytest.mark.parametrize("name", SEARCHES)
def test_every_kind_of_position(name, cells):
    """What is found agrees with NumPy; with one agent nobody is, and with two one is."""
    rng = np.random.default_rng(0)
    env_of = {}
    for agents in (1, 2, 60):
        env_of[agents] = env = make(name, agents, cells) if not env_of else type(env_of[1])  # noqa: F841
        break
    for agents in (1, 2, 60):
        sim = wd.Simulator(make(name, agents, cells), 1, device="cpu")
        sim.reset()
        state = sim.state
        for field in ("line", "height", "depth", "column", "row", "volume"):
            value = getattr(state, field)
            new = rng.normal(0, 2, value.shape)
            value.copy_(torch.as_tensor(new.round() if field in ("column", "row") else new.astype(F)))
        sim.refresh()
        columns = {
            "plane": ("line", "height"),
            "whole": ("column", "row"),
            "three": ("line", "height", "depth"),
        }.get(name, ("line",))
        place = state.volume[0].numpy() if name == "volume" else np.stack([getattr(state, c)[0].numpy() for c in columns], -1)
        place, active = place.astype(F), np.ones(agents, bool)
        np.testing.assert_array_equal(state.found[0].numpy(), nearest(place, active, K)[0])
        np.testing.assert_array_equal(state.close[0].numpy(), within(place, active, 2.5).sum(1))
        assert (agents == 1) == (sim.obs["agents"][0, 0, 0].item() == float("inf"))
