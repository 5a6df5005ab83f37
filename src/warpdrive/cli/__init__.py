"""The command line: new, train, eval, replay, bench, list."""

from warpdrive.cli.main import main

__all__ = ["main"]
