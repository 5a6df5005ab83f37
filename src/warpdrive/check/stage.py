"""A simulator to look into: its whole memory is one block with guard bands, and each phase runs in any order."""

from dataclasses import dataclass, field
from typing import Any

import torch
import warp as wp

from warpdrive.env.environment import Env
from warpdrive.env.spaces import Box
from warpdrive.sim.launcher import Schedule
from warpdrive.sim.program import Program
from warpdrive.sim.simulator import Simulator
from warpdrive.sim.store import OUTPUTS, Results, Store, inner_shape, torch_dtype

__all__ = ["GUARD", "NOBODY", "GuardedStore", "Stage", "differing"]

MARGIN = 1 << 14  # bytes before and behind all: an index that is far out should not hit anybody else's memory
GUARD, SHARED, NOBODY = -1, -2, -3  # owners: outside every array; no one environment; no one agent


def differing(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Indices of the bytes that differ between two images; quick where they are few."""
    words = (a.view(torch.int64) != b.view(torch.int64)).nonzero().flatten()
    if not len(words):
        return words
    where = (words[:, None] * 8 + torch.arange(8)).flatten()
    return where[a[where] != b[where]]


def _guard(length: int) -> int:
    """Elements put before and behind an axis."""
    return min(length, 3)


@dataclass
class Block:
    """One array in the arena.

    Attributes:
        name: as the author knows it.
        view: the array proper.
        padded: the array with its guard bands.
        start: its first byte.
    """

    name: str
    view: torch.Tensor
    padded: torch.Tensor
    start: int


@dataclass
class GuardedStore(Store):
    """A store in one block of memory, with bands around every axis of every array that nobody may touch.

    Attributes:
        arena: the memory, in bytes.
        blocks: name -> array; those of a group as "group.obs".
        field_of, env_of, agent_of: for each byte the number of its block, and whose it is.
        guard: for each byte whether it lies outside all arrays.
    """

    arena: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    blocks: dict[str, Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan: list[tuple[str, tuple[int, ...], tuple[int, ...], torch.dtype, int | None, int | None, int]] = []
        for name, spec in self.all_fields().items():
            if spec.kind in ("agent", "env", "shared"):
                env_axis = 0 if spec.kind != "shared" else None
                agent_axis = 1 if spec.kind == "agent" else None
                shape, inner = self._shape(spec), inner_shape(spec.dtype)
                outer = shape[: len(shape) - len(inner)]
                plan.append((name, outer, inner, torch_dtype(spec.dtype), env_axis, agent_axis, 0))
        for name, group in self.env.groups.items():
            first, rows = self.env.first_agent[name], (self.num_envs, group.count)
            dtype = torch.float32 if isinstance(group.action, Box) else torch.int32
            plan.append((f"{name}.action", (*rows, group.action.size), (), dtype, 0, 1, first))
            obs = self.group_obs_dtype(name)
            plan.append((f"{name}.obs", (*rows, group.obs), (), obs, 0, 1, first))
            plan.append((f"{name}.final_obs", (1, *rows, group.obs), (), obs, 1, 2, first))
            if group.mask:
                plan.append((f"{name}.mask", (*rows, group.action.num_outputs), (), torch.uint8, 0, 1, first))
        self._allocate(plan)

        for name in self.all_fields():
            if name in self.blocks:
                self.fields[name] = self.blocks[name].view
        self.action = {name: self.blocks[f"{name}.action"].view for name in self.env.groups}
        self.results = Results(
            arrays={name: self.fields[name] for name in OUTPUTS},
            obs={name: self.blocks[f"{name}.obs"].view for name in self.env.groups},
            mask={name: self.blocks[f"{name}.mask"].view for name, g in self.env.groups.items() if g.mask},
            final_obs={name: self.blocks[f"{name}.final_obs"].view for name in self.env.groups},
        )
        for mask in self.results.mask.values():
            mask.fill_(1)

    def _allocate(self, plan: list[Any]) -> None:
        starts, end = [], MARGIN
        for _, outer, inner, dtype, *_ in plan:
            starts.append(end)
            count = dtype.itemsize
            for length in inner:
                count *= length
            for length in outer:
                count *= length + 2 * _guard(length)
            end += -(-count // 16) * 16
        size = end + MARGIN
        self.arena = torch.zeros(size, dtype=torch.uint8)
        self.field_of = torch.zeros(size, dtype=torch.int32)
        self.env_of = torch.full((size,), GUARD, dtype=torch.int32)
        self.agent_of = torch.full((size,), NOBODY, dtype=torch.int32)
        self._marked = torch.zeros(size, dtype=torch.uint8)
        for number, (start, (name, outer, inner, dtype, env_axis, agent_axis, first)) in enumerate(
            zip(starts, plan, strict=True)
        ):
            full = tuple(length + 2 * _guard(length) for length in outer) + inner

            def proper(bytes_of: torch.Tensor, kind: torch.dtype, full: Any = full, outer: Any = outer) -> Any:
                padded = bytes_of.view(kind)
                padded = padded[: torch.Size(full).numel()].view(full)
                view = padded
                for axis, length in enumerate(outer):
                    view = view.narrow(axis, _guard(length), length)
                return padded, view

            def owners(of: torch.Tensor, start: int = start, end: int = 0, full: Any = full, dt: Any = dtype) -> Any:
                count = torch.Size(full).numel() * dt.itemsize
                return of[start : start + count].view(*full, dt.itemsize)

            stop = starts[number + 1] if number + 1 < len(starts) else end
            padded, view = proper(self.arena[start:stop], dtype)
            self.blocks[name] = Block(name, view, padded, start)
            self.field_of[start:] = number
            marked, _ = proper(self._marked[start:stop], dtype)
            # Small values, which are harmless even as an index, and different from the zeros that stand there else.
            marked.fill_(1000.0 if dtype.is_floating_point else 1)
            env_of, agent_of = owners(self.env_of), owners(self.agent_of)
            for axis, length in enumerate(outer):
                env_of = env_of.narrow(axis, _guard(length), length)
                agent_of = agent_of.narrow(axis, _guard(length), length)
            along = [1] * env_of.dim()
            if env_axis is None:
                env_of.fill_(SHARED)
            else:
                shape = list(along)
                shape[env_axis] = -1
                env_of.copy_(torch.arange(self.num_envs, dtype=torch.int32).view(shape).expand_as(env_of))
            if agent_axis is not None:
                shape = list(along)
                shape[agent_axis] = -1
                count = outer[agent_axis]
                agents = torch.arange(first, first + count, dtype=torch.int32)
                agent_of.copy_(agents.view(shape).expand_as(agent_of))
        self.guard = self.env_of == GUARD
        self.names = [row[0] for row in plan]

    def mark_guards(self) -> None:
        """Fill the bands with other values than zero."""
        self.arena.copy_(torch.where(self.guard, self._marked, self.arena))

    def guards_marked(self, image: torch.Tensor) -> torch.Tensor:
        """Bytes of the bands that `image` has changed since mark_guards."""
        return differing(torch.where(self.guard, image, self._marked), self._marked)


class Stage(Simulator):
    """A simulator on the CPU whose phases can be run one by one, in any order, for one agent or all.

    Args:
        env: the environment.
        num_envs: number of copies.
        seed: of all random numbers.
    """

    store: GuardedStore

    def __init__(self, env: Env, num_envs: int, seed: int = 0) -> None:
        super().__init__(env, num_envs, seed=seed, device="cpu", obs_dtype=torch.float32, schedule="loop")
        self.calls = self.launcher.program.calls
        struct = self.launcher.struct(self.store.results)
        generator = torch.Generator().manual_seed(seed)
        self._orders: dict[tuple[str | None, str], Any] = {}
        self._commands: list[dict[str, Any]] = []
        for i, call in enumerate(self.calls):
            kernel, count, commands = self.launcher.program.ordered_kernel(i), self.count(i), {}
            for order in ("ascending", "descending", "shuffled"):
                key = (call.group if call.kind == "agent" else "", order)
                if key not in self._orders:
                    indices = torch.arange(count, dtype=torch.int32)
                    if order == "descending":
                        indices = indices.flip(0).contiguous()
                    if order == "shuffled":
                        indices = indices[torch.randperm(count, generator=generator)].contiguous()
                    self._orders[key] = wp.array(indices.numpy(), dtype=wp.int32, device="cpu")
                inputs = [struct, self._orders[key], 0, count, 0]
                commands[order] = wp.launch(kernel, num_envs, inputs, device="cpu", record_cmd=True)
            inputs = [struct, self._orders[key[0], "ascending"], 0, 1, 0]
            commands["alone"] = wp.launch(kernel, 1, inputs, device="cpu", record_cmd=True)
            self._commands.append(commands)

    def _make_store(self, obs_dtype: torch.dtype) -> GuardedStore:
        return GuardedStore(self.env, self.num_envs, self.device, obs_dtype)

    def _make_program(self, dtypes: dict[str, torch.dtype], schedule: Schedule) -> Program:
        program = Program.of(self.env, dtypes, "check")
        program.module.options["optimization_level"] = 0  # compiles four times as fast
        for i in range(len(program.calls)):
            program.ordered_kernel(i)
        return program

    def count(self, i: int) -> int:
        """Agents that call i runs for; 1 for one that runs for the environment."""
        call = self.calls[i]
        if call.kind == "env":
            return 1
        return self.env.num_agents if call.group is None else self.env.groups[call.group].count

    def first(self, i: int) -> int:
        """Index among all agents of the first agent of call i."""
        group = self.calls[i].group
        return 0 if group is None else self.env.first_agent[group]

    def run(self, i: int, order: str = "ascending") -> None:
        """Run call i in all environments."""
        self._commands[i][order].launch()

    def run_alone(self, i: int, env: int, agent: int) -> None:
        """Run call i in one environment for one agent, counted as the call counts."""
        command = self._commands[i]["alone"]
        command.set_param_at_index(2, agent)
        command.set_param_at_index(3, agent + 1)
        command.set_param_at_index(4, env)
        command.launch()

    def image(self) -> torch.Tensor:
        """A copy of the memory."""
        return self.store.arena.clone()

    def load(self, image: torch.Tensor) -> None:
        """Put a copy of the memory back."""
        self.store.arena.copy_(image)
