"""`warpdrive bench`: how fast this machine steps and trains."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpdrive.cli.options import Parser, configuration, find_environment, underscored, value_of
from warpdrive.cli.train import make_simulator, make_trainer, train_parser
from warpdrive.env.environment import positive_int
from warpdrive.measure.machine import copy_rate, describe_machine, matrix_rate
from warpdrive.measure.rates import measure_simulation, measure_training
from warpdrive.measure.shares import kernel_shares
from warpdrive.sim.simulator import choose_device
from warpdrive.view.progress import short

__all__ = ["bench"]


def bench_options(sizes: list[int] | None = None, repeats: int = 5, train: bool = True, json: str = "") -> None:
    """What is measured, besides the options of `warpdrive train`, which hold here too.

    Args:
        sizes: numbers of environments to step with random actions, for a curve; by default the configuration's alone.
        repeats: timings of each row, of which the median is shown.
        train: whether rollouts and training are measured as well, with the configuration's number of environments.
        json: a file to write the results to as well.
    """


def _split(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments that are bench's own, and the others."""
    own: list[str] = []
    others: list[str] = []
    rest = [underscored(arg) for arg in args]
    while rest:
        arg = rest.pop(0)
        if arg.partition("=")[0] not in ("--sizes", "--repeats", "--train", "--json"):
            others.append(arg)
            continue
        own.append(arg)
        if "=" not in arg and rest:
            own.append(rest.pop(0))
    return own, others


def bench(args: Sequence[str]) -> int:
    """Measure stepping with random actions and training; print a table, or write it as JSON as well."""
    parser = Parser(prog="warpdrive bench [CONFIGURATION or file.py:Class]", description=bench_options.__doc__)
    parser.add_function_arguments(bench_options, None)
    if "-h" in args or "--help" in args:
        parser.print_help()
        return 0
    own, others = _split(args)
    options = parser.parse(own)
    positive_int("repeats", options.repeats)
    for size in options.sizes or []:
        positive_int("sizes", size)
    if not others or others[0].startswith("-"):
        named = choose_device(value_of("--device", others))
        others = ["tag-original" if named.type == "cuda" else "tag", *others]
    if ":" not in others[0]:
        configuration(others[0])
    env_class, settings, rest = find_environment(others, "measure")
    settings = train_parser(env_class, settings).parse(rest).as_dict()
    device = choose_device(settings["device"])
    settings["device"] = str(device)
    env = env_class(**settings["env"])
    copy, matrix = copy_rate(device), matrix_rate(device)
    report: dict[str, Any] = {"configuration": others[0], "arguments": rest} | describe_machine(device)
    report |= {"copy_bytes_per_s": copy, "matrix_operations_per_s": matrix, "rows": []}
    for size in options.sizes or [settings["num_envs"]]:
        row = measure_simulation(lambda n=size: make_simulator(env, settings, n), options.repeats, copy)  # type: ignore[misc]
        report["rows"].append(row)
    if options.train:
        rows, trainer = measure_training(
            lambda: make_trainer(make_simulator(env, settings), settings), options.repeats, matrix
        )
        report["rows"] += rows
        if device.type == "cuda":
            report["shares"] = kernel_shares(trainer)
    _print(report)
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 140)
    table = Table(
        "work",
        "envs x agents",
        "env steps/s",
        "agent steps/s",
        "us a step",
        "limit reached",
        "set-up",
        box=None,
        padding=(0, 2),
    )
    for row in report["rows"]:
        limit = ""
        if "share_of_copy_rate" in row:
            limit = f"{row['share_of_copy_rate']:.1%} of copy rate"
        elif "share_of_matrix_rate" in row:
            limit = f"{row['share_of_matrix_rate']:.1%} of matrix rate"
        passes = f", passes: {row['passes']}" if "passes" in row else ""
        table.add_row(
            row["work"] + passes,
            f"{row['num_envs']} x {row['num_agents']}",
            short(row["env_steps_per_s"]),
            short(row["agent_steps_per_s"]),
            f"{row['microseconds_per_step']:.1f}",
            limit,
            f"{row['set_up_seconds']:.1f} s" if "set_up_seconds" in row else "",
        )
    console.print(
        f"{report['configuration']} on {report['device']}: copies {report['copy_bytes_per_s'] / 1e9:.0f} GB/s, "
        f"matrix products {report['matrix_operations_per_s'] / 1e12:.3g} TFLOP/s",
        highlight=False,
    )
    console.print(table)
    if "shares" in report:
        for title, phases in (("Time on the GPU in training", False), ("Of it the simulation", True)):
            shares = ((name, s) for name, s in report["shares"].items() if name.startswith("simulation: ") == phases)
            parts = ", ".join(f"{name.removeprefix('simulation: ')} {s:.1%}" for name, s in shares if s >= 0.0005)
            console.print(f"{title}: {parts}", highlight=False)
