"""Functions for fields whose names are known only when they are made: where an agent stands, who is in a group."""

import functools
import linecache
from typing import Any

import warp as wp

__all__ = ["Vector", "get_number", "place_of", "put_number", "range_of"]

Vector = {1: wp.types.vector(1, float), 2: wp.vec2, 3: wp.vec3}  # dimensions -> type of a place


def _written(name: str, source: str, **scope: Any) -> Any:
    """A Warp function from its source, which Warp reads: so the names of fields must stand in it."""
    filename = f"<warpdrive.space {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    known = {"Any": Any, "__name__": __name__, **scope}
    exec(compile(source, filename, "exec"), known)
    return wp.func(known[source.split("(")[0].removeprefix("def ")])


@functools.cache
def place_of(position: tuple[str, ...], dimensions: int) -> Any:
    """The Warp function `(s, env, agent)` of a place.

    Args:
        position: one field of vectors, or of numbers where dimensions is 1, or one field of numbers for each dimension.
        dimensions: 1, 2 or 3.
    """
    if len(position) == dimensions:
        numbers = [f"float(s.{name}[env, agent])" for name in position]
    else:
        numbers = [f"float(s.{position[0]}[env, agent][{axis}])" for axis in range(dimensions)]
    source = f"def place(s: Any, env: int, agent: int):\n    return Vector({', '.join(numbers)})\n"
    return _written(f"place {position} {dimensions}", source, Vector=Vector[dimensions])


@functools.cache
def range_of(group: str | None) -> Any:
    """The Warp function `(s)` of the first agent of a group (None: of all) and the one after its last."""
    if group is None:
        return _written("range of all", "def range_of_all(s: Any):\n    return int(0), s.num_agents\n")
    source = f"def range_of_group(s: Any):\n    return s.{group}.first, s.{group}.first + s.{group}.count\n"
    return _written(f"range of {group}", source)


@functools.cache
def put_number(field: str) -> Any:
    """The Warp function `(s, env, agent, slot, number)` that writes to a field of several numbers for each agent."""
    source = (
        f"def put(s: Any, env: int, agent: int, slot: int, number: int):\n    s.{field}[env, agent, slot] = number\n"
    )
    return _written(f"put {field}", source)


@functools.cache
def get_number(field: str) -> Any:
    """The Warp function `(s, env, agent, slot)` that reads such a number."""
    return _written(
        f"get {field}", f"def get(s: Any, env: int, agent: int, slot: int):\n    return s.{field}[env, agent, slot]\n"
    )
