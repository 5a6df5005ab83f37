"""One row of the comparison: warpdrive and its peers at the same work."""

import statistics
from typing import IO, Any

from rows import AGENTS, RECIPE, Row
from side import Clock, Failed, Missing, Side

__all__ = ["Contest"]

LAST = 0.1  # share of the updates whose returns count as the final ones


class Contest:
    """Has a process for each system, and keeps what they answer.

    Args:
        row: what is compared.
        num_envs: environments side by side.
        device: cpu or cuda.
        pythons: interpreters of warpdrive and of its peers.
        clock: how long may be waited.
        log: where what the systems print goes.

    Attributes:
        result: all that is known so far, plain data.
    """

    def __init__(
        self, row: Row, num_envs: int, device: str, pythons: tuple[str, str], clock: Clock, log: IO[str]
    ) -> None:
        self.row, self.num_envs, self._device = row, num_envs, device
        self._sides = {
            name: Side(name.partition(", ")[0], pythons[name != "warpdrive"], device, clock, log)
            for name in ("warpdrive", *row.peers)
        }
        self.result: dict[str, Any] = {
            "row": row.name,
            "game": row.game,
            "work": row.work,
            "num_envs": num_envs,
            "num_agents": AGENTS[row.game],
            "passes": row.passes,
            "goal": row.goals.get(device),
            "systems": {name: {} for name in self._sides},
            "ratios": {},
            "failed": {},
        }

    def builders(self) -> dict[str, Any]:
        """Of each system the function that starts it and has it compile; they may run at the same time."""
        return {name: lambda name=name: self._build(name) for name in self._sides}

    def _build(self, name: str) -> None:
        case = {
            "game": self.row.game,
            "work": self.row.work,
            "num_envs": self.num_envs,
            "device": self._device,
            "variant": name.partition(", ")[2],
        }
        self.result["systems"][name] |= self._ask(name, do="build", case=case) or {}

    def time(self, repeats: int, seconds: float) -> None:
        """Warm up, then time all systems that are there in the order A B, B A, A B and so on."""
        for name in self._present():
            self._ask(name, do="warm_up", seconds=seconds)
        names = self._present()
        rates: dict[str, list[float]] = {name: [] for name in names}
        for repeat in range(repeats):
            for name in names if repeat % 2 == 0 else reversed(names):
                answer = self._ask(name, do="measure")
                if answer is not None:
                    rates[name].append(answer["env_steps"] / answer["seconds"])
        for name in names:
            facts = self._ask(name, do="facts")
            if facts is None or len(rates[name]) < repeats:
                continue
            rate = statistics.median(rates[name])
            self.result["systems"][name] |= {
                "env_steps_per_s": rate,
                "agent_steps_per_s": rate * AGENTS[self.row.game],
                "rates": rates[name],
                "facts": facts,
            }
        self._compare()

    def _compare(self) -> None:
        rates = {n: s["env_steps_per_s"] for n, s in self.result["systems"].items() if "env_steps_per_s" in s}
        ours = rates.pop("warpdrive", None)
        if ours is not None:
            self.result["ratios"] = {name: ours / rate for name, rate in rates.items()}

    def learn(self, seeds: int, updates: int) -> None:
        """Returns after equally many steps, from several seeds, alternately; variants of a peer learn the same."""
        names = [name for name in self._present() if "," not in name]
        finals: dict[str, list[float]] = {name: [] for name in names}
        times: dict[str, list[float]] = {name: [] for name in names}
        for seed in range(seeds):
            for name in names if seed % 2 == 0 else reversed(names):
                answer = self._ask(name, do="learn", seed=seed, updates=updates)
                final = None if answer is None else final_return(answer["returns"])
                if answer is not None and final is not None:
                    finals[name].append(final)
                    times[name].append(answer["seconds"])
        self.result["learning"] = {
            "seeds": seeds,
            "updates": updates,
            "env_steps": updates * self.num_envs * RECIPE["rollout_steps"],
            "finals": finals,
            "seconds": times,
        }

    def _ask(self, name: str, **request: Any) -> dict[str, Any] | None:
        """An answer, or None if there is none: then the system takes no further part in this row."""
        if name in self.result["failed"]:
            return None
        try:
            return self._sides[name].ask(**request)
        except (Missing, Failed) as error:
            self.result["failed"][name] = str(error)
            return None

    def _present(self) -> list[str]:
        return [name for name in self._sides if name not in self.result["failed"]]

    def close(self) -> None:
        """End the processes."""
        for side in self._sides.values():
            side.close()


def final_return(curve: list[float | None]) -> float | None:
    """Mean return over the last updates in which episodes ended."""
    last = [x for x in curve[-max(1, round(LAST * len(curve))) :] if x is not None]
    return statistics.mean(last) if last else None
