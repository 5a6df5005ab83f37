"""Matches: every pairing is played, by those it names, with the numbers that the episodes give."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

import warpdrive as wd
from learn.bandit import Bandit
from warpdrive.learn.checkpoint import CheckpointError
from warpdrive.learn.matches import pairings
from warpdrive.zoo.mpe_simple_spread import SimpleSpread
from warpdrive.zoo.mpe_simple_tag import SimpleTag

SETTINGS = dict(rollout_steps=5, minibatches=2, epochs=1)


def save(path, env: wd.Env, seed: int = 0, updates: int = 0):
    """A checkpoint of policies after a few updates."""
    sim = wd.Simulator(env, 8, seed=seed, device="cpu")
    trainer = wd.Trainer(sim, {name: wd.MLP(8) for name in env.groups}, wd.PPO(lr=0.05, **SETTINGS))
    for _ in range(updates):
        trainer.step()
    trainer.save(path)
    return path


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Two checkpoints of Simple Tag with short episodes, and one of Simple Spread."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return (
        save(folder / "a.pt", SimpleTag(episode_length=12), updates=5),
        save(folder / "b.pt", SimpleTag(episode_length=12, num_obstacles=2), seed=1, updates=5),
        save(folder / "spread.pt", SimpleSpread()),
    )


@pytest.fixture(scope="module")
def found(checkpoints):
    """Matches of the first against the second."""
    seen = []
    result = wd.matches(checkpoints[0], against=[checkpoints[1]], episodes=40, seed=3, device="cpu", report=seen.append)
    assert seen == result.played
    return result


def test_every_pairing_is_played_once(checkpoints, found):
    """Trained, another checkpoint, scripted and random, in each group: all against all."""
    other = str(checkpoints[1])
    assert found.players == {
        "adversaries": ["trained", other, "chaser", "random"],
        "good": ["trained", other, "runner", "random"],
    }
    assert found.complete
    expected = list(itertools.product(*found.players.values()))
    assert [tuple(match.players.values()) for match in found.played] == expected
    assert len({tuple(match.outcome.returns["good"].tolist()) for match in found.played}) == 16


def test_numbers_are_those_of_the_episodes(found):
    """Means and intervals in the data are SciPy's of the returns of 40 episodes."""
    data = found.to_dict()
    assert (data["environment"], data["seed"], data["confidence"]) == ("SimpleTag", 3, 0.95)
    for row, match in zip(data["matches"], found.played, strict=True):
        assert row["players"] == match.players and row["episodes"] == 40
        assert row["length"] == 12.0
        for group, values in row["returns"].items():
            returns = match.outcome.returns[group].numpy()
            assert returns.shape == (40,)
            low, high = stats.t.interval(0.95, 39, returns.mean(), max(stats.sem(returns), 1e-300))
            np.testing.assert_allclose([values["mean"], values["low"], values["high"]], [returns.mean(), low, high])


def test_who_is_named_plays(checkpoints, found):
    """Each pairing gives the returns of a simulation that is driven by hand with those policies."""
    trained = {name: torch.load(path, weights_only=True) for name, path in zip("ab", checkpoints, strict=False)}
    names = {"trained": "a", str(checkpoints[1]): "b"}
    env = SimpleTag(episode_length=12)
    for match in found.played:
        sim = wd.Simulator(env, 40, seed=3, device="cpu")
        sim.reset()
        for _ in range(12):
            for group, player in match.players.items():
                if player in names:
                    content = trained[names[player]]
                    module = wd.MLP(8).build(env.groups[group].obs, env.groups[group].action, generator=None)
                    module.load_state_dict(content["trainer"]["policies"][group])
                    _draw(sim, group, module)
                elif player == "random":
                    sim.randomize_actions(group)
                else:
                    sim.script_actions(group, player)
            sim.step()
        for group in env.groups:
            expected = sim.of_group(sim.last_return, group).double().mean(1)
            torch.testing.assert_close(match.outcome.returns[group], expected)


