"""The command line: new, train, eval, replay, check, tune, bench, list."""

from warpdrive.cli.main import main

__all__ = ["main"]
