"""The command line: train, eval, replay, bench, list."""

from warpdrive.cli.main import main

__all__ = ["main"]
