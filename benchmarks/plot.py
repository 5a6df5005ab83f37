"""Draw the results of suite.py and of peers/run.py.

    python benchmarks/plot.py

From all JSON files in benchmarks/results it makes docs/benchmark-scaling.png, rates over the number of environments and
of agents, and docs/benchmark-peers.png, rates of warpdrive and of its peers, one panel a row. Needs Matplotlib.
"""

import argparse
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

from figures import pyplot

RESULTS = Path(__file__).parent / "results"
OUT = Path(__file__).parent.parent / "docs"
COLUMNS = 5  # panels side by side
OURS, THEIRS = "#1f6feb", "#9aa4b2"
DASHES = ("-", "--", ":", "-.")  # one for each machine


def short(rate: float) -> str:
    """A rate with three digits and its unit."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= limit:
            return f"{rate / limit:.3g} {unit}"
    return f"{rate:.3g}"


def load(folder: Path) -> list[dict[str, Any]]:
    """The content of all JSON files that hold an object."""
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return [content for content in contents if isinstance(content, dict)]


def source(content: dict[str, Any]) -> str:
    """Where and when a result was measured."""
    return f"{content.get('device')}, commit {content.get('commit')}, {content.get('date')}"


def draw_scaling(plt: Any, suites: list[dict[str, Any]], out: Path) -> None:
    """Left: rates over the number of environments; right: over the agents of each."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    sides = (("scaling", "num_envs", "environments"), ("agents", "num_agents", "agents of an environment"))
    for axis, (part, size, label) in zip(axes, sides, strict=True):
        names = dict.fromkeys(row["name"] for suite in suites for row in suite.get(part, []))
        colours = dict(zip(names, itertools.cycle(plt.rcParams["axes.prop_cycle"].by_key()["color"]), strict=False))
        for suite, dashes in zip(suites, itertools.cycle(DASHES), strict=False):
            for name in names:
                points = sorted((r[size], r["env_steps_per_s"]) for r in suite.get(part, []) if r["name"] == name)
                if points:
                    machine = f" ({suite.get('device')})" if len(suites) > 1 else ""
                    axis.plot(
                        *zip(*points, strict=True), dashes, color=colours[name], marker="o", markersize=3,
                        label=name + machine,
                    )  # fmt: skip
        axis.set(xscale="log", yscale="log", xlabel=label, ylabel="environment steps a second")
        axis.grid(which="major", linewidth=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        if names:
            axis.legend(fontsize=7, frameon=False)
    figure.suptitle("Random actions; " + "; ".join(map(source, suites)), fontsize=8)
    figure.savefig(out, dpi=110)
    plt.close(figure)


def panels(comparisons: list[dict[str, Any]]) -> list[tuple[str, dict[str, dict[str, Any]]]]:
    """Title and the systems with a rate, for each row in which there is a peer."""
    result = []
    for comparison in comparisons:
        for row in comparison["rows"]:
            systems = {name: s for name, s in row["systems"].items() if "env_steps_per_s" in s}
            if row["ratios"]:
                work = "random actions" if row["work"] == "simulate" else "training"
                ratios = ", ".join(f"{ratio:.3g} x {name}" for name, ratio in row["ratios"].items() if "," not in name)
                where = f"{row['num_envs']} on {comparison.get('device')}"
                result.append((f"{row['game']}, {work}\n{where}\n{ratios}", systems))
    return result


def draw_peers(plt: Any, comparisons: list[dict[str, Any]], out: Path) -> None:
    """Bars from 0 to the median, with a line from the slowest to the fastest repeat."""
    drawn = panels(comparisons)
    columns = min(COLUMNS, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    figure, axes = plt.subplots(rows, columns, figsize=(2.4 * columns, 2.9 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(drawn) :]:
        axis.axis("off")
    for axis, (title, systems) in zip(axes.flat, drawn, strict=False):
        rates = [system["env_steps_per_s"] for system in systems.values()]
        ends = [
            [rate - min(s["rates"]) for rate, s in zip(rates, systems.values(), strict=True)],
            [max(s["rates"]) - rate for rate, s in zip(rates, systems.values(), strict=True)],
        ]
        colours = [OURS if name == "warpdrive" else THEIRS for name in systems]
        axis.bar(range(len(systems)), rates, color=colours, yerr=ends, error_kw={"linewidth": 0.8})
        for x, (rate, more) in enumerate(zip(rates, ends[1], strict=True)):
            axis.annotate(short(rate), (x, rate + more), (0, 3), textcoords="offset points", ha="center", fontsize=7)
        axis.set_xticks(range(len(systems)), [name.replace(", ", ",\n") for name in systems], fontsize=7)
        axis.set_yticks([])
        axis.margins(y=0.15)
        axis.set_title(title, fontsize=7)
        axis.spines[["top", "right", "left"]].set_visible(False)
    notes = dict.fromkeys(map(source, comparisons))
    figure.supxlabel(
        "environment steps a second; above: how many times as fast warpdrive is\n" + "; ".join(notes), fontsize=7
    )
    figure.savefig(out, dpi=110)
    plt.close(figure)


def main() -> int:
    """Read, draw and save what there are results for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of JSON files")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the figures")
    options = parser.parse_args()
    plt = pyplot()
    contents = load(options.results)
    suites = [content for content in contents if content.get("scaling") or content.get("agents")]
    comparisons = [c for c in contents if c.get("kind") == "peers" and not c.get("quick")]
    made = []
    if suites:
        made.append(options.out / "benchmark-scaling.png")
        draw_scaling(plt, suites, made[-1])
    if panels(comparisons):
        made.append(options.out / "benchmark-peers.png")
        draw_peers(plt, comparisons, made[-1])
    if not made:
        print(f"error: {options.results} holds no results of suite.py or peers/run.py; run them first", file=sys.stderr)
        return 1
    print(*made, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
