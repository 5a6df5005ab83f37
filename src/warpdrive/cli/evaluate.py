"""`warpdrive eval` and `warpdrive replay`: both read only a checkpoint."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpdrive.cli.options import Parser
from warpdrive.learn.evaluation import Outcome, load_trained, play
from warpdrive.learn.matches import Matches, matches, require_episodes
from warpdrive.sim.simulator import Simulator, choose_device

__all__ = ["evaluate", "replay"]


def evaluation(
    checkpoint: str,
    against: list[str] | str = [],  # noqa: B006 - jsonargparse reads the default
    episodes: int = 100,
    seed: int = 1,
    greedy: bool = False,
    device: str | None = None,
    json: str = "",
) -> None:
    """How a checkpoint is played.

    Args:
        checkpoint: a checkpoint, or the folder of a run.
        against: with --matches, another checkpoint that plays too, or several as [a, b].
        episodes: number of episodes of each match.
        seed: of all random numbers.
        greedy: take the likeliest action instead of drawing.
        device: cpu, cuda or cuda:N; by default the GPU if there is one.
        json: a file to write the results to as well.
    """


def evaluate(args: Sequence[str]) -> int:
    """Print the mean episode return of each group in matches of trained and random groups, or of all against all."""
    parser = Parser(prog="warpdrive eval", description="Play a checkpoint's policies, and others in their place.")
    parser.add_function_arguments(evaluation, None, as_positional=True)
    parser.add_argument(
        "--matches",
        action="store_true",
        help="play every pairing of trained, scripted and random policies, with those given as --against",
    )
    if "-h" in args or "--help" in args or not args:
        parser.print_help()
        return 0 if args else 2
    options = parser.parse(args)
    require_episodes(options.episodes)
    against = [options.against] if isinstance(options.against, str) else options.against
    if against and not options.matches:
        raise ValueError("--against names other checkpoints for --matches; give --matches as well")
    if options.matches:
        found = matches(
            options.checkpoint,
            against=against,
            episodes=options.episodes,
            seed=options.seed,
            greedy=options.greedy,
            device=options.device,
        )
        _print_matches(found)
        rows: Any = found.to_dict()
    else:
        rows = _trained_and_random(options)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


def _print_matches(found: Matches) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    groups = list(found.players)
    table = Table(
        *(Column(f"{group} played by", overflow="fold") for group in groups),
        *(f"return of {group}" for group in groups),
        "length",
        box=None,
        padding=(0, 2),
    )
    for match in found.played:
        cells = [f"{match.outcome.mean(g):.2f} +- {match.outcome.interval(g):.2f}" for g in groups]
        table.add_row(*match.players.values(), *cells, f"{float(match.outcome.lengths.double().mean()):.1f}")
    console = Console(width=None if Console().is_terminal else 1000, highlight=False)  # in a file a row is a line
    console.print(
        f"{found.environment}, trained for {found.env_steps:,} environment steps; {found.episodes} episodes a match, "
        f"mean return of an agent and its 95 % interval (Student's t)",
    )
    console.print(table)
    if not found.complete:
        console.print(
            "there are too many pairings to play all; these are those in which at most one group is not played by its "
            "first player"
        )


def _trained_and_random(options: Any) -> dict[str, Any]:
    """Play with all groups trained, each at random in turn, and all at random; print it and return the numbers."""
    from rich.console import Console
    from rich.table import Table

    device = choose_device(options.device)
    trained = load_trained(options.checkpoint)
    sim = Simulator(trained.env, options.episodes, device=device, seed=options.seed)
    groups = list(trained.env.groups)
    pairings: dict[str, set[str]] = {"all trained": set()}
    if len(groups) > 1:
        pairings |= {f"{group} random, the others trained": {group} for group in groups}
    pairings["all random"] = set(groups)
    outcomes: dict[str, Outcome] = {}
    table = Table("match", *(f"return of {group}" for group in groups), "length", box=None, padding=(0, 2))
    for name, random in pairings.items():
        player = trained.player(sim, random=random, greedy=options.greedy)
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
    return {name: {g: {"return": o.mean(g), "interval": o.interval(g)} for g in groups} for name, o in outcomes.items()}


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
