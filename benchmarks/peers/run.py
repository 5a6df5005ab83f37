"""Measure warpdrive and its peers side by side, alternately, on this machine.

    python benchmarks/peers/run.py --json benchmarks/results/peers-h200.json
    python benchmarks/peers/run.py --device cpu --json benchmarks/results/peers-two-cpu-cores.json

Every system has a process of its own for each row. All compile first, warpdrive's one after another and then the
peers' at the same time; then each row is timed with one process at work and the others waiting, in the order A B, B A,
A B and so on; last, training rows learn from several seeds, for returns after equally many steps. Results are written
after each row. A peer that is not installed is left out by name; requirements.txt says what to install. Where the peers
have an interpreter of their own, name it with --peer-python.
"""

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import report
import torch
from contest import Contest
from rows import RECIPE, ROWS, RULES, choose
from side import Clock


def main() -> int:
    """Measure, print, write; 1 if warpdrive itself failed somewhere, 2 for a row that is not there."""
    options = parse()
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        rows = choose(options.only, device)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    started = time.monotonic()
    clock = Clock(options.limit, options.patience)
    results: dict[str, Any] = {
        "kind": "peers",
        "quick": options.quick,
        "date": time.strftime("%Y-%m-%d"),
        "recipe": RECIPE,
        "rules": list(RULES),
        "rows": [],
    }

    def keep(what: str) -> None:
        """Write what is known so far, and say how far it got."""
        results["rows"] = [contest.result for contest in contests]
        results["seconds"] = round(time.monotonic() - started, 1)
        if options.json:
            Path(options.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(f"{results['seconds']:6.1f} s  {what}", flush=True)

    with open(options.log or Path(tempfile.gettempdir()) / "warpdrive-peers.log", "w", encoding="utf-8") as log:
        pythons = sys.executable, options.peer_python
        contests = [
            Contest(row, max(16, row.num_envs // 64) if options.quick else row.num_envs, device, pythons, clock, log)
            for row in rows
        ]
        try:
            builders = []
            for contest in contests:
                others = contest.builders()
                # warpdrive times schedules while it builds, and would choose the wrong one beside other work.
                others.pop("warpdrive")()
                builders += others.values()
            with ThreadPoolExecutor(options.builds or max(1, len(builders))) as pool:
                list(pool.map(lambda builder: builder(), builders))
            results |= versions(contests)
            keep("all is compiled")
            for contest in contests:
                contest.time(options.repeats, 0.05 if options.quick else options.seconds)
                keep(report.rates(contest.result))
            for contest in contests:
                updates = contest.row.learn_updates
                if updates and options.seeds:
                    contest.learn(options.seeds, max(2, updates // 20) if options.quick else updates)
                    keep(report.learned(contest.result))
        except KeyboardInterrupt:
            keep("interrupted: what was measured so far follows")
        finally:
            for contest in contests:
                contest.close()
    report.show(results)
    return int(any("warpdrive" in row["failed"] for row in results["rows"]))


def versions(contests: list[Contest]) -> dict[str, Any]:
    """Machine and commit as warpdrive's process tells them, and the versions that each system did."""
    found: dict[str, Any] = {}
    for contest in contests:
        for name, system in contest.result["systems"].items():
            if "versions" in system:
                found[name.partition(", ")[0]] = system.pop("versions")
    ours = found.get("warpdrive", {})
    return {"device": ours.pop("device", None), "commit": ours.pop("commit", None), "versions": found}


def parse() -> argparse.Namespace:
    """Options of the command line."""
    names = ", ".join(row.name for row in ROWS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"rows, separated by commas, of {names}; default: those with a goal")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one repeat, about; default 0.5")
    parser.add_argument("--seeds", type=int, default=3, help="of the comparison of returns; 0: leave it out; default 3")
    parser.add_argument("--json", help="a file to write the results to")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="default: the GPU if there is one")
    parser.add_argument("--quick", action="store_true", help="small numbers, to see whether everything starts")
    parser.add_argument("--builds", type=int, default=0, help="systems that compile at the same time; default: all")
    parser.add_argument("--limit", type=float, default=7200, help="seconds after which the rest is left out")
    parser.add_argument("--patience", type=float, default=600, help="seconds after which a system counts as hanging")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has the peers")
    parser.add_argument("--log", help="where what the systems print goes")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {options.repeats}")
    for name in ("builds", "seeds"):
        if getattr(options, name) < 0:
            parser.error(f"--{name} must be at least 0, got {getattr(options, name)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
