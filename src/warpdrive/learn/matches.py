"""Matches: each group of an environment played by trained, scripted and random policies, all against all."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from warpdrive.env.environment import Env
from warpdrive.learn.assignment import RANDOM, Segment
from warpdrive.learn.evaluation import Outcome, Player, Trained, load_trained, play
from warpdrive.learn.interval import CONFIDENCE
from warpdrive.sim.simulator import Simulator, choose_device

__all__ = ["Match", "Matches", "matches", "pairings", "require_episodes"]

TRAINED = "trained"
MOST = 64  # pairings of which all are played


@dataclass(frozen=True)
class Match:
    """Who played whom, and how it went.

    Attributes:
        players: group -> "trained", the name of a scripted policy, "random", or the path of another checkpoint.
        outcome: returns and lengths of the episodes.
    """

    players: dict[str, str]
    outcome: Outcome


@dataclass(frozen=True)
class Matches:
    """All matches of a checkpoint.

    Attributes:
        environment: name of its class. checkpoint: its path. env_steps: environment steps that it was trained for.
        episodes: of each match, each in an environment of its own. seed: of all random numbers.
        players: group -> who plays it, in order.
        complete: whether all pairings were played and not only some of too many, see `pairings`.
        played: the matches.
    """

    environment: str
    checkpoint: str
    env_steps: int
    episodes: int
    seed: int
    greedy: bool
    players: dict[str, list[str]]
    complete: bool
    played: list[Match]

    def __getitem__(self, players: Mapping[str, str]) -> Outcome:
        """How the match of these players went.

        Raises:
            KeyError: there was no such match.
        """
        for match in self.played:
            if match.players == players:
                return match.outcome
        raise KeyError(f"there was no match of {dict(players)!r}; players are {self.players!r}")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; returns are means over agents and episodes, with the ends of their intervals."""

        def row(match: Match) -> dict[str, Any]:
            returns = {}
            for group in self.players:
                mean, half = match.outcome.mean(group), match.outcome.interval(group)
                returns[group] = {"mean": mean, "low": mean - half, "high": mean + half}
            length = float(match.outcome.lengths.double().mean())
            return {"players": match.players, "returns": returns, "length": length, "episodes": self.episodes}

        return {
            "environment": self.environment,
            "checkpoint": self.checkpoint,
            "env_steps": self.env_steps,
            "seed": self.seed,
            "greedy": self.greedy,
            "confidence": CONFIDENCE,
            "complete": self.complete,
            "matches": [row(match) for match in self.played],
        }


def pairings(players: Mapping[str, Sequence[str]]) -> tuple[list[dict[str, str]], bool]:
    """Every combination of one player a group, and whether these are all.

    Of more than 64 only those are left in which at most one group is played by another than its first player.
    """
    if math.prod(map(len, players.values())) <= MOST:
        chosen = list(itertools.product(*players.values()))
        complete = True
    else:
        firsts = tuple(names[0] for names in players.values())
        others = [
            (*firsts[:k], name, *firsts[k + 1 :]) for k, names in enumerate(players.values()) for name in names[1:]
        ]
        chosen, complete = [firsts, *others], False
    return [dict(zip(players, names, strict=True)) for names in chosen], complete


def require_episodes(episodes: int) -> None:
    """Raise a ValueError unless there are enough episodes for an interval."""
    if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 2:
        raise ValueError(f"episodes must be an integer of at least 2, for an interval needs two; got {episodes!r}")


def matches(
    checkpoint: str | Path,
    *,
    against: Sequence[str | Path] = (),
    episodes: int = 100,
    seed: int = 1,
    greedy: bool = False,
    device: str | torch.device | None = None,
    report: Callable[[Match], None] | None = None,
) -> Matches:
    """Play the policies of a checkpoint, those of others, scripted ones and random ones against each other.

    A match is played in `episodes` environments side by side, one whole episode in each. All matches begin with the
    same random numbers: one seed gives the same result on the same device.

    Args:
        checkpoint: a checkpoint, or the folder of a run; its environment is the one that is played.
        against: other checkpoints, of the same environment and with groups of the same size, observations and actions.
        episodes: of each match, at least 2.
        seed: of all random numbers.
        greedy: whether trained policies take the likeliest action instead of drawing.
        device: "cpu", "cuda", "cuda:N"; None: the GPU if there is one.
        report: called after each match.

    Raises:
        CheckpointError: a checkpoint cannot be used.
        ValueError: an argument that does not fit; the sentence says which.
    """
    require_episodes(episodes)
    trained = load_trained(checkpoint)
    checkpoints = {TRAINED: trained}
    for path in against:
        if str(path) in checkpoints or any(str(path) in scripts for scripts in trained.env.scripts.values()):
            raise ValueError(f"against: {path} is named twice, or is the name of another player; give another path")
        checkpoints[str(path)] = _fitting(load_trained(path), trained, path)
    players: dict[str, list[str]] = {}
    for group, scripts in trained.env.scripts.items():
        learnt = [name for name, found in checkpoints.items() if any(s.group == group for s in found.segments)]
        players[group] = [*learnt, *scripts, RANDOM]
    wanted, complete = pairings(players)
    sim = Simulator(trained.env, episodes, seed=seed, device=choose_device(device))
    played = []
    for pairing in wanted:
        match = Match(pairing, play(_player(sim, checkpoints, pairing, greedy), seed))
        played.append(match)
        if report:
            report(match)
    return Matches(
        environment=type(trained.env).__name__,
        checkpoint=str(checkpoint),
        env_steps=trained.env_steps,
        episodes=episodes,
        seed=seed,
        greedy=greedy,
        players=players,
        complete=complete,
        played=played,
    )


def _player(sim: Simulator, checkpoints: Mapping[str, Trained], pairing: Mapping[str, str], greedy: bool) -> Player:
    segments: list[Segment] = []
    policies: dict[str, nn.Module] = {}
    for group, name in pairing.items():
        if name in checkpoints:  # policies of several checkpoints may have one name
            own = [s for s in checkpoints[name].segments if s.group == group]
            segments += [Segment(group, s.first, s.last, f"{name}: {s.policy}") for s in own]
            policies |= {f"{name}: {s.policy}": checkpoints[name].policies[s.policy] for s in own}
    return Player(
        sim,
        segments,
        policies,
        random=[group for group, name in pairing.items() if name == RANDOM],
        scripted={group: name for group, name in pairing.items() if name in sim.env.scripts[group]},
        greedy=greedy,
    )


def _fitting(other: Trained, trained: Trained, path: str | Path) -> Trained:
    """The other checkpoint, if its policies can play in the environment of the first.

    Raises:
        ValueError: it cannot; the sentence says why.
    """

    def shapes(env: Env) -> dict[str, Any]:
        return {name: (g.count, g.obs, g.action, g.mask) for name, g in env.groups.items()}

    theirs, ours = type(other.env).__name__, type(trained.env).__name__
    if theirs != ours:
        raise ValueError(f"against: {path} was trained in {theirs}, not in {ours}; take a checkpoint of {ours}")
    for name, here in shapes(trained.env).items():
        there = shapes(other.env).get(name)
        if there != here:
            raise ValueError(
                f"against: {path} does not fit: (agents, observation, actions, mask) of group {name!r} are {there} "
                f"there and {here} here"
            )
    return other
