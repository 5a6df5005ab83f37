"""The settings of A2C: what is refused, and how it is said."""

import dataclasses

import pytest

from warpdrive.learn.a2c import A2C


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("lr", -1.0, "a finite number from 0"),
        ("entropy_final", -1.0, "a finite number from 0 or null"),
        ("value_coef", float("nan"), "a finite number from 0"),
        ("gamma", -0.5, "between 0 and 1"),
        ("gae_lambda", 2.0, "between 0 and 1"),
        ("max_grad_norm", -1.0, "positive"),
        ("adam_eps", 0.0, "positive"),
        ("rollout_steps", -3, "a positive integer"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(option, value, wanted):
    """The sentence has the option, what it must be and what it is."""
    with pytest.raises(ValueError) as error:
        A2C(**{option: value})
    assert str(error.value) == f"A2C.{option} must be {wanted}, got {value!r}"


def test_it_has_nothing_of_what_it_does_not_use():
    """Options that only PPO has are refused instead of ignored."""
    for option in ("clip", "epochs", "minibatches", "value_clip"):
        with pytest.raises(TypeError):
            A2C(**{option: 1})


def test_every_setting_has_its_line_of_documentation():
    """The class docstring, from which the command line takes its help, describes each field once."""
    for field in dataclasses.fields(A2C):
        assert A2C.__doc__.count(f"\n        {field.name}: ") == 1, field.name
