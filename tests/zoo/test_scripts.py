"""Scripted policies of the zoo do what they say, agent by agent against NumPy, and are worth their name."""

import numpy as np
import pytest
import torch

import warpdrive as wd
from warpdrive.zoo.mpe_simple_tag import SimpleTag
from warpdrive.zoo.tag import Tag
from warpdrive.zoo.tag_gridworld import TagGridworld

NEAR_TIE = 1e-4
TAG = dict(num_taggers=4, num_runners=6, episode_length=60)
SMALL_TAG = TAG | dict(num_acceleration_levels=7, num_turn_levels=1, max_turn=0.3, min_turn=-0.1, grid_length=8.0)


def simulate(env: wd.Env, num_envs: int, steps: int) -> wd.Simulator:
    """A simulator after some random steps."""
    sim = wd.Simulator(env, num_envs, seed=2, device="cpu")
    sim.reset()
    for _ in range(steps):
        sim.random_step()
    return sim


def returns(env: wd.Env, *policies: str, num_envs: int = 100) -> dict[str, float]:
    """Mean return of each group played by these policies (or "random"), one episode an environment."""
    sim = simulate(env, num_envs, 0)
    for _ in range(env.episode_length):
        for group, policy in zip(env.groups, policies, strict=True):
            if policy == "random":
                sim.randomize_actions(group)
            else:
                sim.script_actions(group, policy)
        sim.step()
    found = sim.statistics()
    return {group: found[f"return/{group}"] for group in env.groups}


# ---------------------------------------------------------------- Tag


def levels(low: float, high: float, count: int) -> np.ndarray:
    return np.concatenate([[0.0], np.linspace(low, high, count)])


