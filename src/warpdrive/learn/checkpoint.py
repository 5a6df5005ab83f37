"""Checkpoints: one file with all that training goes on from, written whole or not at all."""

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import torch

__all__ = ["FORMAT", "CheckpointError", "load_checkpoint", "save_checkpoint"]

FORMAT = 1


class CheckpointError(ValueError):
    """A file that is not a checkpoint of WarpDrive, is damaged, or does not fit; the message says which."""


def save_checkpoint(content: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write `content` (tensors, numbers, strings, lists, dicts) to `path`; until it is whole the old file stays.

    Raises:
        OSError: the folder cannot be written, or the disk is full; the old file is untouched.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save({"warpdrive": FORMAT, **content}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a checkpoint onto the CPU. Only plain data is read: a file cannot run code.

    Raises:
        CheckpointError: no such file, damaged, not one of ours, or of a newer format.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "checkpoint.pt"
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint at {path}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path} is damaged or not a checkpoint: it cannot be read as one") from error
    if not isinstance(content, dict) or "warpdrive" not in content:
        raise CheckpointError(f"{path} is not a checkpoint of WarpDrive")
    if content["warpdrive"] != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {content['warpdrive']}, this version reads {FORMAT}; "
            "use the version of WarpDrive that wrote it"
        )
    return content
