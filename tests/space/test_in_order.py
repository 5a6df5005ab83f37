"""The search from slots, which runs on GPUs only, finds on the CPU what NumPy finds."""

import numpy as np
import pytest
import torch
import warp as wp

import warpdrive as wd
from space.crowd import nearest
from space.test_search import KINDS, places
from warpdrive.space.in_order import list_place, search_slots

K = 6
copy = list_place(("position",), 2)
search, search_second = (search_slots(("position",), 2, K, group) for group in (None, "second"))


class SlotsState(wd.space.Cells):
    first: wd.Agents
    second: wd.Agents
    position: wd.PerAgent[wp.vec2]
    found: wd.PerEnv[int, "agents", K]  # noqa: F821
    found_second: wd.PerEnv[int, "agents", K]  # noqa: F821


@wd.per_agent
def list_places(s: SlotsState, env: int, agent: int):
    copy(s, env, agent)


@wd.per_agent
def look(s: SlotsState, env: int, agent: int):
    me = s.cell_members[env, agent]
    index, index_second = search(s, env, agent), search_second(s, env, agent)
    for j in range(K):
        s.found[env, me, j] = index[j]
        s.found_second[env, me, j] = index_second[j]


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
        self.observe = (*layout.phases, list_places, look, tell_first, tell_second)
        group = {"obs": 1, "action": wd.Discrete(2)}
        super().__init__(
            groups={"first": wd.Group(first, **group), "second": wd.Group(second, **group)},
            params=layout.params,
            sizes={**layout.sizes, "agents": first + second},
        )


@pytest.mark.parametrize("size", [(1, 1), (1, 6), (20, 44), (100, 29), (100, 500)])
@pytest.mark.parametrize("kind", KINDS)
def test_slots_find_what_numpy_finds(kind, size):
    """Also where many are equally near, or nearer to each other than a cut distance can tell."""
    first, agents = size[0], sum(size)
    rng = np.random.default_rng(agents)
    position = np.stack([places(rng, kind, agents) for _ in range(3)]).astype(np.float32)
    position[1:] *= 1 + 1e-6 * rng.random((2, agents, 1), np.float32)
    active = rng.random((3, agents)) < 0.8
    sim = wd.Simulator(Slots(*size), 3, device="cpu")
    sim.reset()
    sim.state.position.copy_(torch.as_tensor(position))
    sim.state.active.copy_(torch.as_tensor(active))
    sim.refresh()
    for env in range(3):
        for found, group in ((sim.state.found, slice(None)), (sim.state.found_second, slice(first, agents))):
            expected, _ = nearest(position[env], active[env], K, group=group)
            expected[~active[env]] = -1
            np.testing.assert_array_equal(found[env].numpy(), expected)
