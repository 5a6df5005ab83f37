"""Phases: the functions of a step, each written for one agent or for one environment."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

__all__ = ["Phase", "per_agent", "per_env"]


@dataclass(frozen=True)
class Phase:
    """A function and how it is run: for each agent, each agent of one group, or each environment."""

    function: Callable[..., None]
    kind: str  # "agent" or "env"
    group: str | None = None

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    def __call__(self, *args: Any) -> None:
        """Refuse: a phase is run by a simulator."""
        raise TypeError(
            f"phase {self.name!r} cannot be called; list it in an environment's reset, step or observe, and put "
            "what several phases share in a @wp.func"
        )


def _phase(function: Callable[..., None], kind: str, group: str | None) -> Phase:
    if isinstance(function, Phase):
        raise TypeError(f"phase {function.name!r} is marked twice; take one of wd.per_agent and wd.per_env away")
    arguments = {"env": ("s", "env"), "agent": ("s", "env", "agent" if group is None else "i")}[kind]
    found = list(inspect.signature(function).parameters)
    if len(found) != len(arguments):
        raise TypeError(f"phase {function.__name__!r} must take ({', '.join(arguments)}), got ({', '.join(found)})")
    return Phase(function, kind, group)


@overload
def per_agent(what: Callable[..., None]) -> Phase: ...
@overload
def per_agent(what: str) -> Callable[[Callable[..., None]], Phase]: ...
def per_agent(what: Callable[..., None] | str) -> Phase | Callable[[Callable[..., None]], Phase]:
    """Mark a function as a phase for each agent.

    `@wd.per_agent` over `f(s, env, agent)` runs it for the agents of all groups; `@wd.per_agent("runners")` over
    `f(s, env, i)` for the agents of one group, counted within it. In one phase an agent writes only what is its own,
    and reads only what no other agent writes in that phase; between phases all agents wait for each other.
    """
    if isinstance(what, str):
        return lambda function: _phase(function, "agent", what)
    return _phase(what, "agent", None)


def per_env(function: Callable[..., None]) -> Phase:
    """Mark a function `f(s, env)` as a phase that runs once for each environment."""
    return _phase(function, "env", None)
