"""Where the time goes until the first update of a run."""

import os
import time
from pathlib import Path

import warp as wp

from warpdrive.sim.store import start_warp

__all__ = ["StartUp", "process_seconds"]

BINARIES = (".o", ".ptx", ".cubin")  # that Warp keeps of its modules


def process_seconds() -> float:
    """Seconds since this process began; where there is no /proc, those that it has computed."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return time.process_time()


class StartUp:
    """Seconds of the parts of a start, and how many modules of kernels had to be compiled in it.

    Args:
        began: seconds that had passed already, all of them on imports.

    Attributes:
        seconds: of each part, in order of its first end.
    """

    def __init__(self, began: float = 0.0) -> None:
        self.seconds = {"imports": began}
        self._last = time.perf_counter()
        start_warp()  # chooses where its cache is
        self._binaries = _binaries()

    def end(self, part: str) -> None:
        """Add the time since the last end to a part."""
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now

    def to_dict(self) -> dict[str, float]:
        """Numbers for a row of metrics."""
        compiled = len(_binaries() - self._binaries)
        rows = {f"start/{part.replace(' ', '_')}": seconds for part, seconds in self.seconds.items()}
        return {**rows, "start/seconds": sum(self.seconds.values()), "start/compiled_modules": compiled}

    @staticmethod
    def line(row: dict[str, float]) -> str:
        """What `to_dict` gave, as one line."""
        parts = [
            f"{value:.1f} s {key.removeprefix('start/').replace('_', ' ')}"
            for key, value in row.items()
            if key not in ("start/seconds", "start/compiled_modules")
        ]
        compiled = int(row["start/compiled_modules"])
        source = "from Warp's cache" if compiled == 0 else f"{compiled} modules compiled, which are kept for next time"
        return f"first update after {row['start/seconds']:.1f} s: {', '.join(parts)}; kernels {source}"


def _binaries() -> set[str]:
    """Paths of all compiled modules in Warp's cache."""
    found: set[str] = set()
    try:
        folders = [entry.path for entry in os.scandir(str(wp.config.kernel_cache_dir)) if entry.name.startswith("wp_")]
    except OSError:
        return found
    for folder in folders:
        try:
            found.update(entry.path for entry in os.scandir(folder) if entry.name.endswith(BINARIES))
        except OSError:  # a file, or another process has just removed it
            continue
    return found
