"""Tag keeps its rules: step by step against a plain NumPy reference, and one by one."""

import numpy as np
import pytest
import torch

import warpdrive as wd
from warpdrive.zoo import tag_squares
from warpdrive.zoo.tag import Tag
from zoo.tag_reference import NEAR, TagReference

STATE = ("position", "heading", "speed", "acceleration", "active")


def simulate(num_envs: int = 1, seed: int = 0, **options) -> wd.Simulator:
    sim = wd.Simulator(Tag(**options), num_envs=num_envs, seed=seed, device="cpu")
    sim.reset()
    return sim


def put(sim: wd.Simulator, positions: list, env: int = 0) -> None:
    """Stand the agents at these places, at rest."""
    sim.state.position[env] = torch.tensor(positions, dtype=torch.float32)


def idle(sim: wd.Simulator) -> None:
    """One step in which nobody changes anything."""
    sim.step({name: torch.zeros_like(action) for name, action in sim.action.items()})


def state_of(sim: wd.Simulator) -> dict:
    return {name: getattr(sim.state, name).numpy().copy() for name in STATE}


def motion_of(sim: wd.Simulator) -> dict:
    """Where the last step led the agents; who is in the game is the reference's to find out."""
    return {name: value for name, value in state_of(sim).items() if name != "active"}


# ---------------------------------------------------------------- against the reference

