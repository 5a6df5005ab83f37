"""The rules of an episode, against a plain NumPy model of them."""

import numpy as np
import pytest
import torch
import warp as wp

import warpdrive as wd
from sim.environments import COUNT, FINISH, IDLE, LEAVE, RETURN, VANISH, Script
from warpdrive.sim.episode import keep
from warpdrive.sim.store import OUTPUTS, Results, warp_array

E, N = 6, 3


@wp.struct
class Slots:
    final_slot: wp.array(dtype=wp.int32)


@wp.struct
class Seen:
    obs: wp.array3d(dtype=wp.float32)
    final_obs: wp.array4d(dtype=wp.float32)


@wp.struct
class SeenShort:
    obs: wp.array3d(dtype=wp.bfloat16)
    final_obs: wp.array4d(dtype=wp.bfloat16)


class Model:
    """What Script does under the rules of an episode, for all environments at once."""

    def __init__(self, num_envs: int, episode_length: int, late: int) -> None:
        self.length, self.late = episode_length, late
        self.count = np.zeros((num_envs, N), int)
        self.episode = np.zeros(num_envs, int)
        self.step_number = np.zeros(num_envs, int)
        self.active = np.ones((num_envs, N), bool)
        self.episode_return = np.zeros((num_envs, N))
        self.last_return = np.zeros((num_envs, N))
        self.last_length = np.zeros(num_envs, int)
        self.final = np.zeros((num_envs, 2, 3))
        self.finished: list[tuple[int, np.ndarray]] = []
        self.begin(np.ones(num_envs, bool))

    def begin(self, where: np.ndarray) -> None:
        self.count[where] = 0
        self.episode[where] += 1
        self.step_number[where] = 0
        self.episode_return[where] = 0.0
        self.active[where] = np.arange(N) < N - self.late

    def observe(self) -> np.ndarray:
        columns = (self.count[:, :2], self.step_number[:, None].repeat(2, 1), self.episode[:, None].repeat(2, 1))
        return np.stack(columns, -1).astype(float)

    def step(self, action: np.ndarray) -> None:
        alive = self.active.copy()
        self.step_number += 1
        self.count += action == COUNT
        self.active = (self.active & (action != VANISH)) | (action == RETURN)
        self.ended = (action[:, :2] == FINISH).any(1)
        left = alive & ((action == LEAVE) | ~self.active)
        self.active &= ~left
        self.terminated = alive & (left | self.ended[:, None])
        self.reward = np.where(alive, 1.0 + np.arange(N) + 0.5 * self.count, 0.0)
        self.episode_return += self.reward
        self.truncated = self.step_number >= self.length
        self.over = self.truncated | self.ended | ~self.active.any(1)
        self.final[self.over] = self.observe()[self.over]
        self.last_return[self.over] = self.episode_return[self.over]
        self.last_length[self.over] = self.step_number[self.over]
        self.finished += [(int(self.step_number[e]), self.episode_return[e].copy()) for e in np.flatnonzero(self.over)]
        self.begin(self.over)


def simulate(num_envs: int = 1, **options) -> wd.Simulator:
    sim = wd.Simulator(Script(**options), num_envs, device="cpu")
    sim.reset()
    return sim


def act(sim: wd.Simulator, *actions: int) -> None:
    """One step in which the agents of every environment do these things."""
    all_envs = torch.tensor(actions).expand(sim.num_envs, N)
    sim.step({"pairs": all_envs[:, :2], "lone": all_envs[:, 2:]})


@pytest.mark.parametrize("late", [0, 1, 2])
def test_every_output_follows_the_rules(late):
    """Two hundred random steps of leaving, returning, ending and being cut off give what the model says, to the bit."""
    sim, model, rng = simulate(E, episode_length=7, late=late), Model(E, 7, late), np.random.default_rng(late)
    np.testing.assert_array_equal(sim.obs["pairs"].numpy(), model.observe())
    both = 0
    for _ in range(200):
        action = rng.choice(6, (E, N), p=[0.2, 0.3, 0.16, 0.16, 0.15, 0.03])
        sim.step({"pairs": torch.tensor(action[:, :2]), "lone": torch.tensor(action[:, 2:])})
        model.step(action)
        both += int((model.terminated.any(1) & model.truncated).sum())
        for name in ("reward", "terminated", "truncated", "ended", "over", "active", "last_return", "last_length"):
            np.testing.assert_array_equal(getattr(sim, name).numpy(), getattr(model, name), name)
        np.testing.assert_array_equal(sim.state.episode_return.numpy(), model.episode_return)
        np.testing.assert_array_equal(sim.state.step.numpy(), model.step_number)
        np.testing.assert_array_equal(sim.obs["pairs"].numpy(), model.observe())
        np.testing.assert_array_equal(sim.final_obs["pairs"].numpy(), model.final)
    assert both > 0, "an agent that ends in a step that is also the last was to be seen"
    lengths, returns = [n for n, _ in model.finished], np.array([r for _, r in model.finished])
    expected = {
        "episodes": len(lengths),
        "length": np.mean(lengths),
        "return/pairs": returns[:, :2].mean(),
        "return/lone": returns[:, 2].mean(),
    }
    assert sim.statistics() == pytest.approx(expected, rel=1e-12)
    assert sim.statistics() == {"episodes": 0}


