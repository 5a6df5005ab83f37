"""Recorded launches of a program's kernels: what one step, one reset or one refresh consists of."""

import itertools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import torch
import warp as wp

from warpdrive.env.spaces import Box
from warpdrive.sim.over import OverList
from warpdrive.sim.program import Program
from warpdrive.sim.store import Results, Store, warp_array, warp_device

__all__ = ["BLOCK", "ON_CUDA", "Launcher", "Schedule", "choose_schedule", "choose_unit", "device_stream"]

Schedule = Literal["auto", "split", "mixed", "fused", "loop"]
BLOCK = 128  # threads of a fused kernel's block, where nothing was measured
FUSED_UP_TO = 64  # agents: beyond, "mixed" is as fast as a rule on an H200, and compiles in a fraction of the time
ON_CUDA = ("fused", "mixed")
WARP = 32
LEAST_LANES = 24  # of a warp that environments must fill for it to be their unit
MOST_STEPS = 1000  # in one launch: so that a program can be interrupted
ONE_STEP = [1, 0]  # num_steps and randomize: with the actions that are there
LISTED_ROWS = 256  # environments that begin anew at the same time; more take turns
CHUNK = 32  # environments that one CPU thread takes at least


def device_stream(device: torch.device) -> Any:
    """PyTorch's current stream as Warp's, or None on the CPU."""
    return wp.stream_from_torch(torch.cuda.current_stream(device)) if device.type == "cuda" else None


def choose_schedule(schedule: Schedule, num_agents: int, device: torch.device) -> Schedule:
    """The schedule to run: the one asked for if it can be, or for "auto" the one that is fastest as a rule.

    Raises:
        ValueError: an unknown schedule, or one that cannot run this environment on this device.
    """
    if schedule == "auto":
        return ("fused" if num_agents <= FUSED_UP_TO else "mixed") if device.type == "cuda" else "loop"
    if schedule not in ("split", "mixed", "fused", "loop"):
        raise ValueError(f"schedule must be 'auto', 'split', 'mixed', 'fused' or 'loop', got {schedule!r}")
    if schedule in ON_CUDA and device.type != "cuda":
        raise ValueError(f"schedule {schedule!r} needs a CUDA device; on the CPU take 'loop' or 'split'")
    return schedule


def choose_unit(num_agents: int) -> Literal["warp", "block", "strided"]:
    """Which threads of a fused kernel have an environment: a warp's where whole environments fill one well.

    See Program.fused_kernel.
    """
    if num_agents <= WARP and WARP // num_agents * num_agents >= LEAST_LANES:
        return "warp"
    return "block" if num_agents <= BLOCK else "strided"