def turned(heading: float, way: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """How far from facing along `way` each turn leaves, in radians from 0 to pi."""
    wanted = np.arctan2(way[1], way[0]) - heading
    wanted -= 2 * np.pi * np.round(wanted / (2 * np.pi))
    return np.abs(wanted - turns)


def agrees(action: int, cost: np.ndarray) -> bool:
    """Whether the action costs least, ties aside."""
    return cost[action] <= cost.min() + NEAR_TIE


@pytest.mark.parametrize("options", [TAG, SMALL_TAG, TAG | dict(skill_level_runner=0.6, skill_level_tagger=1.4)])
def test_tag(options):
    """Both policies take the best action there is by their rule, in random situations and at the edge."""
    env = Tag(**options)
    seen = set()
    for steps in (1, 8, 30):
        sim = simulate(env, 20, steps)
        sim.script_actions("taggers", "chaser")
        sim.script_actions("runners", "runner")
        given = env.arguments
        changes = levels(given["min_acceleration"], given["max_acceleration"], given["num_acceleration_levels"])
        turns = levels(given["min_turn"], given["max_turn"], given["num_turn_levels"])
        state = {
            k: getattr(sim.state, k).numpy().astype(float) for k in ("position", "heading", "speed", "acceleration")
        }
        top = given["max_speed"] * np.array([given["skill_level_tagger"]] * 4 + [given["skill_level_runner"]] * 6)
        for e in range(20):
            place, heading = state["position"][e], state["heading"][e]
            short = top - state["speed"][e] - state["acceleration"][e]
            here = sim.active[e].numpy()
            for t in range(4):
                change, turn = sim.action["taggers"][e, t].tolist()
                assert agrees(change, np.abs(short[t] - changes))
                ways = (place[4:] - place[t])[here[4:]]
                way = ways[np.linalg.norm(ways, axis=1).argmin()]
                assert agrees(turn, turned(heading[t], way, turns))
                seen.add(turn)
            for r in range(4, 10):
                change, turn = sim.action["runners"][e, r - 4].tolist()
                if not here[r]:
                    assert (change, turn) == (0, 0)
                    continue
                assert agrees(change, np.abs(short[r] - changes))
                speed = np.clip(state["speed"][e, r] + state["acceleration"][e, r] + changes[change], 0.0, top[r])
                ways = np.stack([np.cos(heading[r] + turns), np.sin(heading[r] + turns)], 1)
                places = np.clip(place[r] + speed * ways, 0.0, given["grid_length"])
                away = place[r] - place[:4]
                coming = place[:4] + top[:4, None] * away / np.linalg.norm(away, axis=1, keepdims=True)
                nearest = np.linalg.norm(places[:, None] - coming[None], axis=-1).min(1)
                assert agrees(turn, -(nearest**2))
                seen.add(turn)
    assert len(seen) == given["num_turn_levels"] + 1


def test_tag_policies_are_worth_their_name():
    """A chaser tags more than a random tagger whoever runs, and a runner is tagged less than a random one."""
    env = Tag(num_taggers=5, num_runners=10, episode_length=100, skill_level_runner=0.75)
    tags = {(a, b): returns(env, a, b)["taggers"] for a in ("chaser", "random") for b in ("runner", "random")}
    assert tags["chaser", "random"] > 1.5 * tags["random", "random"]
    assert tags["chaser", "runner"] > 3 * tags["random", "runner"]
    assert tags["chaser", "runner"] < 0.7 * tags["chaser", "random"]
    assert tags["random", "runner"] < 0.5 * tags["random", "random"]


# ---------------------------------------------------------------- Simple Tag of MPE


def heading_of(way: np.ndarray) -> int:
    """The choice whose axis and sign are nearest to a way."""
    axis = 0 if abs(way[0]) >= abs(way[1]) else 1
    return 1 + 2 * axis + int(way[axis] > 0)


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("num_good", [1, 3])
def test_simple_tag(num_good, continuous):
    """Both policies steer where their rule says, in discrete and in continuous actions."""
    sim = simulate(SimpleTag(num_good=num_good, continuous=continuous), 60, 10)
    generator = torch.Generator().manual_seed(0)
    sim.state.position.copy_(2.4 * torch.rand(sim.state.position.shape, generator=generator) - 1.2)
    sim.script_actions("adversaries", "chaser")
    sim.script_actions("good", "runner")
    place, velocity = (getattr(sim.state, name).numpy().astype(float) for name in ("position", "velocity"))
    chosen = set()
    for e in range(60):
        adversaries, good = place[e, :3], place[e, 3:]
        wanted = {"adversaries": [], "good": []}
        for here in adversaries:
            wanted["adversaries"].append(min(good - here, key=np.linalg.norm))
        for k, here in enumerate(good):
            away = here - adversaries
            way = (away / (away**2).sum(1, keepdims=True)).sum(0)
            ahead = here + 0.2 * velocity[e, 3 + k]
            way -= np.sign(ahead) * 8.0 * np.maximum(np.abs(ahead) - 0.5, 0.0) / 0.5
            wanted["good"].append(way)
        for group, ways in wanted.items():
            for i, way in enumerate(ways):
                action = sim.action[group][e, i].numpy()
                if continuous:
                    steer = np.array([action[2] - action[1], action[4] - action[3]])
                    np.testing.assert_allclose(steer, way / np.abs(way).max(), atol=1e-4)
                    assert action.min() >= 0.0 and action.max() <= 1.0 and action[0] == 0.0
                elif abs(abs(way[0]) - abs(way[1])) > NEAR_TIE:
                    assert action[0] == heading_of(way)
                    chosen.add(int(action[0]))
    assert continuous or chosen == {1, 2, 3, 4}


def test_a_simple_tag_agent_that_is_there_already_stays():
    """Of two at one place neither has a way to go: nothing is chosen, and no action is NaN."""
    for continuous in (False, True):
        sim = simulate(SimpleTag(continuous=continuous), 2, 0)
        sim.state.position.zero_()
        sim.state.velocity.zero_()
        sim.script_actions("adversaries", "chaser")
        sim.script_actions("good", "runner")
        assert all(bool((action == 0).all()) for action in sim.action.values())


@pytest.mark.parametrize("continuous", [False, True])
def test_simple_tag_policies_are_worth_their_name(continuous):
    """A chaser catches more than a random adversary, a runner is caught less and keeps inside better than a random."""
    env = SimpleTag(continuous=continuous)
    chased = returns(env, "chaser", "runner", num_envs=300)
    free = returns(env, "random", "runner", num_envs=300)
    both = returns(env, "random", "random", num_envs=300)
    assert returns(env, "chaser", "random", num_envs=300)["adversaries"] > 4 * both["adversaries"]
    assert chased["adversaries"] > 4 * free["adversaries"]
    assert free["adversaries"] < 0.5 * both["adversaries"]
    left = {name: found["good"] + found["adversaries"] for name, found in (("runner", free), ("random", both))}
    assert left["runner"] > 0.2 * left["random"]  # both negative: what leaving the square costs


# ---------------------------------------------------------------- Tag on a grid

STEPS = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])


