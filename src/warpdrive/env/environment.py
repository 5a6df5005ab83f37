"""What an environment is: its groups of agents, its parameters and the phases of its step."""

import difflib
import inspect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from warpdrive.env.phases import Phase
from warpdrive.env.spaces import ActionSpace, Box, MultiDiscrete
from warpdrive.env.state import State, unfit

__all__ = ["Env", "Group", "View", "nearest", "positive_int", "require_positive", "require_script", "unknown_name"]

RESERVED = ("random", "trained")  # names of policies that no script may have


def positive_int(name: str, value: Any) -> int:
    """Return `value` if it is a positive integer, else raise a ValueError that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return value


def require_positive(**values: float) -> None:
    """Raise a ValueError that names the argument unless all are positive, finite numbers."""
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive, got {value!r}")


def unknown_name(what: str, name: str, known: Iterable[str]) -> ValueError:
    """A ValueError for a name that does not exist, with the nearest that does."""
    known = sorted(known)
    hint = nearest(name, known) or f"known: {', '.join(known) or 'none'}"
    return ValueError(f"unknown {what} {name!r}; {hint}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The question whether the most similar of the known names was meant, or "" if none is similar."""
    near = difflib.get_close_matches(name, sorted(known), 1, 0.5)
    return f"did you mean {near[0]!r}?" if near else ""


def require_script(env: "Env", group: str, policy: str) -> None:
    """Raise a ValueError unless the group is there and has a scripted policy of this name."""
    if group not in env.groups:
        raise unknown_name("group", group, env.groups)
    if policy not in env.scripts[group]:
        raise unknown_name(f"scripted policy of {group!r}:", policy, env.scripts[group])


