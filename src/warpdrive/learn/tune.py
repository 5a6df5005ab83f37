"""How many environments, and how long a rollout, train fastest here: found by measuring."""

import copy
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from warpdrive.env.environment import Env, positive_int
from warpdrive.learn.a2c import A2C
from warpdrive.learn.assignment import Assignment
from warpdrive.learn.ppo import PPO
from warpdrive.learn.rollout import rollout_bytes
from warpdrive.learn.size_search import GAIN, Measured, SizeSearch
from warpdrive.learn.trainer import Trainer
from warpdrive.policy.mlp import MLP, Precision
from warpdrive.sim.launcher import Schedule
from warpdrive.sim.memory import Peak, free_memory, is_out_of_memory, release_memory
from warpdrive.sim.simulator import Simulator, choose_device

__all__ = ["Tuning", "tune"]

START = {"cpu": 16, "cuda": 128}  # environments to begin with
UPDATES = 3  # timed at each size, at least
ENOUGH_SECONDS = 0.5  # of timing at each size, where an update is short
SHARE = 0.1  # of the time of the search that the updates of one size may take


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What `wd.tune` measured and chose.

    Attributes:
        rows: every size measured, in order.
        chosen: the one to take.
        why: one sentence on the choice and the end of the search.
        device: that it was measured on.
    """

    rows: tuple[Measured, ...]
    chosen: Measured
    why: str
    device: str

    @property
    def num_envs(self) -> int:
        """Number of environments to take."""
        return self.chosen.num_envs

    @property
    def rollout_steps(self) -> int:
        """Length of the rollout to take."""
        return self.chosen.rollout_steps

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self) | {"rows": [asdict(row) for row in self.rows]}

    def __str__(self) -> str:
        lines = [
            "  num_envs  rollout_steps   env steps/s  agent steps/s        MiB  s an update",
            *(
                f"{'*' if row == self.chosen else ' '}{row.num_envs:9}{row.rollout_steps:15}{row.env_steps_per_s:14.0f}"
                f"{row.agent_steps_per_s:15.0f}{row.num_bytes / 2**20:11.1f}{row.seconds_per_update:13.4f}"
                for row in self.rows
            ),
            f"on {self.device}: {self.why}",
        ]
        return "\n".join(lines)


def tune(
    env: Env,
    policies: Mapping[str, MLP | nn.Module],
    algorithm: PPO | A2C | Mapping[str, PPO | A2C] | None = None,
    *,
    assign: Assignment | None = None,
    opponents: Mapping[str, str] | None = None,
    frozen: Iterable[str] = (),
    precision: Precision = "auto",
    fuse: bool = True,
    device: str | torch.device | None = None,
    obs_dtype: torch.dtype | None = None,
    schedule: Schedule = "auto",
    start: int | None = None,
    most_envs: int | None = None,
    lengths: bool = True,
    seconds: float = 60.0,
    report: Callable[[Measured], None] | None = None,
) -> Tuning:
    """Find the number of environments and the length of the rollout with the highest training rate within memory.

    Trainers of growing size make a few updates each, on copies of the policies; nothing that is handed over changes.
    The rate says nothing of how well each step teaches: more environments and longer rollouts mean fewer updates.

    Args:
        env, policies, algorithm, assign, opponents, frozen, precision, fuse, device, obs_dtype, schedule: as
            wd.Simulator and wd.Trainer take them.
        start: number of environments to begin with; None: 16 on the CPU, 128 on a GPU.
        most_envs: the most to try; None: no limit but memory.
        lengths: whether to try other lengths of the rollout than the algorithm's.
        seconds: time for the search.
        report: called with each row as it is measured.

    Raises:
        ValueError: an argument that does not fit. MemoryError: not even the first size fits.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ValueError(f"seconds must be a positive number, got {seconds!r}")
    place = choose_device(device)
    frozen = tuple(frozen)
    algorithms = dict(algorithm) if isinstance(algorithm, Mapping) else {"": algorithm or PPO()}
    given = tuple(algorithms.items())
    # A minibatch holds whole environments.
    least = max((getattr(a, "minibatches", 1) for a in algorithms.values()), default=1)
    start = max(least, START[place.type]) if start is None else positive_int("start", start)
    for name, value in (("start", start), ("most_envs", most_envs)):
        if value is not None and positive_int(name, value) < least:
            raise ValueError(f"{name} must be at least the number of minibatches, {least}, got {value}")

    def make(num_envs: int, rollout_steps: int | None = None) -> Trainer:
        sized = {name: a if rollout_steps is None else replace(a, rollout_steps=rollout_steps) for name, a in given}
        sim = Simulator(env, num_envs, device=place, obs_dtype=obs_dtype, schedule=schedule)
        copies = {name: copy.deepcopy(policy) for name, policy in policies.items()}
        one_for_all = None if isinstance(algorithm, Mapping) else sized[""]
        options: dict[str, Any] = {"assign": assign, "opponents": opponents, "frozen": frozen, "precision": precision}
        return Trainer(sim, copies, one_for_all or sized, fuse=fuse, **options)

    def free() -> int:
        release_memory(place)
        return free_memory(place)

    # Modules draw from PyTorch's own generators when they are made: what follows must not depend on the search.
    with torch.random.fork_rng([place] if place.type == "cuda" else []):
        with _memory_errors():
            first = make(min(start, most_envs or start))
            first.step()  # compiles, and takes what a process takes once, before memory and time are measured
        store, rollout_steps = first.sim.store, first.rollout_steps
        del first
        search = SizeSearch(
            measure=lambda num_envs, steps: _measure(make, num_envs, steps, place, SHARE * seconds),
            array_bytes=lambda n, steps: n * (store.num_bytes() + rollout_bytes(store, steps)) // store.num_envs,
            free=free,
            rollout_steps=rollout_steps,
            start=start,
            least_envs=least,
            most_envs=most_envs,
            lengths=lengths,
            seconds=seconds,
            report=report or (lambda row: None),
        )
        chosen = search.run()
    release_memory(place)
    return Tuning(rows=tuple(search.rows), chosen=chosen, why=_why(search, chosen), device=str(place))


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Turn every way of running out of memory into a MemoryError of one sentence."""
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryError) or not is_out_of_memory(error):
            raise
        raise MemoryError(f"out of memory: {str(error).splitlines()[0]}") from None


def _measure(
    make: Callable[[int, int], Trainer], num_envs: int, rollout_steps: int, device: torch.device, seconds: float
) -> Measured:
    """Build a trainer, let it make some updates, each waited for, and forget it.

    Raises:
        MemoryError: it does not fit.
    """
    peak = Peak(device)
    with _memory_errors():
        trainer = make(num_envs, rollout_steps)
        median = statistics.median(_update_seconds(trainer, seconds))
    # Memory that was free already and was taken again does not show on the CPU; the arrays are a lower bound.
    arrays = trainer.sim.store.num_bytes() + rollout_bytes(trainer.sim.store, rollout_steps)
    rate = num_envs * rollout_steps / median
    return Measured(
        num_envs=num_envs,
        rollout_steps=rollout_steps,
        env_steps_per_s=rate,
        agent_steps_per_s=rate * trainer.sim.env.num_agents,
        num_bytes=max(arrays, peak.num_bytes()),
        seconds_per_update=median,
    )


def _update_seconds(trainer: Trainer, seconds: float) -> list[float]:
    """Seconds of some updates after the first, which captures graphs; at most about `seconds` in all."""

    def update() -> float:
        begun = time.perf_counter()
        trainer.step()
        if trainer.sim.device.type == "cuda":
            torch.cuda.synchronize(trainer.sim.device)
        return time.perf_counter() - begun

    update()
    times = [update()]
    while (len(times) < UPDATES or sum(times) < ENOUGH_SECONDS) and sum(times) + times[-1] < seconds:
        times.append(update())
    return times


def _why(search: SizeSearch, chosen: Measured) -> str:
    best = max(search.rows, key=lambda row: row.env_steps_per_s)
    size = f"{chosen.num_envs} environments x {chosen.rollout_steps} steps"
    reason = "the highest rate" if best == chosen else f"within {GAIN:.0%} of the highest rate"
    return f"{size}: {reason}; {search.stopped}"
