"""Action spaces: what an agent of a group may do in one step."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ActionSpace", "Box", "Discrete", "MultiDiscrete"]

LARGEST = 3.4028234e38  # finite number of float32


def _counts(name: str, counts: tuple[int, ...]) -> tuple[int, ...]:
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{name} needs positive integers as numbers of choices, got {count!r}")
    return counts


@dataclass(frozen=True, init=False)
class MultiDiscrete:
    """Several choices at once; the action is int32 `[env, agent, head]`, head h from 0 to `heads[h] - 1`."""

    heads: tuple[int, ...]

    def __init__(self, *heads: int) -> None:
        if not heads:
            raise ValueError("MultiDiscrete needs at least one number of choices, e.g. MultiDiscrete(21, 21)")
        object.__setattr__(self, "heads", _counts("MultiDiscrete", heads))

    @property
    def size(self) -> int:
        """Numbers in one agent's action: one a head."""
        return len(self.heads)

    @property
    def num_outputs(self) -> int:
        """Numbers a policy gives for one agent: a logit for each choice of each head."""
        return sum(self.heads)


class Discrete(MultiDiscrete):
    """One choice of `n`; the action is int32 `[env, agent, 0]`, from 0 to n - 1."""

    def __init__(self, n: int) -> None:
        super().__init__(*_counts("Discrete", (n,)))

    @property
    def n(self) -> int:
        """Number of choices."""
        return self.heads[0]


@dataclass(frozen=True, init=False)
class Box:
    """`size` continuous numbers within bounds; the action is float32 `[env, agent, k]`.

    Args:
        low, high: finite bounds, one number for all components or one each; low < high.
        size: number of components; may be left out where a bound is a sequence.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __init__(self, low: float | Sequence[float], high: float | Sequence[float], size: int | None = None) -> None:
        lengths = {len(b) for b in (low, high) if isinstance(b, Sequence)} | ({size} if size is not None else set())
        if not lengths:
            lengths = {1}
        if len(lengths) > 1 or min(lengths) < 1:
            raise ValueError(f"Box needs bounds of one positive length, got low={low!r}, high={high!r}, size={size!r}")
        (length,) = lengths
        lows = tuple(map(float, low)) if isinstance(low, Sequence) else (float(low),) * length
        highs = tuple(map(float, high)) if isinstance(high, Sequence) else (float(high),) * length
        for a, b in zip(lows, highs, strict=True):
            if not -LARGEST <= a < b <= LARGEST:
                raise ValueError(f"Box needs finite bounds with low < high, got low={low!r}, high={high!r}")
        object.__setattr__(self, "low", lows)
        object.__setattr__(self, "high", highs)

    @property
    def size(self) -> int:
        """Numbers in one agent's action."""
        return len(self.low)

    @property
    def num_outputs(self) -> int:
        """Numbers a policy gives for one agent: the mean of each component."""
        return len(self.low)


ActionSpace = MultiDiscrete | Box
