"""Tag on a grid keeps its rules: step by step against a plain NumPy reference, to the bit, and one by one."""

import numpy as np
import pytest
import torch

import warpdrive as wd
from warpdrive.zoo.tag_gridworld import TagGridworld
from zoo.tag_gridworld_reference import TagGridworldReference

STAY, RIGHT, LEFT, UP, DOWN = range(5)


def simulate(num_envs: int = 1, seed: int = 0, **options) -> wd.Simulator:
    sim = wd.Simulator(TagGridworld(**options), num_envs=num_envs, seed=seed, device="cpu")
    sim.reset()
    return sim


def put(sim: wd.Simulator, places: list) -> None:
    """Stand the agents of every environment on these points."""
    sim.state.position[:] = torch.tensor(places, dtype=torch.float32)


def act(sim: wd.Simulator, taggers: list, runner: int = STAY) -> None:
    """One step in which every environment's agents take these actions."""
    moves = torch.tensor(taggers, dtype=torch.int32)[None, :, None].repeat(sim.num_envs, 1, 1)
    sim.step({"taggers": moves, "runner": torch.full((sim.num_envs, 1, 1), runner, dtype=torch.int32)})


def rewards(sim: wd.Simulator) -> list:
    return sim.reward[0].numpy().round(6).tolist()


# ---------------------------------------------------------------- against the reference

# Odd prices, of which no sum is exact in float32.
PRICES = dict(wall_hit_penalty=0.3, step_cost_for_tagger=0.07, tag_reward_for_tagger=9.7, tag_penalty_for_runner=4.1)
CASES = {
    "one tagger": (32, 200, dict(num_taggers=1, grid_length=2, episode_length=20) | PRICES),
    "four, from the middle": (32, 200, dict(num_taggers=4, grid_length=5, episode_length=37) | PRICES),
    "four, from anywhere": (32, 200, dict(grid_length=11, episode_length=50, random_start=True)),
    "1100 taggers": (1, 14, dict(num_taggers=1100, grid_length=60, episode_length=4, random_start=True) | PRICES),
}


@pytest.mark.parametrize("full", [True, False], ids=["full", "partial"])
@pytest.mark.parametrize("case", CASES)
def test_equals_reference(case, full):
    """Over random steps: places, rewards, flags and observations are those of the reference, every bit of them."""
    num_envs, steps, options = CASES[case]
    options = options | dict(use_full_observation=full)
    sim, ref = simulate(num_envs, **options), TagGridworldReference(num_envs, **options)
    rng = np.random.default_rng(0)
    caught = ran_out = 0

    def begin(where: np.ndarray) -> None:
        found = sim.state.position.numpy()
        if ref.random_start:
            assert (found == found.astype(int)).all() and found.min() >= 0 and found.max() <= ref.grid_length
        ref.start(where, found.astype(int) if ref.random_start else None)
        assert np.array_equal(found[where], ref.position[where])

    def same_observations(found: dict, where: np.ndarray) -> None:
        for name, value in ref.observe().items():
            # The reference divides where the environment multiplies by a reciprocal.
            np.testing.assert_allclose(found[name].numpy()[where], value[where], rtol=2e-7, err_msg=name)

    begin(np.ones(num_envs, bool))
    same_observations(sim.obs, np.ones(num_envs, bool))
    for step in range(steps):
        actions = rng.integers(0, 5, (num_envs, ref.num_agents), dtype=np.int32)
        sim.step({"taggers": torch.tensor(actions[:, :-1, None]), "runner": torch.tensor(actions[:, -1:, None])})
        reward, terminated, truncated = ref.step(actions)
        over = terminated[:, 0] | truncated
        np.testing.assert_array_equal(sim.reward.numpy(), reward, err_msg=f"step {step}")
        np.testing.assert_array_equal(sim.terminated.numpy(), terminated)
        np.testing.assert_array_equal(sim.truncated.numpy(), truncated)
        np.testing.assert_array_equal(sim.over.numpy(), over)
        same_observations(sim.obs, ~over)
        if over.any():
            same_observations(sim.final_obs, over)
            begin(over)
            same_observations(sim.obs, over)
        assert np.array_equal(sim.state.position.numpy(), ref.position)
        caught += int(terminated[:, 0].sum())
        ran_out += int((over & ~terminated[:, 0]).sum())
    assert caught > 0 and ran_out > 0, "the test shows little when episodes end in one way only"


