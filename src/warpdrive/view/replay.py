"""Write one recorded episode as a single HTML page that plays it back, from disk and without a network."""

import base64
import math
import os
import secrets
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

__all__ = ["Episode", "write_replay"]


@dataclass(frozen=True)
class Episode:
    """One recorded episode of one environment: T steps give T + 1 frames, the first of which is the start.

    Agents stand group after group, N in all. In the page x grows to the right and y upwards, and headings turn
    anticlockwise from the x axis.

    Attributes:
        title: Heading of the page.
        groups: Number of agents of each group, by name.
        position: Where every agent is, (T + 1, N, 2). What lies outside the rectangle is drawn on its edge.
        active: False once an agent has left, (T + 1, N).
        reward: Reward of each step, (T, N).
        low: Lower left corner of the rectangle shown.
        high: Upper right corner of the rectangle shown.
        heading: Where every agent looks, in radians, (T + 1, N); None draws agents without a heading.
        radius: Radius of an agent in units of the world; None chooses one from the rectangle and N.
        info: What the page tells about the episode, by label: environment, checkpoint, seed.
    """

    title: str
    groups: dict[str, int]
    position: np.ndarray
    active: np.ndarray
    reward: np.ndarray
    low: tuple[float, float]
    high: tuple[float, float]
    heading: np.ndarray | None = None
    radius: float | None = None
    info: dict[str, str] = field(default_factory=dict)


def write_replay(episode: Episode, path: Path) -> None:
    """Write the page of an episode to a path, whose folder is made where it is missing.

    The page appears whole or not at all: it is written next to the path and then renamed, so that a browser that
    reloads, or a run that dies, never meets half a page.

    Raises:
        ValueError: The episode contradicts itself or holds a value that cannot be drawn.
    """
    _check(episode)
    page = _render(episode).encode()
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile: its files are private to the user, and a rename would leave the page so.
    partial = path.with_name(f".replay-{secrets.token_hex(8)}.tmp")
    try:
        with partial.open("xb") as file:
            file.write(page)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _render(episode: Episode) -> str:
    """Fill the template."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    source = files("warpdrive.view").joinpath("replay.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        title=episode.title, groups=episode.groups, info=episode.info, data=_encode(episode)
    )


def _encode(episode: Episode) -> dict[str, Any]:
    """Return what the page's script reads, as JSON can hold it: little-endian arrays in base64.

    Numbers as JSON text would take about four times the room. The screen sets what precision is worth keeping.
    """
    low, high = np.asarray(episode.low, float), np.asarray(episode.high, float)
    # Positions in 1/65535 of the rectangle: a tenth of a pixel on a view 6,500 pixels wide.
    place = np.rint((np.clip(episode.position, low, high) - low) / (high - low) * 65535)
    heading = None
    if episode.heading is not None:
        # Headings in 1/256 of a turn: the tip of a tick of 20 pixels is off by a quarter of a pixel at most.
        heading = _base64(np.rint(np.mod(episode.heading / (2 * math.pi), 1.0) * 256) % 256, "u1")
    return {
        "steps": len(episode.reward),
        "agents": sum(episode.groups.values()),
        "groups": [{"name": name, "count": count} for name, count in episode.groups.items()],
        "low": low.tolist(),
        "high": high.tolist(),
        "radius": _default_radius(episode) if episode.radius is None else float(episode.radius),
        "position": _base64(place, "<u2"),
        "heading": heading,
        # One bit for each agent and frame, lowest bit first.
        "active": _base64(np.packbits(episode.active, axis=None, bitorder="little"), "u1"),
        # Rewards as they were recorded: their sums are read as numbers, so they may not drift from the trainer's.
        "reward": _base64(episode.reward, "<f4"),
    }


def _base64(array: np.ndarray, dtype: str) -> str:
    """Return the bytes of an array, in C order and of the given type, as base64 text."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode("ascii")


def _default_radius(episode: Episode) -> float:
    """Return a radius that shows an agent well and leaves a crowd of N room to move."""
    width, height = (high - low for low, high in zip(episode.low, episode.high, strict=True))
    crowd = math.sqrt(width * height / sum(episode.groups.values()))
    return float(min(0.015 * min(width, height), 0.2 * crowd))


def _check(episode: Episode) -> None:
    """Raise ValueError where an episode contradicts itself or cannot be drawn."""
    if not isinstance(episode.title, str) or not episode.title.strip():
        raise ValueError(f"title must be a string that is not blank, got {episode.title!r}")
    if not isinstance(episode.groups, dict) or not episode.groups:
        raise ValueError(f"groups must map at least one name to its number of agents, got {episode.groups!r}")
    for name, count in episode.groups.items():
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"groups must have names that are strings and not blank, got {name!r}")
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise ValueError(f"groups[{name!r}] must be a positive integer, got {count!r}")
    agents = sum(episode.groups.values())
    if not isinstance(episode.position, np.ndarray) or episode.position.ndim != 3 or len(episode.position) < 2:
        shape = f"(T + 1, {agents}, 2) with T of 1 or more"
        raise ValueError(f"position must be an array of shape {shape}, got {_what(episode.position)}")
    frames = len(episode.position)
    _check_array("position", episode.position, (frames, agents, 2), "of real numbers", "fiu")
    _check_array("active", episode.active, (frames, agents), "of booleans", "b")
    _check_array("reward", episode.reward, (frames - 1, agents), "of real numbers", "fiu")
    if episode.heading is not None:
        _check_array("heading", episode.heading, (frames, agents), "of real numbers", "fiu")
    _check_corner("low", episode.low)
    _check_corner("high", episode.high)
    for low, high in zip(episode.low, episode.high, strict=True):
        if not low < high:
            raise ValueError(f"high must exceed low in x and in y, got low {episode.low} and high {episode.high}")
    if episode.radius is not None and not (_is_finite(episode.radius) and episode.radius > 0):
        raise ValueError(f"radius must be a positive number, or None to have one chosen, got {episode.radius!r}")
    if not isinstance(episode.info, dict):
        raise ValueError(f"info must map labels to texts, got {episode.info!r}")
    for label, text in episode.info.items():
        if not isinstance(label, str) or not isinstance(text, str):
            raise ValueError(f"info must map labels to texts, got {label!r}: {text!r}; turn both into strings")


def _check_array(name: str, value: object, shape: tuple[int, ...], kind: str, kinds: str) -> None:
    """Raise ValueError unless a value is an array of that shape, of one of those kinds of number, and finite."""
    if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype.kind not in kinds:
        raise ValueError(f"{name} must be an array {kind} of shape {shape}, got {_what(value)}")
    with np.errstate(over="ignore"):  # rewards are kept as float32, so they must be finite there
        finite = np.isfinite(value.astype(np.float32) if name == "reward" else value)
    if not finite.all():
        index = tuple(int(axis[0]) for axis in np.nonzero(~finite))
        raise ValueError(f"{name} must be finite, got {value[index]} at index {index}")


def _check_corner(name: str, value: object) -> None:
    """Raise ValueError unless a value is a pair of finite numbers."""
    if not isinstance(value, tuple | list) or len(value) != 2 or not all(map(_is_finite, value)):
        raise ValueError(f"{name} must be a pair of finite numbers, x and y, got {value!r}")


def _is_finite(value: object) -> bool:
    """Return whether a value is a finite real number."""
    return isinstance(value, int | float | np.integer | np.floating) and math.isfinite(value)


def _what(value: object) -> str:
    """Describe a value in an error: an array by type and shape, anything else by its type."""
    return f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
