"""Keys of 32 bits find what whole keys and NumPy find, on the CPU too, where searches do without them."""

import numpy as np
import pytest
import torch
import warp as wp

import warpdrive as wd
from space.crowd import nearest
from space.test_search import KINDS, places
from warpdrive.space.nearest import compare_short, compare_whole

K = 6
short, whole = (make(("position",), 2, K, None) for make in (compare_short, compare_whole))


class KeysState(wd.space.Cells):
    agents: wd.Agents
    position: wd.PerAgent[wp.vec2]
    limit: wd.PerAgent[float]
    brief: wd.PerAgent[int, K]
    full: wd.PerAgent[int, K]
    brief_square: wd.PerAgent[float, K]
    full_square: wd.PerAgent[float, K]


@wd.per_agent("agents")
def look(s: KeysState, env: int, i: int):
    index, square = short(s, env, s.position[env, i], i, s.limit[env, i])
    other_index, other_square = whole(s, env, s.position[env, i], i, s.limit[env, i])
    for j in range(K):
        s.brief[env, i, j] = index[j]
        s.full[env, i, j] = other_index[j]
        s.brief_square[env, i, j] = square[j]
        s.full_square[env, i, j] = other_square[j]
    wd.put(s.agents.obs, env, i, 0, float(index[0]))


class Keys(wd.Env):
    state = KeysState
    observe = (look,)

    def __init__(self, agents: int):
        layout = wd.space.Search("position").layout(agents, (-1, -1), (1, 1), cells=False)
        group = wd.Group(agents, obs=1, action=wd.Discrete(2))
        super().__init__(groups={"agents": group}, params=layout.params, sizes=layout.sizes)


@pytest.mark.parametrize("agents", [1, 2, 33, 128, 129])
@pytest.mark.parametrize("kind", KINDS)
def test_short_and_whole_keys_find_the_same(kind, agents):
    """Also where many are equally near, or nearly so: closer to each other than a cut distance can tell."""
    rng = np.random.default_rng(agents)
    position = np.stack([places(rng, kind, agents) for _ in range(3)]).astype(np.float32)
    position[1:] *= 1 + 1e-6 * rng.random((2, agents, 1), np.float32)
    active = rng.random((3, agents)) < 0.8
    radius = rng.choice([0.1, 1, np.inf], (3, agents)).astype(np.float32)
    sim = wd.Simulator(Keys(agents), 3, device="cpu")
    sim.reset()
    for name, value in (("position", position), ("active", active), ("limit", radius * radius)):
        getattr(sim.state, name).copy_(torch.as_tensor(value))
    sim.refresh()
    assert torch.equal(sim.state.brief, sim.state.full)
    assert torch.equal(sim.state.brief_square, sim.state.full_square)
    for env in range(3):
        expected, _ = nearest(position[env], active[env], K, radius[env])
        np.testing.assert_array_equal(sim.state.full[env].numpy(), expected)
