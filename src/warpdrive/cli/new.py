"""`warpdrive new`: a folder with a small environment that works, to change into one's own."""

import importlib.util
import keyword
import re
from collections.abc import Sequence
from pathlib import Path

import jinja2

from warpdrive.cli.options import Parser

__all__ = ["new"]

FILES = {"env.py": "{name}.py", "test_env.py": "test_{name}.py", "config.yaml": "config.yaml"}


def new_options(name: str) -> None:
    """What is made.

    Args:
        name: of the environment and its folder: small letters, digits and underscores, as in my_env.
    """


def new(args: Sequence[str]) -> int:
    """Write an environment, its test and a run configuration into a new folder, and say how to go on."""
    parser = Parser(prog="warpdrive new", description="Write a small environment that works, to change into your own.")
    parser.add_function_arguments(new_options, None, as_positional=True)
    if "-h" in args or "--help" in args or not args:
        parser.print_help()
        return 0 if args else 2
    path = Path(parser.parse(args).name)
    name = path.name
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        raise ValueError(
            "an environment's name is made of small letters, digits and single underscores, as in my_env, and is no "
            f"word of Python's; got {name!r}"
        )
    if path.exists():
        raise ValueError(f"{path} is already there; choose another name, or remove it first")
    if importlib.util.find_spec(name) is not None:
        raise ValueError(f"Python has a module {name!r} already, which the new one would hide; choose another name")
    title = "".join(word.capitalize() for word in name.split("_"))
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("warpdrive.cli", "template"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    texts = {
        file.format(name=name): templates.get_template(f"{template}.jinja").render(name=name, title=title)
        for template, file in FILES.items()
    }
    path.mkdir(parents=True)
    for file, text in texts.items():
        (path / file).write_text(text, encoding="utf-8")
    print(f"{path / name}.py is an environment that works: change it into yours, and test and train it with")
    print(f"  pytest {path}")
    print(f"  warpdrive train --config {path / 'config.yaml'}")
    return 0
