"""Train a bundled configuration with several seeds; keep its learning curves, what it reached, and in what time.

    python benchmarks/learning_curves.py pendulum --machine "two CPU cores"

trains as `warpdrive train pendulum --seed SEED` does, evaluates as `warpdrive eval` does with drawn and with likeliest
actions, and writes `benchmarks/results/curves/pendulum.json`:

    environment, config, commit, machine, date
    seeds: seed -> [env_steps, mean return of the episodes that ended in this update], one an update
    eval: one row a seed: seconds, env_steps, return and 95 % interval, of drawn and of likeliest actions

Seconds are of the wall clock, from the making of the environment to the end of training, compilation included.
"""

import argparse
import datetime
import json
import subprocess
import time
from pathlib import Path
from typing import Any

from warpdrive.cli.options import find_environment
from warpdrive.cli.train import make_simulator, make_trainer, train_parser
from warpdrive.learn.evaluation import Player, play
from warpdrive.learn.trainer import Trainer
from warpdrive.sim.simulator import Simulator

CURVES = Path(__file__).parent / "results" / "curves"


def train(config: str, seed: int) -> tuple[Trainer, list[list[float]], float]:
    """The trained trainer, its curve, and seconds."""
    env_class, settings, _ = find_environment([config], "train")
    settings = train_parser(env_class, settings).parse(["--seed", str(seed)]).as_dict()
    started = time.monotonic()
    trainer = make_trainer(make_simulator(env_class(**settings["env"]), settings), settings)
    (group,) = trainer.sim.env.groups
    curve: list[list[float]] = []

    def note(row: dict[str, Any]) -> None:
        if row["episodes"]:
            curve.append([row["env_steps"], round(row[f"return/{group}"], 2)])

    trainer.train(settings["env_steps"], report=note, report_seconds=0.0)
    return trainer, curve, time.monotonic() - started


def evaluate(trainer: Trainer, episodes: int, greedy: bool) -> dict[str, float]:
    """Mean return of whole episodes, as `warpdrive eval` has it with its own seed."""
    sim = Simulator(trainer.sim.env, episodes, device=trainer.sim.device, seed=1)
    outcome = play(Player(sim, trainer.segments, trainer.policies, greedy=greedy), 1)
    (group,) = sim.env.groups
    return {"return": round(outcome.mean(group), 2), "interval": round(outcome.interval(group), 2)}


def main() -> None:
    """Train, evaluate and write."""
    parser = argparse.ArgumentParser(description="Learning curves of a bundled configuration with one group.")
    parser.add_argument("config", help="name of the configuration: see warpdrive list")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=1000, help="of each evaluation")
    parser.add_argument("--machine", required=True, help="what it runs on, in words")
    args = parser.parse_args()
    seeds, rows, name = {}, [], ""
    for seed in args.seeds:
        trainer, seeds[str(seed)], seconds = train(args.config, seed)
        name = type(trainer.sim.env).__name__
        row = {"seed": seed, "seconds": round(seconds, 1), "env_steps": trainer.env_steps}
        row |= {mode: evaluate(trainer, args.episodes, mode == "likeliest") for mode in ("drawn", "likeliest")}
        rows.append(row)
        print(row)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    content = {
        "environment": name,
        "config": args.config,
        "commit": commit.strip(),
        "machine": args.machine,
        "date": datetime.date.today().isoformat(),
        "eval": {"episodes": args.episodes, "rows": rows},
        "seeds": seeds,
    }
    CURVES.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1)
    (CURVES / f"{args.config}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
