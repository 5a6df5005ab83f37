"""The MPE scenarios agree with the published package: step by step, in all that agents see, get and end by."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

import warpdrive as wd
from warpdrive.zoo.mpe_simple_adversary import SimpleAdversary
from warpdrive.zoo.mpe_simple_crypto import SimpleCrypto
from warpdrive.zoo.mpe_simple_push import SimplePush
from warpdrive.zoo.mpe_simple_reference import SimpleReference
from warpdrive.zoo.mpe_simple_speaker_listener import SimpleSpeakerListener
from warpdrive.zoo.mpe_simple_spread import SimpleSpread
from warpdrive.zoo.mpe_simple_tag import SimpleTag
from warpdrive.zoo.mpe_simple_world_comm import SimpleWorldComm

REPLICAS, STEPS, RESETS = 4, 125, 400
TOLERANCE = 1e-5  # of observations and rewards, absolute and relative
NEAR_TIE = 1e-5  # closer than this to touching, float32 may decide otherwise than float64
NAMES = {"num_agents": "N", "episode_length": "max_cycles", "continuous": "continuous_actions"}  # in the original


@dataclass
class Case:
    """One scenario, with options of ours, and how its goals are set into the original's world."""

    env: type[wd.Env]
    module: str
    options: dict = field(default_factory=dict)
    set_goals: Callable | None = None

    def simulate(self, num_envs: int = REPLICAS, **options) -> wd.Simulator:
        sim = wd.Simulator(self.env(**self.options | options), num_envs=num_envs, device="cpu", seed=3)
        sim.reset()
        return sim

    def original(self, **options):
        names = NAMES | ({"num_good": "N"} if self.env is SimpleAdversary else {})
        options = {names.get(name, name): value for name, value in (self.options | options).items()}
        env = importlib.import_module(f"mpe2.{self.module}").parallel_env(**options)
        env.reset(seed=5)
        return env

    def hand_over(self, sim: wd.Simulator, e: int, original) -> None:
        """Set the state of environment e into the original."""
        state, world, original.unwrapped.steps = sim.state, original.unwrapped.world, int(sim.state.step[e])
        for k, agent in enumerate(world.agents):
            if hasattr(state, "message"):
                agent.state.c = state.message[e, k].numpy().astype(np.float64)
            if hasattr(state, "position"):
                agent.state.p_pos = state.position[e, k].numpy().astype(np.float64)
                agent.state.p_vel = state.velocity[e, k].numpy().astype(np.float64)
        if hasattr(state, "landmark"):
            for k, landmark in enumerate(world.landmarks):
                landmark.state.p_pos = state.landmark[e, k].numpy().astype(np.float64)
        if self.set_goals is not None:
            self.set_goals(state, e, world)


def one_goal(state, e: int, world) -> None:
    """Adversary and push: the same landmark for all, which in push colours the good agent too."""
    goal = int(state.goal[e])
    for agent in world.agents:
        agent.goal_a = world.landmarks[goal]
        if not agent.adversary and hasattr(world.landmarks[0], "index"):
            agent.color = np.full(3, 0.25) + 0.5 * (np.arange(3) == goal + 1)


def spoken_goal(state, e: int, world) -> None:
    """Speaker and listener: the speaker knows the landmark."""
    world.agents[0].goal_b = world.landmarks[int(state.goal[e])]


def two_goals(state, e: int, world) -> None:
    """Reference: each agent knows the other's landmark."""
    for k, agent in enumerate(world.agents):
        agent.goal_b = world.landmarks[int(state.goal[e, k])]


def secrets(state, e: int, world) -> None:
    """Crypto: the secret is everybody's goal; the key is kept with Alice."""
    for agent in world.agents:
        agent.goal_a = world.landmarks[int(state.secret[e])]
    world.agents[2].key = world.landmarks[int(state.key[e])].color


FEWER = dict(num_good=1, num_adversaries=3, num_obstacles=0, num_food=1, num_forests=3)
CASES = {
    "adversary": Case(SimpleAdversary, "simple_adversary_v3", {}, one_goal),
    "adversary, four good": Case(SimpleAdversary, "simple_adversary_v3", dict(num_good=4), one_goal),
    "push": Case(SimplePush, "simple_push_v3", {}, one_goal),
    "speaker and listener": Case(SimpleSpeakerListener, "simple_speaker_listener_v4", {}, spoken_goal),
    "reference": Case(SimpleReference, "simple_reference_v3", dict(local_ratio=0.3), two_goals),
    "crypto": Case(SimpleCrypto, "simple_crypto_v3", {}, secrets),
    "world": Case(SimpleWorldComm, "simple_world_comm_v3"),
    "world, fewer": Case(SimpleWorldComm, "simple_world_comm_v3", FEWER),
    "spread": Case(SimpleSpread, "simple_spread_v3", dict(local_ratio=0.3)),
    "spread of five": Case(SimpleSpread, "simple_spread_v3", dict(num_agents=5, episode_length=40)),
    "spread, ends": Case(SimpleSpread, "simple_spread_v3", dict(num_agents=2, terminate_on_success=True)),
    "tag": Case(SimpleTag, "simple_tag_v3"),
    "tag, three good": Case(SimpleTag, "simple_tag_v3", dict(num_good=3, num_adversaries=2, num_obstacles=1)),
    "tag, ends": Case(SimpleTag, "simple_tag_v3", dict(num_obstacles=0, terminate_on_success=True)),
}


