"""A system's process, seen from the one that compares."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

__all__ = ["Failed", "Missing", "Side"]


class Missing(Exception):
    """The system is not installed."""


class Failed(Exception):
    """The system could not do what it was asked."""


class Side:
    """Starts a worker when it is first asked, and keeps it.

    Args:
        system: warpdrive, jaxmarl, gymnax or vmas; what follows a comma tells cases apart and is not looked at.
        python: the interpreter to run it with.
        device: cpu or cuda.
        log: where what it prints goes.
    """

    def __init__(self, system: str, python: str, device: str, log: IO[str]) -> None:
        self.system, self._python, self._device, self._log = system, python, device, log
        self._process: subprocess.Popen[str] | None = None

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            Missing, Failed: as the names say.
        """
        self.send(**request)
        return self.answer()

    def send(self, **request: Any) -> None:
        """Send a request; `answer` waits for what comes back."""
        if self._process is None:
            self._process = self._start()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.close()
            raise Failed(f"{self.system} has died; see the log") from None

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to the last request."""
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise Failed(f"{self.system} has died; see the log")
        answer = json.loads(line)
        if "missing" in answer:
            raise Missing(answer["missing"])
        if "error" in answer:
            raise Failed(f"{self.system}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def _start(self) -> "subprocess.Popen[str]":
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}
        if self._device == "cpu":
            environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        return subprocess.Popen(
            [self._python or sys.executable, str(Path(__file__).with_name("worker.py")), self.system],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            text=True,
        )
