"""A run says where the time went until its first update, and a warm start is short."""

import json
import os
import resource
import subprocess
import sys
import time

import pytest
import warp as wp

from warpdrive.cli.startup import StartUp, process_seconds
from warpdrive.sim.store import start_warp

MOST_SECONDS = 15.0  # of a warm start of `warpdrive train tag` to its first update
COMMAND = "import sys; from warpdrive.cli.main import main; sys.exit(main())"


def start(folder, cache):
    """Train Tag for one update; the first row of metrics, what was printed, and the seconds of processor time."""
    args = ["train", "tag", "--device", "cpu", "--env-steps", "5000", "--replay", "false", "--out", str(folder)]
    environment = os.environ | {"WARP_CACHE_PATH": str(cache)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *args], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    row = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    return row, done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
def test_a_warm_start_is_short(tmp_path):
    """The first start compiles; the second does not, and is at its first update in time."""
    row, printed, _ = start(tmp_path / "cold", tmp_path / "cache")
    compiled = row["start/compiled_modules"]
    assert compiled >= 3  # the environment, the actions, the loss
    assert f"{compiled} modules compiled" in printed
    row, printed, busy = start(tmp_path / "warm", tmp_path / "cache")
    assert row["start/compiled_modules"] == 0
    assert "kernels from Warp's cache" in printed
    parts = [value for key, value in row.items() if key in ("start/imports", "start/simulator", "start/first_update")]
    assert len(parts) == 3 and all(value > 0 for value in parts)
    assert sum(parts) == pytest.approx(row["start/seconds"])
    # Where the machine does other work as well, what this process computed is the measure.
    assert min(row["start/seconds"], busy) < MOST_SECONDS
    (line,) = [line for line in printed.splitlines() if line.startswith("first update after")]
    assert f"first update after {row['start/seconds']:.1f} s: {row['start/imports']:.1f} s imports" in line


def test_parts_add_up_and_compiled_modules_are_counted(tmp_path, monkeypatch):
    """Time goes to the part that ends; of new files in the cache only compiled modules count."""
    start_warp()
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path))
    (tmp_path / "wp_old").mkdir()
    (tmp_path / "wp_old" / "a.o").touch()
    (tmp_path / "wp_file").touch()
    record = StartUp(began=2.0)
    for name in ("b.o", "c.sm90.cubin", "d.cpp", "e.meta"):
        (tmp_path / "wp_old" / name).touch()
    for part in ("simulator", "imports", "first update"):
        time.sleep(0.02)
        record.end(part)
    row = record.to_dict()
    assert list(row) == [
        "start/imports", "start/simulator", "start/first_update", "start/seconds", "start/compiled_modules"
    ]  # fmt: skip
    assert row["start/compiled_modules"] == 2
    assert 2.02 <= row["start/imports"] < 2.5 and 0.02 <= row["start/simulator"] < 0.5
    assert row["start/seconds"] == sum(list(row.values())[:3])
    assert StartUp.line({"start/imports": 2.04, "start/seconds": 2.04, "start/compiled_modules": 0}) == (
        "first update after 2.0 s: 2.0 s imports; kernels from Warp's cache"
    )


def test_a_cache_that_is_not_there_counts_nothing(tmp_path, monkeypatch):
    """Without the folder there is no compiled module."""
    start_warp()
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path / "missing"))
    assert StartUp().to_dict()["start/compiled_modules"] == 0


def test_the_age_of_a_process():
    """A new process is as old as the time since it was started."""
    code = "from warpdrive.cli.startup import process_seconds; import time; time.sleep(0.5); print(process_seconds())"
    begun = time.monotonic()
    age = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert 0.5 < age < time.monotonic() - begun + 0.05
    assert process_seconds() > 0
