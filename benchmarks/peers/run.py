"""Measure warpdrive and its peers side by side, alternately, on this machine.

    python benchmarks/peers/run.py [--only ROW,...] [--repeats 5] [--json PATH] [--device cuda|cpu] [--quick]

Every system runs in a process of its own that stays alive and waits while another is measured; repeats go A B, B A, A B
and so on. A peer that is not installed is left out with a sentence; what to install is in requirements.txt. Where the
peers have an interpreter of their own, name it with --peer-python.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import report
import torch
from rows import AGENTS, RECIPE, RULES, Row, choose
from side import Failed, Missing, Side

SEEDS, QUICK_SEEDS = 3, 2


def main() -> int:
    """Measure, print, write."""
    options = parse()
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    rows = choose(options.only, device)
    with open(options.log or Path(tempfile.gettempdir()) / "warpdrive-peers.log", "w", encoding="utf-8") as log:
        bench = Bench(options, device, log)
        try:
            for row in rows:
                bench.measure(row)
        except KeyboardInterrupt:
            print("interrupted: what was measured so far follows")
        finally:
            bench.close()
    results = bench.results()
    report.show(results)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="rows, separated by commas; by default all that belong to the device")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, help=f"of the comparison of returns; default {SEEDS}; 0: leave it out")
    parser.add_argument("--seconds", type=float, default=0.5, help="of one repeat, about")
    parser.add_argument("--json", help="a file to write the results to")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="default: the GPU if there is one")
    parser.add_argument("--quick", action="store_true", help="small numbers, to see whether everything starts")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has the peers")
    parser.add_argument("--commit", help="of warpdrive, where git cannot tell")
    parser.add_argument("--log", help="where what the systems print goes")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}")
    if options.seeds is None:
        options.seeds = QUICK_SEEDS if options.quick else SEEDS
    return options


class Bench:
    """Measures row after row, and remembers."""

    def __init__(self, options: argparse.Namespace, device: str, log: Any) -> None:
        self.options, self.device, self._log = options, device, log
        self._sides: dict[str, Side] = {}
        self._missing: dict[str, str] = {}
        self._rows: list[dict[str, Any]] = []
        self._versions: dict[str, Any] = {}

    def close(self) -> None:
        """End all processes."""
        for side in self._sides.values():
            side.close()

    def _side(self, system: str) -> Side:
        if system not in self._sides:
            python = sys.executable if system.startswith("warpdrive") else self.options.peer_python
            self._sides[system] = Side(system.partition(",")[0], python, self.device, self._log)
        return self._sides[system]

    def measure(self, row: Row) -> None:
        """One row: warpdrive and its peers, as many as there are."""
        started = time.perf_counter()
        result: dict[str, Any] = {
            "row": row.name,
            "game": row.game,
            "work": row.work,
            "num_envs": self._shrink(row.num_envs),
            "num_agents": AGENTS[row.game],
            "passes": row.passes,
            "systems": {},
            "failed": {},
        }
        self._rows.append(result)
        names = self._prepare(row, result)
        times: dict[str, list[float]] = {name: [] for name in names}
        for repeat in range(self.options.repeats):
            for name in names if repeat % 2 == 0 else reversed(names):
                try:
                    answer = self._side(name).ask(do="measure")
                    times[name].append(answer["env_steps"] / answer["seconds"])
                except Failed as error:
                    result["failed"][name] = str(error)
        for name in [name for name in names if name not in result["failed"]]:
            rates, system = times[name], result["systems"][name]
            system["env_steps_per_s"] = statistics.median(rates)
            system["agent_steps_per_s"] = statistics.median(rates) * AGENTS[row.game]
            system["rates"] = rates
            system["facts"] = self._side(name).ask(do="facts")
        if row.learn_updates and self.options.seeds:
            self._learn(row, result)
        report.progress(row.name, result, time.perf_counter() - started)

    def _prepare(self, row: Row, result: dict[str, Any]) -> list[str]:
        """Set all systems up, at the same time; returns those that are there."""
        asked = []
        for name in ("warpdrive", *row.peers):
            system, _, variant = name.partition(", ")
            if system in self._missing:
                continue
            case = {
                "game": row.game,
                "work": row.work,
                "num_envs": result["num_envs"],
                "device": self.device,
                "variant": variant,
                "seconds": 0.05 if self.options.quick else self.options.seconds,
            }
            try:
                self._side(name).send(do="prepare", case=case)
                asked.append(name)
            except Failed as error:
                result["failed"][name] = str(error)
        for name in asked:
            system = name.partition(",")[0]
            try:
                result["systems"][name] = self._side(name).answer()
                if system not in self._versions:
                    self._versions[system] = self._side(name).ask(do="versions")
            except Missing as error:
                self._missing[system] = str(error)
            except Failed as error:
                result["failed"][name] = str(error)
        return list(result["systems"])

    def _learn(self, row: Row, result: dict[str, Any]) -> None:
        """Returns after equally many steps, from several seeds, alternately."""
        updates = max(2, row.learn_updates // 20) if self.options.quick else row.learn_updates
        names = [name for name in result["systems"] if name not in result["failed"]]
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for seed in range(self.options.seeds):
            for name in names if seed % 2 == 0 else reversed(names):
                try:
                    runs[name].append(self._side(name).ask(do="learn", seed=seed, updates=updates))
                except Failed as error:
                    result["failed"][f"{name}, learning"] = str(error)
        env_steps = updates * result["num_envs"] * RECIPE["rollout_steps"]
        result["learning"] = {"updates": updates, "env_steps": env_steps, "runs": runs}

    def _shrink(self, num_envs: int) -> int:
        return max(16, num_envs // 64) if self.options.quick else num_envs

    def results(self) -> dict[str, Any]:
        """All that is known, as it is written."""
        return {
            "kind": "peers",
            "quick": self.options.quick,
            "device": self._versions.get("warpdrive", {}).get("device"),
            "date": time.strftime("%Y-%m-%d"),
            "commit": self.options.commit or commit(),
            "versions": self._versions,
            "recipe": RECIPE,
            "rules": list(RULES),
            "missing": self._missing,
            "rows": self._rows,
        }


def commit() -> str:
    """The commit that is checked out, with a + where files differ from it."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
