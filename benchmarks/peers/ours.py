"""warpdrive's side of the comparison."""

import time
from typing import Any

import torch
import warp as wp
from rows import CHUNK, RECIPE

import warpdrive as wd
from warpdrive.measure.machine import describe_machine, wait
from warpdrive.sim.simulator import capture, choose_device
from warpdrive.zoo.cartpole import CartPole
from warpdrive.zoo.mpe_simple_spread import SimpleSpread
from warpdrive.zoo.mpe_simple_tag import SimpleTag

__all__ = ["prepare", "versions"]


def versions() -> dict[str, Any]:
    """Versions of what takes part."""
    machine = describe_machine(choose_device(None))
    return machine.pop("versions") | {"device": machine["device"], "commit": machine["commit"]}


GAMES: dict[str, type[wd.Env]] = {"spread": SimpleSpread, "tag": SimpleTag, "cartpole": CartPole}
LIMITS = {"spread": 26, "tag": 26, "cartpole": 500}  # steps, as in the peers' games


def make_env(game: str, work: str) -> wd.Env:
    """The game by the peer's rules; to its trainers the time limit is the end and not a cut."""
    if work == "simulate":
        return GAMES[game](episode_length=LIMITS[game])
    limit = wp.constant(LIMITS[game])

    @wd.per_env
    def end_in_time(s: wd.State, env: int) -> None:
        if s.step[env] >= limit:
            s.ended[env] = True

    base = GAMES[game]
    return type(base.__name__, (base,), {"step": (*base.step, end_in_time)})(episode_length=None)


def prepare(case: dict[str, Any]) -> "Simulate | Train":
    """What is to be timed."""
    torch.set_float32_matmul_precision("high")  # TF32 for products outside fused kernels; nothing on the CPU
    return (Simulate if case["work"] == "simulate" else Train)(case)


def make_simulator(case: dict[str, Any], seed: int = 0) -> wd.Simulator:
    """The simulator of a case."""
    return wd.Simulator(
        make_env(case["game"], case["work"]),
        case["num_envs"],
        seed=seed,
        device=case["device"],
        obs_dtype=torch.float32,
    )


class Simulate:
    """Steps with random actions."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.sim = make_simulator(case)
        self.sim.reset()
        self.sim.random_step()
        self._chunk = CHUNK[case["device"]]
        self.steps_per_call = self.sim.num_envs * self._chunk
        self._run = self._steps
        self.how = f"schedule {self.sim.schedule}"
        if self.sim.device.type == "cuda":
            self._run = capture(self._steps, self.sim.device)
            self.how += f", blocks of {self.sim.block_dim} threads, {self._chunk} steps a CUDA graph"

    def _steps(self) -> None:
        self.sim.random_step(self._chunk)

    def call(self) -> None:
        """Make some steps."""
        self._run()

    def wait(self) -> None:
        """Wait for the device."""
        wait(self.sim.device)

    def facts(self) -> dict[str, Any]:
        """Mean reward of an agent in a step, and mean length of episodes."""
        return _facts(self.sim)


class Train:
    """Updates of PPO by the common recipe."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.trainer = self._trainer(seed=0)
        self.trainer.prepare()
        self.steps_per_call = self.trainer.sim.num_envs * self.trainer.rollout_steps
        kind = "float32, products in TF32" if self.trainer.sim.device.type == "cuda" else "float32"
        self.how = f"schedule {self.trainer.sim.schedule}, {kind}, minibatches of whole environments"

    def _trainer(self, seed: int) -> wd.Trainer:
        options = dict(RECIPE)
        width = options.pop("hidden")
        algorithm = wd.PPO(**options, lr_final=0.0, advantage_over="minibatch")
        policy = wd.MLP(width, width, activation="tanh", separate_value=True)
        # Products in TF32 on a GPU, as JAX's are there by default; the CPU has none.
        return wd.Trainer(make_simulator(self.case, seed), {"agents": policy}, algorithm, precision="tf32")

    def call(self) -> None:
        """Make one update."""
        self.trainer.step()

    def wait(self) -> None:
        """Wait for the device."""
        wait(self.trainer.sim.device)

    def facts(self) -> dict[str, Any]:
        """Return and length of the episodes so far."""
        self.trainer.check_faults()
        return _facts(self.trainer.sim)

    def learn(self, seed: int, updates: int) -> dict[str, Any]:
        """Train from a seed; mean return of an agent in the episodes that ended in each update."""
        trainer = self._trainer(seed)
        trainer.total_env_steps = updates * self.steps_per_call
        trainer.prepare()
        wait(trainer.sim.device)
        returns, start = [], time.perf_counter()
        for _ in range(updates):
            trainer.step()
            returns.append(trainer.sim.statistics().get("return/agents"))
        wait(trainer.sim.device)
        seconds = time.perf_counter() - start
        trainer.check_faults()
        return {"returns": returns, "seconds": seconds}


def _facts(sim: wd.Simulator) -> dict[str, Any]:
    row = sim.statistics()
    if not row["episodes"]:
        return {"episodes": 0}
    groups = sim.env.groups.items()
    mean = sum(row[f"return/{name}"] * group.count for name, group in groups) / sim.env.num_agents
    return {
        "episodes": row["episodes"],
        "length": row["length"],
        "return": mean,
        "reward_per_step": mean / row["length"],
    }
