"""Which schedule and block size step an environment fastest on a GPU: measured once, and kept on disk.

The results of a step depend on neither, so a choice that is out of date costs time only.
"""

import contextlib
import hashlib
import inspect
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import warp as wp

from warpdrive.env.environment import Env
from warpdrive.env.phases import Phase
from warpdrive.sim.launcher import BLOCK, Schedule
from warpdrive.sim.store import start_warp

__all__ = ["STEPS", "Candidate", "choose", "is_worth_measuring", "key_of", "seconds_a_step", "steps_to_time"]

SCHEDULES: tuple[Schedule, ...] = ("fused", "mixed", "split")
# Smaller and larger than the usual one. Blocks of up to 256 threads have enough registers whatever a kernel takes.
OTHER_BLOCKS = (64, 256)
# Agents of all environments. Below, a kernel takes a few microseconds whatever it does, and the rule is right.
WORTH_AGENTS = 1 << 15
STEPS = 10  # that are timed at a time
# How many steps are timed in all: an episode, since agents leave in the course of one, but no more than this, nor than
# takes about a second.
MOST_STEPS, MOST_AGENT_STEPS, LEAST_STEPS = 500, 1 << 30, 100


@dataclass(frozen=True)
class Candidate:
    """A schedule, and for those with fused kernels the threads of a block."""

    schedule: Schedule
    block_dim: int = BLOCK


def is_worth_measuring(num_envs: int, num_agents: int, device: torch.device) -> bool:
    """Whether there is a choice, and a simulation so large that it matters."""
    return device.type == "cuda" and num_envs * num_agents >= WORTH_AGENTS


def choose(key: Mapping[str, Any], seconds: Callable[[Candidate], float]) -> Candidate:
    """The candidate that was fastest when this key was measured, which is now if it never was.

    First the schedules are compared, each with the usual block; then, if it has fused kernels, other blocks, for each
    of which they are compiled anew.

    Args:
        key: plain data, all that the choice depends on; see key_of.
        seconds: candidate -> seconds that its step takes.
    """
    path = _path(key)
    known = _read(path, key)
    if known is not None:
        return known
    times = {candidate: seconds(candidate) for candidate in map(Candidate, SCHEDULES)}
    winner = min(times, key=times.__getitem__)
    if winner.schedule != "split":
        times |= {candidate: seconds(candidate) for candidate in (Candidate(winner.schedule, b) for b in OTHER_BLOCKS)}
        winner = min((c for c in times if c.schedule == winner.schedule), key=times.__getitem__)
    _write(path, key, winner, times)
    return winner


def steps_to_time(env: Env, num_envs: int) -> int:
    """How many steps of a simulation are timed."""
    within = MOST_AGENT_STEPS // (num_envs * env.num_agents)
    return max(LEAST_STEPS, min(env.episode_length or MOST_STEPS, MOST_STEPS, within))


def seconds_a_step(runs: Sequence[Callable[[], None]], steps: int, device: torch.device) -> float:
    """The geometric mean of the seconds that a step takes in each of some ways to make STEPS of them.

    Simulations are stepped in more than one way, and none counts more than another: a candidate that is twice as fast
    in one and half as fast in the other is neither better nor worse.

    Args:
        runs: the ways, warmed up, with nothing under way on the device. They are timed in turn, so that all see the
            same parts of an episode.
        steps: how many steps to make in all.
    """
    totals = [0.0] * len(runs)
    rounds = max(1, steps // (STEPS * len(runs)))
    for _ in range(rounds):
        for k, run in enumerate(runs):
            begun = time.perf_counter()
            run()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            totals[k] += time.perf_counter() - begun
    return math.prod(total / (rounds * STEPS) for total in totals) ** (1 / len(runs))


# ---------------------------------------------------------------------- the key


def key_of(env: Env, num_envs: int, obs_dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """All that decides how fast a schedule is: the code, the sizes, the device, and who compiles."""
    whole = {name: value for name, value in env.params.items() if isinstance(value, int)}  # they may switch branches
    return {
        "code": _digest(env),
        "num_envs": num_envs,
        "groups": {name: [g.count, g.obs, g.action.num_outputs] for name, g in env.groups.items()},
        "sizes": dict(env.sizes),
        "params": whole,
        "obs": str(obs_dtype),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "warp": wp.config.version,
        "torch": torch.__version__,
    }


def _digest(env: Env) -> str:
    """Digest of the phases, of the functions and numbers that they name themselves, and of this package's sources."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    seen: set[Any] = set()

    def add(function: Callable[..., Any]) -> None:
        if function in seen:
            return
        seen.add(function)
        try:
            digest.update(inspect.getsource(function).encode())
        except (OSError, TypeError):  # made at run time: there is no source
            digest.update(function.__code__.co_code)
        named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        named |= {name: cell.cell_contents for name, cell in cells}
        for name, value in sorted(named.items(), key=lambda item: item[0]):
            if isinstance(value, wp.Function) and value.func is not None:
                add(value.func)
            elif isinstance(value, bool | int | float | str):
                digest.update(f"{name}={value!r}".encode())

    for phases in (env.step, env.observe, env.reset):
        for phase in phases:
            assert isinstance(phase, Phase)
            digest.update(f"{phase.kind} {phase.group}".encode())
            add(phase.function)
    return digest.hexdigest()


# ---------------------------------------------------------------------- on disk


def folder() -> Path:
    """Where choices are kept: in Warp's cache of kernels."""
    start_warp()  # chooses the place of its cache, if the user has not
    return Path(str(wp.config.kernel_cache_dir)) / "warpdrive-choices"


def _path(key: Mapping[str, Any]) -> Path:
    return folder() / f"{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]}.json"


def _read(path: Path, key: Mapping[str, Any]) -> Candidate | None:
    """What was chosen for a key, or None if that is unknown: no file, another key's, or one that is damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        chosen = Candidate(**content["chosen"])
        fits = content["key"] == json.loads(json.dumps(key))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    sound = chosen.schedule in SCHEDULES and chosen.block_dim in (BLOCK, *OTHER_BLOCKS)
    return chosen if fits and sound else None


def _write(path: Path, key: Mapping[str, Any], winner: Candidate, times: Mapping[Candidate, float]) -> None:
    """Keep a choice, whole or not at all; where it cannot be written it is measured again another time."""
    content = {
        "key": key,
        "chosen": asdict(winner),
        "seconds": [{**asdict(candidate), "seconds": seconds} for candidate, seconds in times.items()],
    }
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
