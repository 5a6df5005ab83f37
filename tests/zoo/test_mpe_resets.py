"""Episodes of the MPE scenarios begin as those of the published package, with goals drawn fairly and apart."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, ks_2samp

from zoo.mpe_cases import CASES, agents_of, choices, random_actions

RESETS = 400  # of the original
NUM_ENVS = 4000
LEAST_P = 1e-4  # of about 500 tests, all with fixed seeds
NAMES = ["spread", "tag", "adversary", "push", "speaker listener", "reference", "crypto", "world"]
WITH_GOALS = ["adversary", "adversary of four", "push", "speaker listener", "reference", "crypto"]


@pytest.mark.parametrize("name", NAMES)
def test_begins_as_original(name):
    """The first observations of an episode are distributed as the original's."""
    case = CASES[name]
    sim, original = case.simulate(NUM_ENVS), case.original()
    unwrapped = original.unwrapped
    found: dict[str, list] = {a: [] for a in original.possible_agents}
    for _ in range(RESETS):
        unwrapped.scenario.reset_world(unwrapped.world, unwrapped.np_random)
        for a, rows in found.items():
            rows.append(unwrapped.observe(a))
    for a, (group, i) in zip(original.possible_agents, agents_of(sim), strict=True):
        ours, theirs = sim.obs[group][:, i].numpy(), np.array(found[a])
        for k in range(ours.shape[1]):
            assert ks_2samp(ours[:, k], theirs[:, k]).pvalue > LEAST_P, (a, k)


@pytest.mark.parametrize("name", WITH_GOALS)
def test_goals_are_drawn_fairly(name):
    """All combinations of what is drawn are as likely, those of an episode and of the one after it too."""
    sim = CASES[name].simulate(NUM_ENVS, episode_length=1)
    rng, joint, number = np.random.default_rng(2), torch.zeros(NUM_ENVS, dtype=torch.int64), 1
    for _ in range(2):
        for field, count in choices(sim).items():
            for column in getattr(sim.state, field).reshape(NUM_ENVS, -1).unbind(1):
                joint, number = joint * count + column, number * count
        sim.step(random_actions(sim, rng))
    frequency = torch.bincount(joint, minlength=number).numpy()
    assert len(frequency) == number
    assert chisquare(frequency).pvalue > LEAST_P, frequency


@pytest.mark.parametrize("name", ["speaker listener", "reference", "crypto", "world"])
def test_silent_at_the_beginning(name):
    """What was said in one episode is not heard in the next; what is said in a step is heard right after it."""
    sim, rng = CASES[name].simulate(8, episode_length=2, continuous=True), np.random.default_rng(4)
    assert not sim.state.message.any()
    sim.step(random_actions(sim, rng, idle=0.0))
    assert sim.state.message.any(-1).any(-1).all()
    sim.step(random_actions(sim, rng))
    assert not sim.state.message.any()
