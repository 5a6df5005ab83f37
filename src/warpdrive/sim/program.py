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
from warpdrive.sim import episode

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


# A barrier for all threads of a block. On the CPU nothing is needed: agents run one after the other.
@wp.func_native("""
#if defined(__CUDA_ARCH__)
    __syncthreads();
#endif
""")
def _barrier(): ...


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
    """

    def __init__(self, env: Env, obs_dtypes: dict[str, torch.dtype]) -> None:
        self.env = env
        name = type(env).__name__
        # The number makes a second simulator's module another one; the same order finds the same kernels on disk.
        number = next(_module_numbers.setdefault(name, itertools.count()))
        self.module = wp.get_module(f"warpdrive.{name}.{number}")
        self.module.options.update(MODULE_OPTIONS)
        self.groups = {key: self._group_struct(key, obs_dtypes[key]) for key in env.groups}
        self.struct = self._state_struct()
        self.calls = self._schedule()
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
            _programs[key] = cls(env, obs_dtypes)
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

    # ------------------------------------------------------------------ kernels

    def _compile(self, key: str, lines: list[str], module: Any = None, **functions: Any) -> Any:
        """A kernel from source text; in it functions of the schedule are call_0, call_1, ..., and those given."""
        source = "\n".join(lines) + "\n"
        filename = f"<warpdrive {(module or self.module).name} {key}>"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        scope = {f"call_{i}": call.function for i, call in enumerate(self.calls)}
        scope |= {"State": self.struct, "wp": wp, "barrier": _barrier, **functions}
        exec(compile(source, filename, "exec"), scope)
        scope[key].__module__ = "warpdrive.generated"
        return scope[key]

    def _kernel(self, key: str, lines: list[str], **options: Any) -> Any:
        if key not in self._kernels:
            function = self._compile(key, lines)
            self._kernels[key] = wp.kernel(function, module=self.module, name=key, enable_backward=False, **options)
        return self._kernels[key]

    def _invoke(self, i: int, agent: str = "agent") -> str:
        call = self.calls[i]
        if call.kind == "env":
            return f"call_{i}(s, env)"
        group = f"s.{call.group}, " if call.function is episode.keep else ""
        return f"call_{i}(s, {group}env, {agent})"

    def phase_kernel(self, i: int) -> Any:
        """Kernel (s) over (E, agents of the phase) or (E,) threads, for call i alone."""
        call = self.calls[i]
        threads = "env = wp.tid()" if call.kind == "env" else "env, agent = wp.tid()"
        body = [f"    s.use = {call.use}", f"    {self._invoke(i)}"]
        if call.guarded:
            body = ["    if s.over[env]:", *("    " + line for line in body)]
        return self._kernel(f"phase_{i}", [f"def phase_{i}(s: State):", f"    {threads}", *body])

    def loop_kernel(self, guarded_only: bool) -> Any:
        """Kernel (s, first_env) over environments, each running its calls agent after agent: for the CPU."""
        key = "loop_reset" if guarded_only else "loop_step"
        lines = [f"def {key}(s: State, first_env: int):", "    env = first_env + wp.tid()"]
        indent = "    "
        for i, call in enumerate(self.calls):
            if guarded_only and not call.guarded:
                continue
            if call.guarded and indent == "    ":
                lines.append("    if s.over[env]:")
                indent = "        "
            lines.append(f"{indent}s.use = {call.use}")
            if call.kind == "env":
                lines.append(f"{indent}{self._invoke(i)}")
            else:
                count = "s.num_agents" if call.group is None else f"s.{call.group}.count"
                lines += [f"{indent}for agent_{i} in range({count}):", f"{indent}    {self._invoke(i, f'agent_{i}')}"]
        return self._kernel(key, lines)

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

    def fused_kernel(self, guarded_only: bool) -> Any:
        """Kernel (s, num_envs, envs_per_block) over (blocks, threads): whole environments in each block, for CUDA."""
        key = "fused_reset" if guarded_only else "fused_step"
        lines = [
            f"def {key}(s: State, num_envs: int, envs_per_block: int):",
            "    block, thread = wp.tid()",
            "    local = thread // s.num_agents",
            "    agent = thread - local * s.num_agents",
            "    env = block * envs_per_block + local",
            "    here = local < envs_per_block and env < num_envs",
        ]
        entered = False
        for i, call in enumerate(self.calls):
            if guarded_only and not call.guarded:
                continue
            if call.guarded and not entered:
                lines += ["    if here:", "        here = s.over[env]"]
                entered = True
            lines.append("    if here:")
            lines.append(f"        s.use = {call.use}")
            if call.kind == "env":
                lines += ["        if agent == 0:", f"            {self._invoke(i)}"]
            elif call.group is None:
                lines.append(f"        {self._invoke(i)}")
            else:
                lines += [
                    f"        i_{i} = agent - s.{call.group}.first",
                    f"        if i_{i} >= 0 and i_{i} < s.{call.group}.count:",
                    f"            {self._invoke(i, f'i_{i}')}",
                ]
            lines.append("    barrier()")
        return self._kernel(key, lines, grid_stride=False)

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
