"""`warpdrive eval` and `warpdrive replay`: both read only a checkpoint."""

import json
from collections.abc import Sequence
from pathlib import Path

from warpdrive.cli.options import Parser
from warpdrive.env.environment import positive_int
from warpdrive.learn.evaluation import Outcome, Player, load_trained, play
from warpdrive.sim.simulator import Simulator, choose_device

__all__ = ["evaluate", "replay"]


def evaluation(
    checkpoint: str, episodes: int = 100, seed: int = 1, greedy: bool = False, device: str | None = None, json: str = ""
) -> None:
    """How a checkpoint is played.

    Args:
        checkpoint: a checkpoint, or the folder of a run.
        episodes: number of episodes of each match.
        seed: of all random numbers.
        greedy: take the likeliest action instead of drawing.
        device: cpu, cuda or cuda:N; by default the GPU if there is one.
        json: a file to write the results to as well.
    """


def evaluate(args: Sequence[str]) -> int:
    """Print the mean episode return of each group in matches of trained and random groups."""
    from rich.console import Console
    from rich.table import Table

    parser = Parser(prog="warpdrive eval", description="Play a checkpoint's policies, and random ones in their place.")
    parser.add_function_arguments(evaluation, None, as_positional=True)
    if "-h" in args or "--help" in args or not args:
        parser.print_help()
        return 0 if args else 2
    options = parser.parse(args)
    device = choose_device(options.device)
    trained = load_trained(options.checkpoint)
    sim = Simulator(trained.env, positive_int("episodes", options.episodes), device=device, seed=options.seed)
    groups = list(trained.env.groups)
    matches: dict[str, set[str]] = {"all trained": set()}
    if len(groups) > 1:
        matches |= {f"{group} random, the others trained": {group} for group in groups}
    matches["all random"] = set(groups)
    outcomes: dict[str, Outcome] = {}
    table = Table("match", *(f"return of {group}" for group in groups), "length", box=None, padding=(0, 2))
    for name, random in matches.items():
        player = Player(sim, trained.segments, trained.policies, random=random, greedy=options.greedy)
        outcome = outcomes[name] = play(player, options.seed)
        cells = [f"{outcome.mean(g):.2f} +- {outcome.interval(g):.2f}" for g in groups]
        table.add_row(name, *cells, f"{float(outcome.lengths.float().mean()):.1f}")
    console = Console()
    console.print(
        f"{type(trained.env).__name__}, trained for {trained.env_steps:,} environment steps; "
        f"{options.episodes} episodes a match, mean return of an agent and its 95 % interval",
        highlight=False,
    )
    console.print(table)
    for group in groups:
        rival = f"{group} random, the others trained" if len(groups) > 1 else "all random"
        a, b = outcomes["all trained"].mean(group), outcomes[rival].mean(group)
        ratio = f", {a / b:.2f} times" if b > 0 else ""
        console.print(f"{group}: {a:.2f} trained against {b:.2f} at random{ratio}", highlight=False)
    if options.json:
        rows = {
            name: {g: {"return": o.mean(g), "interval": o.interval(g)} for g in groups} for name, o in outcomes.items()
        }
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0


def replay_options(checkpoint: str, out: str | None = None, seed: int = 1, greedy: bool = False) -> None:
    """Which episode to show, and where.

    Args:
        checkpoint: a checkpoint, or the folder of a run.
        out: the page to write; by default replay.html beside the checkpoint.
        seed: of all random numbers.
        greedy: take the likeliest action instead of drawing.
    """


def replay(args: Sequence[str]) -> int:
    """Write a page that plays one episode."""
    from warpdrive.view.record import write_episode

    parser = Parser(
        prog="warpdrive replay", description="Write a page that plays an episode of a checkpoint's policies."
    )
    parser.add_function_arguments(replay_options, None, as_positional=True)
    if "-h" in args or "--help" in args or not args:
        parser.print_help()
        return 0 if args else 2
    options = parser.parse(args)
    checkpoint = Path(options.checkpoint)
    folder = checkpoint if checkpoint.is_dir() else checkpoint.parent
    page = Path(options.out) if options.out else folder / "replay.html"
    write_episode(checkpoint, page, seed=options.seed, greedy=options.greedy)
    print(page)
    return 0
