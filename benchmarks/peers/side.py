"""A system's process, seen from the one that compares."""

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import IO, Any

__all__ = ["Clock", "Failed", "Missing", "Side"]


class Missing(Exception):
    """The system is not installed."""


class Failed(Exception):
    """The system could not do what it was asked."""


class Clock:
    """How long may still be waited.

    Args:
        limit: seconds from now on, for everything; patience: for one answer.
    """

    def __init__(self, limit: float, patience: float) -> None:
        self.end, self.patience = time.monotonic() + limit, patience

    def wait(self) -> float:
        """Seconds to wait for an answer at most.

        Raises:
            Failed: the time is over.
        """
        left = self.end - time.monotonic()
        if left <= 0:
            raise Failed("left out: the time of --limit was over")
        return min(left, self.patience)


class Side:
    """Starts a worker when it is first asked, and keeps it until it is closed, dies, or does not answer.

    Args:
        system: warpdrive, jaxmarl, gymnax or vmas.
        python: the interpreter to run it with.
        device: cpu or cuda.
        clock: how long its answers may take.
        log: where what it prints goes.
    """

    def __init__(self, system: str, python: str, device: str, clock: Clock, log: IO[str]) -> None:
        self.system, self._python, self._device, self._clock, self._log = system, python, device, clock, log
        self._process: subprocess.Popen[str] | None = None

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            Missing, Failed: as the names say.
        """
        seconds = self._clock.wait()
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"{self.system} has died; see the log") from None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            self._process.kill()
            raise Failed(f"{self.system} did not answer to {request['do']!r} within {seconds:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"{self.system} has died; see the log")
        answer = json.loads(line)
        if "missing" in answer:
            raise Missing(answer["missing"])
        if "error" in answer:
            raise Failed(f"{self.system}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process at once: it has nothing to save."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> "subprocess.Popen[str]":
        # All processes share the GPU: JAX must take what it needs and not, as it would, three quarters of the memory.
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}
        environment["JAX_PLATFORMS"] = "cpu" if self._device == "cpu" else "cuda,cpu"
        if self._device == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        return subprocess.Popen(
            [self._python, str(Path(__file__).with_name("worker.py")), self.system],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            text=True,
        )
