"""The memory of a rollout is known before it is taken."""

import pytest

import warpdrive as wd
from learn.bandit import Bandit
from sim.environments import Dice, Kinds, Script
from warpdrive.learn import rollout as rollout_module
from warpdrive.learn.rollout import Rollout, rollout_bytes

ENVIRONMENTS = {"bandit": lambda: Bandit(episode_length=3), "script": Script, "dice": Dice, "kinds": Kinds}


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("shared", [False, True])
def test_the_bytes_of_a_rollout_are_those_of_its_arrays(name, shared):
    """What is predicted is the sum over all arrays that a rollout of seven steps allocates."""
    sim = wd.Simulator(ENVIRONMENTS[name](), 5, device="cpu")
    groups = sim.env.groups
    policies = {f"{g}{i}": wd.MLP(4) for g in groups for i in range(2 if shared and groups[g].count > 1 else 1)}
    assign = {g: [f"{g}{min(i, 1) if f'{g}1' in policies else 0}" for i in range(groups[g].count)] for g in groups}
    sim.reset()
    rollout = wd.Trainer(sim, policies, wd.PPO(rollout_steps=7), assign=assign).rollout
    arrays = [*rollout.outputs.values(), *rollout.obs.values(), *rollout.final_obs.values(), *rollout.mask.values()]
    for s in rollout.samples:
        arrays += [s.action, s.log_prob, s.value, s.final_value, s.advantage, s.target]
    assert rollout_bytes(sim.store, 7) == sum(array.nbytes for array in arrays)


def test_a_rollout_that_cannot_fit_is_refused(monkeypatch):
    """One sentence says how much it needs, before anything is allocated."""
    sim = wd.Simulator(Bandit(), 1000, device="cpu")
    monkeypatch.setattr(rollout_module.torch, "zeros", None)
    needed = rollout_bytes(sim.store, 10**9) / 2**30
    with pytest.raises(MemoryError, match=f"a rollout of 1000000000 steps of 1000 environments needs {needed:.2f} GiB"):
        Rollout(sim, [], 10**9, {})