def _draw(sim: wd.Simulator, group: str, module: torch.nn.Module) -> None:
    from warpdrive.policy.actions import ActionSampler

    fields, action = sim.store.fields, sim.action[group]
    sampler = ActionSampler(
        sim.env.groups[group].action,
        action=action,
        active=sim.of_group(sim.active, group),
        seed=fields["seed"],
        clock=fields["clock"],
        fault=torch.zeros(4, dtype=torch.int32),
        agent_offset=sim.env.first_agent[group],
    )
    with torch.no_grad():
        out = module(sim.obs[group].reshape(-1, sim.obs[group].shape[-1])).unflatten(0, action.shape[:2])
    scratch = torch.empty(action.shape[:2])
    sampler(out, None, torch.empty_like(action), scratch, torch.empty_like(scratch))


def test_one_seed_gives_the_same_numbers(checkpoints, found):
    """Again is the same to the bit; another seed is another result; greedy play differs from drawn."""
    options = dict(against=[checkpoints[1]], episodes=40, device="cpu")
    assert wd.matches(checkpoints[0], seed=3, **options).to_dict() == found.to_dict()
    assert wd.matches(checkpoints[0], seed=4, **options).to_dict()["matches"] != found.to_dict()["matches"]
    greedy = wd.matches(checkpoints[0], seed=3, greedy=True, **options)
    one = {"adversaries": "trained", "good": "trained"}
    assert not torch.equal(greedy[one].returns["good"], found[one].returns["good"])


def test_scripted_chasers_catch_more(found):
    """In Simple Tag a scripted chaser has a higher return than a random one against a random runner, surely."""
    data = {tuple(row["players"].values()): row["returns"]["adversaries"] for row in found.to_dict()["matches"]}
    assert data["chaser", "random"]["low"] > data["random", "random"]["high"]


def test_a_match_that_was_not_played_is_a_key_error(found):
    """The error says who the players are."""
    with pytest.raises(KeyError, match="chaser"):
        found[{"adversaries": "chaser", "good": "chaser"}]


def test_one_group_without_scripts(tmp_path):
    """An environment of one group without scripts: trained and random."""
    path = save(tmp_path / "bandit.pt", SimpleSpread(episode_length=3))
    result = wd.matches(path, episodes=2, device="cpu")
    assert [match.players for match in result.played] == [{"agents": "trained"}, {"agents": "random"}]


def test_too_many_pairings_are_cut_to_those_next_to_the_first():
    """Up to 64 all are chosen; beyond, one group at a time is given to somebody else."""
    eight = [str(k) for k in range(8)]
    chosen, complete = pairings({"a": eight, "b": eight})
    assert complete and len(chosen) == 64
    chosen, complete = pairings({"a": eight, "b": eight, "c": ["0", "1"]})
    assert not complete
    assert len(chosen) == 1 + 7 + 7 + 1
    assert chosen[0] == {"a": "0", "b": "0", "c": "0"}
    assert all(sum(name != "0" for name in pairing.values()) <= 1 for pairing in chosen)


def test_what_does_not_fit_is_refused(checkpoints, tmp_path):
    """Too few episodes, checkpoints of other environments or shapes, twice the same: one sentence each."""
    a, b, spread = checkpoints
    more = save(tmp_path / "more.pt", SimpleTag(num_good=2))
    bandit = save(tmp_path / "bandit.pt", Bandit())
    cases = [
        (dict(episodes=1), "episodes must be an integer of at least 2, for an interval needs two; got 1"),
        (dict(against=[spread]), "was trained in SimpleSpread, not in SimpleTag; take a checkpoint of SimpleTag"),
        (dict(against=[bandit]), "was trained in Bandit, not in SimpleTag"),
        (dict(against=[more]), r"does not fit: \(agents, observation, actions, mask\) of group 'adversaries' are"),
        (dict(against=[b, b]), "is named twice"),
        (dict(seed=-1), "seed must be an integer"),
        (dict(against=["nowhere.pt"]), "there is no checkpoint at nowhere.pt"),
    ]
    for options, sentence in cases:
        with pytest.raises(ValueError, match=sentence) as error:
            wd.matches(a, device="cpu", **options)
        assert "\n" not in str(error.value)
    with pytest.raises(CheckpointError):
        wd.matches(tmp_path, device="cpu")
