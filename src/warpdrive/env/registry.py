"""From the name of an environment to its class, and from an instance to what makes it again."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

from warpdrive.env.environment import Env, unknown_name

__all__ = ["describe", "load_class", "rebuild"]


def load_class(name: str) -> type[Env]:
    """The environment class that `module:Class` or `path/to/file.py:Class` names.

    Raises:
        ValueError: no such module, file or class, or not a subclass of wd.Env.
    """
    module_name, _, class_name = name.rpartition(":")
    if not module_name:
        raise ValueError(f"environment {name!r} must be given as module:Class or file.py:Class")
    if module_name.endswith(".py"):
        path = Path(module_name).resolve()
        if not path.is_file():
            raise ValueError(f"environment {name!r}: there is no file {path}")
        key = f"warpdrive_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
        if key not in sys.modules:
            spec = importlib.util.spec_from_file_location(key, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[key] = module
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[key]
                raise
        module = sys.modules[key]
    else:
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not module_name.startswith(error.name):
                raise
            raise ValueError(f"environment {name!r}: there is no module {module_name!r}") from None
    classes = {
        key: value
        for key, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, Env) and value is not Env
    }
    if class_name not in classes:
        raise unknown_name(f"environment in {module_name}:", class_name, classes)
    return classes[class_name]


def describe(env: Env) -> dict[str, Any]:
    """Name and constructor arguments from which `rebuild` makes an equal environment."""
    cls = type(env)
    module = sys.modules[cls.__module__]
    source = getattr(module, "__file__", None)
    by_file = cls.__module__ == "__main__" or cls.__module__.startswith("warpdrive_user_")
    if by_file and source is not None:
        name = f"{Path(source).resolve()}:{cls.__qualname__}"
    else:
        name = f"{cls.__module__}:{cls.__qualname__}"
    return {"name": name, "arguments": dict(env.arguments)}


def rebuild(description: dict[str, Any]) -> Env:
    """The environment that `describe` described."""
    return load_class(description["name"])(**description["arguments"])