def test_statistics_can_be_read_without_clearing():
    """Reading with clear=False leaves the sums for the next reader."""
    sim = simulate(E, episode_length=2)
    act(sim, IDLE, IDLE, IDLE)
    act(sim, IDLE, IDLE, IDLE)
    first = sim.statistics(clear=False)
    assert first["episodes"] == E and first["length"] == 2.0
    assert sim.statistics() == first


def test_the_last_observation_is_kept_and_the_first_of_the_next_episode_shown():
    """When an episode is cut, obs is the new episode's first observation and final_obs the old one's last."""
    sim = simulate(episode_length=2)
    act(sim, COUNT, IDLE, IDLE)
    act(sim, COUNT, COUNT, COUNT)
    assert sim.truncated.all() and sim.over.all() and not sim.terminated.any()
    assert sim.final_obs["pairs"].tolist() == [[[2.0, 2.0, 1.0], [1.0, 2.0, 1.0]]]
    assert sim.obs["pairs"].tolist() == [[[0.0, 0.0, 2.0], [0.0, 0.0, 2.0]]]
    assert sim.final_obs["lone"][0, 0, 0] == 4.0 and sim.obs["lone"][0, 0, 0] == 0.0


@wp.kernel
def keep_all(s: Slots, group: Seen):
    env, i = wp.tid()
    keep(s, group, env, i)


@wp.kernel
def keep_all_short(s: Slots, group: SeenShort):
    env, i = wp.tid()
    keep(s, group, env, i)


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("features", range(1, 21))
def test_all_features_of_a_last_observation_are_kept(features, short):
    """Whatever their number and type, in the environment's slot; where there is no slot nothing is written."""
    dtype = torch.bfloat16 if short else torch.float32
    obs = torch.arange(features * 8.0).reshape(features, 4, 2).to(dtype).permute(1, 2, 0)
    final = torch.full((features, 3, 4, 2), -1.0, dtype=dtype).permute(1, 2, 3, 0)
    slot = torch.tensor([2, -1, 0, 1], dtype=torch.int32)
    s, group = Slots(), (SeenShort if short else Seen)()
    s.final_slot = warp_array(slot, wp.int32)
    kind = wp.bfloat16 if short else wp.float32
    group.obs, group.final_obs = warp_array(obs, kind), warp_array(final, kind)
    expected = final.clone()
    for env, k in enumerate(slot.tolist()):
        if k >= 0:
            expected[k, env] = obs[env]
    wp.launch(keep_all_short if short else keep_all, dim=(4, 2), inputs=[s, group], device="cpu")
    assert torch.equal(final, expected)


def test_termination_and_truncation_may_hold_at_once():
    """One who leaves in the last step is terminated, the environment truncated, and the others not terminated."""
    sim = simulate(episode_length=1)
    act(sim, IDLE, LEAVE, IDLE)
    assert sim.truncated.tolist() == [True] and sim.terminated.tolist() == [[False, True, False]]
    act(sim, FINISH, IDLE, IDLE)
    assert sim.truncated.tolist() == sim.ended.tolist() == [True] and sim.terminated.all()


def test_one_who_left_is_out():
    """It is terminated in the step it left only, then inactive and without reward, whatever its phase says."""
    sim = simulate(episode_length=100)
    act(sim, IDLE, LEAVE, IDLE)
    assert sim.terminated.tolist() == [[False, True, False]]
    assert sim.active.tolist() == [[True, False, True]]
    assert sim.reward.tolist() == [[1.0, 2.0, 3.0]], "the step in which it leaves is still rewarded"
    act(sim, IDLE, LEAVE, IDLE)
    assert not sim.terminated.any() and sim.reward.tolist() == [[1.0, 0.0, 3.0]]
    assert sim.state.episode_return.tolist() == [[2.0, 2.0, 6.0]]


def test_one_who_is_let_in_again_takes_part_from_the_next_step():
    """The step in which it comes back gives it nothing, the next one does, and it keeps the environment going."""
    sim = simulate(episode_length=100)
    act(sim, IDLE, LEAVE, IDLE)
    act(sim, LEAVE, RETURN, LEAVE)
    assert sim.active.tolist() == [[False, True, False]] and sim.reward[0, 1] == 0.0 and not sim.over.any()
    act(sim, IDLE, IDLE, IDLE)
    assert sim.reward.tolist() == [[0.0, 2.0, 0.0]] and not sim.over.any()
    act(sim, IDLE, VANISH, IDLE)
    assert sim.over.all() and not sim.truncated.any() and not sim.ended.any()


