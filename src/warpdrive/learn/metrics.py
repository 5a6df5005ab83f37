"""Metrics of a run: rows of numbers, appended to files as JSON lines and for TensorBoard."""

import json
import math
from pathlib import Path
from typing import Any

__all__ = ["MetricsWriter"]


class MetricsWriter:
    """Appends rows to `metrics.jsonl` and TensorBoard files in a run's folder.

    Args:
        folder: the run's folder, made where it is missing.
        keep_updates: on resuming, rows of later updates than this are cut away: they will be written again.
    """

    def __init__(self, folder: Path, keep_updates: int = 0) -> None:
        from torch.utils.tensorboard import SummaryWriter  # imported late: it takes a second

        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "metrics.jsonl"
        rows = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        kept = [row for row in rows if _update_of(row) <= keep_updates]
        self.path.write_text("".join(row + "\n" for row in kept), encoding="utf-8")
        self._file = self.path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(folder), purge_step=None)

    def write(self, row: dict[str, Any]) -> None:
        """Append one row; it has `env_steps`, which is TensorBoard's step."""
        plain = {k: (v if not isinstance(v, float) or math.isfinite(v) else None) for k, v in row.items()}
        self._file.write(json.dumps(plain) + "\n")
        self._file.flush()
        for name, value in plain.items():
            if isinstance(value, int | float) and name not in ("env_steps", "update"):
                self._board.add_scalar(name, value, int(row["env_steps"]))

    def close(self) -> None:
        """Write out what is buffered and close the files."""
        self._file.close()
        self._board.close()


def _update_of(row: str) -> float:
    try:
        return float(json.loads(row)["update"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # a row that was cut off in writing
