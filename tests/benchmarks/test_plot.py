"""The figures of the benchmarks are made from result files alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
PLOT = Path(__file__).parents[2] / "benchmarks" / "plot.py"
FIGURES = "benchmark-scaling.png", "benchmark-peers.png"
MACHINE = {"device": "some device", "commit": "0123abc", "date": "2026-01-01"}


def suite() -> dict:
    """Results as suite.py writes them, of three sizes."""

    def rows(name: str, size: str) -> list[dict]:
        return [
            {"name": name, "num_envs": 8, "num_agents": 2} | {size: n, "env_steps_per_s": 1e6 * n} for n in (1, 10, 100)
        ]

    return MACHINE | {"scaling": rows("one", "num_envs") + rows("two", "num_envs"), "agents": rows("x", "num_agents")}


def peers(quick: bool = False) -> dict:
    """Results as peers/run.py writes them: a row with a peer, one whose peer failed, one with nothing at all."""

    def system(rate: float) -> dict:
        return {"how": "somehow", "env_steps_per_s": rate, "rates": [0.9 * rate, rate, 1.2 * rate]}

    def row(systems: dict, ratios: dict) -> dict:
        return {"game": "spread", "work": "train", "num_envs": 64, "systems": systems, "ratios": ratios}

    rows = [
        row({"warpdrive": system(2e6), "jaxmarl": system(1e6)}, {"jaxmarl": 2.0}),
        row({"warpdrive": system(2e6), "jaxmarl": {}}, {}),
        row({"warpdrive": {}, "jaxmarl": {}}, {}),
    ]
    return MACHINE | {"kind": "peers", "quick": quick, "rows": rows}


def plot(folder: Path, *results: dict) -> subprocess.CompletedProcess:
    """Write the results and some other file into a folder, and draw what there is into the same folder."""
    for i, content in enumerate(results):
        (folder / f"{i}.json").write_text(json.dumps(content))
    (folder / "other.json").write_text(json.dumps({"rows": [{"work": "simulate"}]}))
    command = [sys.executable, PLOT, "--results", folder, "--out", folder]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_draws_both_figures(tmp_path):
    """Each of the two figures is an image of some size."""
    done = plot(tmp_path, suite(), peers())
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(tmp_path / name) for name in FIGURES]
    for name in FIGURES:
        content = (tmp_path / name).read_bytes()
        assert content.startswith(b"\x89PNG") and len(content) > 5000


def test_draws_what_there_is(tmp_path):
    """Trial runs do not get into a figure; without results a sentence says where to get them."""
    done = plot(tmp_path, peers(quick=True))
    assert done.returncode == 1
    assert "holds no results of suite.py or peers/run.py" in done.stderr
    done = plot(tmp_path, suite())
    assert done.stdout.split() == [str(tmp_path / FIGURES[0])]
