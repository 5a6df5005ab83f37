"""CartPole against Gymnasium's own, step by step, and its configuration."""

import json

import gymnasium
import numpy as np
import pytest
import scipy.stats
import torch

import warpdrive as wd
from warpdrive.cli.main import main
from warpdrive.zoo.cartpole import CartPole

E, STEPS = 16, 500
FIELDS = ("position", "velocity", "angle", "turn_rate")


def numbers(sim):
    """The four numbers of every environment (E, 4), float64."""
    return torch.stack([getattr(sim.state, name) for name in FIELDS], 1).double().numpy()


def test_it_agrees_with_gymnasium_at_every_step():
    """From equal states and actions, observations, rewards and ends of 500 random steps are Gymnasium's."""
    sim = wd.Simulator(CartPole(), E, seed=1, device="cpu")
    sim.reset()
    originals = [gymnasium.make("CartPole-v1").unwrapped for _ in range(E)]
    for original in originals:
        original.reset(seed=0)
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(STEPS):
        before = numbers(sim)
        action = rng.integers(0, 2, E)
        length = sim.state.step.clone() + 1
        sim.step({"agents": torch.from_numpy(action)[:, None]})
        seen = torch.where(sim.over[:, None], sim.final_obs["agents"][:, 0], sim.obs["agents"][:, 0])
        for i, original in enumerate(originals):
            original.state, original.steps_beyond_terminated = before[i], None
            obs, reward, terminated, _, _ = original.step(int(action[i]))
            np.testing.assert_allclose(seen[i], obs, rtol=1e-5, atol=1e-6)
            assert sim.reward[i, 0] == reward == 1.0
            assert bool(sim.terminated[i, 0]) == terminated
            assert bool(sim.truncated[i]) == (int(length[i]) >= 500)
            ends += terminated
    assert ends > E  # the pole fell many times


def test_it_begins_as_gymnasium_does():
    """The numbers of the first observation are spread as Gymnasium's (Kolmogorov-Smirnov)."""
    sim = wd.Simulator(CartPole(), 2000, seed=3, device="cpu")
    sim.reset()
    original = gymnasium.make("CartPole-v1")
    theirs = np.stack([original.reset(seed=i)[0] for i in range(500)])
    for k in range(4):
        assert scipy.stats.ks_2samp(numbers(sim)[:, k], theirs[:, k]).pvalue > 1e-3


def test_its_length_truncates_a_balanced_pole():
    """A pole that does not fall is truncated, not terminated, after episode_length steps."""
    sim = wd.Simulator(CartPole(gravity=0.0, push=0.0, episode_length=30), 4, device="cpu")
    sim.reset()
    sim.state.velocity.zero_()
    sim.state.turn_rate.zero_()
    for _ in range(30):
        assert not bool(sim.over.any())
        sim.step({"agents": torch.zeros(4, 1, dtype=torch.int64)})
    assert bool(sim.truncated.all())
    assert not bool(sim.terminated.any())
    assert sim.last_return.tolist() == [[30.0]] * 4


@pytest.mark.slow
def test_its_configuration_reaches_475(tmp_path):
    """warpdrive train cartpole ends with a policy whose mean return is above 475 of 500."""
    run = tmp_path / "run"
    assert main(["train", "cartpole", "--out", str(run)]) == 0
    assert main(["eval", str(run), "--episodes", "100", "--json", str(tmp_path / "eval.json")]) == 0
    outcome = json.loads((tmp_path / "eval.json").read_text())
    assert outcome["all trained"]["agents"]["return"] > 475


def test_bad_numbers_are_refused():
    """A mass that is not positive is named."""
    with pytest.raises(ValueError, match="cart_mass must be positive, got 0"):
        CartPole(cart_mass=0.0)
