"""The `warpdrive` command: finds the subcommand and turns every expected error into one sentence."""

import difflib
import importlib
import re
import sys
import time
from collections.abc import Sequence

__all__ = ["main"]

COMMANDS = {
    "new": "write a small environment that works, to change into your own",
    "train": "train policies in an environment",
    "eval": "play a checkpoint's policies against each other and against random ones",
    "replay": "write a page that plays an episode of a checkpoint's policies",
    "check": "examine an environment for races, leaks, indices out of bounds and other silent faults",
    "tune": "find the number of environments and the rollout length that train fastest here",
    "bench": "measure how fast an environment steps and trains here",
    "list": "list the bundled configurations and environments",
}
# Where a command is not a function of its own name in a module of that name.
MODULES = {
    "eval": ("evaluate", "evaluate"),
    "replay": ("evaluate", "replay"),
    "list": ("train", "list_configurations"),
}
HELP = """usage: warpdrive COMMAND ...

Multi-agent reinforcement learning, end to end on the GPU.

{commands}

`warpdrive COMMAND --help` tells more; `warpdrive train tag --help` lists every option of Tag's training.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0 done, 1 could not, 2 asked wrongly, 130 interrupted."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help"):
        print(HELP.format(commands="\n".join(f"  {name:<8}{text}" for name, text in COMMANDS.items())))
        return 0
    if args[0] == "--version":
        from warpdrive import __version__

        print(f"warpdrive {__version__}")
        return 0
    if args[0] not in COMMANDS:
        near = difflib.get_close_matches(args[0], COMMANDS, 1, 0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(COMMANDS)}"
        return _fail(f"unknown command {args[0]!r}; {hint}", 2)

    began = time.perf_counter()
    import jsonargparse

    module, function = MODULES.get(args[0], (args[0], args[0]))
    run = getattr(importlib.import_module(f"warpdrive.cli.{module}"), function)
    options = {}
    if args[0] == "train":
        from warpdrive.cli.startup import process_seconds

        options["began"] = process_seconds() if argv is None else time.perf_counter() - began
    try:
        return run(args[1:], **options)
    except jsonargparse.ArgumentError as error:
        return _fail(_one_sentence(str(error)), 2)
    except (ValueError, MemoryError, OSError, ModuleNotFoundError, FloatingPointError) as error:
        return _fail(_one_sentence(str(error)), 1)
    except KeyboardInterrupt:
        return 130


def _fail(message: str, status: int) -> int:
    print(f"warpdrive: {message}", file=sys.stderr)
    return status


def _one_sentence(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
