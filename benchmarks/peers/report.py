"""How results are shown."""

import statistics
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["learned", "rates", "show"]

CONSOLE = Console(width=None if Console().is_terminal else 150)


def short(rate: float) -> str:
    """A rate with three digits and its unit."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= limit:
            return f"{rate / limit:.3g} {unit}"
    return f"{rate:.3g}"


def rates(row: dict[str, Any]) -> str:
    """One line on a row that was timed."""
    parts = [f"{n} {short(s['env_steps_per_s'])}" for n, s in row["systems"].items() if "env_steps_per_s" in s]
    parts += [f"{ratio:.2f} x {name}" for name, ratio in row["ratios"].items()]
    parts += [f"{name} failed: {sentence}" for name, sentence in row["failed"].items()]
    return f"{row['row']}: {'; '.join(parts)}"


def learned(row: dict[str, Any]) -> str:
    """One line on a row that has learnt."""
    finals = row["learning"]["finals"]
    parts = [f"{name} {', '.join(f'{x:.2f}' for x in values) or 'nothing'}" for name, values in finals.items()]
    return f"{row['row']}, final returns: {'; '.join(parts)}"


def show(results: dict[str, Any]) -> None:
    """Print tables of speed and of returns, and what is not the same on both sides."""
    CONSOLE.print(
        f"\nOn {results.get('device')}, commit {results.get('commit')}, {results['date']}, "
        f"{results['seconds']:.0f} s in all",
        highlight=False,
    )
    CONSOLE.print(speeds(results))
    table = returns(results)
    if table.row_count:
        CONSOLE.print(table)
    missing = [
        f"{row['row']}: {name} is left out: {why}" for row in results["rows"] for name, why in row["failed"].items()
    ]
    for sentence in (*results["rules"], *missing):
        CONSOLE.print(f"- {sentence}", highlight=False, markup=False)


def speeds(results: dict[str, Any]) -> Table:
    """Environment and agent steps a second, median and range over the repeats."""
    columns = "row", "system", "env steps/s", "range", "agent steps/s", "passes", "ours / peer", "goal", "reward a step"
    table = Table(*columns, box=None, padding=(0, 2))
    for row in results["rows"]:
        systems = {n: s for n, s in row["systems"].items() if "env_steps_per_s" in s}
        first_peer = next(iter(row["ratios"]), None)
        for name, system in systems.items():
            rate, reward = system["env_steps_per_s"], system["facts"].get("reward_per_step")
            table.add_row(
                row["row"] if name == next(iter(systems)) else "",
                name,
                short(rate),
                f"{short(min(system['rates']))} to {short(max(system['rates']))}",
                short(system["agent_steps_per_s"]),
                str(row["passes"] or "-"),
                f"{row['ratios'][name]:.2f}" if name in row["ratios"] else "",
                f"{row['goal']:g}" if row["goal"] and name == first_peer else "",
                f"{reward:.4f}" if reward is not None and row["work"] == "simulate" else "",
            )
    return table


def returns(results: dict[str, Any]) -> Table:
    """Returns after equally many steps."""
    table = Table("row", "system", "env steps", "seeds", "return", "deviation", "seconds", box=None, padding=(0, 2))
    for row in results["rows"]:
        learning = row.get("learning", {"finals": {}})
        for name, finals in learning["finals"].items():
            if finals:
                table.add_row(
                    row["row"],
                    name,
                    short(learning["env_steps"]),
                    str(len(finals)),
                    f"{statistics.mean(finals):.2f}",
                    f"{statistics.stdev(finals):.2f}" if len(finals) > 1 else "",
                    f"{statistics.mean(learning['seconds'][name]):.2f}",
                )
    return table
