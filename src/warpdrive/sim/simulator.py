"""The simulator: many copies of one environment, stepped together on one device."""

import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import torch
import warp as wp

from warpdrive.env.environment import Env, positive_int, require_script, unknown_name
from warpdrive.env.spaces import Box
from warpdrive.sim.choice import STEPS, Candidate, choose, is_worth_measuring, key_of, seconds_a_step, steps_to_time
from warpdrive.sim.launcher import ON_CUDA, Launcher, Schedule, choose_schedule, choose_unit
from warpdrive.sim.memory import release_memory
from warpdrive.sim.program import Program
from warpdrive.sim.store import Results, Store, start_warp

__all__ = ["Simulator", "capture", "capture_stream", "choose_device"]

STATISTICS = ("return_sum", "length_sum", "episodes")


def choose_device(device: str | torch.device | None) -> torch.device:
    """The device asked for, or the first GPU, or the CPU where there is none.

    Raises:
        ValueError: an unknown device, or a GPU that is not there.
    """
    start_warp()
    if device is None:
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:N', got {device!r}") from None
    if chosen.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        chosen = torch.device("cuda", chosen.index if chosen.index is not None else 0)
        if chosen.index >= count:
            raise ValueError(f"device {str(device)!r} is not there: PyTorch sees {count} CUDA GPUs; use device='cpu'")
    elif chosen.type != "cpu":
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:N', got {device!r}")
    return chosen


