"""Rates of stepping, of collecting rollouts and of training, as rows of plain data."""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from warpdrive.learn.trainer import Trainer
from warpdrive.measure.machine import times, wait
from warpdrive.sim.simulator import Simulator
from warpdrive.sim.store import Store

__all__ = ["measure_simulation", "measure_training", "operations", "step_bytes"]

SECONDS = 0.1  # that a timing takes at least


def step_bytes(store: Store) -> int:
    """The fewest bytes a step of all environments moves: state read and written, actions read, the rest written.

    Fields that a step may leave alone are counted as if it touched them; what caches save, such as an agent's reading
    of all others, is not counted at all.
    """
    total = sum(
        2 * store.fields[name].nbytes for name, f in store.env.state.fields.items() if f.kind in ("agent", "env")
    )
    for name in ("active", "episode_return"):
        total += 2 * store.fields[name].nbytes
    total += sum(store.fields[name].nbytes for name in ("reward", "terminated", "alive", "over", "truncated"))
    total += sum(action.nbytes for action in store.action.values())
    return total + sum(obs.numel() * obs.element_size() for obs in store.results.obs.values())


def operations(trainer: Trainer, passes: int) -> int:
    """Floating-point operations of the policies' matrix products for one step of one environment.

    Two for each weight in a forward pass and four on the way back; one forward pass while acting, and one of each for
    each pass over the data.
    """
    total = 0
    for name, module in trainer.policies.items():
        agents = sum(s.count for s in trainer.segments if s.policy == name)
        learning = passes if name in trainer.learners else 0
        total += 2 * sum(p.numel() for p in module.parameters()) * agents * (1 + 3 * learning)
    return total


def _row(work: str, sim: Simulator, env_steps: int, seconds: list[float]) -> dict[str, Any]:
    rates = sorted(env_steps / s for s in seconds)
    rate = statistics.median(rates)
    return {
        "work": work,
        "num_envs": sim.num_envs,
        "num_agents": sim.env.num_agents,
        "schedule": sim.schedule,
        "env_steps_per_s": rate,
        "agent_steps_per_s": rate * sim.env.num_agents,
        "least": rates[0],
        "most": rates[-1],
        "repeats": len(rates),
        "microseconds_per_step": 1e6 * sim.num_envs / rate,
    }


def _count(work: Callable[[], Any], device: torch.device) -> int:
    """How often to call `work` so that it takes long enough to be timed."""
    return max(1, min(1000, math.ceil(SECONDS / max(1e-7, min(times(work, device, 2))))))


def measure_simulation(make: Callable[[], Simulator], repeats: int, copy: float | None = None) -> dict[str, Any]:
    """A row on stepping with random actions.

    Args:
        make: makes the simulator; the time to the first step counts from before it.
        repeats: number of timings, of which the median is taken.
        copy: bytes a second that the machine copies; if given, the share of it that was reached is in the row.
    """
    start = time.perf_counter()
    sim = make()
    sim.reset()
    sim.random_step()
    wait(sim.device)
    first = time.perf_counter() - start
    steps = _count(sim.random_step, sim.device)
    seconds = times(lambda: sim.random_step(steps), sim.device, repeats)
    row = _row("simulate, random actions", sim, sim.num_envs * steps, seconds)
    row["set_up_seconds"] = first
    row["bytes_per_env"] = sim.store.num_bytes() // sim.num_envs
    row["bytes_per_step"] = step_bytes(sim.store)
    if copy is not None:
        row["share_of_copy_rate"] = row["bytes_per_step"] * row["env_steps_per_s"] / sim.num_envs / copy
    return row


def measure_training(
    make: Callable[[], Trainer], repeats: int, matrix: float | None = None
) -> tuple[list[dict[str, Any]], Trainer]:
    """Rows on collecting rollouts with the policies, and on training; and the trainer.

    Args:
        make: makes the trainer; the time to the first update counts from before it.
        repeats: number of timings, of which the median is taken.
        matrix: floating-point operations a second that the machine multiplies with; if given, the share is in the row.
    """
    start = time.perf_counter()
    trainer = make()
    trainer.step()
    device = trainer.sim.device
    wait(device)
    first = time.perf_counter() - start
    sim, steps = trainer.sim, trainer.rollout_steps
    updates = _count(trainer.step, device)

    def repeat(work: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(updates):
                work()

        return run

    env_steps = sim.num_envs * steps * updates
    collected = _row("rollout with policies", sim, env_steps, times(repeat(trainer.collect), device, repeats))
    seconds = times(repeat(trainer.step), device, repeats)
    trainer.check_faults()
    algorithms = {type(a).__name__ for a in trainer.algorithms.values()}
    row = _row(f"train, {' and '.join(sorted(algorithms))}", sim, env_steps, seconds)
    passes = max(getattr(a, "epochs", 1) for a in trainer.algorithms.values())
    row |= {"set_up_seconds": first, "passes": passes, "rollout_steps": steps}
    if matrix is not None:
        row["share_of_matrix_rate"] = operations(trainer, passes) * row["env_steps_per_s"] / matrix
    if device.type == "cuda":
        row["memory_gb"] = torch.cuda.max_memory_allocated(device) / 1e9
    return [collected, row], trainer