@dataclass(frozen=True)
class Group:
    """A set of agents with one observation and one action space.

    Args:
        count: number of agents in each environment.
        obs: number of features that one agent observes.
        action: what an agent may do: Discrete, MultiDiscrete or Box.
        mask: whether phases fill `s.group.mask[env, i, choice]` (uint8, 1 is allowed), one a choice of each head.
        float32: keep observations in float32 also where the policy computes in bf16 (large or finely varying values).
        obs_low, obs_high: least and greatest value of every feature, which `warpdrive check` holds you to; None: none.
    """

    count: int
    obs: int
    action: ActionSpace
    mask: bool = False
    float32: bool = False
    obs_low: float | None = None
    obs_high: float | None = None

    def __post_init__(self) -> None:
        positive_int("Group.count", self.count)
        positive_int("Group.obs", self.obs)
        if not isinstance(self.action, MultiDiscrete | Box):
            raise ValueError(f"Group.action must be wd.Discrete, wd.MultiDiscrete or wd.Box, got {self.action!r}")
        if self.mask and isinstance(self.action, Box):
            raise ValueError("Group.mask is for discrete actions; a wd.Box action cannot be masked")
        for name in ("obs_low", "obs_high"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if value is not None and not number:
                raise ValueError(f"Group.{name} must be a finite number or None, got {value!r}")
        if self.obs_low is not None and self.obs_high is not None and self.obs_low > self.obs_high:
            raise ValueError(f"Group.obs_low must not be above obs_high, got {self.obs_low!r} and {self.obs_high!r}")


@dataclass(frozen=True)
class View:
    """How a replay draws an environment: which fields hold place and direction, and the rectangle shown.

    Args:
        position: name of a `PerAgent[wp.vec2]` field.
        low, high: corners of the rectangle shown, in the units of the position.
        heading: name of a `PerAgent[float]` field in radians, or None.
        radius: of the discs drawn, in the same units; None: chosen from the rectangle.
    """

    position: str
    low: tuple[float, float]
    high: tuple[float, float]
    heading: str | None = None
    radius: float | None = None


class Env:
    """Base of an author's environment: a description only, of which a Simulator runs many copies.

    Class attributes (or attributes set before `super().__init__`):
        state: the State subclass that holds the simulation's data.
        reset, step, observe: the phases that begin an episode, advance it, and write the observations.
        scripted: phases `@wd.per_agent("group")` each of which is a policy of that group, known by its function's name:
            it writes the actions of one agent, as it sees fit from the whole state.

    Args:
        groups: name -> Group, one for each `wd.Agents` member of the state, in the order in which agents stand.
        params: value of each `wd.Param` member of the state.
        sizes: length of each named axis of the state's fields.
        episode_length: steps after which an episode is truncated; None: never.

    Raises:
        ValueError: a name, count or phase that does not fit; the sentence says which.
    """

    state: type[State]
    reset: tuple[Phase, ...] = ()
    step: tuple[Phase, ...] = ()
    observe: tuple[Phase, ...] = ()
    scripted: tuple[Phase, ...] = ()
    arguments: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> "Env":
        """Remember the arguments, so that a checkpoint can make the environment again."""
        env = super().__new__(cls)
        signature = inspect.signature(cls.__init__)
        rest = [name for name, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD]
        if not rest:
            for name in kwargs:
                if name not in signature.parameters:
                    raise unknown_name(f"argument of {cls.__name__}", name, list(signature.parameters)[1:])
        bound = signature.bind(env, *args, **kwargs)
        bound.apply_defaults()
        env.arguments = {k: v for k, v in list(bound.arguments.items())[1:]}
        for key in rest:
            env.arguments |= env.arguments.pop(key)
        return env

    def __init__(
        self,
        *,
        groups: Mapping[str, Group],
        params: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
        episode_length: int | None = None,
    ) -> None:
        self.groups = dict(groups)
        self.params = dict(params or {})
        self.sizes = dict(sizes or {})
        self.episode_length = None if episode_length is None else positive_int("episode_length", episode_length)
        self._validate()

    @property
    def num_agents(self) -> int:
        """Agents of all groups together, N."""
        return sum(group.count for group in self.groups.values())

    @property
    def first_agent(self) -> dict[str, int]:
        """Index of each group's first agent among all agents."""
        first, start = {}, 0
        for name, group in self.groups.items():
            first[name], start = start, start + group.count
        return first

    @property
    def scripts(self) -> dict[str, dict[str, Phase]]:
        """Scripted policies of each group: group -> name -> phase."""
        return {name: {p.name: p for p in self.scripted if p.group == name} for name in self.groups}

    def view(self) -> View | None:
        """How a replay draws this environment; None: returns alone are shown."""
        return None

    def _validate(self) -> None:
        name = type(self).__name__
        state = getattr(self, "state", None)
        if not (isinstance(state, type) and issubclass(state, State)):
            raise ValueError(f"{name}.state must be a subclass of wd.State, got {state!r}")
        fields = state.fields
        _same_names(f"group of {name}", self.groups, [k for k, f in fields.items() if f.kind == "group"])
        _same_names(f"parameter of {name}", self.params, [k for k, f in fields.items() if f.kind == "param"])
        _same_names(f"size of {name}", self.sizes, {a for f in fields.values() for a in f.axes if isinstance(a, str)})
        if not self.groups:
            raise ValueError(f"{name} has no group of agents; annotate one in its state with wd.Agents")
        for key, size in self.sizes.items():
            positive_int(f"size {key!r} of {name}", size)
        for key, value in self.params.items():
            if wanted := unfit(fields[key].dtype, value):
                raise ValueError(f"parameter {key!r} of {name} must be {wanted}, got {value!r}")
        for key, group in self.groups.items():
            if not isinstance(group, Group):
                raise ValueError(f"group {key!r} of {name} must be a wd.Group, got {group!r}")
        for part in ("reset", "step", "observe", "scripted"):
            for phase in getattr(self, part):
                if not isinstance(phase, Phase):
                    raise ValueError(
                        f"{name}.{part} must list phases, marked with @wd.per_agent or @wd.per_env; got {phase!r}"
                    )
                if phase.group is not None and phase.group not in self.groups:
                    raise unknown_name(f"group in phase {phase.name!r} of {name}:", phase.group, self.groups)
        for phase in self.scripted:
            self._validate_script(phase)
        if not self.observe:
            raise ValueError(f"{name}.observe is empty; list the phases that write the observations")

    def _validate_script(self, phase: Phase) -> None:
        what = f"{type(self).__name__}.scripted: policy {phase.name!r}"
        if phase.group is None:
            raise ValueError(f'{what} must act for the agents of one group; mark it with @wd.per_agent("group")')
        if phase.name in RESERVED:
            raise ValueError(f"{what} may not be called {' or '.join(RESERVED)}, which mean other policies; rename it")
        if sum((p.group, p.name) == (phase.group, phase.name) for p in self.scripted) > 1:
            raise ValueError(f"{what} is listed twice for group {phase.group!r}; give each policy a name of its own")


def _same_names(what: str, given: Mapping[str, Any], wanted: Iterable[str]) -> None:
    wanted = list(wanted)
    for name in given:
        if name not in wanted:
            raise unknown_name(what, name, wanted)
    for name in wanted:
        if name not in given:
            raise ValueError(f"{what} {name!r} is declared in the state but not given")
