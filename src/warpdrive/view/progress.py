"""Live progress of training in a terminal, or a line now and then where there is none."""

import time
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

__all__ = ["Progress", "short"]

QUIET_SECONDS = 10.0  # between lines where the output is not a terminal


def short(value: float) -> str:
    """A number in at most five characters: 1.23 M."""
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


class Progress:
    """Shows the newest row of metrics; use it as a context manager.

    Args:
        title: what is trained, on what.
        total: environment steps that training goes to.
        console: where to; None: standard output.
    """

    def __init__(self, title: str, total: int, console: Console | None = None) -> None:
        self.title, self.total = title, total
        self.console = console or Console()
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        self._last_line = 0.0

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.start()
        else:
            self.console.print(self.title, highlight=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, row: dict[str, Any], final: bool = False) -> None:
        """Show a row of metrics."""
        if self._live:
            self._live.update(self._panel(row), refresh=True)
            return
        now = time.monotonic()
        if final or now - self._last_line >= QUIET_SECONDS:
            self._last_line = now
            returns = "  ".join(
                f"{k.removeprefix('return/')} {v:.3f}" for k, v in row.items() if k.startswith("return/")
            )
            self.console.print(
                f"{short(row['env_steps'])} of {short(self.total)} env steps  {short(row['env_steps_per_s'])}/s "
                f"({short(row['agent_steps_per_s'])} agent steps/s)  return: {returns or 'no episode has ended yet'}",
                highlight=False,
                soft_wrap=True,
            )

    def _panel(self, row: dict[str, Any]) -> Group:
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(self.title, style="bold"),
            ProgressBar(total=self.total, completed=min(row["env_steps"], self.total), width=30),
            f"{short(row['env_steps'])} / {short(self.total)} env steps",
        )
        speed = Table.grid(padding=(0, 3))
        shares = [f"{name} {row[f'share/{name}']:.0%}" for name in ("rollout", "update") if f"share/{name}" in row]
        speed.add_row(
            f"[green]{short(row['env_steps_per_s'])}[/] env steps/s",
            f"[green]{short(row['agent_steps_per_s'])}[/] agent steps/s",
            "time: " + ", ".join(shares),
            f"episodes {short(row.get('episodes_total', 0))}",
            f"length {row['length']:.1f}" if row.get("length") is not None else "",
        )
        tables: list[Any] = [head, speed]
        returns = [(k.removeprefix("return/"), v) for k, v in row.items() if k.startswith("return/")]
        if returns:
            table = Table("group", "mean episode return", box=None, padding=(0, 2))
            for name, value in returns:
                table.add_row(name, f"{value:.3f}")
            tables.append(table)
        losses: dict[str, dict[str, float]] = {}
        for key, value in row.items():
            policy, _, metric = key.removeprefix("policy/").partition("/")
            if key.startswith("policy/"):
                losses.setdefault(policy, {})[metric] = value
        if losses:
            names = list(next(iter(losses.values())))
            table = Table("policy", *names, box=None, padding=(0, 2))
            for policy, values in losses.items():
                table.add_row(policy, *(f"{values[name]:.4g}" for name in names))
            tables.append(table)
        return Group(*tables)
