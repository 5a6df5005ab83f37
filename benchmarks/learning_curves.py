"""Train a bundled configuration with several seeds; keep its learning curves, what it reached, and in what time.

    python benchmarks/learning_curves.py pendulum --machine "two CPU cores"

trains as `warpdrive train pendulum --seed SEED` does, evaluates as `warpdrive eval` does with drawn and with likeliest
actions, and writes `benchmarks/results/curves/pendulum.json`, which benchmarks/plot_curves.py draws:

    environment, config, commit, machine, threads, date
    eval: episodes, and one row a seed:
        seed, env_steps, seconds, cpu_seconds
        drawn, likeliest: group -> return and half the width of its 95 % interval
    seeds: seed -> group -> [[env_steps, mean return of the episodes that ended since the point before], ...]

With `--against '{good: runner}'` it also plays the trained policies, and scripted and random ones in their place,
against groups that are played by scripts, and writes `benchmarks/results/matches/simple-tag.json`:

    the same facts; against: group -> its scripted policy; episodes
    rows: one a seed: the time as above, and player -> group -> return and half the width of its 95 % interval

Seconds go from the making of the environment to the end of training, compilation included, by the wall clock; CPU
seconds, of all threads together, say more where the machine had other work.
"""

import argparse
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from against_script import SEED, against_script, returns

from warpdrive.cli.options import find_environment
from warpdrive.cli.train import make_simulator, make_trainer, train_parser
from warpdrive.learn.evaluation import Trained, play
from warpdrive.learn.trainer import Trainer
from warpdrive.measure.machine import describe_machine
from warpdrive.sim.simulator import Simulator, choose_device

RESULTS = Path(__file__).parent / "results"
POINTS = 100  # of a curve, at most
Curve = list[tuple[int, float]]


def train(
    config: str, seed: int, options: Sequence[str] = ()
) -> tuple[Trainer, list[dict[str, Any]], dict[str, float]]:
    """The trained trainer, a row of metrics for each update, and how long it took; `options` as of the command."""
    env_class, settings, _ = find_environment([config], "train")
    settings = train_parser(env_class, settings).parse(["--seed", str(seed), *options]).as_dict()
    wall, cpu = time.monotonic(), time.process_time()
    trainer = make_trainer(make_simulator(env_class(**settings["env"]), settings), settings)
    rows: list[dict[str, Any]] = []
    trainer.train(settings["env_steps"], report=rows.append, report_seconds=0.0)
    spent = {"seconds": time.monotonic() - wall, "cpu_seconds": time.process_time() - cpu}
    return trainer, rows, {name: round(value, 1) for name, value in spent.items()}


def curve(rows: list[dict[str, Any]], group: str, points: int = POINTS) -> Curve:
    """At most `points` pairs of env_steps and mean return of the episodes that ended since the pair before."""
    result: Curve = []
    stride = rows[-1]["env_steps"] / points
    total, episodes = 0.0, 0
    for row in rows:
        if row["episodes"]:
            total += row["episodes"] * row[f"return/{group}"]
            episodes += row["episodes"]
        if episodes and row["env_steps"] >= stride * (len(result) + 1):
            result.append((row["env_steps"], round(total / episodes, 3)))
            total, episodes = 0.0, 0
    return result


def evaluate(trainer: Trainer, episodes: int, greedy: bool) -> dict[str, dict[str, float]]:
    """Each group's mean return of whole episodes, as `warpdrive eval` has it with its own seed."""
    sim = Simulator(trainer.sim.env, episodes, device=trainer.sim.device, seed=SEED)
    trained = Trained(
        trainer.sim.env, trainer.segments, trainer.policies, {}, trainer.env_steps, opponents=trainer.opponents
    )
    return returns(play(trained.player(sim, greedy=greedy), SEED), sim.env.groups)


def write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with every list of numbers, or of pairs of them, on one line."""
    text = re.sub(r"\n *(?=[\d\[\]-])", " ", json.dumps(content, indent=1))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Train, evaluate and write."""
    parser = argparse.ArgumentParser(description="Learning curves of a bundled configuration.")
    parser.add_argument("config", help="name of the configuration: see warpdrive list")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=1000, help="of each evaluation")
    parser.add_argument("--machine", required=True, help="what it runs on, in words")
    parser.add_argument("--against", type=yaml.safe_load, help="group -> scripted policy, of matches that are played")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the folders curves and matches")
    args = parser.parse_args()
    machine = describe_machine(choose_device(None))
    facts: dict[str, Any] = {
        "environment": "",
        "config": args.config,
        "commit": machine["commit"],
        "machine": args.machine,
        "threads": torch.get_num_threads(),
        "date": machine["date"],
    }
    evaluations: list[dict[str, Any]] = []
    curves: dict[str, Any] = {}
    matches: list[dict[str, Any]] = []
    for seed in args.seeds:
        trainer, rows, spent = train(args.config, seed)
        facts["environment"] = type(trainer.sim.env).__name__
        curves[str(seed)] = {group: curve(rows, group) for group in trainer.sim.env.groups}
        row = {"seed": seed, "env_steps": trainer.env_steps, **spent}
        modes = ("drawn", "likeliest")
        evaluations.append(row | {mode: evaluate(trainer, args.episodes, mode == "likeliest") for mode in modes})
        print(evaluations[-1], flush=True)
        # After every seed, to keep what is done.
        found = facts | {"eval": {"episodes": args.episodes, "rows": evaluations}, "seeds": curves}
        write(args.out / "curves" / f"{args.config}.json", found)
        if args.against:
            matches.append(row | against_script(trainer, args.against, args.episodes))
            print(matches[-1], flush=True)
            found = facts | {"against": args.against, "episodes": args.episodes, "rows": matches}
            write(args.out / "matches" / f"{args.config}.json", found)


if __name__ == "__main__":
    main()
