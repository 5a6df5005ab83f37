"""Options of the command line, made from the signatures of an environment, the algorithms and the policies."""

import difflib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jsonargparse
import yaml

from warpdrive.env.environment import Env, unknown_name
from warpdrive.env.registry import load_class
from warpdrive.learn.a2c import A2C
from warpdrive.learn.ppo import PPO
from warpdrive.policy.mlp import MLP

__all__ = [
    "ALGORITHMS",
    "CONFIGS",
    "Parser",
    "algorithm_of",
    "configuration",
    "find_environment",
    "mlp",
    "underscored",
    "value_of",
]

CONFIGS = Path(__file__).parent.parent / "zoo" / "configs"
ALGORITHMS = {"PPO": PPO, "A2C": A2C}
KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "dict[str, str]": "names by group, such as '{runners: taggers}'",
    "list[str]": "names, such as '[taggers]'",
    "list[int]": "a list of whole numbers, such as '[64, 64]'",
    "tuple[int, ...]": "several whole numbers",
}


class Parser(jsonargparse.ArgumentParser):
    """A parser whose errors are exceptions with one sentence, with the nearest name for an unknown option."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(exit_on_error=False, **kwargs)

    def parse(self, args: Sequence[str]) -> jsonargparse.Namespace:
        """Parse, refusing unknown options by name. Dashes and underscores in names mean the same."""
        known = {option for action in self._actions for option in action.option_strings}
        args = [underscored(arg) for arg in args]
        for arg in args:
            name = arg.split("=", 1)[0]
            if name.startswith("--") and name not in known and not name.startswith(("--assign.", "--opponents.")):
                near = difflib.get_close_matches(name, sorted(known), 1, 0.6)
                raise ValueError(f"unknown option {name}" + (f"; did you mean {near[0]}?" if near else ""))
        try:
            options = self.parse_args(args)
        except jsonargparse.ArgumentError as error:
            raise jsonargparse.ArgumentError(None, _plain_words(str(error))) from None
        target = Path(options.get("json") or "")
        if not target.parent.is_dir():  # said before the work, not after it
            raise ValueError(f"--json: there is no folder {str(target.parent)!r} to write {target.name!r} into")
        return options


def _plain_words(text: str) -> str:
    """What jsonargparse says of a value that does not fit, as one sentence; other messages as they are."""
    text = re.sub(r"\s+", " ", text)
    kinds_of_it = r"(?:.*Subtypes: \[(.*)\] Errors: .*|Expected an? (.*)\. )"
    found = re.search(rf'Parser key "([^"]+)": {kinds_of_it}(?:Given|Got) value: (.*)$', text)
    if not found:
        return text
    key, several, one, value = found.groups()
    kinds = [one] if one else re.split(r", (?![^\[]*\])", several)
    return f"{key} must be {' or '.join(_kind(kind) for kind in kinds if 'NoneType' not in kind)}, got {value}"


def _kind(name: str) -> str:
    choices = re.findall(r"'([^']*)'", name.removeprefix("typing.Literal")) if "Literal" in name else []
    if choices:
        return "one of " + ", ".join(choices) if len(choices) > 1 else repr(choices[0])
    return KINDS.get(re.sub(r"<class '(.*)'>", r"\1", name), name)


def underscored(arg: str) -> str:
    """`--num-envs=3` as `--num_envs=3`; what is no option stays."""
    if not arg.startswith("--"):
        return arg
    name, equals, value = arg.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


def value_of(option: str, args: Sequence[str]) -> str | None:
    """What `--option VALUE` or `--option=VALUE` says, before all is parsed; None where it is not among `args`."""
    for i, arg in enumerate(args):
        if arg.startswith(option + "="):
            return arg.partition("=")[2]
        if arg == option and i + 1 < len(args):
            return args[i + 1]
    return None


def mlp(
    hidden: tuple[int, ...] | list[int] = (64, 64),
    activation: Literal["relu", "tanh"] = "relu",
    normalize_obs: bool = False,
    init_log_std: float = -0.5,
    separate_value: bool = False,
) -> MLP:
    """A multilayer perceptron for actor and critic.

    Args:
        hidden: widths of the hidden layers.
        activation: of the hidden layers.
        normalize_obs: whether the policy normalises observations by their running mean and variance.
        init_log_std: logarithm of the standard deviation of continuous actions at the start.
        separate_value: whether the critic has hidden layers of its own: slower, but steadier where returns are large
            and would drown the policy's gradients in shared layers.
    """
    return MLP(
        *hidden,
        activation=activation,
        normalize_obs=normalize_obs,
        init_log_std=init_log_std,
        separate_value=separate_value,
    )


def configuration(name: str) -> Path:
    """The file of a bundled configuration.

    Raises:
        ValueError: there is none of this name; the sentence has the nearest.
    """
    path = CONFIGS / f"{name}.yaml"
    if not path.is_file():
        raise unknown_name("configuration", name, [p.stem for p in CONFIGS.glob("*.yaml")])
    return path


def find_environment(args: Sequence[str], command: str) -> tuple[type[Env], dict[str, Any], list[str]]:
    """What to train, from the first word or the `--config` file.

    Returns:
        The environment's class, the settings that are the defaults here, and the remaining arguments.
    """
    rest = list(args)
    settings: dict[str, Any] = {}
    word = rest.pop(0) if rest and not rest[0].startswith("-") else None
    for i, arg in enumerate(rest):
        if arg == "--config" or arg.startswith("--config="):
            value = arg.partition("=")[2] if "=" in arg else (rest[i + 1] if i + 1 < len(rest) else "")
            del rest[i : i + (1 if "=" in arg else 2)]
            if not os.path.isfile(value):
                raise ValueError(f"--config: there is no file {value!r}")
            settings = _beside(_read_yaml(Path(value)), Path(value).parent)
            break
    if word is not None and ":" not in word:
        settings = _merged(_read_yaml(configuration(word)), settings)
    elif word is not None:
        settings = {**settings, "name": word}
    if "name" not in settings:
        raise ValueError(
            f"name what to {command}: a bundled configuration (`warpdrive list`), file.py:Class, or --config FILE"
        )
    return load_class(settings["name"]), settings, rest


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a YAML file: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a mapping of settings, got {type(content).__name__}")
    return content


def _beside(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Settings of a file in `folder`, in which the environment's file may be named as seen from there."""
    file, _, class_name = str(settings.get("name", "")).rpartition(":")
    if file.endswith(".py") and (folder / file).is_file():
        return settings | {"name": f"{folder / file}:{class_name}"}
    return settings


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result


def algorithm_of(name: str) -> type[PPO] | type[A2C]:
    """The algorithm of this name.

    Raises:
        ValueError: an unknown name; the sentence has the nearest.
    """
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]
