"""Random streams: keyed by seed, environment, agent, step and phase, and by nothing else."""

import numpy as np
import pytest
import torch
import warp as wp
from scipy import stats

import warpdrive as wd
from sim.environments import Dice, Kinds
from warpdrive.env.functions import stream

DRAWS = ("placed", "thrown", "again", "weather", "walk")


@wp.kernel
def _streams(keys: wp.array2d(dtype=int), out: wp.array(dtype=int)):
    t = wp.tid()
    out[t] = int(stream(keys[t, 0], keys[t, 1], keys[t, 2], keys[t, 3], keys[t, 4]))


def streams(keys: np.ndarray) -> np.ndarray:
    """The stream of each row (seed, env, agent, step, use)."""
    out = np.zeros(len(keys), np.int32)
    wp.launch(_streams, len(keys), [wp.array(keys, dtype=int, device="cpu"), wp.array(out, copy=False, device="cpu")])
    return out


def dice(num_envs: int = 8, steps: int = 4, **options) -> wd.Simulator:
    sim = wd.Simulator(Dice(), num_envs, device="cpu", **options)
    sim.reset()
    for _ in range(steps):
        sim.random_step()
    return sim


def drawn(sim: wd.Simulator) -> dict[str, torch.Tensor]:
    return {
        **{name: getattr(sim.state, name) for name in DRAWS},
        **{f"obs {name}": value for name, value in sim.obs.items()},
        **{f"action {name}": value for name, value in sim.action.items()},
    }


def test_the_same_seed_draws_the_same():
    """Two simulators with one seed agree to the bit, with another seed they differ everywhere."""
    one, two, other = dice(seed=3), dice(seed=3), dice(seed=4)
    for name, value in drawn(one).items():
        assert torch.equal(value, drawn(two)[name]), name
        if name in DRAWS:
            assert not torch.isin(value, drawn(other)[name]).any(), name


def test_draws_do_not_depend_on_how_many_environments_there_are():
    """The first eight of thirty environments draw what eight alone do."""
    few, many = dice(8), dice(30)
    for name, value in drawn(few).items():
        assert torch.equal(value, drawn(many)[name][:8]), name


def test_an_offset_continues_the_numbering():
    """A second process that begins at environment five draws what those from five on draw in one."""
    whole, part = dice(12), dice(7, env_offset=5)
    for name, value in drawn(part).items():
        assert torch.equal(value, drawn(whole)[name][5:]), name


def test_every_reset_and_step_draws_anew():
    """Neither a second reset, nor the next step, nor the second run of observe in a step repeats a number."""
    sim = dice(32, steps=0)
    seen = [sim.state.placed.clone().flatten()]
    sim.reset()
    seen.append(sim.state.placed.clone().flatten())
    for _ in range(12):
        sim.random_step()
        seen += [sim.state.thrown.clone().flatten(), sim.state.again.clone().flatten(), sim.state.weather.clone()]
        seen += [sim.obs[name][..., 0].clone().flatten() for name in sim.obs]
        for name in sim.obs:  # where an episode ended, observe ran twice
            seen.append(sim.final_obs[name][sim.over][..., 0].clone().flatten())
        assert not torch.equal(sim.state.thrown[..., 0], sim.state.again)
    assert sim.statistics()["episodes"] > 0
    numbers = torch.cat(seen)
    # 24 bits each: about n^2 / 2^25 pairs agree by chance.
    repeated = len(numbers) - len(numbers.unique())
    assert repeated < 3 * len(numbers) ** 2 / 2**25 + 5, repeated


def test_setting_the_seed_begins_from_zero():
    """seed() and reset() give what a new simulator with that seed gives."""
    sim = dice(seed=1)
    sim.seed(9)
    sim.reset()
    for _ in range(4):
        sim.random_step()
    for name, value in drawn(dice(seed=9)).items():
        assert torch.equal(value, drawn(sim)[name]), name


