"""The rollout: T steps of all environments with their policies, written straight into where learning reads them."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from warpdrive.learn.assignment import RANDOM, Segment
from warpdrive.learn.branches import branches, together
from warpdrive.learn.threads import one_thread
from warpdrive.policy.actions import ActionSampler
from warpdrive.policy.mlp import ActorCritic, Kept
from warpdrive.policy.towers import Passes, Towers, written_out
from warpdrive.sim.memory import require_memory
from warpdrive.sim.simulator import Simulator
from warpdrive.sim.store import OUTPUTS, Results, Store

__all__ = ["Rollout", "Samples", "rollout_bytes"]


@dataclass
class Samples:
    """What one segment's agents saw and did in a rollout.

    In memory the agents of one step stand as (E, k), or as (k, E) where several policies share the group, and features
    are slowest of all. The tensors below are views in the order steps, environments, agents, features.

    Attributes:
        obs: (T + 1, E, k, D); mask: (T + 1, E, k, A) uint8 or None; final_obs: (K, E, k, D).
        action: (T, E, k, size) int32 or float32, as drawn; log_prob, value: (T, E, k) and (T + 1, E, k) float32.
        reward, alive, terminated: (T, E, k), strided into the arrays of all agents.
        present: bool (E, k), who takes part in the step that comes next.
        kept: of each step where the policy's layers are kept for learning; None: they are not.
        advantage, target: (T, E, k) float32.
    """

    segment: Segment
    env_fastest: bool
    obs: torch.Tensor
    mask: torch.Tensor | None
    final_obs: torch.Tensor
    action: torch.Tensor
    log_prob: torch.Tensor
    value: torch.Tensor
    final_value: torch.Tensor
    reward: torch.Tensor
    alive: torch.Tensor
    terminated: torch.Tensor
    present: torch.Tensor
    kept: list[Kept] | None = field(init=False, default=None)
    advantage: torch.Tensor = field(init=False)
    target: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.advantage = torch.zeros_like(self.log_prob)
        self.target = torch.zeros_like(self.log_prob)

    @property
    def ordered_present(self) -> torch.Tensor:
        """`present` in the order of a step's samples, (E, k) or (k, E)."""
        return self.present.t() if self.env_fastest else self.present

    def flat(self, array: torch.Tensor) -> torch.Tensor:
        """The samples of (T', E, k) or (T', E, k, F) as (B,) or (B, F) in memory order; no copy where that can be."""
        if self.env_fastest:
            array = array.transpose(1, 2)
        if array.dim() == 3:
            return array.reshape(-1)
        # Features are slowest in memory: what is contiguous is the transpose.
        return array.movedim(-1, 0).reshape(array.shape[-1], -1).t()

    def taken(self, array: torch.Tensor, envs: torch.Tensor | None) -> torch.Tensor:
        """One of the arrays, of all environments or of those given, flat in memory order."""
        if envs is None:
            return self.flat(array)
        # Gather in memory order: whole runs of agents at a time, and the result again is feature-major.
        order = (3, 0, 2, 1) if self.env_fastest else (3, 0, 1, 2)
        memory = array.unsqueeze(-1) if array.dim() == 3 else array
        memory = memory.permute(order).index_select(3 if self.env_fastest else 2, envs)
        flat = memory.reshape(memory.shape[0], -1).t()
        return flat[:, 0] if array.dim() == 3 else flat

    def shaped(self, out: torch.Tensor) -> torch.Tensor:
        """What a policy gave for one step's agents (E * k, F), in memory order, as (E, k, F)."""
        num_envs, count = self.log_prob.shape[1:]
        if self.env_fastest:
            return out.unflatten(0, (count, num_envs)).transpose(0, 1)
        return out.unflatten(0, (num_envs, count))


def _each(acts: list[Callable[[int], None]], t: int) -> None:
    """Act in step t, one after another."""
    for act in acts:
        act(t)


def final_slots(episode_length: int | None, steps: int) -> int:
    """How often an environment can be cut by its length in so many steps (docs/design.md), and at least 1."""
    return 1 if episode_length is None else (steps - 1) // episode_length + 1


def rollout_bytes(store: Store, steps: int) -> int:
    """Bytes that a rollout of so many steps takes beside the store."""
    env, slots = store.env, final_slots(store.env.episode_length, steps)
    outputs = sum(store.fields[name].nbytes for name in OUTPUTS) // store.num_envs * steps
    agents = 0
    for name, group in env.groups.items():
        mask = group.action.num_outputs * (steps + 1) if group.mask else 0
        obs = group.obs * store.group_obs_dtype(name).itemsize * (steps + 1 + slots)
        # Of each step its action, log-probability, advantage and target; of each observation that is valued its value.
        numbers = (group.action.size + 3) * steps + (steps + 1) + slots
        agents += group.count * (mask + obs + 4 * numbers)
    return store.num_envs * (outputs + agents)


