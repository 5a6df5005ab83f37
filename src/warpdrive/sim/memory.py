"""Memory of a device: how much is free, how much some work took at most, and which errors say that there is none."""

import contextlib
import ctypes
import gc
import os
from pathlib import Path

import torch

__all__ = ["Peak", "free_memory", "is_out_of_memory", "release_memory", "require_memory", "total_memory"]

CGROUPS = Path("/sys/fs/cgroup")
PROCESS = Path("/proc/self")
REFUSALS = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
)  # of CUDA, PyTorch and Warp, in RuntimeErrors


def free_memory(device: torch.device) -> int:
    """Bytes that can still be taken on a device: of a GPU, or of the machine and the container around the process."""
    if device.type == "cuda":
        # What PyTorch holds and does not use counts as free: it gives it up before it fails.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    free = _line(Path("/proc/meminfo"), "MemAvailable")  # caches count as free: the kernel gives them up
    if free is None:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(0, min([free, *_left_in_groups()]))


def total_memory(device: torch.device) -> int:
    """Bytes that a device has in all, in use or not."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _line(path: Path, key: str) -> int | None:
    """Bytes in the line `key: number kB` of a file of /proc, or None."""
    try:
        for line in path.read_text(encoding="ascii").splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return None


def _left_in_groups() -> list[int]:
    """Bytes left in each control group around the process that has a limit, of version 2 or 1."""
    try:
        rows = [row.split(":", 2) for row in (PROCESS / "cgroup").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return []
    left = []
    for _, controllers, own in rows:
        if controllers == "":
            top, limit, usage, cache = CGROUPS, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            top, cache = CGROUPS / "memory", "total_inactive_file"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        # Inside a container the group's own path may not be there: its files then stand at the top.
        inner = top / own.lstrip("/")
        for folder in (inner, *(parent for parent in inner.parents if parent.is_relative_to(top))):
            try:
                room = int((folder / limit).read_text()) - int((folder / usage).read_text())
                for line in (folder / "memory.stat").read_text().splitlines():
                    if line.split()[0] == cache:
                        room += int(line.split()[1])
            except (OSError, ValueError):  # no such file, or no limit: "max"
                continue
            left.append(room)
    return left


def require_memory(num_bytes: int, device: torch.device, what: str) -> None:
    """Raise MemoryError, saying how much is needed, when `num_bytes` do not fit into the device's free memory."""
    free = free_memory(device)
    if num_bytes > free:
        raise MemoryError(
            f"{what} needs {num_bytes / 2**30:.2f} GiB on {device}, of which {free / 2**30:.2f} GiB are free; "
            "take fewer environments"
        )


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it came of, says in whoever's words that there was not enough memory.

    An allocation that fails while a graph is captured shows as a capture that failed.
    """
    while error is not None:
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            return True
        if isinstance(error, RuntimeError) and any(text in str(error).lower() for text in REFUSALS):
            return True
        error = error.__cause__ or error.__context__
    return False


def release_memory(device: torch.device) -> None:
    """Give back what nothing refers to any more: objects in cycles, PyTorch's cache on a GPU, holes in the C heap."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return
    # The C library keeps pages of freed blocks, up to hundreds of megabytes. Only glibc has this call.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


class Peak:
    """The most memory in use since it was made, in bytes beyond what was in use then.

    On the CPU it is that of the whole process, as the kernel counts it; memory freed before then is given back first,
    where the C library can, so that using it again shows. On a GPU it is the most that PyTorch reserved, or what all
    that is left on it now, whichever is more.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        release_memory(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._start, self._free = torch.cuda.memory_reserved(device), torch.cuda.mem_get_info(device)[0]
            return
        with contextlib.suppress(OSError):
            (PROCESS / "clear_refs").write_text("5")  # sets VmHWM back to what is in use now
        self._start = self._highest()

    def num_bytes(self) -> int:
        """Bytes at the highest point so far."""
        if self.device.type == "cuda":
            taken = self._free - torch.cuda.mem_get_info(self.device)[0]
            return max(0, taken, torch.cuda.max_memory_reserved(self.device) - self._start)
        return max(0, self._highest() - self._start)

    @staticmethod
    def _highest() -> int:
        return _line(PROCESS / "status", "VmHWM") or 0
