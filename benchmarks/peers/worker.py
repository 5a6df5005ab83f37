"""The process in which one system does one row: reads requests from stdin, a JSON object a line, and answers likewise.

    {"do": "build", "case": {...}}      -> {"build_seconds", "how", "versions"}
    {"do": "warm_up", "seconds"}        -> {"calls"}, that take about so many seconds
    {"do": "measure"}                   -> {"env_steps", "seconds"}
    {"do": "facts"}                     -> what the system says of the work done
    {"do": "learn", "seed", "updates"}  -> {"returns": one for each update, "seconds"}

An answer {"missing": sentence} means that the system is not installed here, {"error": sentence} that it failed.
"""

import importlib
import json
import os
import sys
import time
import traceback
from typing import Any

from timing import calibrate, repeat

MODULES = {"warpdrive": "ours", "jaxmarl": "jax_side", "gymnax": "jax_side", "vmas": "vmas_side"}


class Worker:
    """Holds the work that was built."""

    def __init__(self, system: str) -> None:
        self.system, self.work, self.calls = system, None, 0  # type: str, Any, int

    def build(self, case: dict[str, Any]) -> dict[str, Any]:
        """Import, set up and compile; next to nothing runs on the device, for others may be doing the same."""
        start = time.perf_counter()
        side = importlib.import_module(MODULES[self.system])
        self.work = side.prepare(case)
        return {"build_seconds": time.perf_counter() - start, "how": self.work.how, "versions": side.versions()}

    def warm_up(self, seconds: float) -> dict[str, Any]:
        """Run for a while, and settle how much one repeat does."""
        self.calls = calibrate(self.work, seconds)
        return {"calls": self.calls}

    def measure(self) -> dict[str, Any]:
        """Time one repeat."""
        return {"seconds": repeat(self.work, self.calls), "env_steps": self.calls * self.work.steps_per_call}

    def facts(self) -> dict[str, Any]:
        """Ask the system what it did."""
        return self.work.facts()

    def learn(self, seed: int, updates: int) -> dict[str, Any]:
        """Train anew from a seed."""
        return self.work.learn(seed, updates)


def main() -> None:
    """Serve one system until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not stand between the answers
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except ImportError as error:
            answer = {"missing": f"{sys.argv[1]} cannot be imported: {error}"}
        except Exception as error:  # one row that fails must not cost the others
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
