"""From an environment's phases to kernels: one a phase, one fused, or one loop over agents for the CPU."""

import functools
import inspect
import itertools
import linecache
import re
import types
from collections.abc import Sequence
from typing import Any

import torch
import warp as wp

from warpdrive.env.environment import Env
from warpdrive.env.phases import Phase
from warpdrive.env.spaces import Box
from warpdrive.env.state import BUILT_IN
from warpdrive.sim import barriers, episode, random_actions
from warpdrive.sim.kernel_text import Call, KernelText
from warpdrive.sim.phase_error import PhaseError, phase_error

__all__ = ["Program"]

# Without contraction of a * b + c every schedule gives the same bits (docs/design.md).
MODULE_OPTIONS = {"enable_backward": False, "fuse_fp": False}

_module_numbers: dict[str, Any] = {}
_programs: dict[Any, "Program"] = {}


class Program:
    """The state struct and the kernels of one environment, for one type of observations.

    Args:
        env: the environment.
        obs_dtypes: group -> torch type of its observations.
        variant: which kernels will be made of it; see `of`.
    """

    def __init__(self, env: Env, obs_dtypes: dict[str, torch.dtype], variant: str = "") -> None:
        self.env = env
        name = ".".join([type(env).__name__, *re.findall(r"\w+", variant)])
        # The number makes a second simulator's module another one; the same order finds the same kernels on disk, and
        # whether other variants were made before, to measure them, does not matter.
        number = next(_module_numbers.setdefault(name, itertools.count()))
        self.module = wp.get_module(f"warpdrive.{name}.{number}")
        self.module.options.update(MODULE_OPTIONS)
        self.groups = {key: self._group_struct(key, obs_dtypes[key]) for key in env.groups}
        self.struct = self._state_struct()
        self.calls = self._schedule()
        self.random_calls = {name: self._random_call(name) for name in env.groups}
        by_groups = [k for k in range(len(self.calls)) if self.goes_by_groups(k)]
        self.text = KernelText(self.calls, list(env.groups), by_groups)
        self._kernels: dict[str, Any] = {}

    @classmethod
    def of(cls, env: Env, obs_dtypes: dict[str, torch.dtype], variant: str) -> "Program":
        """The program of an environment; one that differs in numbers only shares it, and so is not compiled again.

        Args:
            variant: which kernels will be made of it. Programs of different kernels are kept apart: to add a kernel to
                a module that is loaded would load it anew, under the feet of captured graphs.
        """
        groups = tuple((name, isinstance(g.action, Box), obs_dtypes[name]) for name, g in env.groups.items())
        key = (type(env), env.state, env.reset, env.step, env.observe, env.scripted, groups, variant)
        if key not in _programs:
            _programs[key] = cls(env, obs_dtypes, variant)
        return _programs[key]

    # ------------------------------------------------------------------ structs

    def _struct(self, name: str, annotations: dict[str, Any]) -> Any:
        members = {"__annotations__": annotations, "__module__": "warpdrive.generated", "__qualname__": name}
        return wp.struct(type(name, (), members), module=self.module)

    def _group_struct(self, name: str, obs_dtype: torch.dtype) -> Any:
        space = self.env.groups[name].action
        obs = wp.dtype_from_torch(obs_dtype)
        return self._struct(
            f"Agents_{name}",
            {
                "obs": wp.array3d(dtype=obs),
                "final_obs": wp.array4d(dtype=obs),
                "action": wp.array3d(dtype=wp.float32 if isinstance(space, Box) else wp.int32),
                "mask": wp.array3d(dtype=wp.uint8),
                "reward": wp.array2d(dtype=wp.float32),
                "active": wp.array2d(dtype=wp.bool),
                "terminated": wp.array2d(dtype=wp.bool),
                "heads": wp.array(dtype=wp.int32),
                "low": wp.array(dtype=wp.float32),
                "high": wp.array(dtype=wp.float32),
                "first": wp.int32,
                "count": wp.int32,
            },
        )

    def _state_struct(self) -> Any:
        annotations: dict[str, Any] = {}
        for name, spec in {**BUILT_IN, **self.env.state.fields}.items():
            if spec.kind == "group":
                annotations[name] = self.groups[name]
            elif spec.kind == "param":
                annotations[name] = spec.dtype
            else:
                axes = {"agent": 2, "env": 1, "shared": 1}[spec.kind] + len(spec.axes)
                annotations[name] = wp.array(dtype=spec.dtype, ndim=axes)
        return self._struct(self.env.state.__name__, annotations)

    # ------------------------------------------------------------------ schedule

    def _schedule(self) -> list[Call]:
        """All calls of a step in order; those after `close` are guarded."""
        env = self.env
        calls: list[Call] = []

        def add(function: Any, kind: str = "agent", group: str | None = None, guarded: bool = False) -> None:
            calls.append(Call(function, kind, group, len(calls), guarded))

        typed: dict[Phase, Any] = {}

        def add_phases(phases: tuple[Phase, ...], guarded: bool) -> None:
            for phase in phases:
                if phase not in typed:
                    typed[phase] = self._typed(phase)
                add(typed[phase], phase.kind, phase.group, guarded)

        add(episode.begin)
        add_phases(env.step, False)
        add(episode.settle)
        add(episode.close, "env")
        add_phases(env.observe, False)
        for name in env.groups:
            add(episode.keep, "agent", name, True)
        add(episode.restart, guarded=True)
        add_phases(env.reset, True)
        add_phases(env.observe, True)
        return calls

    def _random_call(self, group: str) -> Call:
        """The call that gives the agents of a group random actions."""
        continuous = isinstance(self.env.groups[group].action, Box)
        function = random_actions.continuous if continuous else random_actions.discrete
        return Call(function, "agent", group, 0, False)

    def _typed(self, phase: Phase, module: Any = None) -> Any:
        """The phase as a Warp function over this program's struct, in a module, by default that of the steps."""
        python = phase.function
        copy = types.FunctionType(
            python.__code__, python.__globals__, python.__name__, python.__defaults__, python.__closure__
        )
        copy.__module__, copy.__qualname__ = python.__module__, python.__qualname__
        names = list(inspect.signature(python).parameters)
        copy.__annotations__ = {names[0]: self.struct, **dict.fromkeys(names[1:], int)}
        try:
            return wp.func(copy, module=module or self.module)  # type: ignore[call-overload]
        except Exception as error:
            code = python.__code__
            raise PhaseError(
                f"phase {phase.name!r} of {type(self.env).__name__} ({code.co_filename}:{code.co_firstlineno}) cannot "
                f"be compiled: {error}"
            ) from None

    @property
    def first_guarded(self) -> int:
        """Index of the first call that runs only where an environment is over."""
        return next(i for i, call in enumerate(self.calls) if call.guarded)

    @property
    def observe_calls(self) -> range:
        """Indices of the calls that write the observations of a step."""
        return range(self.first_guarded - len(self.env.observe), self.first_guarded)

    def _part(self, part: str) -> Sequence[Call]:
        """The calls of a part of a step: "step" (all), "change" or "reset"; see fused_kernel."""
        if part == "step":
            return self.calls
        return self.calls[self.first_guarded :] if part == "reset" else self.calls[: self.observe_calls.start]

    # ------------------------------------------------------------------ kernels

    def _compile(self, lines: list[str], module: Any, **functions: Any) -> Any:
        """The function of source text, which may call those of the calls and those given."""
        source, key = "\n".join(lines) + "\n", self._name(lines)
        filename = f"<warpdrive {module.name} {key}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        scope = {f"call_{call.use}": call.function for call in self.calls}
        scope |= {f"randomize_{name}": call.function for name, call in self.random_calls.items()}
        scope |= {name: getattr(barriers, name) for name in barriers.__all__}
        scope |= {"State": self.struct, "wp": wp, **functions}
        exec(compile(source, filename, "exec"), scope)
        scope[key].__module__ = "warpdrive.generated"
        return scope[key]

    @staticmethod
    def _name(lines: list[str]) -> str:
        return lines[0].removeprefix("def ").partition("(")[0]

    def _kernel(self, lines: list[str], **options: Any) -> Any:
        key = self._name(lines)
        if key not in self._kernels:
            function = self._compile(lines, self.module)
            self._kernels[key] = wp.kernel(function, module=self.module, name=key, enable_backward=False, **options)
        return self._kernels[key]

    def phase_kernel(self, i: int) -> Any:
        """Kernel (s) over (E, agents of the phase) or (E,) threads, for call i alone.

        That of an observe phase of all agents is over E * N threads, one group's after the other's: they then stand in
        the order in which each group's observations lie in memory.
        """
        return self._kernel(self.text.phase(i))

    def goes_by_groups(self, i: int) -> bool:
        """Whether the threads of call i's kernel are in the order of the groups' observations; see phase_kernel."""
        call = self.calls[i]
        return i in self.observe_calls and call.kind == "agent" and call.group is None and len(self.env.groups) > 1

    def listed_kernel(self, i: int) -> Any:
        """Kernel (s, rows, over_envs, num_over) over (rows, agents of the phase) or (rows,): call i where listed.

        Few environments are over in a step: where there are many agents, most threads of `phase_kernel` would find
        that theirs is not.
        """
        return self._kernel(self.text.listed(i))

    def random_kernel(self, group: str) -> Any:
        """Kernel (s) over (E, agents of the group): random actions for all of them."""
        return self._kernel(self.text.random(group))

    def loop_kernel(self, guarded_only: bool) -> Any:
        """Kernel over environments, each running its calls agent after agent: for the CPU.

        Its arguments are (s, first_env), and for whole steps also (num_steps, randomize): how many of them, and whether
        each begins with random actions.
        """
        return self._kernel(self.text.loop_reset() if guarded_only else self.text.loop_step())

    def ordered_kernel(self, i: int) -> Any:
        """Kernel (s, order, first, last, first_env) over environments: call i for agents order[first:last], in order.

        It is for checks. A call for environments ignores the order.
        """
        return self._kernel(self.text.ordered(i))

    def fused_kernel(self, part: str, unit: str) -> Any:
        """Kernel over (blocks, threads): whole environments in each unit of threads, for CUDA.

        Its arguments are (s, num_envs, size, units, envs_per_unit): threads of a unit and units of a block; and for
        whole steps also (num_steps, randomize), as those of `loop_kernel`: environments do not wait for one another,
        so a unit goes on with its own to the next step. Between phases the threads of a unit wait for one another.

        Args:
            part: "step", all calls; "change", those before the observations; "reset", those for environments that are
                over.
            unit: "warp" or "block", in which each thread has one agent; or "strided", a block for one environment, in
                which each thread has every size-th agent.
        """
        return self._kernel(self.text.fused(part, self._part(part), unit), grid_stride=False)

    @functools.cached_property
    def script_kernels(self) -> dict[tuple[str, str], Any]:
        """Of each (group, scripted policy) the kernel (s) over (E, agents of the group) that writes its actions.

        They have a module of their own: most simulators never need them, and to add a kernel to the steps' module
        would load that anew. Agents that are not active get action 0.
        """
        module = wp.get_module(f"{self.module.name}.scripted")
        module.options.update(MODULE_OPTIONS)
        kernels: dict[tuple[str, str], Any] = {}
        listed = [(group, phase) for group, scripts in self.env.scripts.items() for phase in scripts.values()]
        for number, (group, phase) in enumerate(listed):
            lines = self.text.script(number, group)
            function = self._compile(lines, module, choose=self._typed(phase, module))
            key = self._name(lines)
            kernels[group, phase.name] = wp.kernel(function, module=module, name=key, enable_backward=False)
        return kernels

    def load_scripts(self, device: Any) -> None:
        """Compile (or fetch from Warp's cache) the kernels of all scripted policies.

        Raises:
            PhaseError: an author's phase does not compile.
        """
        self._load(next(iter(self.script_kernels.values())).module, device)

    def load(self, device: Any, block_dim: int | None = None) -> None:
        """Compile (or fetch from Warp's cache) all kernels of the steps made so far.

        Raises:
            PhaseError: an author's phase does not compile.
        """
        self._load(self.module, device, block_dim)

    def _load(self, module: Any, device: Any, block_dim: int | None = None) -> None:
        try:
            wp.load_module(module, device=device, block_dim=block_dim)
        except OSError:  # of the cache on disk
            raise
        except Exception as error:
            raise phase_error(
                self.env, self._members, error
            ) from None  # Warp's own traceback leads through generated source

    @property
    def _members(self) -> dict[str, Any]:
        """Name of a struct that phases get -> its members."""
        groups = {f"Agents_{name}": group.vars for name, group in self.groups.items()}
        return groups | {self.env.state.__name__: self.struct.vars}
