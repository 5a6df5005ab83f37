"""From an environment's phases to kernels: one a phase, one fused, or one loop over agents for the CPU."""

import functools
import inspect
import itertools
import linecache
import re
import types
from dataclasses import dataclass
from typing import Any

import torch
import warp as wp

from warpdrive.env.environment import Env, nearest, unknown_name
from warpdrive.env.phases import Phase
from warpdrive.env.spaces import Box
from warpdrive.env.state import BUILT_IN
from warpdrive.sim import episode, random_actions

__all__ = ["PhaseError", "Program"]

# How Warp says where a function does not compile: one such line a call, innermost last, and then what is wrong.
FAULT = re.compile(r'Error while parsing function "([^"]+)" at ([^\n]+):(\d+):\n([^\n]*)\n;')
NO_MEMBER = re.compile(r"`(\w+)` is not an attribute of '.*' \((.+)\)")
NO_NAME = re.compile(r"Referencing undefined symbol: (\w+)")
NO_FUNCTION = re.compile(r"Could not find function ([\w.]+) as a built-in or user-defined function\.")

# Without contraction of a * b + c every schedule gives the same bits (docs/design.md).
MODULE_OPTIONS = {"enable_backward": False, "fuse_fp": False}
SCRIPT_USE = 1 << 23  # keeps the streams of scripted policies apart from those of phases, actions and minibatches

_module_numbers: dict[str, Any] = {}
_programs: dict[Any, "Program"] = {}


class PhaseError(ValueError):
    """An author's phase that does not compile; the message names the phase, the file and the line."""


# Barriers for all threads of a block and of a warp. On the CPU nothing is needed: agents run one after the other.
@wp.func_native("""
#if defined(__CUDA_ARCH__)
    __syncthreads();
#endif
""")
def _block_barrier(): ...


@wp.func_native("""
#if defined(__CUDA_ARCH__)
    __syncwarp();
#endif
""")
def _warp_barrier(): ...


# Whether any thread of a block, or of a warp, says so; a barrier as well.
@wp.func_native("""
#if defined(__CUDA_ARCH__)
    return __syncthreads_or(here);
#else
    return here;
#endif
""")
def _block_any(here: bool) -> bool: ...  # type: ignore[empty-body]


@wp.func_native("""
#if defined(__CUDA_ARCH__)
    return __any_sync(0xffffffffu, here);
#else
    return here;
#endif
""")
def _warp_any(here: bool) -> bool: ...  # type: ignore[empty-body]


