"""What an examination has found, for people and for programs."""

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["CAUSES", "KINDS", "Fault", "Report"]

# kind -> what is examined, and what usually causes a fault of this kind
KINDS = {
    "race": "no agent touches what another writes in the same phase",
    "lost-update": "no two agents write the same element in one phase",
    "out-of-bounds": "nothing outside an array is read or written",
    "other-environment": "no environment reads or writes another",
    "num-envs": "results do not depend on the number of environments",
    "simulator-field": "members of the simulator are only read",
    "schedule": "step by step and phase by phase give the same bits",
    "leak": "nothing of an episode survives a reset",
    "termination": "an episode begins with agents in it and nothing ended",
    "repeatability": "the same seed, or a saved state, gives the same bits",
    "randomness": "random numbers come from wd.random",
    "not-finite": "fields, rewards and observations are finite",
    "obs-bounds": "observations lie within obs_low and obs_high",
    "reward-after-leaving": "agents that have left get no reward",
    "mask": "masks leave every agent something to do",
    "device": "the GPU computes what the CPU computes",
}
CAUSES = {
    "race": "the phase reads or writes a neighbour's element that the neighbour writes in the same phase; split it in "
    "two phases, or read from a field that the phase before has written",
    "lost-update": "several agents add to, or set, one element; on a GPU all but one of these writes may be lost and "
    "sums depend on the order; let each agent write its own element, and gather them in a further phase",
    "out-of-bounds": "an index runs past the array: agent + 1 at the last agent, a feature beyond Group.obs, an index "
    "of -1 for 'nobody', or an index within a group taken for one among all agents",
    "other-environment": "the first index is not the phase's own `env`",
    "num-envs": "the phase uses the length of an array's first axis (s.field.shape[0]) or s.env_offset",
    "simulator-field": "the phase writes a member that the simulator keeps; authors set reward, terminated, active and "
    "ended only",
    "schedule": "a phase's result depends on when other environments ran it: they share data",
    "leak": "no reset phase sets the field, or sets it in some cases only",
    "termination": "a field from which `terminated` or `ended` is computed is not set anew by a reset phase, or a "
    "reset phase itself ends the episode",
    "repeatability": "the phase reads something that is not in the state: a clock, an address, or memory never written",
    "randomness": "wp.rand_init begins a stream that does not depend on seed, environment, agent and step together, so "
    "numbers repeat; take rng = wd.random(s, env, agent)",
    "not-finite": "a division by zero, a root or logarithm of a negative number, acos beyond 1 by rounding, or growth "
    "without limit",
    "obs-bounds": "the quantity leaves the range it was scaled for, or obs_low and obs_high are too narrow",
    "reward-after-leaving": "the phase does not ask s.active (or s.alive) before it gives a reward; the simulator sets "
    "it to 0 in the end, but what was meant is lost",
    "mask": "every choice of one head is forbidden; leave at least one, for instance 'do nothing'",
    "device": "a result that rounding decides (a comparison of nearly equal numbers, an angle at its wrap), a race, or "
    "native code that differs between the devices",
}


@dataclass(frozen=True)
class Fault:
    """The first occurrence of one kind of fault in one phase and field.

    Attributes:
        kind: one of KINDS.
        phase: name of the phase, or of the reset phases together.
        field: name of the field; a group's as "group.obs".
        env: the environment; None where it is all of them.
        agent: index among all agents; None where it is no single one.
        step: the step of the examination from 1; 0 while environments reset.
        message: what happened, in one sentence.
    """

    kind: str
    phase: str
    field: str
    env: int | None
    agent: int | None
    step: int
    message: str

    @property
    def cause(self) -> str:
        """What usually causes it."""
        return CAUSES[self.kind]

    def __str__(self) -> str:
        place = [f"phase {self.phase!r}", f"field {self.field!r}"]
        place += [f"environment {self.env}"] if self.env is not None else []
        place += [f"agent {self.agent}"] if self.agent is not None else []
        return f"{self.kind}: {', '.join(place)}, step {self.step}: {self.message}. Usual cause: {self.cause}."


@dataclass
class Report:
    """What was examined, and what was found.

    Attributes:
        env: name of the environment's class.
        num_envs, num_agents, steps: how much of it was run.
        devices: on which devices.
        faults: the faults, in the order they were found.
        notes: what is no fault, but worth knowing.
        examined: kinds that were looked for.
        seconds: time it took.
    """

    env: str
    num_envs: int
    num_agents: int
    steps: int
    devices: list[str] = field(default_factory=lambda: ["cpu"])
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    examined: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def kinds(self) -> set[str]:
        """Kinds of the faults found."""
        return {fault.kind for fault in self.faults}

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain types, for JSON."""
        faults = [asdict(fault) | {"cause": fault.cause} for fault in self.faults]
        return {"ok": self.ok} | asdict(self) | {"faults": faults}

    def __str__(self) -> str:
        head = f"{self.env}: {'no faults' if self.ok else f'{len(self.faults)} faults'} in {self.steps} steps"
        return "\n".join([head, *map(str, self.faults), *(f"note: {note}" for note in self.notes)])
