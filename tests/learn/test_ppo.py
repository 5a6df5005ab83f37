"""The settings of PPO: what is refused, and how it is said."""

import dataclasses

import pytest

from warpdrive.learn.ppo import PPO


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("lr", -1.0, "a finite number from 0"),
        ("lr", float("nan"), "a finite number from 0"),
        ("lr_final", float("inf"), "a finite number from 0 or null"),
        ("gamma", 1.5, "between 0 and 1"),
        ("gae_lambda", -0.1, "between 0 and 1"),
        ("clip", 0.0, "positive"),
        ("clip_final", 0.0, "positive or null"),
        ("value_clip", -0.2, "positive or null"),
        ("entropy", -0.01, "a finite number from 0"),
        ("max_grad_norm", 0.0, "positive"),
        ("epochs", 0, "a positive integer"),
        ("epochs", 2.5, "a positive integer"),
        ("minibatches", True, "a positive integer"),
        ("rollout_steps", 0, "a positive integer"),
        ("advantage_over", "epoch", "'rollout' or 'minibatch'"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(option, value, wanted):
    """The sentence has the option, what it must be and what it is."""
    with pytest.raises(ValueError) as error:
        PPO(**{option: value})
    assert str(error.value) == f"PPO.{option} must be {wanted}, got {value!r}"


def test_settings_cannot_change_once_made():
    """A finished description is frozen."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        PPO().lr = 1.0


def test_every_setting_has_its_line_of_documentation():
    """The class docstring, from which the command line takes its help, describes each field once."""
    for field in dataclasses.fields(PPO):
        assert PPO.__doc__.count(f"\n        {field.name}: ") == 1, field.name
