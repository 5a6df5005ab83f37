"""Matches of trained policies, and of those in their place, against groups that are played by scripts."""

from collections.abc import Iterable, Mapping
from typing import Any

from warpdrive.learn.assignment import RANDOM
from warpdrive.learn.evaluation import Outcome, Player, play
from warpdrive.learn.trainer import Trainer
from warpdrive.sim.simulator import Simulator

__all__ = ["PLAYERS", "SEED", "against_script", "returns"]

PLAYERS = ("trained", "likeliest", "scripted", "random")
SEED = 1  # of every match, as in `warpdrive eval`: all begin in the same situations


def returns(outcome: Outcome, groups: Iterable[str]) -> dict[str, dict[str, float]]:
    """Each group's mean return and half the width of its 95 % interval, as the result files have them."""
    return {
        group: {"return": round(outcome.mean(group), 3), "interval": round(outcome.interval(group), 3)}
        for group in groups
    }


def against_script(trainer: Trainer, scripts: Mapping[str, str], episodes: int) -> dict[str, dict[str, Any]]:
    """Mean returns of the groups that `scripts` (group -> its scripted policy) leaves, and half their 95 % intervals.

    They are played by the trained policies with drawn and with likeliest actions, by the first scripted policy that
    each group has ("scripted"), and at random: player -> group -> {"return", "interval"}.
    """
    env = trainer.sim.env
    others = [group for group in env.groups if group not in scripts]
    sim = Simulator(env, episodes, seed=SEED, device=trainer.sim.device)
    result: dict[str, dict[str, Any]] = {}
    for name in PLAYERS:
        acting = {group: next(iter(env.scripts[group])) for group in others if name == "scripted"}
        player = Player(
            sim,
            trainer.segments,
            trainer.policies,
            random=others if name == RANDOM else (),
            scripted={**acting, **scripts},
            greedy=name == "likeliest",
        )
        result[name] = returns(play(player, SEED), others)
    return result
