"""The trainer: rollout, returns, update, report, save, over and over."""

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from warpdrive.env.environment import positive_int, unknown_name
from warpdrive.env.registry import describe
from warpdrive.learn.a2c import A2C
from warpdrive.learn.assignment import Assignment, segments
from warpdrive.learn.branches import branches, together
from warpdrive.learn.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from warpdrive.learn.learner import Learner
from warpdrive.learn.loss import METRICS
from warpdrive.learn.ppo import PPO
from warpdrive.learn.rollout import Rollout
from warpdrive.learn.threads import one_thread
from warpdrive.policy.fused import fusion
from warpdrive.policy.mlp import MLP, PRECISIONS, ActorCritic, Precision
from warpdrive.sim.simulator import Simulator, capture, capture_stream

__all__ = ["Trainer"]


def _each(learners: list[Learner]) -> None:
    """Learn from the rollout, one after another."""
    for learner in learners:
        learner.estimate()
        learner.update()


class Trainer:
    """Trains policies on a simulator.

    Args:
        sim: the simulator; the trainer resets it.
        policies: name -> wd.MLP(...), or an nn.Module that maps observations (B, D) to (B, P + 1): the parameters of
            the action distribution (`space.num_outputs` of them), then the value. For wd.Box actions the module has a
            parameter `log_std` (P,).
        algorithm: wd.PPO(...) or wd.A2C(...), for all policies, or policy -> one; rollout_steps must agree.
        assign: group -> policy, or a list with a policy for each agent; by default each group has the policy of its
            name, or all have the only one.
        opponents: group -> scripted policy of the environment, or "random", that plays it in place of a policy.
        frozen: names of policies that act but do not learn.
        precision: of the products in wd.MLP policies: "auto" (as the observations: bfloat16, or float32), "float32",
            "tf32" (in fused kernels; elsewhere float32) or "bf16". Sums and weights are float32.
        fuse: whether wd.MLP policies run as fused kernels where they can: on CUDA with Triton, within limits.
        graph: whether rollout and update are captured as CUDA graphs; on the CPU there are none.

    Attributes:
        policies: name -> nn.Module.
        env_steps: environment steps trained on so far. update: updates so far.

    Raises:
        ValueError: names or settings that do not fit.
    """

    def __init__(
        self,
        sim: Simulator,
        policies: Mapping[str, MLP | nn.Module],
        algorithm: PPO | A2C | Mapping[str, PPO | A2C] | None = None,
        *,
        assign: Assignment | None = None,
        opponents: Mapping[str, str] | None = None,
        frozen: Iterable[str] = (),
        precision: Precision = "auto",
        fuse: bool = True,
        graph: bool = True,
    ) -> None:
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
        self.sim, self.precision, self.fuse = sim, precision, fuse
        self.descriptions = dict(policies)
        self.assign = dict(assign or {})
        self.opponents = dict(opponents or {})
        self.segments = segments(sim.env, self.descriptions, assign, opponents)
        self.frozen = set(frozen)
        for name in self.frozen:
            if name not in self.descriptions:
                raise unknown_name("policy in frozen:", name, self.descriptions)
        self.algorithms = self._algorithms(algorithm)
        steps = {a.rollout_steps for a in self.algorithms.values()}
        if len(steps) > 1:
            raise ValueError(f"rollout_steps must be the same for all policies, got {sorted(steps)}")
        if not self.algorithms:
            everybody = "all policies are frozen" if self.descriptions else "all groups are played by opponents"
            raise ValueError(f"{everybody}: there is nothing to train")
        self.rollout_steps = steps.pop()

        seed = int(sim.store.fields["seed"])
        generator = torch.Generator().manual_seed(seed)
        self.policies = {name: self._build(name, generator) for name in self.descriptions}
        sim.reset()
        self.rollout = Rollout(sim, self.segments, self.rollout_steps, self.policies, self.opponents)
        self.learners = {
            name: Learner(
                name,
                self.policies[name],
                self._group(name).action,
                algorithm,
                [s for s in self.rollout.samples if s.segment.policy == name],
                self.rollout,
                sim.store.fields["seed"],
            )
            for name, algorithm in self.algorithms.items()
        }
        self.update = 0
        self.env_steps = 0
        self.total_env_steps = 0
        self.seconds = {"rollout": 0.0, "update": 0.0}
        self._events: list[tuple[str, Any, Any]] = []  # of a GPU: part, begin, end
        self._graph = graph and sim.device.type == "cuda"
        self._collect: Callable[[], None] = self.rollout.run
        self._learn: Callable[[], None] = self._learn_all
        self._captured = False

    def _algorithms(self, algorithm: PPO | A2C | Mapping[str, PPO | A2C] | None) -> dict[str, PPO | A2C]:
        names = [name for name in self.descriptions if name not in self.frozen]
        if algorithm is None:
            algorithm = PPO()
        if not isinstance(algorithm, Mapping):
            return dict.fromkeys(names, algorithm)
        for name in algorithm:
            if name not in self.descriptions:
                raise unknown_name("policy in algorithm:", name, self.descriptions)
        for name in names:
            if name not in algorithm:
                raise ValueError(f"algorithm has none for policy {name!r}; give it one or list it in frozen")
        return {name: algorithm[name] for name in names}

    def _group(self, policy: str) -> Any:
        return self.sim.env.groups[next(s.group for s in self.segments if s.policy == policy)]

    def _build(self, name: str, generator: torch.Generator) -> nn.Module:
        group, description = self._group(name), self.descriptions[name]
        if isinstance(description, nn.Module):
            module = description
        else:
            # MKL's factorisations differ in their last bits with the number of threads; on the CPU nothing else does.
            with one_thread(self.sim.device.type == "cpu"):
                module = description.build(group.obs, group.action, generator=generator)
        module = module.to(self.sim.device)
        if name in self.frozen:
            module.requires_grad_(False)
        probe = torch.zeros(2, group.obs, dtype=torch.float32, device=self.sim.device)
        with torch.no_grad():
            out = module(probe)
        if out.shape != (2, group.action.num_outputs + 1):
            raise ValueError(
                f"policy {name!r} must map observations (B, {group.obs}) to (B, {group.action.num_outputs + 1}), the "
                f"parameters of the actions and the value; for B = 2 it gave {tuple(out.shape)}"
            )
        if isinstance(module, ActorCritic):
            module.precision = self.precision
            kind = self.sim.store.group_obs_dtype(next(s.group for s in self.segments if s.policy == name))
            module.fused = fusion(module, kind, self.sim.device) if self.fuse else ""
        return module

    # ------------------------------------------------------------------ the loop

    def train(
        self,
        env_steps: int,
        *,
        report: Callable[[dict[str, Any]], None] | None = None,
        report_seconds: float = 1.0,
        save: Callable[[], None] | None = None,
        save_seconds: float = 60.0,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        """Train until `env_steps` environment steps in all have been made.

        Args:
            env_steps: the goal; schedules run from 0 to it.
            report: called with a row of metrics after the first update, about every `report_seconds` seconds and at
                the end.
            save: called about every `save_seconds` seconds and at the end, unless there was a fault.
            stop: asked after each update; True ends training there, whole, so that it can be resumed bit for bit.

        Raises:
            FloatingPointError, ValueError: see check_faults.
        """
        self.total_env_steps = positive_int("env_steps", env_steps)
        reported = saved = time.monotonic()
        start_steps = self.env_steps
        self.seconds = {"rollout": 0.0, "update": 0.0}
        first, done = True, self.env_steps >= env_steps
        while not done:
            self.step()
            now = time.monotonic()
            done = self.env_steps >= env_steps or (stop is not None and stop())
            if report and (first or done or now - reported >= report_seconds):
                self._synchronize()
                now = time.monotonic()
                report(self._row(self.env_steps - start_steps, now - reported))
                reported, start_steps, first = time.monotonic(), self.env_steps, False
            if save and (done or now - saved >= save_seconds):
                self.check_faults()  # so that the checkpoint before a fault is kept
                save()
                saved = time.monotonic()

    def prepare(self) -> None:
        """Capture rollout and update as graphs, if that is to be and was not done yet; `step` does it else."""
        if self._graph and not self._captured:
            self._capture()

    def step(self) -> None:
        """One update: collect a rollout, then learn from it."""
        self.prepare()
        progress = min(1.0, self.env_steps / self.total_env_steps) if self.total_env_steps else 0.0
        for learner in self.learners.values():
            learner.set_progress(progress)
        self._timed("rollout", self._collect)
        self._timed("update", self._learn)
        self.update += 1
        self.env_steps += self.sim.num_envs * self.rollout_steps

    def collect(self) -> None:
        """Collect a rollout and learn nothing from it, as a measurement wants."""
        self.prepare()
        self._collect()

    def _learn_all(self) -> None:
        agents = {name: sum(s.segment.count for s in learner.samples) for name, learner in self.learners.items()}
        together(
            [
                functools.partial(_each, [self.learners[name] for name in names])
                for names in branches(agents, self.policies)
            ],
            self.sim.device,
        )

    def _timed(self, part: str, work: Callable[[], None]) -> None:
        if self.sim.device.type == "cpu":
            start = time.perf_counter()
            work()
            self.seconds[part] += time.perf_counter() - start
            return
        # On a GPU an event behind each part: they are read when a row of metrics is made, without stopping here.
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        self._events.append((part, begin, end))

    def _synchronize(self) -> None:
        if self.sim.device.type == "cuda":
            torch.cuda.synchronize(self.sim.device)
            for part, begin, end in self._events:
                self.seconds[part] += begin.elapsed_time(end) / 1000.0
            self._events.clear()

    def _capture(self) -> None:
        """Record rollout and update as graphs.

        What PyTorch does only the first time (handles, workspaces, gradients) must happen before, so one update is
        made for nothing and undone.
        """
        before = self.state_dict()
        stream = capture_stream(self.sim.device)
        stream.wait_stream(torch.cuda.current_stream(self.sim.device))
        with torch.cuda.stream(stream):
            self.rollout.run()
            self._learn_all()
        torch.cuda.current_stream(self.sim.device).wait_stream(stream)
        torch.cuda.synchronize(self.sim.device)
        self.load_state_dict(before)
        for learner in self.learners.values():
            for parameter in learner.parameters:
                parameter.grad = None
        self._collect = capture(self.rollout.run, self.sim.device)
        self._learn = capture(self._learn_all, self.sim.device)
        self._captured = True

    # ------------------------------------------------------------------ reports

    def _row(self, steps: int, seconds: float) -> dict[str, Any]:
        """A row of metrics over the updates since the last one."""
        self.check_faults()
        rate = steps / max(seconds, 1e-9)
        spent = sum(self.seconds.values()) or 1.0
        row: dict[str, Any] = {
            "update": self.update,
            "env_steps": self.env_steps,
            "agent_steps": self.env_steps * self.sim.env.num_agents,
            "env_steps_per_s": rate,
            "agent_steps_per_s": rate * self.sim.env.num_agents,
            "share/rollout": self.seconds["rollout"] / spent,
            "share/update": self.seconds["update"] / spent,
        }
        self.seconds = {"rollout": 0.0, "update": 0.0}
        row |= self.sim.statistics()
        for name, learner in self.learners.items():
            values = learner.metrics.tolist()
            row |= {f"policy/{name}/{key}": value for key, value in zip((*METRICS, "grad_norm"), values, strict=True)}
            row[f"policy/{name}/lr"] = float(learner.rate)
        return row

    def check_faults(self) -> None:
        """Raise if a policy gave NaN or infinity, or was not allowed any action, since training began.

        Raises:
            FloatingPointError: the outputs of a policy were not finite.
            ValueError: an action mask that forbids everything.
        """
        for samples, fault in zip(self.rollout.samples, self.rollout.faults, strict=True):
            kind, env, i, step = fault.tolist()
            if kind == 0:
                continue
            group = samples.segment.group
            where = f"agent {samples.segment.first + i} of group {group!r} in environment {env} at step {step}"
            if kind == 1:
                raise FloatingPointError(
                    f"policy {samples.segment.policy!r} gave NaN or infinity for {where}; the usual causes are an "
                    "observation that is not finite and a learning rate that is too large"
                )
            raise ValueError(f"the action mask forbids everything to {where}; allow at least one action in each head")

    # ------------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Any]:
        """Everything that training goes on from, as copies on the CPU."""
        return {
            "update": self.update,
            "env_steps": self.env_steps,
            "total_env_steps": self.total_env_steps,
            "simulator": self.sim.state_dict(),
            "policies": {
                name: {key: value.detach().cpu().clone() for key, value in module.state_dict().items()}
                for name, module in self.policies.items()
            },
            "learners": {name: learner.state_dict() for name, learner in self.learners.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state_dict of a trainer with the same settings; tensors stay at their addresses."""
        if set(state["policies"]) != set(self.policies) or set(state["learners"]) != set(self.learners):
            raise CheckpointError(
                f"the saved policies are {sorted(state['policies'])} (learning: {sorted(state['learners'])}), "
                f"here {sorted(self.policies)} (learning: {sorted(self.learners)})"
            )
        for name, module in self.policies.items():
            try:
                module.load_state_dict(state["policies"][name])
            except RuntimeError as error:
                raise CheckpointError(f"the saved weights of policy {name!r} do not fit: {error}") from None
        for name, learner in self.learners.items():
            learner.load_state_dict(state["learners"][name])
        self.sim.load_state_dict(state["simulator"])
        self.update, self.env_steps = int(state["update"]), int(state["env_steps"])
        self.total_env_steps = int(state["total_env_steps"])

    def save(self, path: str | Path, settings: dict[str, Any] | None = None) -> None:
        """Write a checkpoint, whole or not at all; `settings` are kept with it."""
        described = {
            name: description.to_dict() if isinstance(description, MLP) else None
            for name, description in self.descriptions.items()
        }
        content = {
            "env": describe(self.sim.env),
            "descriptions": described,
            "segments": [(s.group, s.first, s.last, s.policy) for s in self.segments],
            "opponents": self.opponents,
            "settings": settings or {},
            "trainer": self.state_dict(),
        }
        save_checkpoint(content, path)

    def load(self, path: str | Path) -> None:
        """Continue from a checkpoint: the same updates follow, bit for bit on the same device.

        Raises:
            CheckpointError: the file is damaged, foreign, or of other settings.
        """
        try:
            self.load_state_dict(load_checkpoint(path)["trainer"])
        except KeyError as error:
            raise CheckpointError(f"{path} lacks {error}") from None
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from None