def test_agents_that_the_reset_phases_keep_out_do_not_keep_an_episode_going():
    """With two of three agents kept out from the start the episode is over when the third leaves, in every episode."""
    sim = simulate(late=2, episode_length=100)
    for episode in (1.0, 2.0, 3.0):
        assert sim.active.tolist() == [[True, False, False]] and sim.obs["pairs"][0, 0, 2] == episode
        act(sim, IDLE, IDLE, IDLE)
        assert not sim.over.any() and sim.reward.tolist() == [[1.0, 0.0, 0.0]]
        act(sim, LEAVE, IDLE, IDLE)
        assert sim.over.all()


def test_without_a_length_nothing_is_cut():
    """An environment without episode_length is never truncated."""
    sim = simulate(episode_length=None)
    for _ in range(50):
        act(sim, IDLE, IDLE, IDLE)
    assert sim.state.step.tolist() == [50] and not sim.truncated.any() and sim.statistics()["episodes"] == 0


def test_a_masked_reset_touches_its_environments_only():
    """Where the mask is false not one bit of any array changes, nor does what follows."""
    sim, twin = simulate(E, episode_length=3), simulate(E, episode_length=3)
    mask = torch.arange(E) % 2 == 0
    for s in (sim, twin):
        for _ in range(3):
            act(s, COUNT, COUNT, LEAVE)
    before = sim.state_dict()
    sim.reset(mask)
    after = sim.state_dict()
    for name, old in before.items():
        if name != "field/seed":
            assert torch.equal(after[name][~mask], old[~mask]), name
    assert sim.over.tolist() == (~mask).tolist()
    assert (sim.obs["pairs"][mask] == torch.tensor([0.0, 0.0, 3.0])).all()
    assert sim.state.last_length.tolist() == [3] * E, "an episode that is broken off does not count"
    for _ in range(5):
        sim.random_step()
        twin.random_step()
    for name, old in twin.state_dict().items():
        if name != "field/seed":
            assert torch.equal(sim.state_dict()[name][~mask], old[~mask]), name


def test_reset_breaks_off_without_counting():
    """What was running when reset() came is in no statistics, and all flags are down."""
    sim = simulate(E)
    act(sim, COUNT, LEAVE, IDLE)
    sim.reset()
    assert sim.statistics() == {"episodes": 0} and sim.active.all()
    assert not (sim.over.any() or sim.terminated.any() or sim.reward.any() or sim.state.episode_return.any())


@pytest.mark.parametrize(
    "steps,length,finish", [(7, 3, ()), (10, 3, (4,)), (5, 5, ()), (6, 5, (0, 1, 3)), (9, 5, (0, 1)), (3, 1, (1,))]
)
def test_every_observation_that_an_episode_was_cut_at_finds_a_slot(steps, length, finish):
    """floor((T - 1) / length) + 1 slots hold all cut-off observations of T steps, wherever an episode begins."""
    sim = simulate(length, episode_length=length)
    for env in range(length):  # environment e begins its episode e steps before the rollout
        sim.state.step[env] = env
    slots = (steps - 1) // length + 1
    store, groups = sim.store, sim.env.groups
    final = {name: store.new_obs(name, slots) for name in groups}
    blocks = {name: store.new_obs(name, steps) for name in groups}
    arrays = {name: store.fields[name].new_zeros((steps, *store.fields[name].shape)) for name in OUTPUTS}
    store.fields["final_count"].zero_()
    expected = []
    for t in range(steps):
        results = Results(
            arrays={name: array[t] for name, array in arrays.items()},
            obs={name: block[t] for name, block in blocks.items()},
            mask={},
            final_obs=final,
            rolling=True,
        )
        for name in groups:
            sim.action[name].fill_(FINISH if t in finish else COUNT)
        counts, numbers, episodes = sim.state.count.clone(), sim.state.step.clone(), sim.state.episode.clone()
        sim.launcher.step(results)()
        for env in arrays["truncated"][t].nonzero().flatten().tolist():
            seen = [float(counts[env, 0] + (t not in finish)), float(numbers[env] + 1), float(episodes[env])]
            expected.append((t, env, seen))
        assert torch.equal(arrays["final_slot"][t] >= 0, arrays["over"][t]) or finish
    assert expected and (not finish or arrays["ended"].any())
    for t, env, seen in expected:
        slot = int(arrays["final_slot"][t, env])
        assert 0 <= slot < slots
        assert final["pairs"][slot, env, 0].tolist() == seen