class Rollout:
    """Storage for T steps, and the launches that fill it.

    Args:
        sim: the simulator. Its `obs` hold the observations between rollouts.
        segments: who acts for whom.
        steps: T.
        policies: name -> module.
        opponents: group -> scripted policy, or "random", that acts for it.

    Attributes:
        samples: of each segment. faults: of each segment int32 (4,), see ActionSampler.
        outputs: name of OUTPUTS -> (T, E, N) or (T, E).
    """

    def __init__(
        self,
        sim: Simulator,
        segments: list[Segment],
        steps: int,
        policies: Mapping[str, nn.Module],
        opponents: Mapping[str, str] | None = None,
    ) -> None:
        self.sim, self.segments, self.steps, self.policies = sim, segments, steps, policies
        store, env, device = sim.store, sim.env, sim.device
        require_memory(
            rollout_bytes(store, steps), device, f"a rollout of {steps} steps of {sim.num_envs} environments"
        )
        shapes = {"final_slot": torch.int32, "reward": torch.float32}
        self.outputs = {
            name: torch.zeros((steps, *store.fields[name].shape), dtype=shapes.get(name, torch.bool), device=device)
            for name in OUTPUTS
        }
        slots = final_slots(env.episode_length, steps)
        self.shared = {name: sum(s.group == name for s in segments) > 1 for name in env.groups}
        self.obs = {name: store.new_obs(name, steps + 1, not self.shared[name]) for name in env.groups}
        self.final_obs = {name: store.new_obs(name, slots, not self.shared[name]) for name in env.groups}
        self.mask = {
            name: store.new_mask(name, steps + 1, not self.shared[name]) for name in env.groups if env.groups[name].mask
        }
        self.samples = [self._samples(segment) for segment in segments]
        self.faults = [torch.zeros(4, dtype=torch.int32, device=device) for _ in segments]
        self._steps = [sim.launcher.step(self._results(t)) for t in range(steps)]
        self._opponents = [[self._opponent(t, *pair) for pair in (opponents or {}).items()] for t in range(steps)]
        self._samplers = [self._sampler(s, fault) for s, fault in zip(self.samples, self.faults, strict=True)]
        self._written_out = all(written_out(self.policies[s.segment.policy], s.obs) for s in self.samples)
        # policy -> of each of its segments what begins a rollout
        self._acts: dict[str, list[Callable[[], Callable[[int], None]]]] = {}
        agents: dict[str, int] = {}
        for s, sample in zip(self.samples, self._samplers, strict=True):
            name = s.segment.policy
            self._acts.setdefault(name, []).append(self._act(s, sample))
            agents[name] = agents.get(name, 0) + s.segment.count
        self._branches = branches(agents, policies)

    @property
    def num_slots(self) -> int:
        """K, the final observations kept of each environment."""
        return next(iter(self.final_obs.values())).shape[0]

    @torch.no_grad()
    def run(self) -> None:
        """Collect T steps of every environment, going on from where the simulator stands."""
        # The operations of a step are too small to be shared out: two threads were slower than one.
        with one_thread(self._written_out):
            self._run()

    def _run(self) -> None:
        fields = self.sim.store.fields
        for name, block in self.obs.items():
            block[0].copy_(self.sim.obs[name])
        for name, block in self.mask.items():
            block[0].copy_(self.sim.mask[name])
        fields["final_count"].zero_()
        acts = {name: [begin() for begin in begins] for name, begins in self._acts.items()}
        works = [[act for name in names for act in acts[name]] for names in self._branches]
        for t in range(self.steps):
            together([functools.partial(_each, work, t) for work in works], self.sim.device)
            for play in self._opponents[t]:
                play()
            self._steps[t]()
        for name, block in self.obs.items():
            self.sim.obs[name].copy_(block[-1])
        for name, block in self.mask.items():
            self.sim.mask[name].copy_(block[-1])
        for name, array in self.outputs.items():
            fields[name].copy_(array[-1])

    def _act(self, s: Samples, sample: ActionSampler) -> Callable[[], Callable[[int], None]]:
        """What begins a rollout of a segment: it gives what acts in step t."""
        module = self.policies[s.segment.policy]
        if written_out(module, s.obs):
            return self._act_written_out(s, sample, module)

        def begin() -> Callable[[int], None]:
            # The weights do not change until the rollout is over: cast them once.
            weights = [module.weights(module.kind(s.obs.dtype))] if isinstance(module, ActorCritic) else []
            # To leave out who has left is worth a list of who has not where a sample is much work.
            wide = getattr(module, "fused", "") == "wide"

            def act(t: int) -> None:
                more = [s.ordered_present, None if s.kept is None else s.kept[t]] if wide else []
                out = module(s.flat(s.obs[t : t + 1]), *weights, *more)
                mask = None if s.mask is None else s.mask[t]
                sample(s.shaped(out), mask, s.action[t], s.log_prob[t], s.value[t])

            return act

        return begin

    def _act_written_out(self, s: Samples, sample: ActionSampler, module: Any) -> Callable[[], Any]:
        """As _act, by a pass that is written out; all that changes from step to step is prepared."""
        towers = Towers(module)
        passes = Passes(towers)
        obs = [s.flat(s.obs[t : t + 1]) for t in range(self.steps)]
        assert obs[-1].data_ptr() == s.obs[self.steps - 1].data_ptr(), "a view, which shows what is there later"
        out = torch.empty(towers.stages[-1].rows, len(obs[0])).t()
        masks = [None] * self.steps if s.mask is None else s.mask
        draws = [
            sample.record(s.shaped(out), masks[t], s.action[t], s.log_prob[t], s.value[t]) for t in range(self.steps)
        ]

        def act(t: int) -> None:
            passes.forward(obs[t], out)
            draws[t]()

        def begin() -> Callable[[int], None]:
            towers.refresh()
            return act

        return begin

    def _sampler(self, s: Samples, fault: torch.Tensor) -> ActionSampler:
        sim, a, b = self.sim, s.segment.first, s.segment.last
        fields, group = sim.store.fields, s.segment.group
        return ActionSampler(
            sim.env.groups[group].action,
            action=sim.action[group][:, a:b],
            active=s.present,
            seed=fields["seed"],
            clock=fields["clock"],
            fault=fault,
            env_offset=sim.env_offset,
            agent_offset=sim.env.first_agent[group] + a,
            log_std=getattr(self.policies[s.segment.policy], "log_std", None),
        )

    def _opponent(self, t: int, group: str, policy: str) -> Callable[[], None]:
        """A launch of what acts for a group in step t."""
        sim = self.sim
        last = {name: sim.store.fields[name] if t == 0 else array[t - 1] for name, array in self.outputs.items()}
        obs = {name: block[t] for name, block in self.obs.items()}
        mask = {name: block[t] for name, block in self.mask.items()}
        results = Results(last, obs, mask, self.final_obs, rolling=True)
        if policy == RANDOM:
            return sim.launcher.randomize(group, results)
        return sim.launcher.script(group, policy, results)

    def _results(self, t: int) -> Results:
        """Where step t leaves its results."""
        return Results(
            arrays={name: array[t] for name, array in self.outputs.items()},
            obs={name: block[t + 1] for name, block in self.obs.items()},
            mask={name: block[t + 1] for name, block in self.mask.items()},
            final_obs=self.final_obs,
            rolling=True,
        )

    def _samples(self, segment: Segment) -> Samples:
        sim, (a, b) = self.sim, (segment.first, segment.last)
        space = sim.env.groups[segment.group].action
        first = sim.env.first_agent[segment.group]
        own = slice(first + a, first + b)
        env_fastest = self.shared[segment.group]

        def new(steps: int, dtype: torch.dtype = torch.float32, features: int = 1) -> torch.Tensor:
            inner = (segment.count, sim.num_envs) if env_fastest else (sim.num_envs, segment.count)
            flat = torch.zeros((features, steps, *inner), dtype=dtype, device=sim.device)
            return flat.permute(1, 3, 2, 0) if env_fastest else flat.permute(1, 2, 3, 0)

        return Samples(
            segment=segment,
            env_fastest=env_fastest,
            obs=self.obs[segment.group][:, :, a:b],
            mask=self.mask[segment.group][:, :, a:b] if segment.group in self.mask else None,
            final_obs=self.final_obs[segment.group][:, :, a:b],
            action=new(self.steps, sim.action[segment.group].dtype, space.size),
            log_prob=new(self.steps)[..., 0],
            value=new(self.steps + 1)[..., 0],
            final_value=new(self.num_slots)[..., 0],
            reward=self.outputs["reward"][:, :, own],
            alive=self.outputs["alive"][:, :, own],
            terminated=self.outputs["terminated"][:, :, own],
            present=sim.of_group(sim.active, segment.group)[:, a:b],
        )
