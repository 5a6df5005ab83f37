"""How results are shown."""

import statistics
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["progress", "show"]

CONSOLE = Console(width=None if Console().is_terminal else 150)
LAST = 0.1  # share of the updates whose returns count as the final ones


def short(rate: float) -> str:
    """A rate with three digits and its unit."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= limit:
            return f"{rate / limit:.3g} {unit}"
    return f"{rate:.3g}"


def progress(name: str, result: dict[str, Any], seconds: float) -> None:
    """One line when a row is done."""
    parts = [f"{n} {short(s['env_steps_per_s'])}" for n, s in result["systems"].items() if "env_steps_per_s" in s]
    parts += [f"{n} failed: {sentence}" for n, sentence in result["failed"].items()]
    CONSOLE.print(f"{name} ({seconds:.0f} s): {'; '.join(parts)}", highlight=False)


def show(results: dict[str, Any]) -> None:
    """Print tables of speed and of returns, and what is not the same on both sides."""
    CONSOLE.print(f"\nOn {results['device']}, commit {results['commit']}, {results['date']}", highlight=False)
    CONSOLE.print(speeds(results))
    table = returns(results)
    if table.row_count:
        CONSOLE.print(table)
    for sentence in (*results["rules"], *results["missing"].values()):
        CONSOLE.print(f"- {sentence}", highlight=False)


def speeds(results: dict[str, Any]) -> Table:
    """Environment and agent steps a second, median and range over the repeats."""
    columns = "row", "system", "env steps/s", "range", "agent steps/s", "passes", "warpdrive / peer", "reward a step"
    table = Table(*columns, box=None, padding=(0, 2))
    for row in results["rows"]:
        systems = {n: s for n, s in row["systems"].items() if "env_steps_per_s" in s}
        ours = systems.get("warpdrive", {}).get("env_steps_per_s")
        for name, system in systems.items():
            rate, reward = system["env_steps_per_s"], system["facts"].get("reward_per_step")
            table.add_row(
                row["row"] if name == next(iter(systems)) else "",
                name,
                short(rate),
                f"{short(min(system['rates']))} to {short(max(system['rates']))}",
                short(system["agent_steps_per_s"]),
                str(row["passes"] or "-"),
                f"{ours / rate:.2f}" if ours and name != "warpdrive" else "",
                f"{reward:.4f}" if reward is not None and row["work"] == "simulate" else "",
            )
    return table


def final_return(curve: list[float | None]) -> float | None:
    """Mean return over the last updates in which episodes ended."""
    last = [x for x in curve[-max(1, round(LAST * len(curve))) :] if x is not None]
    return statistics.mean(last) if last else None


def returns(results: dict[str, Any]) -> Table:
    """Returns after equally many steps."""
    table = Table("row", "system", "env steps", "seeds", "return", "deviation", "seconds", box=None, padding=(0, 2))
    for row in results["rows"]:
        learning = row.get("learning", {})
        for name, runs in learning.get("runs", {}).items():
            finals = [x for x in (final_return(run["returns"]) for run in runs) if x is not None]
            if finals:
                table.add_row(
                    row["row"],
                    name,
                    short(learning["env_steps"]),
                    str(len(finals)),
                    f"{statistics.mean(finals):.2f}",
                    f"{statistics.stdev(finals):.2f}" if len(finals) > 1 else "",
                    f"{statistics.mean(run['seconds'] for run in runs):.2f}",
                )
    return table