class Simulator:
    """Runs `num_envs` copies of an environment. All tensors below are views of its store: written in place, not copied.

    Letters: E environments, N agents of all groups, n agents of one group, D features.

    Args:
        env: the environment.
        num_envs: number of copies, E.
        seed: of all random numbers; the same seed gives the same bits on the same device.
        device: "cpu", "cuda", "cuda:N"; None: the GPU if there is one.
        obs_dtype: torch.float32 or torch.bfloat16; None: bfloat16 on a GPU, float32 on the CPU.
        schedule: "split", "mixed" or "fused" (GPU), "loop", or "auto"; the results are the same to the bit. With "auto"
            a large simulation on a GPU measures which is fastest, once: the choice is kept on disk.
        env_offset: index of the first environment among those of several processes.

    Attributes:
        obs: group -> (E, n, D), the present observations.
        mask: group -> (E, n, A) uint8, actions allowed now, for groups with masks.
        action: group -> (E, n, size) int32 or float32, the actions that the next step takes.
        reward: (E, N) float32 of the last step; `rewards`: group -> (E, n).
        terminated: (E, N) bool, the agent's episode ended by the rules in the last step.
        truncated: (E,) bool, the episode was cut by its length. `ended`: (E,) the rules ended it for all.
        over: (E,) bool, the episode ended in the last step and a new one began.
        active: (E, N) bool, the agent takes part.
        final_obs: group -> (E, n, D): where `over`, the observation that the episode ended on.
        last_return: (E, N) float32, last_length: (E,) int32: of the last finished episode.
        state: every field by name: (E, N, ...) or (E, ...).

    Raises:
        ValueError: an argument that does not fit. PhaseError: a phase that does not compile.
        MemoryError: the store does not fit; the sentence says how much it needs.
    """

    def __init__(
        self,
        env: Env,
        num_envs: int,
        *,
        seed: int = 0,
        device: str | torch.device | None = None,
        obs_dtype: torch.dtype | None = None,
        schedule: Schedule = "auto",
        env_offset: int = 0,
    ) -> None:
        if not isinstance(env, Env):
            raise ValueError(f"env must be an instance of a wd.Env subclass, got {env!r}")
        if isinstance(env_offset, bool) or not isinstance(env_offset, int) or env_offset < 0:
            raise ValueError(f"env_offset must be an integer of at least 0, got {env_offset!r}")
        self.env = env
        self.num_envs = positive_int("num_envs", num_envs)
        self.device = choose_device(device)
        if obs_dtype is None:
            obs_dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        if obs_dtype not in (torch.float32, torch.bfloat16):
            raise ValueError(f"obs_dtype must be torch.float32 or torch.bfloat16, got {obs_dtype}")
        chosen = self._choose(schedule, obs_dtype)
        self.schedule, self.block_dim = chosen.schedule, chosen.block_dim
        self.store = self._make_store(obs_dtype)
        dtypes = {name: self.store.group_obs_dtype(name) for name in env.groups}
        program = self._make_program(dtypes, self.schedule)
        params = dict(env.params)
        params |= {"num_agents": env.num_agents, "episode_length": env.episode_length or 0, "env_offset": env_offset}
        self.env_offset = env_offset
        self.launcher = Launcher(program, self.store, self.schedule, params, self.block_dim)

        fields, results = self.store.fields, self.store.results
        self.state = SimpleNamespace(**fields)
        self.obs, self.mask, self.action = results.obs, results.mask, self.store.action
        self.reward, self.terminated, self.active = fields["reward"], fields["terminated"], fields["active"]
        self.ended, self.truncated, self.over = fields["ended"], fields["truncated"], fields["over"]
        self.last_return, self.last_length = fields["last_return"], fields["last_length"]
        self.rewards = {name: self.of_group(self.reward, name) for name in env.groups}
        self.final_obs = {name: block[0] for name, block in results.final_obs.items()}

        self._restart = self.launcher.restart(results)
        self._observe = self.launcher.observe(results)
        self._step = self.launcher.step(results)
        self._randomize = {name: self.launcher.randomize(name, results) for name in env.groups}
        self._random_steps = self.launcher.random_steps(results)
        self._captured: dict[bool, Callable[[], None]] = {}
        self._scripts: dict[tuple[str, str], Callable[[], None]] = {}
        self._started = False
        self.seed(seed)

    def _choose(self, schedule: Schedule, obs_dtype: torch.dtype) -> Candidate:
        """The schedule to run: the one asked for, the measured one, or what is fastest as a rule."""
        by_rule = choose_schedule(schedule, self.env.num_agents, self.device)
        if schedule != "auto" or not is_worth_measuring(self.num_envs, self.env.num_agents, self.device):
            return Candidate(by_rule)
        key = key_of(self.env, self.num_envs, obs_dtype, self.device)
        return choose(key, lambda candidate: self._seconds(candidate, obs_dtype))

    def _seconds(self, candidate: Candidate, obs_dtype: torch.dtype) -> float:
        """Seconds that steps take with a candidate, in a simulator like this one that is thrown away."""
        seconds = _Scratch(
            self.env, self.num_envs, device=self.device, obs_dtype=obs_dtype, candidate=candidate
        ).seconds()
        release_memory(self.device)
        return seconds

    def _make_store(self, obs_dtype: torch.dtype) -> Store:
        return Store(self.env, self.num_envs, self.device, obs_dtype)

    def _make_program(self, dtypes: dict[str, torch.dtype], schedule: Schedule) -> Program:
        variant = f"{schedule} {choose_unit(self.env.num_agents)}" if schedule in ON_CUDA else schedule
        return Program.of(self.env, dtypes, f"{variant} {self.device}")

    def of_group(self, array: torch.Tensor, group: str) -> torch.Tensor:
        """The columns (E, n) of one group in an array (E, N)."""
        if group not in self.env.groups:
            raise unknown_name("group", group, self.env.groups)
        first = self.env.first_agent[group]
        return array[:, first : first + self.env.groups[group].count]

    def seed(self, seed: int) -> None:
        """Set the seed of all random numbers to come, and count steps from zero."""
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
            raise ValueError(f"seed must be an integer from 0 to 2**31 - 1, got {seed!r}")
        self.store.fields["seed"].fill_(seed)
        self.store.fields["clock"].zero_()

    def reset(self, mask: torch.Tensor | None = None) -> None:
        """Begin new episodes everywhere, or where `mask` (E,) bool is true; what was running is not counted."""
        fields = self.store.fields
        before = fields["over"].clone()
        if mask is None:
            fields["over"].fill_(True)
            for name in (*STATISTICS, "last_return", "last_length"):
                fields[name].zero_()
        else:
            if mask.shape != (self.num_envs,) or mask.dtype != torch.bool:
                raise ValueError(f"mask must be bool of shape ({self.num_envs},), got {mask.dtype} {tuple(mask.shape)}")
            if not self._started:
                raise RuntimeError("call reset() without a mask first: no environment has begun yet")
            fields["over"].copy_(mask)
        over = fields["over"]
        fields["final_slot"].masked_fill_(over, -1)
        self._restart()
        for name in ("reward", "terminated", "truncated", "ended"):
            fields[name].masked_fill_(over.view(-1, *(1,) * (fields[name].dim() - 1)), 0)
        fields["clock"].add_(over)  # so that a second reset draws anew
        over.copy_(before & ~over)
        self._started = True

    def step(self, actions: Mapping[str, torch.Tensor] | None = None) -> None:
        """Advance every environment by one step; one that is over begins its next episode in the same step.

        Args:
            actions: group -> tensor (E, n, size), or (E, n) where the size is 1; groups left out, or None for all, take
                the actions that stand in `action`. Their range is checked on the CPU only: on a GPU it would cost a
                synchronisation.

        Raises:
            ValueError: an unknown group, or actions of wrong shape, type or (on the CPU) range.
        """
        self._require_started()
        if not isinstance(actions, Mapping | None):
            raise ValueError(f"actions must be a mapping from groups to tensors, got {type(actions).__name__}")
        for name, value in (actions or {}).items():
            self._set_action(name, value)
        self._run(random=False)

    def random_step(self, steps: int = 1) -> None:
        """Advance every environment by `steps` steps with random actions, uniform over what each agent may do.

        Where a kernel makes whole steps, one launch makes many of them.
        """
        self._require_started()
        positive_int("steps", steps)
        if self._random_steps is not None:
            self._random_steps(steps)
            return
        for _ in range(steps):
            self._run(random=True)

    def randomize_actions(self, group: str | None = None) -> None:
        """Put random actions into `action`, for all groups or one."""
        if group is not None and group not in self.env.groups:
            raise unknown_name("group", group, self.env.groups)
        for name, fill in self._randomize.items():
            if group is None or name == group:
                fill()

    def script_actions(self, group: str, policy: str) -> None:
        """Put the actions of one of the environment's scripted policies into `action`, for its group.

        Raises:
            ValueError: an unknown group or policy. PhaseError: the policy does not compile.
        """
        self._require_started()
        if (group, policy) not in self._scripts:
            require_script(self.env, group, policy)
            self._scripts[group, policy] = self.launcher.script(group, policy, self.store.results)
        self._scripts[group, policy]()

    def refresh(self) -> None:
        """Write the observations anew, after fields of the state were set by hand."""
        self._observe()

    def _require_started(self) -> None:
        if not self._started:
            raise RuntimeError("call reset() before step(): no episode has begun yet")

    def _set_action(self, name: str, value: torch.Tensor) -> None:
        if name not in self.env.groups:
            raise unknown_name("group", name, self.env.groups)
        target, space = self.action[name], self.env.groups[name].action
        value = torch.as_tensor(value, device=self.device)
        if value.shape == target.shape[:2] and space.size == 1:
            value = value.unsqueeze(-1)
        if value.shape != target.shape:
            raise ValueError(
                f"actions of {name!r} must have shape {tuple(target.shape)} (environments, agents, {space.size}), "
                f"got {tuple(value.shape)}"
            )
        if isinstance(space, Box) != value.is_floating_point() or value.dtype == torch.bool:
            kind = "floating point" if isinstance(space, Box) else "integers"
            raise ValueError(f"actions of {name!r} must be {kind}, got {value.dtype}")
        value = value.to(torch.float32) if isinstance(space, Box) else value
        if self.device.type == "cpu":
            low = torch.tensor(space.low if isinstance(space, Box) else [0] * space.size)
            high = torch.tensor(space.high if isinstance(space, Box) else [n - 1 for n in space.heads])
            wrong = ~((value >= low) & (value <= high))
            if bool(wrong.any()):
                env, agent, k = wrong.nonzero()[0].tolist()
                raise ValueError(
                    f"action {k} of {name!r} must lie from {low[k].item():g} to {high[k].item():g}, got "
                    f"{value[env, agent, k].item():g} for agent {agent} of environment {env}"
                )
        target.copy_(value)

    # ------------------------------------------------------------------ running

    def _run(self, random: bool) -> None:
        if self.device.type == "cpu" or torch.cuda.is_current_stream_capturing():
            self._enqueue(random)
            return
        if random not in self._captured:
            self._captured[random] = capture(lambda: self._enqueue(random), self.device)
        self._captured[random]()

    def _enqueue(self, random: bool) -> None:
        if random:
            self.randomize_actions()
        self._step()

    # ------------------------------------------------------------------ statistics and state

    def statistics(self, clear: bool = True) -> dict[str, float]:
        """Finished episodes since the last call: their number, mean length, and for each group the mean return.

        The return of a group is the mean over its agents of the sum of each one's rewards. Waits for the device.

        Returns:
            "episodes", and unless that is 0 "length" and "return/GROUP" for every group.
        """
        fields = self.store.fields
        count = int(fields["episodes"].sum())
        result: dict[str, float] = {"episodes": count}
        if count:
            result["length"] = float(fields["length_sum"].sum()) / count
            for name in self.env.groups:
                total = float(self.of_group(fields["return_sum"], name).double().sum())
                result[f"return/{name}"] = total / (count * self.env.groups[name].count)
        if clear:
            for name in STATISTICS:
                fields[name].zero_()
        return result

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Copies, on the CPU, of everything that the simulation's future depends on."""
        tensors = {f"field/{name}": tensor for name, tensor in self.store.fields.items()}
        for kind, block in (("obs", self.obs), ("mask", self.mask), ("action", self.action)):
            tensors |= {f"{kind}/{name}": tensor for name, tensor in block.items()}
        return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from a state_dict of a simulator of the same environment and number of copies.

        Raises:
            ValueError: the state is of another environment, number of copies or version.
        """
        mine: dict[str, torch.Tensor] = {f"field/{name}": tensor for name, tensor in self.store.fields.items()}
        for kind, block in (("obs", self.obs), ("mask", self.mask), ("action", self.action)):
            mine |= {f"{kind}/{name}": tensor for name, tensor in block.items()}
        for name in sorted(mine.keys() ^ state.keys()):
            raise ValueError(f"the saved simulation is of another environment or version: {name!r} is in one only")
        for name, tensor in mine.items():
            if tensor.shape != state[name].shape or tensor.dtype != state[name].dtype:
                raise ValueError(
                    f"the saved simulation does not fit: {name!r} is {state[name].dtype} {tuple(state[name].shape)}, "
                    f"here {tensor.dtype} {tuple(tensor.shape)}"
                )
        for name, tensor in mine.items():
            tensor.copy_(state[name])
        self._started = True

    @property
    def results(self) -> Results:
        """Where a plain step leaves its results."""
        return self.store.results


class _Scratch(Simulator):
    """A simulator with a given schedule and block size, to measure them."""

    def __init__(self, env: Env, num_envs: int, *, candidate: Candidate, **options: Any) -> None:
        self._candidate = candidate
        super().__init__(env, num_envs, **options)

    def _choose(self, schedule: Schedule, obs_dtype: torch.dtype) -> Candidate:
        return self._candidate

    def seconds(self) -> float:
        """Seconds of a step: one of those that training runs, captured on a GPU, and one of many random ones."""
        self.reset()

        def one_by_one() -> None:
            for _ in range(STEPS):
                self._enqueue(random=True)

        one_by_one()
        runs = (
            capture(one_by_one, self.device) if self.device.type == "cuda" else one_by_one,
            lambda: self.random_step(STEPS),
        )
        for run in runs:
            run()
        self.reset()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return seconds_a_step(runs, steps_to_time(self.env, self.num_envs), self.device)


@functools.cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """The one stream of a CUDA device on which everything is warmed up and captured.

    cuBLAS keeps a workspace (32 MiB on an H200) for each stream that it was ever used on: with a stream for each
    capture, trainers that are made and thrown away would leave more and more memory behind. Graphs that were captured
    on it share that workspace, so those of one device are not to be replayed on several streams at the same time.
    """
    start_warp()
    return torch.cuda.Stream(device)


def capture(work: Callable[[], Any], device: torch.device) -> Callable[[], None]:
    """Record what `work` enqueues on a CUDA device as a graph; return a function that replays it.

    `work` must be warmed up already where its first run does more than its later ones. Nothing of it runs here.
    """
    graph = torch.cuda.CUDAGraph()
    stream = capture_stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    wp.stream_from_torch(stream)  # known to Warp before the capture begins
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        work()
    torch.cuda.current_stream(device).wait_stream(stream)
    return graph.replay
