"""The comparison with peers measures what is there, leaves out by name what is not, and keeps to its limits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "benchmarks" / "peers" / "run.py"


def run(folder: Path, *options: str) -> tuple[int, dict, str]:
    """Exit status, results and output of a quick run on the CPU."""
    out = folder / "out.json"
    command = [sys.executable, RUN, "--quick", "--device", "cpu", "--json", out, "--log", folder / "log", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, json.loads(out.read_text()) if out.exists() else {}, done.stdout + done.stderr


@pytest.mark.slow
def test_leaves_out_a_peer_that_is_not_there(tmp_path):
    """With an interpreter that has no packages the peer's name and the reason stand in the results; we are measured."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    options = "--only", "spread-train-256", "--repeats", "2", "--seeds", "1", "--peer-python", str(bare)
    status, results, _ = run(tmp_path, *options)
    row = results["rows"][0]
    assert status == 0
    assert list(row["failed"]) == ["jaxmarl"] and "cannot be imported" in row["failed"]["jaxmarl"]
    ours = row["systems"]["warpdrive"]
    assert len(ours["rates"]) == 2 and min(ours["rates"]) <= ours["env_steps_per_s"] <= max(ours["rates"])
    assert 0.7 < ours["facts"]["length"] / 26 < 1.3  # episodes were played, and are as long as JaxMARL's
    assert len(row["learning"]["finals"]["warpdrive"]) == 1
    assert row["ratios"] == {}
    assert results["device"] and results["versions"]["warpdrive"]["torch"]


def test_stops_waiting(tmp_path):
    """Who does not answer within --patience fails by name, and the run ends with results and status 1."""
    status, results, output = run(tmp_path, "--only", "cartpole-sim-1k", "--patience", "0.2")
    assert status == 1
    assert "did not answer to 'build'" in results["rows"][0]["failed"]["warpdrive"]
    assert "warpdrive is left out" in output


def test_names_an_unknown_row(tmp_path):
    """The sentence names the rows that there are."""
    status, _, output = run(tmp_path, "--only", "chess")
    assert status == 2 and "Traceback" not in output
    assert "spread-sim-100k" in output and "got 'chess'" in output