@pytest.mark.parametrize("full", [True, False], ids=["full", "partial"])
def test_schedules_agree(full):
    """One loop an environment and one kernel a phase give the same bits."""
    options = dict(num_taggers=70, grid_length=9, random_start=True, use_full_observation=full)
    sims = [wd.Simulator(TagGridworld(**options), 8, seed=3, device="cpu", schedule=s) for s in ("loop", "split")]
    for sim in sims:
        sim.reset()
    for _ in range(30):
        for sim in sims:
            sim.random_step()
        for name in sims[0].obs:
            assert torch.equal(sims[0].obs[name], sims[1].obs[name])
        assert torch.equal(sims[0].reward, sims[1].reward)


# ---------------------------------------------------------------- how an episode begins


def test_starts_in_the_middle():
    """Taggers begin in the middle and the runner at the origin, in every episode."""
    sim = simulate(3, grid_length=7, episode_length=2)
    expected = torch.tensor([[3.0, 3.0]] * 4 + [[0.0, 0.0]])
    assert (sim.state.position == expected).all()
    act(sim, [UP, UP, LEFT, RIGHT], UP)
    assert not (sim.state.position == expected).all()
    act(sim, [UP, UP, LEFT, RIGHT], UP)
    assert sim.over.all() and (sim.state.position == expected).all()


def test_random_starts_cover_the_grid():
    """With random_start every point is as likely as another, and episodes begin differently."""
    sim = simulate(2000, grid_length=3, random_start=True, episode_length=1)
    first = sim.state.position.clone()
    points = (first[..., 0] * 4 + first[..., 1]).long().flatten()
    assert torch.bincount(points, minlength=16).tolist() == pytest.approx([625] * 16, abs=130)
    sim.random_step()
    assert sim.over.all() and not torch.equal(sim.state.position, first)
    sim.seed(0)
    sim.reset()
    assert torch.equal(sim.state.position, first)


def test_beginning_on_the_runner_is_no_catch():
    """A tagger that begins where the runner stands catches it only by standing there after a step."""
    sim = simulate(2, grid_length=4)
    put(sim, [[2, 2]] + [[4, 4]] * 3 + [[2, 2]])
    act(sim, [LEFT, STAY, STAY, STAY], RIGHT)
    assert not sim.terminated.any()


# ---------------------------------------------------------------- rules


def test_moves():
    """Actions are stay, +x, -x, +y, -y."""
    sim = simulate(grid_length=10)
    put(sim, [[5, 5]] * 4 + [[1, 1]])
    act(sim, [STAY, RIGHT, LEFT, UP], DOWN)
    assert sim.state.position[0].tolist() == [[5, 5], [6, 5], [4, 5], [5, 6], [1, 0]]


def test_edge_costs_and_stops():
    """Leaving the grid on any side costs wall_hit_penalty and leads nowhere; walking along the edge is free."""
    sim = simulate(grid_length=10)
    put(sim, [[10, 5], [0, 5], [5, 10], [10, 10], [5, 0]])
    act(sim, [RIGHT, LEFT, UP, LEFT], DOWN)
    assert sim.state.position[0].tolist() == [[10, 5], [0, 5], [5, 10], [9, 10], [5, 0]]
    assert rewards(sim) == pytest.approx([-0.11, -0.11, -0.11, -0.01, 0.01 - 0.1])


def test_a_catch_is_everybodys():
    """When one tagger stands on the runner, all are rewarded, the runner pays, and the episode ends by the rules."""
    sim = simulate(grid_length=10)
    put(sim, [[5, 5], [0, 0], [9, 9], [3, 3], [6, 6]])
    act(sim, [RIGHT, STAY, STAY, STAY], DOWN)
    assert rewards(sim) == [10, 10, 10, 10, -5]
    assert sim.terminated.all() and sim.ended.all() and not sim.truncated.any()
    assert sim.final_obs["runner"][0, 0, 4].item() == pytest.approx(0.6)
    assert sim.state.step.item() == 0  # the next episode has begun
    act(sim, [STAY] * 4)
    assert not sim.terminated.any()


