"""A State's annotations become its fields, and what cannot be one is refused when the class is written."""

import math

import numpy as np
import pytest
import warp as wp

import warpdrive as wd
from warpdrive.env.state import BUILT_IN, Field, unfit


def declare(name: str, annotation: object, base: type = wd.State) -> type[wd.State]:
    """A subclass of State with one annotation."""
    return type("Declared", (base,), {"__annotations__": {name: annotation}})


def test_annotations_become_fields():
    """Kind, Warp type and extra axes of each annotation are kept, in the order written."""

    class Everything(wd.State):
        ones: wd.Agents
        position: wd.PerAgent[wp.vec2]
        speed: wd.PerAgent[float]
        seen: wd.PerAgent[bool, 3, "slots"]  # noqa: F821
        score: wd.PerEnv[int, "slots", 2, 1]  # noqa: F821
        side: wd.Param[wp.mat22]

    assert list(Everything.fields.items()) == [
        ("ones", Field("group")),
        ("position", Field("agent", wp.vec2)),
        ("speed", Field("agent", wp.float32)),
        ("seen", Field("agent", wp.bool, (3, "slots"))),
        ("score", Field("env", wp.int32, ("slots", 2, 1))),
        ("side", Field("param", wp.mat22)),
    ]
    assert wd.State.fields == {}


def test_a_subclass_inherits_fields():
    """Fields of the base come first, and the base does not get those of the subclass."""
    base = declare("one", wd.PerAgent[int])
    derived = declare("two", wd.PerEnv[float], base)
    assert list(derived.fields) == ["one", "two"] and list(base.fields) == ["one"]


def test_annotations_may_be_text():
    """Annotations written as strings, as under `from __future__ import annotations`, are evaluated."""

    class Text(wd.State):
        speed: "wd.PerAgent[float]"

    assert Text.fields == {"speed": Field("agent", wp.float32)}


@pytest.mark.parametrize("dtype", [str, list, "float", None, np.float32, complex, wp.uint32, wp.vec2(1.0, 2.0)])
def test_types_that_no_field_can_have_are_refused(dtype):
    """What is no number, vector or matrix of Warp is refused with those that are."""
    for declaration in (wd.PerAgent, wd.PerEnv, wd.Param):
        with pytest.raises(ValueError, match=rf"{declaration.__name__}\[\.\.\.\] takes float, int, bool or a Warp"):
            declaration[dtype]


@pytest.mark.parametrize("axis", [0, -2, 2.0, True, None])
def test_axes_are_lengths_or_names(axis):
    """Any other axis is refused."""
    with pytest.raises(ValueError, match=f"PerAgent: an extra axis is a positive length or a name, got {axis}"):
        wd.PerAgent[float, axis]


@pytest.mark.parametrize("declaration,most", [(wd.PerAgent, 2), (wd.PerEnv, 3), (wd.Param, 0)])
def test_a_field_has_at_most_four_axes(declaration, most):
    """With environment and agent a Warp array has room for two more, a parameter for none."""
    declaration[(float, *(2,) * most)] if most else declaration[float]
    with pytest.raises(ValueError, match=f"{declaration.__name__} takes at most {most} extra axes, got {most + 1}"):
        declaration[(float, *(2,) * (most + 1))]


@pytest.mark.parametrize("annotation", [float, wp.array, None, list[float], wd.PerAgent])
def test_other_annotations_are_refused(annotation):
    """An annotation that is no declaration names class and member."""
    with pytest.raises(TypeError, match=r"Declared\.speed must be annotated with wd\.PerAgent\[\.\.\.\]"):
        declare("speed", annotation)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_names_are_taken(name):
    """No field may have the name of a member that every state has."""
    with pytest.raises(TypeError, match=rf"Declared\.{name}: every state already has a member of this name"):
        declare(name, wd.PerAgent[float])


def test_names_that_cannot_be_used_are_refused():
    """Neither a leading underscore nor a word of C++, which Warp's kernels become, can be a field."""
    with pytest.raises(TypeError, match=r"Declared\._speed: a field's name may not begin with an underscore"):
        declare("_speed", wd.PerAgent[float])
    for name in ("new", "double", "template", "this"):
        with pytest.raises(TypeError, match=rf"Declared\.{name}: this name means something else in C\+\+"):
            declare(name, wd.PerAgent[float])


@pytest.mark.parametrize(
    "dtype,good,bad,wanted",
    [
        (wp.float32, [1, 2.5, np.float32(3)], ["1", None, math.inf, math.nan, True, [1.0]], "a finite number"),
        (wp.bool, [True, np.bool_(False)], [1, 0.0, None, "yes"], "True or False"),
        (wp.int32, [-5, np.int64(7)], [2.0, True, None, 2**31], "an integer from -2147483648 to 2147483647"),
        (wp.uint8, [0, 255], [-1, 256], "an integer from 0 to 255"),
        (wp.vec2, [(1, 2), [1.0, 2.0], wp.vec2(1.0, 2.0), np.ones(2)], [1.0, (1, 2, 3), (1, math.nan), "ab", None],
         "finite numbers of shape (2,)"),
        (wp.mat22, [((1, 2), (3, 4)), np.eye(2), wp.mat22(1.0, 2.0, 3.0, 4.0)], [(1, 2), (1, 2, 3, 4), ((1, 2), (3,))],
         "finite numbers of shape (2, 2)"),
    ],
)  # fmt: skip
def test_values_of_parameters(dtype, good, bad, wanted):
    """A parameter's value must be what its type can hold, without rounding an integer or wrapping around."""
    assert [unfit(dtype, value) for value in good] == [""] * len(good)
    assert [unfit(dtype, value) for value in bad] == [wanted] * len(bad)
