"""Phases: what the decorators make of a function."""

import pytest

import warpdrive as wd
from warpdrive.env.phases import Phase


def per_agent_function(s, env, agent): ...


def per_group_function(s, env, i): ...


def per_env_function(s, env): ...


def test_what_the_decorators_make():
    """Kind, group and name of each phase are those of the decorator and the function."""
    assert wd.per_agent(per_agent_function) == Phase(per_agent_function, "agent", None)
    assert wd.per_agent("ones")(per_group_function) == Phase(per_group_function, "agent", "ones")
    assert wd.per_env(per_env_function) == Phase(per_env_function, "env", None)
    assert wd.per_env(per_env_function).name == "per_env_function"


def test_a_phase_counts_its_arguments():
    """A function of too few or too many arguments is refused with those it must take."""
    with pytest.raises(TypeError, match=r"phase 'per_env_function' must take \(s, env, agent\), got \(s, env\)"):
        wd.per_agent(per_env_function)
    with pytest.raises(TypeError, match=r"phase 'per_env_function' must take \(s, env, i\), got \(s, env\)"):
        wd.per_agent("ones")(per_env_function)
    with pytest.raises(TypeError, match=r"phase 'per_agent_function' must take \(s, env\), got \(s, env, agent\)"):
        wd.per_env(per_agent_function)


def test_a_phase_cannot_be_called():
    """Calling one from Python says where it belongs."""
    with pytest.raises(TypeError, match="phase 'per_env_function' cannot be called; list it in an environment's reset"):
        wd.per_env(per_env_function)(None, 0)
