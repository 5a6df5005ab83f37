"""What the source of a phase, and of all functions it calls, says: generators of its own, atomic additions."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["atomic_fields", "own_generators"]


def _functions(function: FunctionType) -> Iterator[tuple[FunctionType, ast.AST]]:
    """A phase's function and all it calls whose source is there, each with its syntax tree."""
    waiting, seen = [function], {function}
    while waiting:
        current = waiting.pop()
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(current)))
        except (OSError, TypeError, SyntaxError):
            continue
        yield current, tree
        scope = dict(current.__globals__)
        cells = zip(current.__code__.co_freevars, current.__closure__ or (), strict=True)
        for name, cell in cells:
            try:
                scope[name] = cell.cell_contents
            except ValueError:  # not yet filled
                continue
        for node in ast.walk(tree):
            found = _resolve(node.func, scope) if isinstance(node, ast.Call) else None
            called = getattr(found, "func", None)
            if not isinstance(called, FunctionType) or called in seen:
                continue
            seen.add(called)
            if called.__module__ != "warpdrive.env.functions":
                waiting.append(called)


def _resolve(node: ast.AST, scope: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _resolve(node.value, scope)
        return getattr(owner, node.attr, None) if isinstance(owner, ModuleType) else None
    return None


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def own_generators(function: FunctionType, params: set[str]) -> list[str]:
    """Where a phase begins a random stream of its own: "file:line" of each call of wp.rand_init.

    One that is seeded with a parameter is meant to be the same each time, and one seeded from wd.random is keyed.
    """
    found = []
    for current, tree in _functions(function):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node) == "rand_init":
                inner = {_called(n) for n in ast.walk(node) if isinstance(n, ast.Call)}
                named = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
                if not inner & {"random", "stream"} and not named & params:
                    line = current.__code__.co_firstlineno + node.lineno - 1
                    found.append(f"{current.__code__.co_filename}:{line}")
    return found


def atomic_fields(function: FunctionType) -> set[str]:
    """Names of arrays that a phase adds to atomically (wp.atomic_add and its like, or `x[...] += y`)."""
    found = set()
    for _, tree in _functions(function):
        for node in ast.walk(tree):
            array: ast.AST | None = None
            if isinstance(node, ast.Call) and _called(node).startswith("atomic_") and node.args:
                array = node.args[0]
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
                array = node.target.value
            if isinstance(array, ast.Attribute):
                found.add(array.attr)
            elif isinstance(array, ast.Name):
                found.add("*")  # an argument: it may be any
    return found