def scatter(sim: wd.Simulator, rng: np.random.Generator) -> None:
    """New places and velocities: of some environments close together, of others beyond the edge."""
    spread = torch.tensor(rng.choice([0.15, 0.5, 1.3], (sim.num_envs, 1, 1)))
    for name in ("position", "velocity", "landmark"):
        value = getattr(sim.state, name, None)
        if value is None:
            continue
        scale = 1.0 if name == "velocity" else spread
        value.copy_(scale * torch.tensor(rng.uniform(-1, 1, value.shape)))
    sim.refresh()


def near_tie(world) -> bool:
    """Whether two discs touch, or a landmark is covered, so nearly that rounding may decide."""
    places = np.array([entity.state.p_pos for entity in world.entities])
    sizes = np.array([entity.size for entity in world.entities])
    distance = np.linalg.norm(places[:, None] - places[None], axis=-1)
    close = np.minimum(np.abs(distance - sizes[:, None] - sizes[None]), np.abs(distance - 0.1))
    return bool((close[np.triu_indices(len(sizes), 1)] < NEAR_TIE).any())


def agents_of(sim: wd.Simulator) -> list[tuple[str, int]]:
    """Group and index of every agent, in the order of the original."""
    return [(name, i) for name, group in sim.env.groups.items() for i in range(group.count)]


def random_actions(sim: wd.Simulator, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    actions = {}
    for name, group in sim.env.groups.items():
        shape = tuple(sim.action[name].shape)
        if isinstance(group.action, wd.Box):
            actions[name] = torch.tensor(rng.uniform(0, 1, shape), dtype=torch.float32)
        else:
            actions[name] = torch.tensor(rng.integers(0, group.action.heads, shape), dtype=torch.int32)
    return actions


def original_action(value: torch.Tensor):
    return value.numpy() if value.is_floating_point() else int(value[0])


def agree(found: list, expected: list, what: str) -> float:
    """The largest difference of the numbers in both, which must be within the tolerance."""
    a, b = np.concatenate(found).astype(np.float64), np.concatenate(expected)
    difference = np.abs(a - b)
    assert (difference <= TOLERANCE * (1 + np.abs(b))).all(), (what, int(difference.argmax()), difference.max())
    return float(difference.max())


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_original(name, continuous, record_property):
    """From the same states by the same actions: the same observations, rewards and ends, step by step."""
    case, rng = CASES[name], np.random.default_rng(7)
    sim = case.simulate(continuous=continuous)
    originals = [case.original(continuous=continuous) for _ in range(REPLICAS)]
    agents, ids = agents_of(sim), originals[0].possible_agents
    features = [originals[0].observation_space(a).shape[0] for a in ids]
    assert [sim.env.groups[group].obs for group, _ in agents] == features
    compared, ends, cuts, largest, rewards = 0, 0, 0, 0.0, []

    for step in range(STEPS):
        if step % 7 == 0:
            scatter(sim, rng)
            for e, original in enumerate(originals):
                case.hand_over(sim, e, original)
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
            case.hand_over(sim, e, original)
            found = [sim.obs[group][e].numpy().ravel() for group in sim.env.groups]
            agree(found, [original.unwrapped.observe(a) for a in ids], f"next observation, step {step}")

    record_property("largest", largest)
    record_property("compared", compared)
    assert compared > 0.97 * REPLICAS * STEPS
    assert np.std(rewards) > 0.1, "the test shows little when rewards are all the same"
    assert cuts >= REPLICAS and (ends > 0) == ("ends" in name), (cuts, ends)


@pytest.mark.parametrize("name", [name for name in CASES if "," not in name and " of " not in name])
def test_begins_as_original(name):
    """The first observations of an episode are distributed as the original's."""
    case = CASES[name]
    sim, original = case.simulate(num_envs=4000), case.original()
    unwrapped = original.unwrapped
    found: dict[str, list] = {a: [] for a in original.possible_agents}
    for _ in range(RESETS):
        unwrapped.scenario.reset_world(unwrapped.world, unwrapped.np_random)
        for a, rows in found.items():
            rows.append(unwrapped.observe(a))
    for a, (group, i) in zip(original.possible_agents, agents_of(sim), strict=True):
        ours, theirs = sim.obs[group][:, i].numpy(), np.array(found[a])
        for k in range(ours.shape[1]):
            assert ks_2samp(ours[:, k], theirs[:, k]).pvalue > 1e-4, (a, k)


@pytest.mark.parametrize("env, options, message", [
    (SimpleSpread, dict(num_agents=0), "num_agents must be an integer of at least 1, got 0"),
    (SimpleSpread, dict(local_ratio=1.5), "local_ratio must be a number from 0 to 1, got 1.5"),
    (SimpleTag, dict(num_obstacles=-1), "num_obstacles must be an integer of at least 0, got -1"),
    (SimpleAdversary, dict(num_good=0), "num_good must be an integer of at least 1, got 0"),
    (SimpleReference, dict(local_ratio=-0.1), "local_ratio must be a number from 0 to 1, got -0.1"),
    (SimpleWorldComm, dict(num_adversaries=1), "num_adversaries must be an integer of at least 2, got 1"),
    (SimpleWorldComm, dict(num_food=0), "num_food must be an integer of at least 1, got 0"),
    (SimpleWorldComm, dict(num_forests=32), "num_forests must be at most 31, got 32"),
])  # fmt: skip
def test_refuses(env, options, message):
    """A wrong argument is refused by its name."""
    with pytest.raises(ValueError, match=message):
        env(**options)


def test_all_at_one_place():
    """Agents at the very same place do not push, and no number becomes NaN."""
    sim = CASES["spread"].simulate(num_envs=1)
    sim.state.position.zero_()
    sim.step({"agents": torch.zeros(1, 3, dtype=torch.int32)})
    assert torch.isfinite(sim.obs["agents"]).all() and torch.isfinite(sim.reward).all()
    assert not sim.state.velocity.any()
