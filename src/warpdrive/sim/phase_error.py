"""What Warp's compiler says of an author's phase, told in one sentence."""

import re
from collections.abc import Mapping
from typing import Any

import warp as wp

from warpdrive.env.environment import Env, nearest, unknown_name
from warpdrive.env.phases import Phase

__all__ = ["PhaseError", "phase_error"]

# How Warp says where a function does not compile: one such line a call, innermost last, and then what is wrong.
FAULT = re.compile(r'Error while parsing function "([^"]+)" at ([^\n]+):(\d+):\n([^\n]*)\n;')
NO_MEMBER = re.compile(r"`(\w+)` is not an attribute of '.*' \((.+)\)")
NO_NAME = re.compile(r"Referencing undefined symbol: (\w+)")
NO_FUNCTION = re.compile(r"Could not find function ([\w.]+) as a built-in or user-defined function\.")


class PhaseError(ValueError):
    """An author's phase that does not compile; the message names the phase, the file and the line."""


def phase_error(env: Env, members: Mapping[str, Any], error: Exception) -> PhaseError:
    """The error of Warp's compiler as one sentence: which phase, file and line, and what is wrong.

    Args:
        env: whose phases were compiled.
        members: name of a struct -> names of its members, of those that phases get.
        error: what Warp raised.
    """
    name = type(env).__name__
    text = str(error.args[0]) if error.args else str(error)
    faults = [fault for fault in FAULT.findall(text) if not fault[1].startswith("<warpdrive ")]
    reason = " ".join(FAULT.sub("", text).split())
    if not faults:
        return PhaseError(f"{name} does not compile: {reason}; what the compiler said stands above")
    phase, (function, file, line, source) = faults[0][0], faults[-1]
    inside = "" if function == phase else f" in {function!r}"
    return PhaseError(
        f"phase {phase!r} of {name} does not compile{inside} ({file}:{line}, `{source.strip()}`): "
        f"{_cause(env, members, reason, phase)}"
    )


def _cause(env: Env, members: Mapping[str, Any], reason: str, phase: str) -> str:
    """What Warp says is wrong, with the nearest name where there is no such name."""
    listed = (p.function for part in (env.reset, env.step, env.observe, env.scripted) for p in part)
    function = next(f for f in listed if f.__name__ == phase)
    if match := NO_MEMBER.search(reason):
        owner = re.findall(r"\w+", match[2])[-1]
        if owner in members:
            return str(unknown_name("field", match[1], members[owner]))
    if match := NO_NAME.search(reason):
        known = {*function.__code__.co_varnames, *function.__globals__}
        return "; ".join(filter(None, (match[0][0].lower() + match[0][1:], nearest(match[1], known))))
    if match := NO_FUNCTION.search(reason):
        if isinstance(function.__globals__.get(match[1]), Phase):
            return f"{match[1]!r} is a phase, which cannot be called; put what several phases share in a @wp.func"
        known = {f"wp.{key}" for key in dir(wp)} if match[1].startswith("wp.") else set(function.__globals__)
        hint = nearest(match[1], known - {match[1]}) or "functions that phases call are marked with @wp.func"
        return f"there is no function {match[1]!r} that can be called here; {hint}"
    return reason.removeprefix("Error, ")