def test_streams_are_different():
    """Among the streams of small seeds, environments, agents, steps and uses none equals another beyond chance."""
    axes = (2, 16, 16, 16, 16)
    keys = np.stack([k.ravel() for k in np.meshgrid(*(np.arange(n) for n in axes), indexing="ij")], 1).astype(np.int32)
    found = streams(keys)
    assert len(np.unique(found[:4096])) == 4096
    # 2^17 numbers of 32 bits: two equal pairs are expected, more than twelve come up once in ten million times.
    assert len(found) - len(np.unique(found)) <= 12
    assert len(np.unique(streams(np.eye(5, dtype=np.int32)))) == 5, "the order of the five must matter"


@pytest.mark.parametrize("axis", ["env", "agent", "step", "use"])
def test_neighbouring_streams_are_independent(axis):
    """First draws along each index are uniform, and uncorrelated with their neighbour's."""
    keys = np.zeros((20000, 5), np.int32)
    keys[:, ["seed", "env", "agent", "step", "use"].index(axis)] = np.arange(20000)
    draws = (streams(keys).view(np.uint32) + 0.5) / 2.0**32
    assert stats.kstest(draws, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 4 / np.sqrt(20000)


def test_draws_are_uniform():
    """What phases draw, over many environments, is uniform, and two draws of one stream are uncorrelated."""
    sim = dice(4000, steps=1)
    for name in ("placed", "again", "weather"):
        assert stats.kstest(getattr(sim.state, name).flatten().numpy(), "uniform").pvalue > 1e-3, name
    first, second = sim.state.thrown.reshape(-1, 2).T.numpy()
    assert stats.kstest(second, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(len(first))


# ---------------------------------------------------------------- random actions


@pytest.fixture(scope="module")
def kinds() -> wd.Simulator:
    sim = wd.Simulator(Kinds(), 4000, device="cpu")
    sim.reset()
    return sim


def test_random_actions_keep_to_the_mask(kinds):
    """A forbidden choice is never drawn, and those allowed equally often."""
    kinds.randomize_actions()
    for i in range(2):
        for head, allowed in enumerate(([c for c in range(3) if c != i], [1, 3])):
            values, counts = np.unique(kinds.action["masked"][:, i, head].numpy(), return_counts=True)
            assert values.tolist() == allowed
            assert stats.chisquare(counts).pvalue > 1e-3


def test_a_mask_is_read_when_the_action_is_drawn(kinds):
    """A mask that is changed by hand is kept to by the next draw."""
    kinds.mask["masked"][:] = 0
    kinds.mask["masked"][..., [2, 3]] = 1
    kinds.randomize_actions("masked")
    assert (kinds.action["masked"] == torch.tensor([2, 0])).all()
    kinds.refresh()
    assert (kinds.mask["masked"][0] != 0).tolist() == [
        [False, True, True] + [False, True] * 2,
        [True, False, True] + [False, True] * 2,
    ]


def test_random_actions_of_a_box_keep_to_its_bounds(kinds):
    """Each component is uniform between its own bounds."""
    kinds.randomize_actions("boxed")
    for k, (low, high) in enumerate(zip((-1.0, 0.1), (1.0, 0.3), strict=True)):
        values = kinds.action["boxed"][..., k].flatten().numpy()
        assert np.float32(low) <= values.min() and values.max() <= np.float32(high)
        assert stats.kstest(values, "uniform", (low, high - low)).pvalue > 1e-3


def test_unmasked_random_actions_are_uniform():
    """Without a mask every choice of every head comes up equally often, and the heads are independent."""
    sim = dice(3000, steps=1)
    pairs = sim.action["left"][..., 0] * 4 + sim.action["left"][..., 1]
    assert stats.chisquare(np.bincount(pairs.flatten().numpy(), minlength=12)).pvalue > 1e-3


def test_random_actions_of_one_group_leave_the_others_alone(kinds):
    """Naming a group draws for it only."""
    kinds.action["boxed"].fill_(0.2)
    kinds.randomize_actions("masked")
    assert (kinds.action["boxed"] == 0.2).all()
