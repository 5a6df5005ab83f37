"""What is measured: one row for each game, kind of work and number of environments."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["AGENTS", "CHUNK", "RECIPE", "ROWS", "RULES", "Row", "choose"]

CHUNK = {"cuda": 500, "cpu": 50}  # steps with random actions in one call of either side
AGENTS = {"spread": 3, "tag": 4, "cartpole": 1}

Game = Literal["spread", "tag", "cartpole"]

# JaxMARL's ippo_ff_mpe.yaml, for all trainers here.
RECIPE: dict[str, Any] = {
    "rollout_steps": 128,
    "epochs": 4,
    "minibatches": 4,
    "lr": 2.5e-4,
    "adam_eps": 1e-5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "value_clip": 0.2,
    "entropy": 0.01,
    "value_coef": 0.5,
    "max_grad_norm": 0.5,
    "hidden": 64,
}

# What is not the same on both sides; printed with the results.
RULES = (
    "simple_spread and simple_tag are stepped by mpe2's and JaxMARL's common rules, in episodes of 26 steps as "
    "JaxMARL's are (its limit of 25 is tested before the step is counted). JaxMARL puts simple_tag's obstacles from "
    "-1 to 1, warpdrive from -0.9 to 0.9 as mpe2 does.",
    "To the trainers the time limit is the end of the episode, as JaxMARL's and PureJaxRL's take it: warpdrive's games "
    "end then by their rules. (A cut, with the value of the observation it was made at, is warpdrive's own way.)",
    "Peers deal minibatches from single samples, as their scripts do; warpdrive deals them from whole environments. "
    "Rows named 'same cut' let the peer deal whole agents too.",
    "VMAS's simple_spread is another game: 14 observations, a reward that all share, no reset of single environments; "
    "its number is for reference.",
    "All compute in float32; on a GPU matrix products may use TF32 on both sides, as JAX's do by default.",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison.

    Args:
        name: what `--only` knows it by.
        game: spread, tag or cartpole.
        work: simulate (random actions) or train.
        num_envs: environments side by side.
        peers: the other systems; what follows a comma is a variant of one.
        goals: device -> how many times as fast as the first peer warpdrive means to be there.
        learn_updates: updates of the comparison of returns after equally many steps; 0: none.
    """

    name: str
    game: Game
    work: Literal["simulate", "train"]
    num_envs: int
    peers: tuple[str, ...]
    goals: Mapping[str, float] = field(default_factory=dict)
    learn_updates: int = 0

    @property
    def passes(self) -> int:
        """How often the trainer goes over each rollout."""
        return RECIPE["epochs"] if self.work == "train" else 0


def _simulate(game: Game, num_envs: int, *peers: str, goals: Mapping[str, float] | None = None) -> Row:
    name = f"{game}-sim-{num_envs // 1000}k"
    return Row(name=name, game=game, work="simulate", num_envs=num_envs, peers=peers, goals=goals or {})


def _train(
    game: Game, num_envs: int, *peers: str, goals: Mapping[str, float] | None = None, learn_updates: int = 0
) -> Row:
    return Row(
        name=f"{game}-train-{num_envs}",
        game=game,
        work="train",
        num_envs=num_envs,
        peers=peers,
        goals=goals or {},
        learn_updates=learn_updates,
    )


# In the order in which they are measured, should time run out.
ROWS = (
    _simulate("spread", 100_000, "jaxmarl", "vmas", goals={"cuda": 5.0}),
    _train("spread", 16_384, "jaxmarl", "jaxmarl, same cut", goals={"cuda": 2.0}, learn_updates=60),
    _train("spread", 1_024, "jaxmarl", goals={"cuda": 2.0}, learn_updates=300),
    _simulate("cartpole", 100_000, "gymnax", goals={"cuda": 2.0}),
    _train("cartpole", 16_384, "gymnax", goals={"cuda": 2.0}, learn_updates=100),
    _simulate("spread", 10_000, "jaxmarl", "vmas", goals={"cpu": 1.5}),
    _train("spread", 256, "jaxmarl", goals={"cpu": 1.5}, learn_updates=20),
    _simulate("spread", 1_000, "jaxmarl", "vmas"),
    _simulate("tag", 100_000, "jaxmarl"),
    _simulate("cartpole", 1_000, "gymnax"),
    _simulate("cartpole", 10_000, "gymnax"),
    _train("spread", 16, "jaxmarl", learn_updates=488),  # ippo_ff_mpe.yaml as it stands: 1e6 steps
)


def choose(only: str, device: str) -> list[Row]:
    """The rows asked for by name; without names those that have a goal on the device.

    Raises:
        ValueError: an unknown name.
    """
    known = {row.name: row for row in ROWS}
    if not only:
        return [row for row in ROWS if device in row.goals]
    for name in only.split(","):
        if name not in known:
            raise ValueError(f"--only must name rows of {', '.join(known)}; got {name!r}")
    return [known[name] for name in only.split(",")]
