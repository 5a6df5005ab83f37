"""`warpdrive tune`: how many environments and how long a rollout train fastest here."""

import inspect
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from warpdrive.cli.options import Parser, find_environment, underscored
from warpdrive.cli.train import choose_algorithm, run_settings, simulator_options, train_parser, trainer_options
from warpdrive.learn.size_search import Measured
from warpdrive.learn.tune import Tuning
from warpdrive.learn.tune import tune as search
from warpdrive.view.progress import short

__all__ = ["tune"]


def tune_settings(
    device: str | None = None,
    precision: Literal["auto", "float32", "tf32", "bf16"] = "auto",
    fuse: bool = True,
    schedule: Literal["auto", "split", "mixed", "fused", "loop"] = "auto",
    assign: dict[str, str] | None = None,
    opponents: dict[str, str] | None = None,
    frozen: list[str] | None = None,
    start: int | None = None,
    most_envs: int | None = None,
    lengths: bool = True,
    seconds: float = 60.0,
    json: str = "",
) -> None:
    """How to search.

    Args:
        device: cpu, cuda or cuda:N; by default the GPU if there is one.
        precision: of observations and of the policies' arithmetic; auto is bf16 on a GPU and float32 on the CPU; tf32
            is float32 but for products of fused kernels on a GPU.
        fuse: whether policies run as fused kernels where they can, on a GPU with Triton.
        schedule: how the phases of a step are run.
        assign: group -> group whose policy it shares, e.g. '{runners: taggers}'.
        opponents: group -> scripted policy of the environment, or random, that plays it, e.g. '{runners: runner}'.
        frozen: groups whose policies act but do not learn.
        start: number of environments to begin with; by default 16 on the CPU and 128 on a GPU.
        most_envs: the most environments to try; by default what memory holds.
        lengths: whether to try other lengths of the rollout than the configuration's.
        seconds: time for the search.
        json: a file to write the table to as well.
    """


def tune(args: Sequence[str]) -> int:
    """Measure sizes, print their table and the one to take."""
    from rich.console import Console

    if not args or args[0] in ("-h", "--help"):
        parser = Parser(prog="warpdrive tune NAME", description="Find the size that trains fastest here.")
        parser.add_function_arguments(tune_settings, None)
        parser.print_help()
        return 0
    env_class, settings, rest = find_environment(args, "tune")
    rest = choose_algorithm(rest, settings)
    mine, runs = (set(inspect.signature(function).parameters) for function in (tune_settings, run_settings))
    defaults = {key: value for key, value in settings.items() if key not in runs - mine}  # a run's others: no matter
    parser = train_parser(env_class, defaults, tune_settings, "tune", "Find the size that trains fastest")
    if "-h" in rest or "--help" in rest:
        parser.print_help()
        return 0
    options = parser.parse(rest).as_dict()
    env = env_class(**options["env"])

    console = Console(width=None if Console().is_terminal else 120, highlight=False)
    with console.status("measuring") as status:

        def report(row: Measured) -> None:
            status.update(f"measured {row.num_envs} x {row.rollout_steps}: {short(row.env_steps_per_s)} env steps/s")

        found = search(
            env,
            **trainer_options(env, options),
            **simulator_options(options),
            start=options["start"],
            most_envs=options["most_envs"],
            lengths=options["lengths"],
            seconds=options["seconds"],
            report=report,
        )
    _print(found, console)
    again = [*_without(mine - runs, args), "--num-envs", found.num_envs]
    again += ["--algorithm.rollout_steps", found.rollout_steps]
    command = shlex.join(map(str, again))
    console.print(f"to train with it: warpdrive train {command}", soft_wrap=True, markup=False)
    if options["json"]:
        content: dict[str, Any] = {"name": options["name"], "num_agents": env.num_agents, **found.to_dict()}
        Path(options["json"]).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


def _without(names: set[str], args: Sequence[str]) -> list[str]:
    """The arguments but for options of these names and their values."""
    kept, skip = [], False
    for arg in args:
        name = underscored(arg).removeprefix("--").partition("=")[0]
        if skip or (arg.startswith("--") and name in names):
            skip = not skip and "=" not in arg
        else:
            kept.append(arg)
    return kept


def _print(found: Tuning, console: Any) -> None:
    from rich.table import Table

    names = ("num_envs", "rollout_steps", "env steps/s", "agent steps/s", "memory", "seconds per update")
    table = Table(*names, box=None, padding=(0, 2))
    for column in table.columns:
        column.justify = "right"
    for row in found.rows:
        table.add_row(
            str(row.num_envs),
            str(row.rollout_steps),
            short(row.env_steps_per_s),
            short(row.agent_steps_per_s),
            f"{row.num_bytes / 2**20:.1f} MiB" if row.num_bytes < 2**30 else f"{row.num_bytes / 2**30:.2f} GiB",
            f"{row.seconds_per_update:.3g}",
            style="green" if row == found.chosen else "",
        )
    console.print(table)
    console.print(f"{found.device}: {found.why}", soft_wrap=True)
