"""Recorded launches of a program's kernels: what one step, one reset or one refresh consists of."""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import torch
import warp as wp

from warpdrive.sim.program import Program
from warpdrive.sim.store import Results, Store, warp_array, warp_device

__all__ = ["MAX_BLOCK", "Launcher", "Schedule", "choose_schedule", "device_stream"]

Schedule = Literal["auto", "split", "fused", "loop"]
MAX_BLOCK = 1024  # CUDA's limit of threads in a block
FUSED_UP_TO = (
    64  # agents: beyond, one kernel a phase was faster on an H200 (Tag, 110 agents: 223 against 269 us a step)
)
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
        return ("fused" if num_agents <= FUSED_UP_TO else "split") if device.type == "cuda" else "loop"
    if schedule not in ("split", "fused", "loop"):
        raise ValueError(f"schedule must be 'auto', 'split', 'fused' or 'loop', got {schedule!r}")
    if schedule == "fused" and device.type != "cuda":
        raise ValueError("schedule 'fused' needs a CUDA device; on the CPU take 'loop' or 'split'")
    if schedule == "fused" and num_agents > MAX_BLOCK:
        raise ValueError(
            f"schedule 'fused' takes at most {MAX_BLOCK} agents an environment, got {num_agents}; take 'split'"
        )
    return schedule


class Launcher:
    """Makes launches over a store; each is a function that enqueues its kernels on PyTorch's current stream.

    Args:
        program: the kernels.
        store: the arrays they run over.
        schedule: as from choose_schedule: "split" (one kernel a phase), "fused" (one kernel, CUDA), "loop" (one
            thread an environment).
        params: values of the built-in and the author's parameters.
        block_dim: threads a block of the fused kernel, at most; a block holds whole environments.
    """

    def __init__(
        self, program: Program, store: Store, schedule: Schedule, params: dict[str, Any], block_dim: int = 128
    ) -> None:
        self.program, self.store, self.params = program, store, params
        self.device = warp_device(store.device)
        agents = store.env.num_agents
        self.schedule = schedule
        self.envs_per_block = max(1, block_dim // agents)
        self.block_dim = -(-self.envs_per_block * agents // 32) * 32
        self._pool: ThreadPoolExecutor | None = None
        if schedule == "loop" and store.device.type == "cpu" and store.num_envs >= 2 * CHUNK:
            self._pool = ThreadPoolExecutor(os.cpu_count() or 1)
        self._make_kernels()

    def _make_kernels(self) -> None:
        """Compile all at once, so that nothing is loaded while a graph is captured."""
        program = self.program
        if self.schedule == "split":
            for i in range(len(program.calls)):
                program.phase_kernel(i)
        else:
            make = program.fused_kernel if self.schedule == "fused" else program.loop_kernel
            make(guarded_only=False)
            make(guarded_only=True)
        for i in self._observe_calls():
            program.phase_kernel(i)
        program.load(self.device)
        if self.schedule == "fused":
            program.load(self.device, block_dim=self.block_dim)

    def _observe_calls(self) -> range:
        count = len(self.program.env.observe)
        return range(self.program.first_guarded - count, self.program.first_guarded)

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
        return self._run([self._phase(i, s) for i in self._observe_calls()], results)

    def script(self, group: str, policy: str, results: Results) -> Callable[[], None]:
        """A launch in which a scripted policy writes the actions of its group; `results` are those of the last step."""
        kernel = self.program.script_kernels[group, policy]
        self.program.load_scripts(self.device)
        dim = (self.store.num_envs, self.store.env.groups[group].count)
        return self._run([self._record(kernel, dim, [self.struct(results)])], results)

    def _launch(self, s: Any, results: Results, guarded_only: bool) -> Callable[[], None]:
        program, num_envs = self.program, self.store.num_envs
        if self.schedule == "split":
            first = program.first_guarded if guarded_only else 0
            return self._run([self._phase(i, s) for i in range(first, len(program.calls))], results)
        if self.schedule == "fused":
            blocks = -(-num_envs // self.envs_per_block)
            kernel = program.fused_kernel(guarded_only)
            inputs = [s, num_envs, self.envs_per_block]
            return self._run([self._record(kernel, (blocks, self.block_dim), inputs, self.block_dim)], results)
        kernel = program.loop_kernel(guarded_only)
        if self._pool is None:
            return self._run([self._record(kernel, num_envs, [s, 0])], results)
        parts = min(os.cpu_count() or 1, num_envs // CHUNK)
        bounds = [num_envs * k // parts for k in range(parts + 1)]
        return self._in_parallel([self._record(kernel, b - a, [s, a]) for a, b in itertools.pairwise(bounds)], results)

    def _phase(self, i: int, s: Any) -> Any:
        call, env = self.program.calls[i], self.store.env
        count = env.num_agents if call.group is None else env.groups[call.group].count
        dim = self.store.num_envs if call.kind == "env" else (self.store.num_envs, count)
        return self._record(self.program.phase_kernel(i), dim, [s])

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
