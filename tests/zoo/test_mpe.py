"""The MPE scenarios agree with the published package: step by step, in all that agents see, get and end by."""

import gymnasium
import numpy as np
import pytest
import torch

import warpdrive as wd
from warpdrive.zoo.mpe_simple_adversary import SimpleAdversary
from warpdrive.zoo.mpe_simple_crypto import SimpleCrypto
from warpdrive.zoo.mpe_simple_push import SimplePush
from warpdrive.zoo.mpe_simple_reference import SimpleReference
from warpdrive.zoo.mpe_simple_speaker_listener import SimpleSpeakerListener
from warpdrive.zoo.mpe_simple_spread import SimpleSpread
from warpdrive.zoo.mpe_simple_tag import SimpleTag
from warpdrive.zoo.mpe_simple_world_comm import SimpleWorldComm
from zoo.mpe_cases import CASES, agents_of, hand_over, original_action, random_actions, scatter

REPLICAS, STEPS = 4, 128
COMPARED = 500  # steps of replicas at least; a few near ties are left out
TOLERANCE = 1e-5  # of observations and rewards, absolute and relative
NEAR_TIE = 1e-5  # closer than this to touching, float32 may decide otherwise than float64


def near_tie(world) -> bool:
    """Whether two discs touch, or a landmark is covered, so nearly that rounding may decide."""
    places = np.array([entity.state.p_pos for entity in world.entities])
    sizes = np.array([entity.size for entity in world.entities])
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    close = np.minimum(np.abs(distance - sizes[:, None] - sizes[None]), np.abs(distance - 0.1))
    return bool((close[np.triu_indices(len(sizes), 1)] < NEAR_TIE).any())


def agree(found: list, expected: list, what: str) -> float:
    """The largest difference of the numbers in both, which must be within the tolerance."""
    a, b = np.concatenate(found).astype(np.float64), np.concatenate(expected)
    difference = np.abs(a - b)
    assert (difference <= TOLERANCE * (1 + np.abs(b))).all(), (what, int(difference.argmax()), difference.max())
    return float(difference.max())


def same_spaces(sim: wd.Simulator, original) -> bool:
    """Whether every agent observes as many features and acts in the same space as the original's."""
    for a, (name, _) in zip(original.possible_agents, agents_of(sim), strict=True):
        group, action = sim.env.groups[name], original.action_space(a)
        if original.observation_space(a).shape != (group.obs,):
            return False
        if isinstance(group.action, wd.Box):
            if action != gymnasium.spaces.Box(0, 1, (group.action.size,)):
                return False
        elif group.action.heads != (int(action.n),):
            return False
    return True


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_original(name, continuous, record_property):
    """From the same states by the same actions: the same observations, rewards and ends, step by step."""
    case, rng = CASES[name], np.random.default_rng(7)
    sim = case.simulate(REPLICAS, continuous=continuous)
    originals = [case.original(continuous=continuous) for _ in range(REPLICAS)]
    assert same_spaces(sim, originals[0])
    agents, ids = agents_of(sim), originals[0].possible_agents
    compared, ends, cuts, largest, rewards = 0, 0, 0, 0.0, []

    for step in range(STEPS):
        if step % 7 == 0:
            scatter(sim, rng)
            for e, original in enumerate(originals):
                hand_over(sim, e, original)
        actions = random_actions(sim, rng)
        sim.step(actions)
        for e, original in enumerate(originals):
            given = {a: original_action(actions[group][e, i]) for a, (group, i) in zip(ids, agents, strict=True)}
            obs, reward, ended, cut, _ = original.step(given)
            over = bool(sim.over[e])
            if not near_tie(original.unwrapped.world):
                assert [bool(x) for x in ended.values()] == [bool(sim.ended[e])] * len(ids)
                assert [bool(x) for x in cut.values()] == [bool(sim.truncated[e])] * len(ids)
                seen = sim.final_obs if over else sim.obs
                found = [*(seen[group][e].numpy().ravel() for group in sim.env.groups), sim.reward[e].numpy()]
                difference = agree(found, [*obs.values(), [*reward.values()]], f"step {step} of environment {e}")
                largest = max(largest, difference)
                rewards += reward.values()
                compared += 1
            if over:
                ends += bool(sim.ended[e])
                cuts += bool(sim.truncated[e])
            if over or any((*ended.values(), *cut.values())):
                original.reset()
            hand_over(sim, e, original)
            found = [sim.obs[group][e].numpy().ravel() for group in sim.env.groups]
            agree(found, [original.unwrapped.observe(a) for a in ids], f"next observation, step {step}")

    record_property("largest", largest)
    record_property("compared", compared)
    assert compared >= COMPARED
    assert np.std(rewards) > 0.1, "the test shows little when rewards are all the same"
    assert cuts >= REPLICAS and (ends > 0) == ("ends" in name), (cuts, ends)


@pytest.mark.parametrize("env, options, message", [
    (SimpleSpread, dict(num_agents=0), "num_agents must be an integer of at least 1, got 0"),
    (SimpleSpread, dict(local_ratio=1.5), "local_ratio must be a number from 0 to 1, got 1.5"),
    (SimpleTag, dict(num_obstacles=-1), "num_obstacles must be an integer of at least 0, got -1"),
    (SimpleAdversary, dict(num_good=0), "num_good must be an integer of at least 1, got 0"),
    (SimplePush, dict(episode_length=0), "episode_length must be a positive integer, got 0"),
    (SimpleSpeakerListener, dict(episode_length=-3), "episode_length must be a positive integer, got -3"),
    (SimpleReference, dict(local_ratio=-0.1), "local_ratio must be a number from 0 to 1, got -0.1"),
    (SimpleCrypto, dict(episode_length=2.5), "episode_length must be a positive integer, got 2.5"),
    (SimpleWorldComm, dict(num_good=0), "num_good must be an integer of at least 1, got 0"),
    (SimpleWorldComm, dict(num_adversaries=1), "num_adversaries must be an integer of at least 2, got 1"),
    (SimpleWorldComm, dict(num_obstacles=-1), "num_obstacles must be an integer of at least 0, got -1"),
    (SimpleWorldComm, dict(num_food=0), "num_food must be an integer of at least 1, got 0"),
    (SimpleWorldComm, dict(num_forests=True), "num_forests must be an integer of at least 0, got True"),
    (SimpleWorldComm, dict(num_forests=32), "num_forests must be at most 31, got 32"),
])  # fmt: skip
def test_refuses(env, options, message):
    """A wrong argument is refused by its name."""
    with pytest.raises(ValueError, match=message):
        env(**options)


@pytest.mark.parametrize("name", ["spread", "push", "world"])
def test_all_at_one_place(name):
    """Agents at the very same place do not push, and no number becomes NaN."""
    sim = CASES[name].simulate(1)
    sim.state.position.zero_()
    sim.state.landmark.fill_(0.5)  # out of everybody's way
    sim.step({group: torch.zeros_like(action) for group, action in sim.action.items()})
    assert all(torch.isfinite(obs).all() for obs in sim.obs.values())
    assert torch.isfinite(sim.reward).all()
    assert not sim.state.velocity.any()
