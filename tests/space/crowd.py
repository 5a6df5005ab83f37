"""An environment that writes down what its searches find, and the same found by NumPy."""

import functools
from typing import Any

import numpy as np
import torch
import warp as wp

import warpdrive as wd
from warpdrive import space

K, MANY = 5, 20  # neighbours in registers, and more than Warp unrolls
F = np.float32
near = space.Search("position")
few, many, friends = near.nearest(K), near.nearest(MANY), near.nearest(2, among="second")
SPOT = wp.constant(wp.vec2(0.25, -0.5))
at_spot = near.nearest_to(2)
list_few = near.nearest_phases(K, into="listed")


@wp.func
def gather(s: Any, env: int, agent: int, other: int, distance: float, total: wp.vec3i) -> wp.vec3i:
    """How many there are, the sum of their indices, and one that depends on their order."""
    return wp.vec3i(total[0] + 1, total[1] + other, (31 * total[2] + other) % 1_000_003)


crowd, crowd_of_second = near.fold(gather), near.fold(gather, among="second")


class CrowdState(space.Cells):
    first: wd.Agents
    second: wd.Agents
    position: wd.PerAgent[wp.vec2]
    radius: wd.PerAgent[float]
    few: wd.PerAgent[int, K]
    few_distance: wd.PerAgent[float, K]
    many: wd.PerAgent[int, MANY]
    listed: wd.PerEnv[int, "agents", K]  # noqa: F821
    close: wd.PerAgent[int, K]
    friends: wd.PerAgent[int, 2]
    at_spot: wd.PerAgent[int, 2]
    crowd: wd.PerAgent[wp.vec3i]
    crowd_of_second: wd.PerAgent[wp.vec3i]
    stays: wd.PerAgent[bool]  # whether it takes part after sorting, where `swap` is run then


@wd.per_agent
def scatter(s: CrowdState, env: int, agent: int):
    rng = wd.random(s, env, agent)
    s.position[env, agent] = wp.vec2(wp.randf(rng, -1.5, 1.5), wp.randf(rng, -1.0, 2.0))
    s.radius[env, agent] = wp.randf(rng)
    s.active[env, agent] = agent == 0 or wp.randf(rng) < 0.9


@wd.per_agent
def swap(s: CrowdState, env: int, agent: int):
    """Some leave and some join, between sorting and searching."""
    s.active[env, agent] = s.stays[env, agent]


@wd.per_agent
def look(s: CrowdState, env: int, agent: int):
    index, distance = few(s, env, agent)
    close, _far = few(s, env, agent, s.radius[env, agent])
    for j in range(K):
        s.few[env, agent, j] = index[j]
        s.few_distance[env, agent, j] = distance[j]
        s.close[env, agent, j] = close[j]
    more, _farther = many(s, env, agent)
    for j in range(MANY):
        s.many[env, agent, j] = more[j]
    pair, _apart = friends(s, env, agent)
    for j in range(2):
        s.friends[env, agent, j] = pair[j]
    there, _from_spot = at_spot(s, env, SPOT, s.radius[env, agent])
    for j in range(2):
        s.at_spot[env, agent, j] = there[j]
    none = wp.vec3i(0, 0, 0)
    s.crowd[env, agent] = crowd(s, env, agent, s.radius[env, agent], none)
    s.crowd_of_second[env, agent] = crowd_of_second(s, env, agent, s.radius[env, agent], none)


@wd.per_agent("first")
def tell_first(s: CrowdState, env: int, i: int):
    wd.put(s.first.obs, env, i, 0, s.few_distance[env, i, 0])


@wd.per_agent("second")
def tell_second(s: CrowdState, env: int, i: int):
    wd.put(s.second.obs, env, i, 0, float(s.crowd[env, s.second.first + i][0]))


class Crowd(wd.Env):
    state = CrowdState
    reset = (scatter,)
    step = (scatter,)

    def __init__(self, first: int = 1, second: int = 1, layout: space.Layout | None = None, between: tuple = ()):
        layout = layout or near.layout(first + second, (-1, -1), (1, 1), neighbours=K)
        self.observe = (*layout.phases, *between, *list_few, look, tell_first, tell_second)
        groups = {"first": wd.Group(first, obs=1, action=wd.Discrete(2)),
                  "second": wd.Group(second, obs=1, action=wd.Discrete(2))}  # fmt: skip
        super().__init__(
            groups=groups, params=layout.params, sizes={**layout.sizes, "agents": first + second}, episode_length=5
        )


# ---------------------------------------------------------------- the same in NumPy


def squares(position: np.ndarray) -> np.ndarray:
    """Squares of distances (N, N) between float32 places (N, D), in float32 as the searches compute them."""
    with np.errstate(over="ignore", invalid="ignore"):
        offset = position[None] - position[:, None]
        total = offset[..., 0] * offset[..., 0]
        for axis in range(1, position.shape[1]):
            total = total + offset[..., axis] * offset[..., axis]
    return total


