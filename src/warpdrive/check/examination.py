"""What is examined, and what was found of it so far."""

from collections.abc import Iterable

import torch

from warpdrive.check.report import Fault, Report
from warpdrive.check.sources import atomic_fields
from warpdrive.check.stage import Stage, differing
from warpdrive.env.environment import Env
from warpdrive.env.phases import Phase
from warpdrive.env.state import BUILT_IN

__all__ = ["Examination"]

WORK = 12_000  # runs of one phase for one agent, which take about a tenth of a millisecond each


class Examination:
    """One run of `check`; the arguments are those."""

    def __init__(
        self, env: Env, steps: int, num_envs: int, seed: int, device: str | None, keeps: set[str], ignore: set[str]
    ) -> None:
        self.env, self.steps, self.seed, self.device = env, steps, seed, device
        self.keeps, self.ignore = keeps, ignore
        self.report = Report(type(env).__name__, num_envs, env.num_agents, steps)
        self.stage = Stage(env, num_envs, seed)
        self.wide = Stage(env, num_envs + 2, seed)
        self.store = self.stage.store
        self.calls = self.stage.calls
        self.phases = {i: phase for i, phase in self._author_calls()}
        self.atomic = {phase: atomic_fields(phase.function) for phase in set(self.phases.values())}  # type: ignore[arg-type]
        self.whole = {n for n, b in self.store.blocks.items() if not b.view.is_floating_point()}
        self.step = 0
        self.first_guarded = self.stage.launcher.program.first_guarded
        per_step = num_envs * sum(self.stage.count(i) for i in self.phases)
        self.thorough = max(4, WORK // per_step)  # steps that are examined agent by agent
        self._seen: set[tuple[str, str, str]] = set()
        self.spread = False  # whether a NaN is about: what follows is its consequence

    def _author_calls(self) -> Iterable[tuple[int, Phase]]:
        env, number = self.env, 1
        for phase in env.step:
            yield number, phase
            number += 1
        number += 2
        for phase in env.observe:
            yield number, phase
            number += 1
        number += len(env.groups) + 1
        for phase in (*env.reset, *env.observe):
            yield number, phase
            number += 1

    def fault(
        self,
        kind: str,
        phase: str,
        field: str,
        env: int | None,
        agent: int | None,
        message: str,
        step: int | None = None,
    ) -> None:
        """Note the first fault of a kind in a phase and field."""
        key = (kind, phase, field)
        if kind in self.ignore or key in self._seen:
            return
        self._seen.add(key)
        self.report.faults.append(Fault(kind, phase, field, env, agent, self.step if step is None else step, message))

    def known(self, kind: str, phase: str) -> bool:
        """Whether a fault of this kind in this phase is noted already."""
        return any(f.kind == kind and f.phase == phase for f in self.report.faults)

    def place(self, index: int) -> tuple[str, int | None, int | None]:
        """Field, environment and agent that a byte of the memory belongs to."""
        store = self.store
        env, agent = int(store.env_of[index]), int(store.agent_of[index])
        name = store.names[int(store.field_of[index])]
        return name, (env if env >= 0 else None), (agent if agent >= 0 else None)

    def differing(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Bytes within arrays that differ between two images."""
        where = differing(a, b)
        return where[~self.store.guard[where]]

    def by_agent(self, name: str) -> bool:
        """Whether a block's second axis (after the slots of final observations) counts agents."""
        return "." in name or {**BUILT_IN, **self.env.state.fields}[name].kind == "agent"

    def written(self, name: str, start: torch.Tensor) -> torch.Tensor:
        """Where a block differs from an earlier image."""
        block = self.store.blocks[name]
        count = block.padded.numel() * block.padded.element_size()
        old = start[block.start : block.start + count].view(block.padded.dtype).view(block.padded.shape)
        for axis, length in enumerate(block.view.shape):
            old = old.narrow(axis, (old.shape[axis] - length) // 2, length)
        return block.view != old

    def reset_names(self) -> str:
        """The reset phases, as a fault names them."""
        return ", ".join(phase.name for phase in self.env.reset) or "reset"