REWARDS = dict(edge_hit_penalty=-0.5, step_penalty_for_tagger=-0.25, step_reward_for_runner=0.125)
CASES = {
    "one a group": (64, dict(num_taggers=1, num_runners=1, grid_length=3.0, tagging_distance=0.1, episode_length=70)),
    "one a group, full": (
        64,
        dict(num_taggers=1, num_runners=1, grid_length=3.0, tagging_distance=0.1, episode_length=70)
        | dict(use_full_observation=True),
    ),
    "5 and 20": (16, dict(grid_length=9.0, tagging_distance=0.03, episode_length=70)),
    "5 and 20, full": (16, dict(grid_length=9.0, tagging_distance=0.03, episode_length=70, use_full_observation=True)),
    "5 and 20, nobody exits": (
        16,
        dict(grid_length=9.0, episode_length=70, runner_exits_game_after_tagged=False)
        | dict(skill_level_tagger=1.3, skill_level_runner=0.7, num_other_agents_observed=3),
    ),
    "5 and 20, egocentric": (8, dict(grid_length=9.0, tagging_distance=0.03, episode_length=70, egocentric=True)),
    "5 and 20, more slots than others": (4, dict(num_other_agents_observed=30, episode_length=70)),
    "more than 1024 agents": (
        2,
        dict(num_taggers=24, num_runners=1010, num_other_agents_observed=4, tagging_distance=0.01, episode_length=90),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_reference(case):
    """Over 200 steps of random actions: state, rewards, flags and observations are those of the reference."""
    num_envs, options = CASES[case]
    options = dict(num_taggers=5, num_runners=20) | options | REWARDS
    sim, ref = simulate(num_envs, **options), TagReference(num_envs, **options)
    ref.set_state(**state_of(sim))
    check_observations(sim.obs, ref.observe(), np.zeros_like(ref.active))
    rng = np.random.default_rng(0)
    tags, restarts = 0, 0

    for step in range(200):
        actions = rng.integers(0, 21, (num_envs, ref.num_agents, 2), dtype=np.int32)
        sim.step({"taggers": torch.tensor(actions[:, : ref.num_taggers]),
                  "runners": torch.tensor(actions[:, ref.num_taggers :])})  # fmt: skip
        over = sim.over.numpy()
        goes_on = ~over

        # Motion: to the bit, but for what a sine adds. From there on the reference stands where the simulator does.
        ref.move(actions)
        moved = motion_of(sim)
        for name, value in moved.items():
            tolerance = 4e-6 if name == "position" else 0
            np.testing.assert_allclose(value[goes_on], getattr(ref, name)[goes_on], rtol=0, atol=tolerance)
        ref.set_state(goes_on, **moved)

        reward, terminated, truncated = ref.judge()
        sure = ~ref.unsure
        np.testing.assert_array_equal(sim.reward.numpy()[sure], reward[sure], err_msg=f"step {step}")
        np.testing.assert_array_equal(sim.terminated.numpy(), terminated)
        np.testing.assert_array_equal(sim.truncated.numpy(), truncated)
        np.testing.assert_array_equal(over, truncated | ~ref.active[:, ref.num_taggers :].any(1))
        np.testing.assert_array_equal(sim.active.numpy()[goes_on], ref.active[goes_on])
        tags += int((ref.tags >= 0).sum())
        restarts += int(over.sum())

        # The observation that an episode ended on is of places that are the simulator's no longer: leave out near ties.
        if ref.num_agents < 100 or step % 8 == 0 or over.any():
            expected = ref.observe()
            check_observations(sim.final_obs, expected, ref.blurred | goes_on[:, None])
            check_observations(sim.obs, expected, np.zeros_like(ref.active) | over[:, None])
        if over.any():
            ref.set_state(over, **state_of(sim))
            ref.clock[over] = 0
            check_observations(sim.obs, ref.observe(), np.zeros_like(ref.active) | goes_on[:, None])

    assert tags > 20, "the test shows little when nobody is tagged"
    assert restarts > num_envs, "nor when no episode ends"


def check_observations(found: dict, expected: dict, leave_out: np.ndarray) -> None:
    """Observations agree, but for the agents (E, N) to leave out."""
    first = 0
    for name, value in expected.items():
        rows = ~leave_out[:, first : first + value.shape[1]]
        np.testing.assert_allclose(found[name].numpy()[rows], value[rows], rtol=0, atol=1e-6, err_msg=name)
        first += value.shape[1]


def test_reference_sees_near_ties():
    """The margin within which the comparison leaves agents out is small: it hides next to nothing."""
    ref = TagReference(4, num_taggers=5, num_runners=20)
    ref.position[:] = np.random.default_rng(0).uniform(0, 20, ref.position.shape)
    ref.observe()
    assert ref.blurred.mean() < 0.05
    ref.position[0, 1] = ref.position[0, 2] + np.float32(NEAR / 8)
    ref.observe()
    assert ref.blurred[0].sum() > 5


# ---------------------------------------------------------------- tags


def test_tags_of_one_step_add_up():
    """A tagger that reaches three runners at once gets three rewards; the other gets none."""
    sim = simulate(num_taggers=2, num_runners=4)
    put(sim, [[5, 5], [15, 15], [5.1, 5], [5, 5.2], [4.9, 5], [9, 9]])
    idle(sim)
    assert sim.rewards["taggers"].tolist() == [[30.0, 0.0]]
    assert sim.rewards["runners"].tolist() == [[-10.0, -10.0, -10.0, 0.0]]
    assert sim.terminated.tolist() == [[False, False, True, True, True, False]]


def test_equally_near_taggers_lower_index_wins():
    """Of two taggers at the same distance the first is rewarded, of a nearer one the nearer."""
    sim = simulate(num_envs=2, num_taggers=3, num_runners=2)
    put(sim, [[9, 9], [5.25, 5], [4.75, 5], [5, 5], [15, 15]], env=0)
    put(sim, [[9, 9], [5.25, 5], [4.875, 5], [5, 5], [15, 15]], env=1)
    idle(sim)
    assert sim.rewards["taggers"].tolist() == [[0, 10, 0], [0, 0, 10]]


def test_distance_must_be_closer_than_reach():
    """A runner exactly at the tagging distance is not tagged; one just within is."""
    options = dict(num_taggers=1, num_runners=2, grid_length=16.0, tagging_distance=0.03125)
    sim = simulate(**options)  # reach 0.5
    put(sim, [[8, 8], [8.5, 8], [8, 7.5001]])
    idle(sim)
    assert sim.rewards["runners"].tolist() == [[0, -10]]


def test_tagged_runner_leaves_the_game():
    """A runner that left gets no rewards, moves no more, sees nothing, and nobody sees it or tags it again."""
    sim = simulate(num_taggers=1, num_runners=2, step_reward_for_runner=0.5, num_other_agents_observed=2)
    put(sim, [[5, 5], [5, 5.1], [15, 15]])
    idle(sim)
    assert sim.active.tolist() == [[True, False, True]]
    assert sim.rewards["runners"].tolist() == [[-9.5, 0.5]]
    assert not sim.obs["runners"][0, 0].any()
    tagger = sim.obs["taggers"][0, 0]
    assert tagger[12:14].tolist() == [1, 0]  # one other in the game
    assert tagger[0].item() == pytest.approx(10 / (20 * 2**0.5))
    before = sim.state.position[0, 1].clone()
    sim.step({"taggers": torch.zeros(1, 1, 2, dtype=torch.int32), "runners": torch.full((1, 2, 2), 20)})
    assert torch.equal(sim.state.position[0, 1], before)
    assert sim.reward.tolist() == [[0, 0, 0.5]]
    assert not sim.terminated.any()


def test_tagged_runner_may_stay():
    """With runner_exits_game_after_tagged=False a runner is tagged in every step, and the game goes on."""
    sim = simulate(num_taggers=1, num_runners=1, runner_exits_game_after_tagged=False, episode_length=3)
    put(sim, [[5, 5], [5, 5.1]])
    for reward in (-10, -10, -9):  # in the game at the end, tagged or not
        idle(sim)
        assert sim.reward.tolist() == [[10, reward]]
        assert not sim.terminated.any()
    assert sim.truncated.all()


def test_tags_are_counted_and_rewarded_one_by_one():
    """Rewards are added tag after tag in float32, which a product would round otherwise; each step counts anew."""
    sim = simulate(num_taggers=2, num_runners=12, tag_reward_for_tagger=0.3, step_penalty_for_tagger=-0.3)
    put(sim, [[5, 5], [15, 15], *([5.1, 5.0] for _ in range(11)), [9, 9]])
    idle(sim)
    expected = np.float32(-0.3)
    for _ in range(11):
        expected += np.float32(0.3)
    assert expected != np.float32(-0.3) + np.float32(11) * np.float32(0.3)
    assert sim.rewards["taggers"][0].tolist() == [expected, np.float32(-0.3)]
    assert sim.state.tags[0, :2].tolist() == [11, 0] and sim.state.runners_left.tolist() == [1]
    idle(sim)
    assert sim.state.tags[0, :2].tolist() == [0, 0] and sim.state.runners_left.tolist() == [1]
    assert not sim.over.any()


@pytest.mark.parametrize("exits", [True, False])
def test_no_tag_is_lost(exits):
    """In every step the taggers together get 10 for each runner that was tagged."""
    sim = simulate(
        32, num_taggers=5, num_runners=20, grid_length=6.0, tagging_distance=0.1, end_of_game_reward_for_runner=0.0,
        runner_exits_game_after_tagged=exits,
    )  # fmt: skip
    several = 0
    for _ in range(50):
        sim.random_step()
        tagged = (sim.rewards["runners"] == -10).sum(1)
        assert torch.equal(sim.rewards["taggers"].sum(1), 10.0 * tagged)
        several += int((sim.rewards["taggers"] > 10).sum())
    assert several > 0


def crowded(rng, kind, num_envs, num_agents):
    """Places on a square of 8: anywhere, on a lattice (equally near taggers), all at one point, or along the edge."""
    place = rng.uniform(0, 8, (num_envs, num_agents, 2))
    if kind == "lattice":
        place = (place * 4).round() / 4
    if kind == "one point":
        place[:] = place[:, :1]
    if kind == "edge":
        place[..., 0] = rng.choice([0, 8], place.shape[:2])
    return torch.tensor(place, dtype=torch.float32)


@pytest.mark.parametrize("kind", ["anywhere", "lattice", "one point", "edge"])
@pytest.mark.parametrize("reach", [0.125, 0.5, 1.2])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_looking_nearby_tags_the_same(kind, reach, device, monkeypatch):
    """Among many taggers runners look at those nearby only: who is tagged by whom is what looking at all gives."""
    options = dict(num_taggers=40, num_runners=25, grid_length=8.0, tagging_distance=reach / 8)
    sims = []
    for many in (24, 1000):
        monkeypatch.setattr(tag_squares, "MANY_TAGGERS", many)
        sims.append(wd.Simulator(Tag(**options), 8, seed=3, device=device))
    nearby, compared = sims
    assert nearby.env.params["squares"] > 5 and compared.env.params["squares"] == 0
    rng, tags = np.random.default_rng(0), 0
    for _ in range(6):
        places = crowded(rng, kind, 8, 65)
        for sim in sims:
            sim.reset()
            sim.state.position.copy_(places)
            idle(sim)
        for name in ("reward", "terminated", "over", "active"):
            assert torch.equal(getattr(nearby, name), getattr(compared, name)), name
        tags += int((nearby.rewards["runners"] == -10).sum())
    assert tags > 20


# ---------------------------------------------------------------- the end


def test_ends_when_no_runner_is_left():
    """The game ends by the rules with the last runner; the taggers' episode is terminated, not truncated."""
    sim = simulate(num_taggers=1, num_runners=2, step_penalty_for_tagger=-0.5)
    put(sim, [[5, 5], [5, 5.1], [5.1, 5]])
    idle(sim)
    assert sim.ended.all() and sim.over.all() and not sim.truncated.any()
    assert sim.terminated.all()
    assert sim.reward.tolist() == [[19.5, -10, -10]]
    assert sim.active.all() and sim.state.step.item() == 0


def test_end_of_game_reward():
    """At the last step, and then only, runners in the game are rewarded; one tagged in that step is not."""
    sim = simulate(num_taggers=1, num_runners=2, episode_length=2, end_of_game_reward_for_runner=3.0)
    put(sim, [[5, 5], [9, 9], [15, 15]])
    idle(sim)
    assert not sim.reward.any() and not sim.truncated.any()
    put(sim, [[5, 5], [5, 5.1], [15, 15]])
    idle(sim)
    assert sim.reward.tolist() == [[10, -10, 3]]
    assert sim.truncated.all() and not sim.ended.any()
    assert sim.terminated.tolist() == [[False, True, False]]
    assert sim.final_obs["runners"][0, :, -1].tolist() == [0, 1]


# ---------------------------------------------------------------- motion


def test_edge():
    """An agent that crosses the edge is put onto it and gets edge_hit_penalty; one that stands on it does not."""
    sim = simulate(num_taggers=1, num_runners=2, edge_hit_penalty=-2.0)
    put(sim, [[19.75, 10], [20, 5], [5, 0.25]])
    sim.state.heading[0] = torch.tensor([0.0, 0.0, 1.5 * torch.pi])
    sim.state.speed[0] = torch.tensor([0.5, 0.0, 0.125])
    idle(sim)
    assert sim.reward.tolist() == [[-2, 0, 0]]
    assert sim.state.position[0].tolist() == [[20, 10], [20, 5], [pytest.approx(5), 0.125]]
    idle(sim)
    assert sim.reward.tolist()[0][0] == -2


def test_skill_levels():
    """The greatest speed of a group is max_speed times its skill level; acceleration ends when it is reached."""
    sim = simulate(num_taggers=1, num_runners=1, max_speed=0.5, skill_level_tagger=2.0, skill_level_runner=0.5,
                   grid_length=1000.0, max_acceleration=0.25)  # fmt: skip
    faster = {name: torch.tensor([[[20, 0]]]) for name in sim.action}
    put(sim, [[500, 500], [100, 100]])
    for speeds in ([0.25, 0.25], [0.75, 0.25], [1, 0.25]):
        sim.step(faster)
        assert sim.state.speed[0].tolist() == pytest.approx(speeds, abs=1e-6)
        stand = [float(speed) for speed in sim.state.speed[0]]
        at_bound = [stand[0] >= 1, stand[1] >= 0.25]
        assert [value.item() == 0 for value in sim.state.acceleration[0]] == at_bound
    assert not sim.terminated.any()


def test_action_levels():
    """Index 0 is none; 1 and the last index are the least and the greatest level."""
    sim = simulate(num_taggers=4, num_runners=1, num_turn_levels=4, min_turn=-1.0, max_turn=2.0)
    sim.state.heading[:] = 3.0
    sim.state.speed[:] = 0.5
    taggers = torch.tensor([[[0, 0], [1, 1], [20, 4], [0, 2]]])
    sim.step({"taggers": taggers, "runners": torch.zeros(1, 1, 2, dtype=torch.int32)})
    assert sim.state.heading[0, :4].tolist() == pytest.approx([3, 2, 5, 3], abs=1e-6)
    assert sim.state.acceleration[0, :4].tolist() == pytest.approx([0, -0.1, 0.1, 0], abs=1e-6)


def test_heading_stays_within_a_turn():
    """Headings lie from 0 to 2 pi whichever way an agent turns."""
    sim = simulate(8, num_taggers=5, num_runners=20)
    for _ in range(50):
        sim.random_step()
        assert (sim.state.heading >= 0).all() and (sim.state.heading <= 2 * np.pi + 1e-6).all()


# ---------------------------------------------------------------- observations


def test_nearest_first_and_ties_by_index():
    """Others are listed nearest first, equally near ones by index, with zeros behind the last."""
    sim = simulate(num_taggers=2, num_runners=3, grid_length=16.0, num_other_agents_observed=6)
    put(sim, [[8, 8], [8, 10], [10, 8], [8, 9], [6, 8]])
    sim.refresh()
    seen = sim.obs["taggers"][0, 0, :-1].reshape(7, 6) * torch.tensor([16 * 2**0.5] * 2 + [1.0] * 5)[:, None]
    expected = [[0, 0, 2, -2, 0, 0], [1, 2, 0, 0, 0, 0]]
    np.testing.assert_allclose(seen[:2].numpy(), expected, atol=1e-6)
    assert seen[5].tolist() == [0, 1, 0, 0, 0, 0]
    assert seen[6].tolist() == [1, 1, 1, 1, 0, 0]


def test_full_observation_in_index_order():
    """With use_full_observation all others are listed in index order, whoever is nearer."""
    sim = simulate(num_taggers=2, num_runners=2, use_full_observation=True)
    put(sim, [[1, 10], [19, 10], [2, 10], [18, 10]])
    sim.refresh()
    assert sim.obs["runners"].shape == (1, 2, 22)
    np.testing.assert_allclose(sim.obs["runners"][0, 0, :3].numpy() * (20 * 2**0.5), [-1, 17, 16], rtol=1e-6)
    np.testing.assert_allclose(sim.obs["runners"][0, 1, 15:18].numpy(), [1, 1, 0])


def test_egocentric_places():
    """With egocentric=True the first block is how far others are ahead, the second how far to the left."""
    for full in (False, True):
        sim = simulate(num_taggers=1, num_runners=2, use_full_observation=full, num_other_agents_observed=2)
        facing = simulate(num_taggers=1, num_runners=2, use_full_observation=full, num_other_agents_observed=2,
                          egocentric=True)  # fmt: skip
        for each in (sim, facing):
            put(each, [[10, 10], [10, 13], [5, 10]])
            each.state.heading[:] = 0.5 * torch.pi  # towards growing y
            each.refresh()
        scale = 20 * 2**0.5
        np.testing.assert_allclose(sim.obs["taggers"][0, 0, :4] * scale, [0, -5, 3, 0], atol=1e-5)
        np.testing.assert_allclose(facing.obs["taggers"][0, 0, :4] * scale, [3, 0, 0, 5], atol=1e-5)


def test_sizes_of_the_original():
    """10 taggers and 100 runners observe 71 numbers and choose among 21 x 21 actions."""
    env = Tag(num_taggers=10, num_runners=100)
    assert [(g.count, g.obs, g.action.heads) for g in env.groups.values()] == [(10, 71, (21, 21)), (100, 71, (21, 21))]


# ---------------------------------------------------------------- starts


def test_starts_are_random():
    """Environments, episodes and seeds begin differently, all over the square, along the axes, at rest."""
    sim = simulate(200, episode_length=1)
    first = sim.state.position.clone()
    assert len(torch.unique(first[:, :, 0])) > 0.99 * first[:, :, 0].numel()
    quarter = sim.state.heading / (np.pi / 2)
    assert torch.allclose(quarter, quarter.round(), atol=1e-6)
    assert torch.bincount(quarter.round().long().flatten()).tolist() == pytest.approx([1250] * 4, abs=150)
    assert not sim.state.speed.any() and not sim.state.acceleration.any()
    assert first.mean((0, 1)).tolist() == pytest.approx([10, 10], abs=0.4)
    assert first.min() >= 0 and first.max() <= 20 and first.std() == pytest.approx(20 / 12**0.5, rel=0.05)
    idle(sim)  # the first episode ends, the second begins
    assert sim.over.all()
    assert not torch.isclose(sim.state.position, first).all(-1).any()
    for seed in (1, 0):
        sim.seed(seed)
        sim.reset()
        assert torch.equal(sim.state.position, first) == (seed == 0)


def test_fixed_start():
    """With fixed_start every episode of every environment begins alike, by start_seed and not by the seed."""
    sim = simulate(3, episode_length=5, fixed_start=True)
    first = sim.state.position[0].clone()
    assert len(torch.unique(first[:, 0])) == 25
    for _ in range(5):
        sim.random_step()
    assert sim.over.all()
    assert (sim.state.position == first).all()
    sim.seed(7)
    sim.reset()
    assert (sim.state.position == first).all()
    assert not (simulate(1, fixed_start=True, start_seed=1).state.position == first).all(-1).any()


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(num_taggers=0), "num_taggers must be a positive integer, got 0"),
        (dict(num_runners=-3), "num_runners must be a positive integer, got -3"),
        (dict(num_other_agents_observed=0), "num_other_agents_observed must be a positive integer, got 0"),
        (dict(num_turn_levels=0), "num_turn_levels must be a positive integer, got 0"),
        (dict(episode_length=None), "episode_length must be a positive integer, got None"),
        (dict(grid_length=0.0), "grid_length must be a positive number, got 0.0"),
        (dict(max_speed=float("inf")), "max_speed must be a positive number, got inf"),
        (dict(tagging_distance=-0.1), "tagging_distance must be a positive number, got -0.1"),
        (dict(max_turn=-3.0), "max_turn must be greater than min_turn, got -3.0 and -2.356"),
        (dict(start_seed=-1), r"start_seed must be an integer from 0 to 2\*\*31 - 1, got -1"),
        (dict(tag_reward_for_tagger=float("nan")), "'tag_reward_for_tagger' of Tag must be a finite number, got nan"),
    ],
)
def test_refuses(options, message):
    """An argument out of its range is named, with its value and what would be right."""
    with pytest.raises(ValueError, match=message):
        Tag(**options)