def candidates(position: np.ndarray, active: np.ndarray, radius: Any, group: slice) -> np.ndarray:
    """Squares of distances to those that can be found, infinity to others; negative radii find nobody."""
    result = squares(position)
    radius = np.broadcast_to(np.asarray(radius, F), len(position))
    result[~(result < (radius * radius)[:, None])] = np.inf
    result[radius < 0] = np.inf
    result[:, ~active] = np.inf
    np.fill_diagonal(result, np.inf)
    members = np.zeros(len(position), bool)
    members[group] = True
    result[:, ~members] = np.inf
    return result


def nearest(
    position: np.ndarray, active: np.ndarray, k: int, radius: Any = np.inf, group: slice = slice(None)
) -> tuple[np.ndarray, np.ndarray]:
    """Indices (N, k), -1 where there are no more, and squares of distances of the nearest, ties by index."""
    found = candidates(position, active, radius, group)
    order = np.argsort(found, axis=1, kind="stable")[:, :k]
    square = np.take_along_axis(found, order, 1)
    order = np.where(np.isfinite(square), order, -1)
    fill = ((0, 0), (0, k - order.shape[1]))
    return np.pad(order, fill, constant_values=-1), np.pad(square, fill, constant_values=np.inf)


def nearest_to_spot(position: np.ndarray, active: np.ndarray, k: int, radius: np.ndarray) -> np.ndarray:
    """Indices (N, k) of the nearest to SPOT within each of N radii, -1 where there are no more."""
    square = squares(np.concatenate([position, np.array([list(SPOT)], F)]))[-1, :-1]
    order = np.argsort(square, kind="stable")
    order = order[active[order]]
    near = order[:k]
    inside = square[near] < (radius * radius)[:, None]
    inside &= (radius >= 0)[:, None]
    return np.pad(np.where(inside, near, -1), ((0, 0), (0, k - len(near))), constant_values=-1)


def within(position: np.ndarray, active: np.ndarray, radius: Any, group: slice = slice(None)) -> np.ndarray:
    """Whether (N, N) each is found by each."""
    return np.isfinite(candidates(position, active, radius, group))


# ---------------------------------------------------------------- running it


@functools.cache
def simulator(
    first: int, second: int, shape: tuple[int, ...] | None, num_envs: int = 1, between: tuple = (), **options: Any
) -> Any:
    """A Crowd with cells of this shape over a square from (-1, -1) to (1, 1), () for none, None: chosen by size.

    A kernel a phase: for one of all these searches together a GPU's compiler takes minutes.
    """
    from warpdrive.space.cells import layout

    chosen = None if shape is None else layout(("position",), (-1.0, -1.0), (1.0, 1.0), first + second, shape)
    sim = wd.Simulator(
        Crowd(first, second, chosen, between), num_envs, **{"device": "cpu", "schedule": "split", **options}
    )
    sim.reset()
    return sim


def count(sim: wd.Simulator) -> None:
    """Let the simulator know how many agents take part, as in the course of an episode."""
    sim.store.fields["num_active"].copy_(sim.active.sum(1))
    sim.store.fields["fresh"].zero_()


def grid_of(shape: tuple[int, ...], taking_part: int, agents: int) -> np.ndarray:
    """Cells along each axis when so many of the agents take part, as many to a cell as when all do."""
    share = (max(taking_part, 1) / agents) ** (1 / len(shape))
    return np.clip(np.floor(np.array(shape) * share + 0.5), 1, shape).astype(int)


def look_around(sim: wd.Simulator, position: np.ndarray, active: np.ndarray, radius: np.ndarray) -> dict:
    """What agents at these places (E, N, 2) find, by field."""
    for name, value in (("position", position), ("active", active), ("radius", radius)):
        getattr(sim.state, name).copy_(torch.as_tensor(value))
    count(sim)
    sim.refresh()
    names = (
        "few",
        "few_distance",
        "many",
        "listed",
        "close",
        "friends",
        "at_spot",
        "crowd",
        "crowd_of_second",
        "cell",
        "cell_start",
        "cell_members",
        "cell_grid",
    )
    return {name: getattr(sim.state, name).cpu().numpy().copy() for name in names}


def expect(found: dict, env: int, first: int, position: np.ndarray, active: np.ndarray, radius: np.ndarray) -> None:
    """What was found in one environment is what NumPy finds among places (N, 2)."""
    second = slice(first, None)
    index, square = nearest(position, active, K)
    np.testing.assert_array_equal(found["few"][env], index)
    np.testing.assert_array_equal(found["few_distance"][env], np.sqrt(square))
    listed = np.where(active[:, None], nearest(position, active, K)[0], -1)
    np.testing.assert_array_equal(found["listed"][env], listed)
    np.testing.assert_array_equal(found["many"][env], nearest(position, active, MANY)[0])
    np.testing.assert_array_equal(found["close"][env], nearest(position, active, K, radius)[0])
    np.testing.assert_array_equal(found["friends"][env], nearest(position, active, 2, group=second)[0])
    np.testing.assert_array_equal(found["at_spot"][env], nearest_to_spot(position, active, 2, radius))
    for name, group in (("crowd", slice(None)), ("crowd_of_second", second)):
        inside = within(position, active, radius, group)
        np.testing.assert_array_equal(found[name][env][:, 0], inside.sum(1))
        np.testing.assert_array_equal(found[name][env][:, 1], (inside * np.arange(len(position))).sum(1))
