"""The process in which one system runs: reads requests from stdin, a JSON object a line, and answers likewise.

    {"do": "prepare", "case": {...}} -> {"set_up_seconds", "calls", "how"}
    {"do": "measure"}                -> {"env_steps", "seconds"}
    {"do": "facts"}                  -> what the system says of the work done
    {"do": "learn", "seed", "updates"} -> {"returns": one for each update, "seconds"}

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
    """Holds the case that was prepared last."""

    def __init__(self, system: str) -> None:
        self.side = importlib.import_module(MODULES[system])
        self.work: Any = None
        self.calls = 0

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        """Set up and warm up."""
        self.work = None  # let go of the memory of the case before
        start = time.perf_counter()
        self.work = self.side.prepare(case)
        self.calls = calibrate(self.work, case["seconds"])
        return {"set_up_seconds": time.perf_counter() - start, "calls": self.calls, "how": self.work.how}

    def measure(self) -> dict[str, Any]:
        """Time one repeat."""
        return {"seconds": repeat(self.work, self.calls), "env_steps": self.calls * self.work.steps_per_call}

    def facts(self) -> dict[str, Any]:
        """Ask the system what it did."""
        return self.work.facts()

    def learn(self, seed: int, updates: int) -> dict[str, Any]:
        """Train anew from a seed."""
        return self.work.learn(seed, updates)

    def versions(self) -> dict[str, Any]:
        """Of what the system consists of."""
        return self.side.versions()


def main() -> None:
    """Serve one system until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not stand between the answers
    worker: Worker | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if worker is None:
                worker = Worker(sys.argv[1])
            answer = getattr(worker, request.pop("do"))(**request)
        except ImportError as error:
            answer = {"missing": f"{sys.argv[1]} cannot be imported: {error}"}
        except Exception as error:  # one row that fails must not cost the others
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