class Launcher:
    """Makes launches over a store; each is a function that enqueues its kernels on PyTorch's current stream.

    Args:
        program: the kernels.
        store: the arrays they run over.
        schedule: as from choose_schedule: "split" (one kernel a phase), "fused" (one kernel, CUDA), "mixed" (one
            kernel for each observe phase, one for what comes before and one for what comes after, CUDA), "loop" (one
            thread an environment). Beyond 128 agents, what comes after is a kernel a phase in all but the last, over
            those environments alone that are over.
        params: values of the built-in and the author's parameters.
        block_dim: threads a block of the fused kernel where each has one agent, a multiple of 32.
    """

    def __init__(
        self, program: Program, store: Store, schedule: Schedule, params: dict[str, Any], block_dim: int = BLOCK
    ) -> None:
        self.program, self.store, self.params = program, store, params
        self.device = warp_device(store.device)
        agents = store.env.num_agents
        self.schedule = schedule
        self.unit = choose_unit(agents)
        if self.unit == "block":  # as many whole environments as fit
            self.envs_per_unit = max(1, block_dim // agents)
            self.block_dim = -(-self.envs_per_unit * agents // WARP) * WARP
        else:
            self.envs_per_unit = WARP // agents if self.unit == "warp" else 1
            self.block_dim = block_dim
        self._over = OverList(store.num_envs, store.device) if self.unit == "strided" and schedule != "loop" else None
        self._constants = {name: self._space_arrays(name) for name in store.env.groups}
        self._pool: ThreadPoolExecutor | None = None
        if schedule == "loop" and store.device.type == "cpu" and store.num_envs >= 2 * CHUNK:
            self._pool = ThreadPoolExecutor(os.cpu_count() or 1)
        self._make_kernels()

    def _make_kernels(self) -> None:
        """Compile all at once, so that nothing is loaded while a graph is captured."""
        program = self.program
        if self._over:
            for i in range(program.first_guarded, len(program.calls)):
                program.listed_kernel(i)
        if self.schedule == "split":
            for i in range(program.first_guarded if self._over else len(program.calls)):
                program.phase_kernel(i)
        if self.schedule in ON_CUDA:
            program.fused_kernel("step" if self.schedule == "fused" else "change", self.unit)
            if not self._over:
                program.fused_kernel("reset", self.unit)
        elif self.schedule == "loop":
            program.loop_kernel(guarded_only=False)
            program.loop_kernel(guarded_only=True)
        for i in program.observe_calls:
            program.phase_kernel(i)
        for name in self._constants:
            program.random_kernel(name)
        program.load(self.device)
        if self.schedule in ON_CUDA:
            program.load(self.device, block_dim=self.block_dim)

    def _space_arrays(self, group: str) -> dict[str, Any]:
        """What random actions of a group are drawn from: the choices of each head, or the bounds."""
        space = self.store.env.groups[group].action
        if isinstance(space, Box):
            bounds = {"low": space.low, "high": space.high}
            return {name: wp.array(bound, dtype=wp.float32, device=self.device) for name, bound in bounds.items()}
        return {"heads": wp.array(space.heads, dtype=wp.int32, device=self.device)}

    def struct(self, results: Results, counting: bool = True) -> Any:
        """The state struct that points at the store and leaves its results in `results`."""
        store, program = self.store, self.program
        s = program.struct()
        fields = store.all_fields()
        arrays = {**store.fields, **results.arrays}
        for name, spec in fields.items():
            if spec.kind in ("agent", "env", "shared"):
                setattr(s, name, warp_array(arrays[name], spec.dtype))
        for name, value in self.params.items():
            setattr(s, name, value)
        s.num_final = next(iter(results.final_obs.values())).shape[0]
        s.rolling, s.counting = int(results.rolling), int(counting)
        for name, first in store.env.first_agent.items():
            count = store.env.groups[name].count
            own = slice(first, first + count)
            group = program.groups[name]()
            obs = wp.dtype_from_torch(store.group_obs_dtype(name))
            group.obs = warp_array(results.obs[name], obs)
            group.final_obs = warp_array(results.final_obs[name], obs)
            group.action = warp_array(store.action[name], wp.dtype_from_torch(store.action[name].dtype))
            if name in results.mask:
                group.mask = warp_array(results.mask[name], wp.uint8)
            group.reward = warp_array(arrays["reward"][:, own], wp.float32)
            group.active = warp_array(arrays["active"][:, own], wp.bool)
            group.terminated = warp_array(arrays["terminated"][:, own], wp.bool)
            for key, array in self._constants[name].items():
                setattr(group, key, array)
            group.first, group.count = first, count
            setattr(s, name, group)
        return s

    def step(self, results: Results) -> Callable[[], None]:
        """A launch of one whole step."""
        return self._launch(self.struct(results), results, guarded_only=False)

    def restart(self, results: Results) -> Callable[[], None]:
        """A launch that begins anew where `over` is set, without booking the episode."""
        return self._launch(self.struct(results, counting=False), results, guarded_only=True)

    def observe(self, results: Results) -> Callable[[], None]:
        """A launch of the observe phases alone."""
        s = self.struct(results)
        return self._run([self._phase(i, s) for i in self.program.observe_calls], results)

    def randomize(self, group: str, results: Results) -> Callable[[], None]:
        """A launch that gives the agents of a group random actions, by the masks of `results`."""
        store = self.store
        dim = (store.num_envs, store.env.groups[group].count)
        return self._run([self._record(self.program.random_kernel(group), dim, [self.struct(results)])], results)

    def random_steps(self, results: Results) -> Callable[[int], None] | None:
        """A launch of some number of whole steps with random actions, or None where each kernel is a part of one."""
        if self.schedule not in ("fused", "loop"):
            return None
        commands = self._whole(self.struct(results), guarded_only=False)
        run = self._in_parallel(commands, results) if self._pool else self._run(commands, results)

        def repeat(steps: int) -> None:
            for done in range(0, steps, MOST_STEPS):
                for command in commands:
                    command.set_param_by_name("num_steps", min(MOST_STEPS, steps - done))
                    command.set_param_by_name("randomize", 1)
                run()

        return repeat

    def script(self, group: str, policy: str, results: Results) -> Callable[[], None]:
        """A launch in which a scripted policy writes the actions of its group; `results` are those of the last step."""
        kernel = self.program.script_kernels[group, policy]
        self.program.load_scripts(self.device)
        dim = (self.store.num_envs, self.store.env.groups[group].count)
        return self._run([self._record(kernel, dim, [self.struct(results)])], results)

    def _launch(self, s: Any, results: Results, guarded_only: bool) -> Callable[[], None]:
        program = self.program
        if self.schedule == "split":
            before = [] if guarded_only else [self._phase(i, s) for i in range(program.first_guarded)]
            return self._run([*before, *self._anew(s, results)], results)
        if self.schedule == "mixed":
            before = (
                [] if guarded_only else [self._fused("change", s), *(self._phase(i, s) for i in program.observe_calls)]
            )
            return self._run([*before, *self._anew(s, results)], results)
        if self.schedule == "fused" and guarded_only:
            return self._run(self._anew(s, results), results)
        commands = self._whole(s, guarded_only)
        return self._in_parallel(commands, results) if self._pool else self._run(commands, results)

    def _anew(self, s: Any, results: Results) -> list[Any]:
        """The launches, one after the other, that begin environments anew where `over` is set."""
        calls = range(self.program.first_guarded, len(self.program.calls))
        if self._over:
            return [self._over.record(results.arrays["over"]), *(self._listed(i, s, self._over) for i in calls)]
        if self.schedule == "split":
            return [self._phase(i, s) for i in calls]
        return [self._fused("reset", s)]

    def _whole(self, s: Any, guarded_only: bool) -> list[Any]:
        """The launches, independent of one another, that make a whole step (or, in a loop, the guarded end of one)."""
        if self.schedule == "fused":
            assert not guarded_only  # that is _anew
            return [self._fused("step", s)]
        num_envs = self.store.num_envs
        parts = min(os.cpu_count() or 1, num_envs // CHUNK) if self._pool else 1
        bounds = [num_envs * k // parts for k in range(parts + 1)]
        kernel = self.program.loop_kernel(guarded_only)
        more = [] if guarded_only else ONE_STEP
        return [self._record(kernel, b - a, [s, a, *more]) for a, b in itertools.pairwise(bounds)]

    def _fused(self, part: str, s: Any) -> Any:
        size = WARP if self.unit == "warp" else self.block_dim
        units = self.block_dim // size
        blocks = -(-self.store.num_envs // (self.envs_per_unit * units))
        inputs = [s, self.store.num_envs, size, units, self.envs_per_unit, *(ONE_STEP if part == "step" else [])]
        return self._record(
            self.program.fused_kernel(part, self.unit), (blocks, self.block_dim), inputs, self.block_dim
        )

    def _phase(self, i: int, s: Any) -> Any:
        dim = self._threads(i, self.store.num_envs)
        if self.program.goes_by_groups(i):
            dim = (math.prod(dim),)
        return self._record(self.program.phase_kernel(i), dim, [s])

    def _listed(self, i: int, s: Any, over: OverList) -> Any:
        rows = min(self.store.num_envs, LISTED_ROWS)
        return self._record(self.program.listed_kernel(i), self._threads(i, rows), [s, rows, *over.arrays])

    def _threads(self, i: int, rows: int) -> tuple[int, ...]:
        """Threads for call i in so many environments."""
        call, env = self.program.calls[i], self.store.env
        count = env.num_agents if call.group is None else env.groups[call.group].count
        return (rows,) if call.kind == "env" else (rows, count)

    def _record(self, kernel: Any, dim: Any, inputs: list[Any], block_dim: int = 256) -> Any:
        return wp.launch(kernel, dim=dim, inputs=inputs, device=self.device, record_cmd=True, block_dim=block_dim)

    def _run(self, commands: list[Any], results: Results) -> Callable[[], None]:
        def run(keep_alive: Results = results) -> None:  # the launches hold addresses in it
            stream = device_stream(self.store.device)
            for command in commands:
                command.launch(stream)

        return run

    def _in_parallel(self, commands: list[Any], results: Results) -> Callable[[], None]:
        pool = self._pool
        assert pool is not None

        def run(keep_alive: Results = results) -> None:
            waiting = [pool.submit(command.launch) for command in commands[1:]]  # ctypes releases the GIL
            commands[0].launch()
            for future in waiting:
                future.result()

        return run
