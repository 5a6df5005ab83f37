"""The search for the size of training that is fastest: which sizes to measure next, when to stop, which to take."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["GAIN", "Measured", "SizeSearch"]

GAIN = 0.05  # a larger size must bring this much more, or the smaller one is taken
UPDATES = 5  # that a measurement takes, as it is predicted
PATIENCE = 2  # doublings in a row without a gain that end the search: rates have steps
MARGIN = 0.1  # of the free memory, left free


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The training rate at one size.

    Attributes:
        num_envs, rollout_steps: the size.
        env_steps_per_s, agent_steps_per_s: rates of whole updates.
        num_bytes: memory at the highest point.
        seconds_per_update: median.
    """

    num_envs: int
    rollout_steps: int
    env_steps_per_s: float
    agent_steps_per_s: float
    num_bytes: int
    seconds_per_update: float


@dataclass
class SizeSearch:
    """Doubles the number of environments while the rate rises, then tries other lengths of the rollout.

    Args:
        measure: (num_envs, rollout_steps) -> Measured; raises MemoryError where the size does not fit.
        array_bytes: (num_envs, rollout_steps) -> bytes of the arrays of that size, which the rest grows with.
        free: () -> bytes that are free now.
        rollout_steps: length at which the number of environments is searched for.
        start: number of environments to begin with.
        least_envs: fewest that may be tried. most_envs: most; None: no limit.
        lengths: whether other lengths are tried.
        seconds: time for the search; a measurement that would probably end later is not begun.
        report: called with each Measured.
        clock: seconds that pass.

    Attributes:
        rows: what was measured, in order.
        stopped: why no more environments were tried, in a few words.
    """

    measure: Callable[[int, int], Measured]
    array_bytes: Callable[[int, int], int]
    free: Callable[[], int]
    rollout_steps: int
    start: int
    least_envs: int = 1
    most_envs: int | None = None
    lengths: bool = True
    seconds: float = 60.0
    report: Callable[[Measured], None] = lambda row: None
    clock: Callable[[], float] = time.monotonic
    rows: list[Measured] = field(default_factory=list)
    stopped: str = ""

    def run(self) -> Measured:
        """Search.

        Returns:
            The size to take: of those within GAIN of the highest rate the one with the fewest environments, at the
            rollout's own length unless another brings more than GAIN.

        Raises:
            MemoryError: not even the first size fits.
        """
        self._began = self.clock()
        chosen = self._double()
        if self.lengths:
            # Twice as many environments for half the steps, half for twice as many, and longer rollouts of as many.
            for envs, steps in ((2.0, 0.5), (0.5, 2.0), (1.0, 2.0)):
                chosen = self._walk(chosen, envs, steps)
        return chosen

    def _double(self) -> Measured:
        num_envs, flat = self._at_most(self.start), 0
        found: list[Measured] = []
        reference: Measured | None = None
        while not self.stopped:
            row = self._try(num_envs, self.rollout_steps)
            if row is None:
                break
            found.append(row)
            if reference is None or _gains(row, reference):
                reference, flat = row, 0
            else:
                flat += 1
            if flat == PATIENCE:
                self.stopped = f"{PATIENCE} doublings brought less than {GAIN:.0%} more"
            elif num_envs == self.most_envs:
                self.stopped = f"{num_envs} environments are the most allowed"
            num_envs = self._at_most(2 * num_envs)
        if not found:
            raise MemoryError(f"not even {num_envs} environments can be trained: {self.stopped}")
        best = max(row.env_steps_per_s for row in found)
        return next(row for row in found if row.env_steps_per_s * (1 + GAIN) >= best)

    def _walk(self, chosen: Measured, envs: float, steps: float) -> Measured:
        """The best size from `chosen` on in steps of these factors, as long as each brings more."""
        stopped = self.stopped
        while True:
            num_envs, rollout_steps = round(chosen.num_envs * envs), round(chosen.rollout_steps * steps)
            if num_envs < self.least_envs or rollout_steps < 1 or num_envs != self._at_most(num_envs):
                break
            if any((row.num_envs, row.rollout_steps) == (num_envs, rollout_steps) for row in self.rows):
                break
            row = self._try(num_envs, rollout_steps)
            if row is None or not _gains(row, chosen):
                break
            chosen = row
        self.stopped = stopped
        return chosen

    def _at_most(self, num_envs: int) -> int:
        return num_envs if self.most_envs is None else min(num_envs, self.most_envs)

    def _try(self, num_envs: int, rollout_steps: int) -> Measured | None:
        """Measure a size if memory and time allow; None, and `stopped` says why, if not."""
        size = f"{num_envs} environments x {rollout_steps} steps"
        needed, free = self.predicted_bytes(num_envs, rollout_steps), self.free()
        if needed > (1 - MARGIN) * free:
            self.stopped = f"{size} would need {needed / 2**30:.2f} GiB of {free / 2**30:.2f} GiB free"
            return None
        if self.rows:
            last = self.rows[-1]
            growth = max(1.0, num_envs * rollout_steps / (last.num_envs * last.rollout_steps))
            if self.clock() + UPDATES * last.seconds_per_update * growth > self._began + self.seconds:
                self.stopped = f"{size} would take the search beyond {self.seconds:g} s"
                return None
        try:
            row = self.measure(num_envs, rollout_steps)
        except MemoryError:
            self.stopped = f"{size} do not fit into memory"
            return None
        self.rows.append(row)
        self.report(row)
        return row

    def predicted_bytes(self, num_envs: int, rollout_steps: int) -> int:
        """Memory that a size will take: on a line through the two largest measured, over the bytes of the arrays.

        The line never rises slower than the arrays themselves do.
        """
        arrays = self.array_bytes(num_envs, rollout_steps)
        points = sorted({self.array_bytes(r.num_envs, r.rollout_steps): r.num_bytes for r in self.rows}.items())
        if not points:
            return arrays
        x, y = points[-1]
        x0, y0 = points[-2] if len(points) > 1 else (0, 0)
        return round(y + max(1.0, (y - y0) / (x - x0)) * (arrays - x))


def _gains(row: Measured, over: Measured) -> bool:
    return row.env_steps_per_s > over.env_steps_per_s * (1 + GAIN)
