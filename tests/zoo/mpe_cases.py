"""The scenarios of MPE beside their published package: cases to compare, and one state set into both."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
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

NAMES = {"episode_length": "max_cycles", "continuous": "continuous_actions"}  # in the original
COUNTS = {SimpleSpread: {"num_agents": "N"}, SimpleAdversary: {"num_good": "N"}}  # the same, where only one has it


@dataclass
class Case:
    """One scenario, with options of ours."""

    env: type[wd.Env]
    module: str
    options: dict = field(default_factory=dict)

    def simulate(self, num_envs: int, **options) -> wd.Simulator:
        sim = wd.Simulator(self.env(**self.options | options), num_envs=num_envs, device="cpu", seed=3)
        sim.reset()
        return sim

    def original(self, **options):
        names = NAMES | COUNTS.get(self.env, {})
        options = {names.get(name, name): value for name, value in (self.options | options).items()}
        env = importlib.import_module(f"mpe2.{self.module}").parallel_env(**options)
        env.reset(seed=5)
        return env


WORLD = "simple_world_comm_v3"
OTHER_WORLD = dict(num_good=3, num_adversaries=2, num_obstacles=2, num_food=3, num_forests=4, episode_length=30)
CASES = {
    "spread": Case(SimpleSpread, "simple_spread_v3", dict(local_ratio=0.3)),
    "spread of five": Case(SimpleSpread, "simple_spread_v3", dict(num_agents=5, episode_length=40)),
    "spread, ends": Case(SimpleSpread, "simple_spread_v3", dict(num_agents=2, terminate_on_success=True)),
    "tag": Case(SimpleTag, "simple_tag_v3"),
    "tag, three good": Case(SimpleTag, "simple_tag_v3", dict(num_good=3, num_adversaries=2, num_obstacles=1)),
    "tag, ends": Case(SimpleTag, "simple_tag_v3", dict(num_obstacles=0, terminate_on_success=True)),
    "adversary": Case(SimpleAdversary, "simple_adversary_v3"),
    "adversary of four": Case(SimpleAdversary, "simple_adversary_v3", dict(num_good=4, episode_length=30)),
    "adversary of one": Case(SimpleAdversary, "simple_adversary_v3", dict(num_good=1)),
    "push": Case(SimplePush, "simple_push_v3"),
    "push, short": Case(SimplePush, "simple_push_v3", dict(episode_length=7)),
    "speaker listener": Case(SimpleSpeakerListener, "simple_speaker_listener_v4"),
    "reference": Case(SimpleReference, "simple_reference_v3"),
    "reference, local": Case(SimpleReference, "simple_reference_v3", dict(local_ratio=0.9, episode_length=40)),
    "crypto": Case(SimpleCrypto, "simple_crypto_v3"),
    "world": Case(SimpleWorldComm, WORLD),
    "world, other counts": Case(SimpleWorldComm, WORLD, OTHER_WORLD),
    "world, bare": Case(SimpleWorldComm, WORLD, dict(num_good=1, num_obstacles=0, num_food=1, num_forests=0)),
}


# ---------------------------------------------------------------- what only some scenarios have


def give_goal(world, e: int, state) -> None:
    """Everybody's goal."""
    for agent in world.agents:
        agent.goal_a = world.landmarks[int(state.goal[e])]


def give_push(world, e: int, state) -> None:
    """The goal, which the agent wears as a colour."""
    give_goal(world, e, state)
    world.agents[1].color = np.array([0.25, 0.25, 0.25])
    world.agents[1].color[1 + int(state.goal[e])] += 0.5


def give_listener(world, e: int, state) -> None:
    """The goal, which the speaker has."""
    world.agents[0].goal_b = world.landmarks[int(state.goal[e])]


def give_both(world, e: int, state) -> None:
    """The goal that each agent has for the other."""
    for agent, goal in zip(world.agents, state.goal[e], strict=True):
        agent.goal_b = world.landmarks[int(goal)]


def give_code(world, e: int, state) -> None:
    """The secret and the key, which are colours of landmarks."""
    for agent in world.agents:
        agent.goal_a = world.landmarks[int(state.secret[e])]
    world.agents[1].color = world.agents[1].goal_a.color
    world.agents[2].key = world.landmarks[int(state.key[e])].color


GIVE: dict[type[wd.Env], Callable[[Any, int, Any], None]] = {
    SimpleAdversary: give_goal,
    SimplePush: give_push,
    SimpleSpeakerListener: give_listener,
    SimpleReference: give_both,
    SimpleCrypto: give_code,
}
DRAWN = {"goal": "num_landmarks", "secret": 2, "key": 2}  # fields of chance, and of how many


def choices(sim: wd.Simulator) -> dict[str, int]:
    """The fields of chance that a scenario has, each with the number of its values."""
    found = {name: count for name, count in DRAWN.items() if name in sim.env.state.fields}
    return {name: sim.env.params[count] if isinstance(count, str) else count for name, count in found.items()}


# ---------------------------------------------------------------- states


def scatter(sim: wd.Simulator, rng: np.random.Generator) -> None:
    """New places, velocities and goals: of some environments close together, of others beyond the edge."""
    spread = torch.tensor(rng.choice([0.15, 0.5, 1.3], (sim.num_envs, 1, 1)))
    for name in ("position", "velocity", "landmark"):
        if name in sim.env.state.fields:
            value = getattr(sim.state, name)
            scale = 1.0 if name == "velocity" else spread
            value.copy_(scale * torch.tensor(rng.uniform(-1, 1, value.shape)))
    for name, count in choices(sim).items():
        value = getattr(sim.state, name)
        value.copy_(torch.tensor(rng.integers(0, count, value.shape)))
    sim.refresh()


def hand_over(sim: wd.Simulator, e: int, original) -> None:
    """Set the state of environment e into the original; what was said it must know by itself."""
    world, original.unwrapped.steps = original.unwrapped.world, int(sim.state.step[e])
    if "position" in sim.env.state.fields:
        for k, agent in enumerate(world.agents):
            agent.state.p_pos = sim.state.position[e, k].numpy().astype(np.float64)
            agent.state.p_vel = sim.state.velocity[e, k].numpy().astype(np.float64)
        for k, landmark in enumerate(world.landmarks):
            landmark.state.p_pos = sim.state.landmark[e, k].numpy().astype(np.float64)
    GIVE.get(type(sim.env), lambda *_: None)(world, e, sim.state)


# ---------------------------------------------------------------- agents and actions


def agents_of(sim: wd.Simulator) -> list[tuple[str, int]]:
    """Group and index of every agent, in the order of the original."""
    return [(name, i) for name, group in sim.env.groups.items() for i in range(group.count)]


def random_actions(sim: wd.Simulator, rng: np.random.Generator, idle: float = 0.1) -> dict[str, torch.Tensor]:
    actions = {}
    for name, group in sim.env.groups.items():
        shape = tuple(sim.action[name].shape)
        if isinstance(group.action, wd.Box):
            nothing = rng.uniform(size=(*shape[:-1], 1)) < idle  # neither move nor word, which crypto treats apart
            actions[name] = torch.tensor(np.where(nothing, 0.0, rng.uniform(0, 1, shape)), dtype=torch.float32)
        else:
            actions[name] = torch.tensor(rng.integers(0, group.action.heads, shape), dtype=torch.int32)
    return actions


def original_action(value: torch.Tensor):
    return value.numpy() if value.is_floating_point() else int(value[0])
