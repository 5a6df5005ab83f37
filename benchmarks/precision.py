"""Does learning in bfloat16 end where learning in float32 ends? Many seeds of one configuration in each precision.

    python benchmarks/precision.py simple-spread --machine "one H200" --json benchmarks/results/precision.json

Options that follow a lone -- go to every run, as to `warpdrive train`. The file holds the curves (precision -> seed ->
[[env_steps, return], ...]), each seed's return over the last tenth of its curve, and of each precision beside the first
one the difference of means with its 95 % interval (Welch). The picture is made by --plot FILE, which needs Matplotlib.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from figures import pyplot
from learning_curves import Curve, curve, train, write
from plot_curves import mean_curve

from warpdrive.measure.machine import describe_machine
from warpdrive.sim.simulator import choose_device

COLOURS = ("#57606a", "#1f6feb", "#cf222e")


def difference(a: list[float], b: list[float]) -> dict[str, float]:
    """Mean of b less that of a, and half the width of its 95 % interval by Welch's t (Biometrika 34, 1947)."""
    from scipy.stats import t

    va, vb = statistics.variance(a) / len(a), statistics.variance(b) / len(b)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1)) if va + vb else 1.0
    half = float(t.ppf(0.975, freedom)) * (va + vb) ** 0.5
    return {"difference": statistics.fmean(b) - statistics.fmean(a), "half_width": half}


def last(points: Curve) -> float:
    """The mean return over the last tenth of a curve."""
    return statistics.fmean(value for _, value in points[-max(1, len(points) // 10) :])


def plot(content: dict[str, Any], path: Path) -> None:
    """Thin lines are seeds, thick ones their means."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
    for colour, (precision, seeds) in zip(COLOURS, content["curves"].items(), strict=False):
        lines = [np.array(points, dtype=float) for points in seeds.values()]
        for points in lines:
            axis.plot(points[:, 0] / 1e6, points[:, 1], color=colour, linewidth=0.4, alpha=0.4)
        steps, mean = mean_curve(lines)
        axis.plot(steps / 1e6, mean, color=colour, linewidth=1.8, label=f"{precision}, {len(lines)} seeds")
    axis.set(xlabel="million environment steps", ylabel="return", title=content["config"])
    axis.grid(linewidth=0.3)
    axis.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Train, compare, write and draw."""
    parser = argparse.ArgumentParser(description="Learning in several precisions.")
    parser.add_argument("config", help="name of the configuration: see warpdrive list")
    parser.add_argument("--precisions", nargs="+", default=["float32", "tf32", "bf16"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--machine", default="", help="what it runs on, in words")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path, help="draw the curves in --json, and train nothing")
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    args, more = parser.parse_args(given[:cut]), given[cut + 1 :]
    if args.plot:
        if not args.json or not args.json.is_file():
            sys.exit(f"--plot needs --json with a file of results, got {args.json}")
        plot(json.loads(args.json.read_text(encoding="utf-8")), args.plot)
        return
    content: dict[str, Any] = {
        "kind": "precision",
        "config": args.config,
        "options": more,
        "machine": args.machine,
        "curves": {},
        "last": {},
        "beside_the_first": {},
    }
    content |= describe_machine(choose_device(None))
    began = time.monotonic()
    for precision in args.precisions:
        curves = content["curves"].setdefault(precision, {})
        ends = content["last"].setdefault(precision, [])
        for seed in range(args.seeds):
            trainer, rows, _ = train(args.config, seed, ["--precision", precision, *more])
            (group,) = trainer.sim.env.groups
            curves[str(seed)] = curve(rows, group, 50)
            ends.append(round(last(curves[str(seed)]), 3))
        print(f"{precision}: {statistics.fmean(ends):.3f}, standard deviation {statistics.stdev(ends):.3f}", flush=True)
        if precision != args.precisions[0]:
            content["beside_the_first"][precision] = difference(content["last"][args.precisions[0]], ends)
            print(content["beside_the_first"][precision], flush=True)
        content["seconds"] = round(time.monotonic() - began, 1)
        if args.json:
            write(args.json, content)


if __name__ == "__main__":
    main()