@dataclass(frozen=True)
class Call:
    """One function of the schedule: run for "agent", "env" or an agent of a group; `guarded`: only where over."""

    function: Any
    kind: str
    group: str | None
    use: int
    guarded: bool


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

    def _part(self, part: str) -> range:
        """Indices of the calls of a part of a step: "step" (all), "change" or "reset"; see fused_kernel."""
        last = len(self.calls)
        return {
            "step": range(last),
            "change": range(self.observe_calls.start),
            "reset": range(self.first_guarded, last),
        }[part]

    # ------------------------------------------------------------------ kernels

    def _compile(self, key: str, lines: list[str], module: Any = None, **functions: Any) -> Any:
        """A kernel from source text, with the functions call_0, call_1, ..., randomize_GROUP and those given."""
        source = "\n".join(lines) + "\n"
        filename = f"<warpdrive {(module or self.module).name} {key}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        scope = {f"call_{i}": call.function for i, call in enumerate(self.calls)}
        scope |= {f"randomize_{name}": call.function for name, call in self.random_calls.items()}
        scope |= {"State": self.struct, "wp": wp, "block_barrier": _block_barrier, "warp_barrier": _warp_barrier}
        scope |= {"block_any": _block_any, "warp_any": _warp_any, **functions}
        exec(compile(source, filename, "exec"), scope)
        scope[key].__module__ = "warpdrive.generated"
        return scope[key]

    def _kernel(self, key: str, lines: list[str], module: Any = None, **options: Any) -> Any:
        if key not in self._kernels:
            module = module or self.module
            function = self._compile(key, lines, module)
            self._kernels[key] = wp.kernel(function, module=module, name=key, enable_backward=False, **options)
        return self._kernels[key]

    def _invoke(self, i: int, agent: str = "agent") -> str:
        call = self.calls[i]
        if call.kind == "env":
            return f"call_{i}(s, env)"
        group = f"s.{call.group}, " if call.function is episode.keep else ""
        return f"call_{i}(s, {group}env, {agent})"

    def phase_kernel(self, i: int) -> Any:
        """Kernel (s) over (E, agents of the phase) or (E,) threads, for call i alone.

        That of an observe phase of all agents is over E * N threads, one group's after the other's: they then stand in
        the order in which each group's observations lie in memory.
        """
        call, names = self.calls[i], list(self.env.groups)
        lines = ["    env = wp.tid()" if call.kind == "env" else "    env, agent = wp.tid()"]
        if self.goes_by_groups(i):
            lines = [
                "    thread = int(wp.tid())",
                f"    first = int(s.{names[0]}.first)",
                f"    count = int(s.{names[0]}.count)",
            ]
            for before, name in itertools.pairwise(names):
                lines += [
                    f"    if first == s.{before}.first and thread >= s.over.shape[0] * count:",
                    "        thread -= s.over.shape[0] * count",
                    f"        count = s.{name}.count",
                    f"        first = s.{name}.first",
                ]
            lines += [
                "    env = int(wp.uint32(thread) // wp.uint32(count))",  # with a sign it takes twice as long
                "    agent = first + thread - env * count",
            ]
        body = [f"    s.use = {call.use}", f"    {self._invoke(i)}"]
        if call.guarded:
            body = ["    if s.over[env]:", *("    " + line for line in body)]
        return self._kernel(f"phase_{i}", [f"def phase_{i}(s: State):", *lines, *body])

    def goes_by_groups(self, i: int) -> bool:
        """Whether the threads of call i's kernel are in the order of the groups' observations; see phase_kernel."""
        call = self.calls[i]
        return i in self.observe_calls and call.kind == "agent" and call.group is None and len(self.env.groups) > 1

    def listed_kernel(self, i: int) -> Any:
        """Kernel (s, rows, over_envs, num_over) over (rows, agents of the phase) or (rows,): call i where listed.

        Few environments are over in a step: where there are many agents, most threads of `phase_kernel` would find
        that theirs is not.
        """
        call = self.calls[i]
        lines = [
            f"def listed_{i}(s: State, rows: int, over_envs: wp.array(dtype=int), num_over: wp.array(dtype=int)):",
            "    row = wp.tid()" if call.kind == "env" else "    row, agent = wp.tid()",
            f"    s.use = {call.use}",
            "    for at in range(row, num_over[0], rows):",
            "        env = over_envs[at]",
            f"        {self._invoke(i)}",
        ]
        return self._kernel(f"listed_{i}", lines)

    def random_kernel(self, group: str) -> Any:
        """Kernel (s) over (E, agents of the group): random actions for all of them."""
        key = f"random_{group}"
        return self._kernel(
            key,
            [f"def {key}(s: State):", "    env, agent = wp.tid()", f"    randomize_{group}(s, s.{group}, env, agent)"],
        )

    def loop_kernel(self, guarded_only: bool) -> Any:
        """Kernel over environments, each running its calls agent after agent: for the CPU.

        Its arguments are (s, first_env), and for whole steps also (num_steps, randomize): how many of them, and whether
        each begins with random actions.
        """
        if guarded_only:
            lines = ["def loop_reset(s: State, first_env: int):", "    env = first_env + wp.tid()"]
            return self._kernel("loop_reset", lines + self._loop_calls("    ", True))
        lines = [
            "def loop_step(s: State, first_env: int, num_steps: int, randomize: int):",
            "    env = first_env + wp.tid()",
            "    for _ in range(num_steps):",
            "        if randomize != 0:",
        ]
        for name in self.env.groups:
            lines.append(f"            for agent_{name} in range(s.{name}.count):")
            lines.append(f"                randomize_{name}(s, s.{name}, env, agent_{name})")
        return self._kernel("loop_step", lines + self._loop_calls("        ", False))

    def _loop_calls(self, indent: str, guarded_only: bool) -> list[str]:
        lines: list[str] = []
        entered = False
        for i, call in enumerate(self.calls):
            if guarded_only and not call.guarded:
                continue
            if call.guarded and not entered:
                lines.append(f"{indent}if s.over[env]:")
                indent, entered = indent + "    ", True
            lines.append(f"{indent}s.use = {call.use}")
            if call.kind == "env":
                lines.append(f"{indent}{self._invoke(i)}")
            else:
                count = "s.num_agents" if call.group is None else f"s.{call.group}.count"
                lines += [f"{indent}for agent_{i} in range({count}):", f"{indent}    {self._invoke(i, f'agent_{i}')}"]
        return lines

    def ordered_kernel(self, i: int) -> Any:
        """Kernel (s, order, first, last, first_env) over environments: call i for agents order[first:last], in order.

        It is for checks. A call for environments ignores the order.
        """
        call, key = self.calls[i], f"ordered_{i}"
        body = [f"    s.use = {call.use}"]
        if call.kind == "env":
            body.append(f"    {self._invoke(i)}")
        else:
            body += ["    for k in range(first, last):", f"        {self._invoke(i, 'order[k]')}"]
        if call.guarded:
            body = ["    if s.over[env]:", *("    " + line for line in body)]
        arguments = "s: State, order: wp.array(dtype=int), first: int, last: int, first_env: int"
        return self._kernel(key, [f"def {key}({arguments}):", "    env = first_env + wp.tid()", *body])

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
        calls = self._part(part)
        key, more = f"fused_{part}", ", num_steps: int, randomize: int" if part == "step" else ""
        barrier = "warp" if unit == "warp" else "block"
        lines = [
            f"def {key}(s: State, num_envs: int, size: int, units: int, envs_per_unit: int{more}):",
            "    block, thread = wp.tid()",
            "    lane = thread % size",
            "    local = lane // s.num_agents",
            "    agent = lane - local * s.num_agents",
            "    env = (block * units + thread // size) * envs_per_unit + local",
            "    inside = local < envs_per_unit and env < num_envs",
        ]
        if unit == "strided":
            lines[2:] = ["    env = block", "    inside = bool(True)"]
        indent = "    "
        if part == "step":
            indent = "        "
            lines.append("    for _ in range(num_steps):")
            lines.append("        if inside and randomize != 0:")
            for name in self.env.groups:
                draw = f"randomize_{name}(s, s.{name}, env, {{}})"
                lines += self._fused_call(indent + "    ", unit, name, f"r_{name}", draw)
            lines.append(f"        {barrier}_barrier()")
        lines.append(f"{indent}here = inside")
        entered = False
        for i in calls:
            call = self.calls[i]
            if call.guarded and not entered:
                lines += [f"{indent}if here:", f"{indent}    here = s.over[env]", f"{indent}if {barrier}_any(here):"]
                indent, entered = indent + "    ", True
            lines += [f"{indent}if here:", f"{indent}    s.use = {call.use}"]
            if call.kind == "env":
                lines += [f"{indent}    if {'thread' if unit == 'strided' else 'agent'} == 0:"]
                lines += [f"{indent}        {self._invoke(i)}"]
            else:
                lines += self._fused_call(indent + "    ", unit, call.group, f"i_{i}", self._invoke(i, "{}"))
            lines.append(f"{indent}{barrier}_barrier()")
        return self._kernel(key, lines, grid_stride=False)

    @staticmethod
    def _fused_call(indent: str, unit: str, group: str | None, index: str, call: str) -> list[str]:
        """A call for the agents of a group, or for all; `call` has {} where the index within the group belongs."""
        if unit == "strided":
            count = "s.num_agents" if group is None else f"s.{group}.count"
            return [f"{indent}for {index} in range(thread, {count}, size):", f"{indent}    {call.format(index)}"]
        if group is None:
            return [f"{indent}{call.format('agent')}"]
        return [
            f"{indent}{index} = agent - s.{group}.first",
            f"{indent}if {index} >= 0 and {index} < s.{group}.count:",
            f"{indent}    {call.format(index)}",
        ]

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
        for number, (name, phase) in enumerate(listed):
            group, key = f"s.{name}", f"script_{number}"
            lines = [
                f"def {key}(s: State):",
                "    env, i = wp.tid()",
                f"    s.use = {SCRIPT_USE + number}",
                f"    if {group}.active[env, i]:",
                "        choose(s, env, i)",
                "    else:",
                f"        for k in range({group}.action.shape[2]):",
                f"            {group}.action[env, i, k] = {group}.action.dtype(0)",
            ]
            function = self._compile(key, lines, module, choose=self._typed(phase, module))
            kernels[name, phase.name] = wp.kernel(function, module=module, name=key, enable_backward=False)
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
            raise self._phase_error(error) from None  # Warp's own traceback leads through generated source

    def _phase_error(self, error: Exception) -> PhaseError:
        """The error of Warp's compiler as one sentence: which phase, file and line, and what is wrong."""
        name = type(self.env).__name__
        text = str(error.args[0]) if error.args else str(error)
        faults = [fault for fault in FAULT.findall(text) if not fault[1].startswith("<warpdrive ")]
        reason = " ".join(FAULT.sub("", text).split())
        if not faults:
            return PhaseError(f"{name} does not compile: {reason}; what the compiler said stands above")
        phase, (function, file, line, source) = faults[0][0], faults[-1]
        inside = "" if function == phase else f" in {function!r}"
        return PhaseError(
            f"phase {phase!r} of {name} does not compile{inside} ({file}:{line}, `{source.strip()}`): "
            f"{self._reason(reason, phase)}"
        )

    def _reason(self, reason: str, phase: str) -> str:
        """What Warp says is wrong, with the nearest name where there is no such name."""
        env = self.env
        listed = (p.function for part in (env.reset, env.step, env.observe, env.scripted) for p in part)
        function = next(f for f in listed if f.__name__ == phase)
        if match := NO_MEMBER.search(reason):
            owners = {f"Agents_{key}": group.vars for key, group in self.groups.items()}
            owners[self.env.state.__name__] = self.struct.vars
            owner = re.findall(r"\w+", match[2])[-1]
            if owner in owners:
                return str(unknown_name("field", match[1], owners[owner]))
        if match := NO_NAME.search(reason):
            known = {*function.__code__.co_varnames, *function.__globals__}
            return "; ".join(filter(None, (match[0][0].lower() + match[0][1:], nearest(match[1], known))))
        if match := NO_FUNCTION.search(reason):
            if isinstance(function.__globals__.get(match[1]), Phase):
                return f"{match[1]!r} is a phase, which cannot be called; put what several phases share in a @wp.func"
            known = {f"wp.{key}" for key in dir(wp)} if match[1].startswith("wp.") else set(function.__globals__)
            hint = nearest(match[1], known - {match[1]}) or "functions that phases call are marked with @wp.func"
            return f"there is no function {match[1]!r} that can be called here; {hint}"
        return reason.removeprefix("Error, ")
