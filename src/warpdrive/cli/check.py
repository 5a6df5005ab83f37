"""`warpdrive check`: examine an environment for faults."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpdrive.check.examine import check as examine
from warpdrive.check.report import KINDS, Report
from warpdrive.cli.options import Parser, find_environment
from warpdrive.env.environment import Env

__all__ = ["check"]


def check_options(
    steps: int = 100,
    num_envs: int = 4,
    seed: int = 0,
    device: str | None = None,
    keeps: list[str] = [],  # noqa: B006 - jsonargparse reads the default
    ignore: list[str] = [],  # noqa: B006
    json: str = "",
) -> None:
    """How to examine it.

    Args:
        steps: steps to run.
        num_envs: copies to run, at least 2.
        seed: of actions and of the environment.
        device: cpu to leave the GPU out, cuda to insist on it; by default the GPU too if there is one.
        keeps: fields that are meant to survive a reset, as [a, b].
        ignore: kinds of faults not to report, as [a, b].
        json: a file to write the report to as well.
    """


def check(args: Sequence[str]) -> int:
    """Examine an environment; 0 if no fault was found, else 1."""
    if not args or args[0] in ("-h", "--help"):
        env_class: type[Env] | None = None
        settings: dict[str, Any] = {}
        rest = ["--help"]
    else:
        env_class, settings, rest = find_environment(args, "check")
    parser = Parser(prog="warpdrive check NAME|file.py:Class", description="Examine an environment for faults.")
    parser.add_function_arguments(check_options, None)
    if env_class is not None:
        parser.add_class_arguments(env_class, "env")
        parser.set_defaults({f"env.{key}": value for key, value in (settings.get("env") or {}).items()})
    if "-h" in rest or "--help" in rest:
        parser.print_help()
        return 0
    assert env_class is not None
    options = parser.parse(rest).as_dict()
    target = options.pop("json")
    env = env_class(**options.pop("env", {}))
    report = examine(env, **options)
    _print(report)
    if target:
        Path(target).write_text(json.dumps(report.to_dict(), indent=1) + "\n", encoding="utf-8")
    return 0 if report.ok else 1


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 120, highlight=False)
    table = Table("examined", "what should hold", "found", box=None, padding=(0, 2))
    for kind in report.examined:
        faults = [fault for fault in report.faults if fault.kind == kind]
        found = f"[red]{len(faults)} fault{'s' * (len(faults) > 1)}[/red]" if faults else "[green]ok[/green]"
        table.add_row(kind, KINDS[kind], found)
    console.print(table)
    rows: list[Any] = [*report.faults, *(f"note: {note}" for note in report.notes)]
    for row in rows:
        console.print()
        console.print(str(row), markup=False)
    console.print()
    result = "no faults" if report.ok else f"{len(report.faults)} fault{'s' * (len(report.faults) > 1)}"
    console.print(
        f"{report.env}: {result}; {report.steps} steps of {report.num_envs} environments with {report.num_agents} "
        f"agents on {' and '.join(report.devices)}, {report.seconds:.1f} s"
    )
