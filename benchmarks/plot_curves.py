"""Draw the learning curves in benchmarks/results/curves as small multiples, one a configuration and group.

    python benchmarks/plot_curves.py --out docs/learning-curves.png

Thin lines are seeds, the thick one is their mean where all of them have values. Needs Matplotlib.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from figures import pyplot

CURVES = Path(__file__).parent / "results" / "curves"
OUT = Path(__file__).parent.parent / "docs" / "learning-curves.png"
COLUMNS = 4
COLOUR = "#1f6feb"


def mean_curve(curves: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Steps and mean return over curves (points, 2), between the last first and the first last of their steps."""
    begin, end = max(c[0, 0] for c in curves), min(c[-1, 0] for c in curves)
    steps = np.unique(np.concatenate([c[:, 0] for c in curves]))
    steps = steps[(steps >= begin) & (steps <= end)]
    return steps, np.mean([np.interp(steps, c[:, 0], c[:, 1]) for c in curves], axis=0)


def panels(files: list[Path]) -> list[tuple[str, list[np.ndarray]]]:
    """Title and curves (points, 2), one a seed, for every group of every file."""
    result = []
    for path in files:
        content = json.loads(path.read_text(encoding="utf-8"))
        seeds = list(content["seeds"].values())
        for group in seeds[0]:
            title = content["config"] if len(seeds[0]) == 1 else f"{content['config']}: {group}"
            result.append((title, [np.array(seed[group], dtype=float) for seed in seeds if seed[group]]))
    return result


def draw(plt: Any, drawn: list[tuple[str, list[np.ndarray]]], out: Path) -> None:
    """One panel each, in rows of COLUMNS."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    columns = min(COLUMNS, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2.8 * columns, 2.0 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(drawn) :]:
        axis.axis("off")
    for axis, (title, curves) in zip(axes.flat, drawn, strict=False):
        for points in curves:
            axis.plot(points[:, 0], points[:, 1], color=COLOUR, linewidth=0.6, alpha=0.5)
        steps, mean = mean_curve(curves)
        axis.plot(steps, mean, color=COLOUR, linewidth=1.8)
        axis.set_title(title, fontsize=8)
        axis.tick_params(labelsize=7)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.grid(linewidth=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("environment steps", fontsize=8)
    figure.supylabel("return", fontsize=8)
    figure.savefig(out, dpi=110)


def main() -> None:
    """Read, draw and save."""
    parser = argparse.ArgumentParser(description="Draw learning curves.")
    parser.add_argument("--curves", type=Path, default=CURVES, help="folder of results of learning_curves.py")
    parser.add_argument("--out", type=Path, default=OUT, help="image to write")
    args = parser.parse_args()
    plt = pyplot()
    files = sorted(args.curves.glob("*.json"), key=lambda path: path.stem)
    if not files:
        sys.exit(f"--curves: {args.curves} holds no results; make some with benchmarks/learning_curves.py")
    draw(plt, panels(files), args.out)


if __name__ == "__main__":
    main()
