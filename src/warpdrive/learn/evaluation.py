"""Playing policies without learning: trained, greedy, scripted or random, in environments of their own."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from warpdrive.env.environment import Env, positive_int, require_script, unknown_name
from warpdrive.env.registry import rebuild
from warpdrive.learn.assignment import RANDOM, Segment
from warpdrive.learn.checkpoint import CheckpointError, load_checkpoint
from warpdrive.learn.interval import half_width
from warpdrive.policy.actions import ActionSampler
from warpdrive.policy.mlp import MLP
from warpdrive.sim.simulator import Simulator

__all__ = ["Outcome", "Player", "Trained", "load_trained", "play"]

MAX_STEPS = 10_000  # of an episode in an environment that has no episode_length


@dataclass(frozen=True)
class Trained:
    """What a checkpoint holds of use without training: the environment, who acts for whom, the policies."""

    env: Env
    segments: list[Segment]
    policies: dict[str, nn.Module]
    settings: dict[str, Any]
    env_steps: int
    opponents: dict[str, str]  # group -> scripted policy, or "random", that played it

    def player(self, sim: Simulator, *, random: Iterable[str] = (), greedy: bool = False) -> "Player":
        """Everybody as in training, but for groups that are to act at random."""
        at_random = {*random, *(group for group, policy in self.opponents.items() if policy == RANDOM)}
        scripted = {group: policy for group, policy in self.opponents.items() if group not in at_random}
        return Player(sim, self.segments, self.policies, random=at_random, scripted=scripted, greedy=greedy)


def load_trained(path: str | Path) -> Trained:
    """Environment and policies of a checkpoint, from that file alone.

    Raises:
        CheckpointError: damaged, foreign, or with policies of the user's own class, of which it keeps only the weights.
    """
    content = load_checkpoint(path)
    try:
        env = rebuild(content["env"])
        segments = [Segment(*entry) for entry in content["segments"]]
        policies: dict[str, nn.Module] = {}
        for name, description in content["descriptions"].items():
            if description is None:
                raise CheckpointError(
                    f"{path}: policy {name!r} is a module of your own, of which a checkpoint keeps the weights only; "
                    "make a Trainer with it and call load()"
                )
            group = env.groups[next(s.group for s in segments if s.policy == name)]
            policies[name] = MLP.from_dict(description).build(group.obs, group.action, generator=torch.Generator())
            policies[name].load_state_dict(content["trainer"]["policies"][name])
        opponents = content.get("opponents", {})  # checkpoints of before there were any
        return Trained(env, segments, policies, content["settings"], int(content["trainer"]["env_steps"]), opponents)
    except (KeyError, StopIteration, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{path} is a checkpoint, but its content does not fit: {error!r}") from None


class Player:
    """Steps a simulator with policies.

    Args:
        sim: the simulator.
        segments: who acts for whom.
        policies: name -> module.
        random: groups that act at random instead.
        scripted: group -> scripted policy of the environment that acts for it instead.
        greedy: take the likeliest action instead of drawing.
    """

    def __init__(
        self,
        sim: Simulator,
        segments: Iterable[Segment],
        policies: Mapping[str, nn.Module],
        *,
        random: Iterable[str] = (),
        scripted: Mapping[str, str] | None = None,
        greedy: bool = False,
    ) -> None:
        self.sim, self.random, self.scripted = sim, set(random), dict(scripted or {})
        for group in self.random:
            if group not in sim.env.groups:
                raise unknown_name("group", group, sim.env.groups)
        for group, policy in self.scripted.items():
            require_script(sim.env, group, policy)
        self.policies = {name: module.to(sim.device).eval() for name, module in policies.items()}
        self.segments = [s for s in segments if s.group not in self.random and s.group not in self.scripted]
        self.fault = torch.zeros(4, dtype=torch.int32, device=sim.device)
        self._samplers = [
            ActionSampler(
                sim.env.groups[s.group].action,
                action=sim.action[s.group][:, s.first : s.last],
                active=sim.of_group(sim.active, s.group)[:, s.first : s.last],
                seed=sim.store.fields["seed"],
                clock=sim.store.fields["clock"],
                fault=self.fault,
                env_offset=sim.env_offset,
                agent_offset=sim.env.first_agent[s.group] + s.first,
                log_std=getattr(self.policies[s.policy], "log_std", None),
                greedy=greedy,
            )
            for s in self.segments
        ]

    @torch.no_grad()
    def step(self) -> None:
        """Every agent acts once."""
        sim = self.sim
        for group in self.random:
            sim.randomize_actions(group)
        for group, policy in self.scripted.items():
            sim.script_actions(group, policy)
        for s, sample in zip(self.segments, self._samplers, strict=True):
            own = slice(s.first, s.last)
            obs = sim.obs[s.group][:, own]
            shape = obs.shape[:2]
            flat = obs.movedim(-1, 0).reshape(obs.shape[-1], -1).t()
            out = self.policies[s.policy](flat).unflatten(0, shape)
            mask = sim.mask[s.group][:, own] if s.group in sim.mask else None
            scratch = torch.empty(shape, device=sim.device)
            sample(out, mask, torch.empty_like(sim.action[s.group][:, own]), scratch, torch.empty_like(scratch))
        sim.step()


@dataclass(frozen=True)
class Outcome:
    """Returns of one episode in each of E environments: `returns` group -> (E,), mean over agents; `lengths` (E,)."""

    returns: dict[str, torch.Tensor]
    lengths: torch.Tensor

    def mean(self, group: str) -> float:
        """Mean over the environments of a group's return."""
        return float(self.returns[group].mean())

    def interval(self, group: str) -> float:
        """Half the width of the 95 % confidence interval of the mean, see warpdrive.learn.interval."""
        return half_width(self.returns[group])


def play(player: Player, seed: int, watch: Callable[[], None] | None = None) -> Outcome:
    """Play one whole episode in every environment, the first that each begins; `watch` is called after each step."""
    sim = player.sim
    sim.seed(seed)
    sim.reset()
    returns = torch.zeros_like(sim.last_return)
    lengths = torch.zeros_like(sim.last_length)
    done = torch.zeros_like(sim.over)
    limit = positive_int("episode_length", sim.env.episode_length or MAX_STEPS)
    for step in range(limit):
        player.step()
        if watch:
            watch()
        new = sim.over & ~done
        returns = torch.where(new[:, None], sim.last_return, returns)
        lengths = torch.where(new, sim.last_length, lengths)
        done |= new
        if step % 16 == 15 and bool(done.all()):
            break
    if not bool(done.all()):
        raise ValueError(f"{int((~done).sum())} of {sim.num_envs} episodes had not ended after {limit} steps")
    groups = {name: sim.of_group(returns, name).double().mean(1).cpu() for name in sim.env.groups}
    return Outcome(groups, lengths.cpu())