def test_several_on_the_runner_count_once():
    """The reward does not grow with the number of taggers that stand on the runner, and the edge is paid besides."""
    sim = simulate(grid_length=10)
    put(sim, [[1, 0], [0, 1], [0, 0], [9, 9], [0, 0]])
    act(sim, [LEFT, DOWN, STAY, STAY], LEFT)
    assert rewards(sim) == pytest.approx([10, 10, 10, 10, -5.1])


def test_changing_places_is_no_catch():
    """A tagger and a runner that swap points pass each other; standing in one row or column is not enough."""
    sim = simulate(grid_length=10)
    put(sim, [[5, 5], [6, 9], [9, 5], [9, 9], [6, 5]])
    act(sim, [RIGHT, STAY, STAY, STAY], LEFT)
    assert not sim.terminated.any()
    assert rewards(sim) == pytest.approx([-0.01] * 4 + [0.01])


def test_time_runs_out():
    """After episode_length steps the episode is truncated, which is no end by the rules."""
    sim = simulate(grid_length=10, episode_length=3)
    for step in range(1, 4):
        act(sim, [STAY] * 4)
        assert sim.truncated.item() == (step == 3)
        assert not sim.terminated.any()
    assert sim.final_obs["taggers"][0, 0, -1].item() == 1


# ---------------------------------------------------------------- observations


def test_full_observation():
    """All x, all y, all kinds, oneself, and the time."""
    sim = simulate(num_taggers=2, grid_length=4, episode_length=8)
    put(sim, [[1, 2], [3, 4], [0, 1]])
    act(sim, [STAY, STAY])
    common = [0.25, 0.75, 0, 0.5, 1, 0.25, 1, 1, 0]
    assert sim.obs["taggers"][0].tolist() == [[*common, 1, 0, 0, 0.125], [*common, 0, 1, 0, 0.125]]
    assert sim.obs["runner"][0].tolist() == [[*common, 0, 0, 1, 0.125]]


def test_partial_observation():
    """Taggers see themselves and the runner; the runner the nearest tagger, of equally near the first."""
    sim = simulate(2, num_taggers=3, grid_length=8, episode_length=8, use_full_observation=False)
    put(sim, [[0, 4], [7, 4], [4, 1], [4, 4]])
    sim.state.position[1, 0] = torch.tensor([4.0, 7.0])  # there tagger 0 is as near as 1 and 2
    act(sim, [STAY] * 3)
    assert sim.obs["taggers"][0, 1].tolist() == [0.875, 0.5, 0.5, 0.5, 1, 0.125]
    assert sim.obs["runner"][:, 0].tolist() == [[0.5, 0.5, 0.875, 0.5, 0, 0.125], [0.5, 0.5, 0.5, 0.875, 0, 0.125]]


def test_nearest_on_the_largest_grid():
    """Distances across the greatest grid are told apart exactly, where float32 could not."""
    most = 2**15 - 1
    sim = simulate(num_taggers=3, grid_length=most, use_full_observation=False)
    put(sim, [[most, most], [most - 1, most], [most, most - 1], [0, 0]])
    sim.refresh()
    assert sim.obs["runner"][0, 0, 2:4].tolist() == [(most - 1) / np.float32(most), 1]


# ---------------------------------------------------------------- refusals, view


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(num_taggers=0), "num_taggers must be a positive integer, got 0"),
        (dict(grid_length=2.5), "grid_length must be a positive integer, got 2.5"),
        (dict(grid_length=2**15), "grid_length must be at most 32767, got 32768"),
        (dict(episode_length=None), "episode_length must be a positive integer, got None"),
        (dict(wall_hit_penalty=-0.1), "wall_hit_penalty must be a number that is not negative, got -0.1"),
        (dict(tag_reward_for_tagger=float("nan")), "tag_reward_for_tagger must be a number that is not negative"),
        (dict(random_start=1), "'random_start' of TagGridworld must be True or False, got 1"),
    ],
)
def test_refuses(options, message):
    """An argument out of its range is named, with its value and what would be right."""
    with pytest.raises(ValueError, match=message):
        TagGridworld(**options)


def test_view_shows_the_grid():
    """The replay shows places, on all of the grid."""
    view = TagGridworld(grid_length=30).view()
    assert (view.position, view.low, view.high) == ("position", (0, 0), (30, 30))