def test_tag_gridworld():
    """Both policies take one of the best steps by their rule, and each of equally good ones at times."""
    sim = simulate(TagGridworld(num_taggers=3, grid_length=6, random_start=True), 300, 3)
    sim.script_actions("taggers", "chaser")
    sim.script_actions("runner", "runner")
    place = sim.state.position.numpy().astype(int)
    ties = set()
    for e in range(300):
        there = place[e, 3]
        for t in range(3):
            way = there - place[e, t]
            action = int(sim.action["taggers"][e, t, 0])
            if not way.any():
                assert action == 0
                continue
            best = [a for a in range(1, 5) if STEPS[a] @ way == np.abs(way).max()]
            assert action in best
            if len(best) > 1:
                ties.add(best.index(action))
        after = there + STEPS
        inside = ((after >= 0) & (after <= 6)).all(1)
        nearest = np.abs(after[:, None] - place[e, None, :3]).sum(-1).min(1)
        nearest[~inside] = -1
        best = np.flatnonzero(nearest == nearest.max()).tolist()
        action = int(sim.action["runner"][e, 0, 0])
        assert action in best
        if len(best) > 1:
            ties.add(("runner", best.index(action)))
    assert {0, 1, ("runner", 0), ("runner", 1)} <= ties


def test_equally_good_steps_of_the_grid_runner_are_equally_likely():
    """In the middle, one tagger on the same point: the four steps away are drawn a quarter of the time each."""
    sim = simulate(TagGridworld(num_taggers=1, grid_length=6), 4000, 0)
    sim.state.position.fill_(3.0)
    sim.script_actions("runner", "runner")
    counts = np.bincount(sim.action["runner"][:, 0, 0].numpy(), minlength=5)
    assert counts[0] == 0
    np.testing.assert_allclose(counts[1:] / 4000, 0.25, atol=4 * np.sqrt(0.25 * 0.75 / 4000))


def test_grid_policies_are_worth_their_name():
    """The chaser wins more against either runner, and the runner loses less against either tagger."""
    env = TagGridworld(num_taggers=4, grid_length=12, random_start=True, episode_length=60)
    won = {(a, b): returns(env, a, b)["taggers"] for a in ("chaser", "random") for b in ("runner", "random")}
    assert won["chaser", "random"] > won["random", "random"] + 1
    assert won["chaser", "runner"] > won["random", "runner"] + 1
    assert won["chaser", "runner"] < won["chaser", "random"] - 1


# ---------------------------------------------------------------- devices


@pytest.mark.gpu
@pytest.mark.parametrize("env", [Tag(**TAG), SimpleTag(), SimpleTag(continuous=True), TagGridworld(grid_length=9)])
def test_a_gpu_plays_as_the_cpu(env):
    """From the same state, scripts choose the same on both; sines may differ in the last bit, so nearly all actions."""
    cpu, gpu = (wd.Simulator(env, 200, seed=4, device=device) for device in ("cpu", "cuda"))
    cpu.reset()
    gpu.reset()
    for _ in range(10):
        cpu.random_step()
    gpu.load_state_dict({k: v.to(gpu.state_dict()[k].dtype) for k, v in cpu.state_dict().items()})
    for group, policies in env.scripts.items():
        for policy in policies:
            cpu.script_actions(group, policy)
            gpu.script_actions(group, policy)
            same = (cpu.action[group] - gpu.action[group].cpu()).abs() < 1e-5
            assert float(same.float().mean()) > 0.99
