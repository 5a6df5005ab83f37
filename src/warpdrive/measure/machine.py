"""The limits of a machine, measured: what it copies, what it multiplies, and what it is."""

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import warp as wp

__all__ = ["copy_rate", "describe_machine", "matrix_rate", "times", "wait"]


def wait(device: torch.device) -> None:
    """Wait until the device has done all that was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def times(work: Callable[[], Any], device: torch.device, repeats: int) -> list[float]:
    """Seconds of each of `repeats` calls of `work`, each waited for, after one call that does not count."""
    work()
    wait(device)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        wait(device)
        seconds.append(time.perf_counter() - start)
    return seconds


def copy_rate(device: torch.device) -> float:
    """Bytes a second that a large copy reads and writes on the device."""
    count = (1 << 30) if device.type == "cuda" else (1 << 26)
    source = torch.ones(count, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / statistics.median(times(lambda: target.copy_(source), device, 7))


def matrix_rate(device: torch.device) -> float:
    """Floating-point operations a second of a large matrix product: bf16 on a GPU, float32 on the CPU."""
    size, kind = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    return 2 * size**3 / statistics.median(times(lambda: torch.mm(a, b), device, 7))


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "CPU"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "CPU")


def _commit() -> str | None:
    """The commit of the source this runs from, with a + where files differ from it; None where nobody knows.

    WARPDRIVE_COMMIT in the environment comes first: of a copy of the files, git knows an older one, or none.
    """
    if os.environ.get("WARPDRIVE_COMMIT"):
        return os.environ["WARPDRIVE_COMMIT"]
    folder = Path(__file__).parent
    try:
        command = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=7"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Device, versions, commit and date: what a result must carry to be understood later."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{_cpu_name()}, {os.cpu_count()} cores"
    return {
        "device": name,
        "versions": {"torch": torch.__version__, "warp": wp.config.version, "python": platform.python_version()},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }
