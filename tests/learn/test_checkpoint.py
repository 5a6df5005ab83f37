"""Checkpoints: whole or not at all, and refused with one sentence where they are not ours."""

import pytest
import torch

from warpdrive.learn.checkpoint import CheckpointError, load_checkpoint, save_checkpoint


def test_what_was_saved_is_loaded(tmp_path):
    """Tensors, numbers and strings come back as they were, also by the folder's name."""
    path = tmp_path / "run" / "checkpoint.pt"
    save_checkpoint({"a": torch.arange(5), "b": {"c": [1, 2.5, "x"]}}, path)
    for place in (path, path.parent):
        content = load_checkpoint(place)
        assert torch.equal(content["a"], torch.arange(5))
        assert content["b"] == {"c": [1, 2.5, "x"]}


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    """When writing breaks off, the checkpoint before is still there and nothing else lies about."""
    path = tmp_path / "checkpoint.pt"
    save_checkpoint({"a": 1}, path)

    def broken(content, file):
        file.write(b"half a checkpoint")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint({"a": 2}, path)
    monkeypatch.undo()
    assert load_checkpoint(path)["a"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_truncated_file_is_refused(tmp_path):
    """At every length a cut file gets one sentence that names it."""
    path = tmp_path / "checkpoint.pt"
    save_checkpoint({"a": torch.arange(1000)}, path)
    whole = path.read_bytes()
    for share in (0.0, 0.1, 0.5, 0.99):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(CheckpointError) as error:
            load_checkpoint(path)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)


def test_foreign_files_are_refused(tmp_path):
    """Text, another program's tensors, pickled code and a newer format are each told apart from ours."""
    path = tmp_path / "checkpoint.pt"
    path.write_text("hello")
    with pytest.raises(CheckpointError, match="damaged or not a checkpoint"):
        load_checkpoint(path)
    torch.save({"weights": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError, match="not a checkpoint of WarpDrive"):
        load_checkpoint(path)
    torch.save({"warpdrive": 99}, path)
    with pytest.raises(CheckpointError, match="format 99"):
        load_checkpoint(path)
    torch.save({"warpdrive": 1, "f": print}, path)
    with pytest.raises(CheckpointError, match="damaged or not a checkpoint"):
        load_checkpoint(path)
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        load_checkpoint(tmp_path / "nowhere.pt")
