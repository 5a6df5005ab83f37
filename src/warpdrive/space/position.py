"""Where an agent stands, read from the fields that its author has named."""

import functools
import keyword
import linecache
from typing import Any

import warp as wp

__all__ = ["Vector", "place_of"]

Vector = {1: wp.types.vector(1, float), 2: wp.vec2, 3: wp.vec3}  # dimensions -> type of a place


@functools.cache
def place_of(position: tuple[str, ...], dimensions: int) -> Any:
    """The Warp function `(s, env, agent)` of a place.

    Args:
        position: one field of vectors, or of numbers where dimensions is 1, or one field of numbers for each dimension.
        dimensions: 1, 2 or 3.
    """
    if len(position) == dimensions:
        numbers = [f"s.{name}[env, agent]" for name in position]
    else:
        numbers = [f"s.{position[0]}[env, agent][{axis}]" for axis in range(dimensions)]
    # Warp reads the source of a function, so the names of fields must stand in it.
    source = (
        "def place(s: Any, env: int, agent: int):\n"
        f"    return Vector({', '.join(f'float({number})' for number in numbers)})\n"
    )
    filename = f"<warpdrive place {' '.join(position)} {dimensions}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    scope = {"Any": Any, "Vector": Vector[dimensions], "float": float, "__name__": __name__}
    exec(compile(source, filename, "exec"), scope)
    return wp.func(scope["place"])
