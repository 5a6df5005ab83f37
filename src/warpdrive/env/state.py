"""What a simulation remembers: the fields of a State, declared as annotations of a class."""

import inspect
import keyword
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
import warp as wp

__all__ = ["Agents", "Field", "Param", "PerAgent", "PerEnv", "State", "unfit"]

SCALARS = (
    *(wp.bool, wp.int8, wp.uint8, wp.int16, wp.int32, wp.int64),
    *(wp.float16, wp.bfloat16, wp.float32, wp.float64),
)
MAX_EXTRA_AXES = {"agent": 2, "env": 3}  # a Warp array has at most four axes
# Warp hands the names of fields on to C++, where these mean something else (those of Python aside).
CPP_KEYWORDS = frozenset(
    """
    alignas alignof and_eq asm auto bitand bitor bool case catch char compl const constexpr const_cast decltype
    default delete do double dynamic_cast enum explicit export extern false float friend goto inline int long
    mutable namespace new noexcept not_eq nullptr operator or_eq private protected public register
    reinterpret_cast short signed sizeof static static_assert static_cast struct switch template this thread_local
    throw true typedef typeid typename union unsigned using virtual void volatile wchar_t xor xor_eq
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Field:
    """One declared field: where it lives ("agent", "env", "param" or "group"), its Warp type and extra axes."""

    kind: str
    dtype: Any = None
    axes: tuple[int | str, ...] = ()


class _Declaration:
    """`PerAgent[type]` or `PerAgent[type, axis, ...]`; an axis is a length or a name given in Env's `sizes`."""

    kind = ""

    def __class_getitem__(cls, item: Any) -> Field:
        dtype, *axes = item if isinstance(item, tuple) else (item,)
        dtype = _warp_type(dtype, cls.__name__)
        if len(axes) > MAX_EXTRA_AXES.get(cls.kind, 0):
            raise ValueError(
                f"{cls.__name__} takes at most {MAX_EXTRA_AXES.get(cls.kind, 0)} extra axes, got {len(axes)}: {axes}"
            )
        for axis in axes:
            if not (isinstance(axis, str) or (type(axis) is int and axis > 0)):
                raise ValueError(f"{cls.__name__}: an extra axis is a positive length or a name, got {axis!r}")
        return Field(cls.kind, dtype, tuple(axes))


class PerAgent(_Declaration):
    """A field with one value for each agent: `s.field[env, agent]`, or `s.field[env, agent, k]` with extra axes."""

    kind = "agent"


class PerEnv(_Declaration):
    """A field with one value for each environment: `s.field[env]`, or `s.field[env, k]` with extra axes."""

    kind = "env"


class Param(_Declaration):
    """A number that is the same everywhere and never changes: `s.field`."""

    kind = "param"


class Agents:
    """A group of agents; `s.group` has `obs`, `action`, `mask`, `reward`, `active`, `terminated`, `first`, `count`."""


def _warp_type(dtype: Any, what: str) -> Any:
    """The Warp type that `dtype` means; float is float32, int is int32, bool is one byte."""
    if dtype in (float, int, bool):
        return {float: wp.float32, int: wp.int32, bool: wp.bool}[dtype]
    if inspect.isclass(dtype) and dtype in SCALARS:
        return dtype
    if inspect.isclass(dtype) and getattr(dtype, "_wp_scalar_type_", None) in SCALARS:
        return dtype  # a vector, matrix, quaternion or transformation
    raise ValueError(
        f"{what}[...] takes float, int, bool or a Warp scalar, vector or matrix type, e.g. wp.vec2; got {dtype!r}"
    )


def unfit(dtype: Any, value: Any) -> str:
    """What a parameter of this Warp type must be, in words, if `value` is not; "" if it is."""
    shape = tuple(getattr(dtype, "_shape_", ()))
    if shape:
        try:
            array = np.array([list(row) if len(shape) > 1 else row for row in value], dtype=np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        good = array.shape == shape and bool(np.isfinite(array).all())
        return "" if good else f"finite numbers of shape {shape}"
    if dtype is wp.bool:
        return "" if isinstance(value, bool | np.bool_) else "True or False"
    number = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    if dtype in (wp.float16, wp.bfloat16, wp.float32, wp.float64):
        return "" if number and np.isfinite(float(value)) else "a finite number"
    limits = np.iinfo(wp.dtype_to_numpy(dtype))
    good = number and isinstance(value, numbers.Integral) and limits.min <= int(value) <= limits.max
    return "" if good else f"an integer from {limits.min} to {limits.max}"


# Members that the simulator gives to every state. Written by the author: reward, terminated, ended, active. Read: all.
BUILT_IN = {
    "reward": Field("agent", wp.float32),
    "terminated": Field("agent", wp.bool),
    "alive": Field("agent", wp.bool),
    "active": Field("agent", wp.bool),
    "episode_return": Field("agent", wp.float32),
    "last_return": Field("agent", wp.float32),
    "return_sum": Field("agent", wp.float32),
    "ended": Field("env", wp.bool),
    "truncated": Field("env", wp.bool),
    "over": Field("env", wp.bool),
    "step": Field("env", wp.int32),
    "clock": Field("env", wp.int32),
    "num_active": Field("env", wp.int32),
    "fresh": Field("env", wp.bool),
    "final_slot": Field("env", wp.int32),
    "final_count": Field("env", wp.int32),
    "last_length": Field("env", wp.int32),
    "length_sum": Field("env", wp.int32),
    "episodes": Field("env", wp.int32),
    "seed": Field("shared", wp.int32),
    "num_agents": Field("param", wp.int32),
    "episode_length": Field("param", wp.int32),
    "env_offset": Field("param", wp.int32),
    "num_final": Field("param", wp.int32),
    "rolling": Field("param", wp.int32),
    "counting": Field("param", wp.int32),
    "use": Field("param", wp.int32),
}


class State:
    """Base of an author's state: each annotation declares a field, found in phases as `s.name`.

    Besides the declared ones every state has: `active[env, agent]` (bool, takes part; all do when an episode begins,
    unless a reset phase sets it to False, and a step phase may let an agent in from the next step on by True),
    `terminated[env, agent]` (bool, set it to end that agent's episode by the rules), `reward[env, agent]` (float32,
    zero when a step begins), `ended[env]` (bool, set it to end the episode of the whole environment by the rules),
    `step[env]` (int32, number of the current step from 1, and 0 while the environment resets), `num_agents` and
    `episode_length`.
    """

    fields: dict[str, Field] = {}  # noqa: RUF012 - filled in for each subclass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        fields = dict(cls.fields)
        for name, annotation in inspect.get_annotations(cls, eval_str=True).items():
            if annotation is Agents:
                annotation = Field("group")
            if not isinstance(annotation, Field):
                raise TypeError(
                    f"{cls.__name__}.{name} must be annotated with wd.PerAgent[...], wd.PerEnv[...], wd.Param[...] or "
                    f"wd.Agents, got {annotation!r}"
                )
            if name in BUILT_IN:
                raise TypeError(f"{cls.__name__}.{name}: every state already has a member of this name; choose another")
            if name.startswith("_") or keyword.iskeyword(name):
                raise TypeError(f"{cls.__name__}.{name}: a field's name may not begin with an underscore")
            if name in CPP_KEYWORDS:
                raise TypeError(f"{cls.__name__}.{name}: this name means something else in C++; choose another")
            fields[name] = annotation
        cls.fields = fields

    def __getattr__(self, name: str) -> Any:  # for type checkers: inside a phase every field is an array or a number
        raise AttributeError(name)
