"""Env and Group: what they know about themselves, and what they refuse."""

import pytest

import warpdrive as wd
from sim.environments import Kinds, Script, ScriptState, come, see_pair
from warpdrive.env.environment import nearest, unknown_name
from warpdrive.env.registry import describe, load_class, rebuild

PAIRS, LONE = wd.Group(2, obs=3, action=wd.Discrete(6)), wd.Group(1, obs=2, action=wd.Discrete(6))


class Loose(wd.Env):
    """Script's state with whatever else is given."""

    state = ScriptState
    observe = (see_pair,)

    def __init__(self, groups=None, params=None, sizes=None, episode_length=None, **phases):
        for part, value in phases.items():
            setattr(self, part, value)
        super().__init__(
            groups={"pairs": PAIRS, "lone": LONE} if groups is None else groups,
            params={"late": 0} if params is None else params,
            sizes=sizes,
            episode_length=episode_length,
        )


def test_agents_of_all_groups_stand_in_one_order():
    """Groups follow each other, in the order given."""
    env = Script(pairs=5)
    assert env.num_agents == 6 and env.first_agent == {"pairs": 0, "lone": 5}
    assert Loose(groups={"lone": LONE, "pairs": PAIRS}).first_agent == {"lone": 0, "pairs": 1}


def test_without_a_view_there_is_none():
    """An environment that does not say how it is drawn has no view."""
    assert Script().view() is None


@pytest.mark.parametrize(
    "options,message",
    [
        ({"groups": {"pair": PAIRS, "lone": LONE}}, "unknown group of Loose 'pair'; did you mean 'pairs'?"),
        ({"groups": {"pairs": PAIRS}}, "group of Loose 'lone' is declared in the state but not given"),
        ({"groups": {"pairs": PAIRS, "lone": 3}}, "group 'lone' of Loose must be a wd.Group, got 3"),
        ({"params": {"lat": 1}}, "unknown parameter of Loose 'lat'; did you mean 'late'?"),
        ({"params": {}}, "parameter of Loose 'late' is declared in the state but not given"),
        (
            {"params": {"late": 0.5}},
            "parameter 'late' of Loose must be an integer from -2147483648 to 2147483647, got 0.5",
        ),
        ({"sizes": {"slots": 3}}, "unknown size of Loose 'slots'; known: none"),
        ({"episode_length": 0}, "episode_length must be a positive integer, got 0"),
        ({"episode_length": -5}, "episode_length must be a positive integer, got -5"),
        ({"episode_length": 2.5}, "episode_length must be a positive integer, got 2.5"),
        ({"observe": ()}, "Loose.observe is empty; list the phases that write the observations"),
        (
            {"step": (wd.per_agent("pears")(lambda s, env, i: None),)},
            "unknown group in phase '<lambda>' of Loose: 'pears'; did you mean 'pairs'?",
        ),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    """Wrong names, counts, values and phases each get one sentence, with the nearest name."""
    with pytest.raises(ValueError) as caught:
        Loose(**options)
    assert str(caught.value) == message


@pytest.mark.parametrize("part", ["reset", "step", "observe"])
def test_phases_are_marked(part):
    """A plain function among the phases is refused with the marks it may have."""
    with pytest.raises(
        ValueError, match=rf"Loose\.{part} must list phases, marked with @wd\.per_agent or @wd\.per_env"
    ):
        Loose(**{part: (come.function,)})


def test_named_axes_have_positive_lengths():
    """A named axis must be given a positive length."""
    with pytest.raises(ValueError, match="size 'slots' of Kinds must be a positive integer, got 0"):
        Kinds(slots=0)


def test_an_environment_has_a_state_and_a_group():
    """Neither can be missing."""

    class Stateless(wd.Env):
        def __init__(self):
            super().__init__(groups={})

    class Empty(wd.State):
        """Nothing."""

    class Lonely(Stateless):
        state = Empty

    with pytest.raises(ValueError, match=r"Stateless\.state must be a subclass of wd\.State, got None"):
        Stateless()
    with pytest.raises(ValueError, match=r"Lonely has no group of agents; annotate one in its state with wd\.Agents"):
        Lonely()


def test_unknown_arguments_get_the_nearest_name():
    """A misspelt argument of the author's constructor is refused with the one that was meant."""
    with pytest.raises(ValueError, match=r"argument of Script 'episod_length'; did you mean 'episode_length'\?"):
        Script(episod_length=3)
    with pytest.raises(ValueError, match="unknown argument of Script 'colour'; known: episode_length, late, pairs"):
        Script(colour="red")


@pytest.mark.parametrize("count", [0, -1, 2.5, True, None])
def test_counts_of_a_group_are_positive_integers(count):
    """Agents and features are counted from one."""
    with pytest.raises(ValueError) as caught:
        wd.Group(count, obs=1, action=wd.Discrete(2))
    assert str(caught.value) == f"Group.count must be a positive integer, got {count!r}"
    with pytest.raises(ValueError) as caught:
        wd.Group(1, obs=count, action=wd.Discrete(2))
    assert str(caught.value) == f"Group.obs must be a positive integer, got {count!r}"


def test_actions_of_a_group_are_a_space():
    """A number is no action space, and a continuous one has no mask."""
    with pytest.raises(ValueError, match=r"Group\.action must be wd\.Discrete, wd\.MultiDiscrete or wd\.Box, got 5"):
        wd.Group(1, obs=1, action=5)
    with pytest.raises(ValueError, match=r"Group\.mask is for discrete actions; a wd\.Box action cannot be masked"):
        wd.Group(1, obs=1, action=wd.Box(0, 1), mask=True)


def test_arguments_are_remembered():
    """Arguments by position, by name, by default and beyond those named are kept, and make the same again."""
    assert Script(7, pairs=3).arguments == {"episode_length": 7, "late": 0, "pairs": 3}
    env = Loose(episode_length=3, step=(come,))
    assert env.arguments["step"] == (come,) and "phases" not in env.arguments
    again = rebuild(describe(env))
    assert type(again) is Loose and again.arguments == env.arguments and again.step == (come,)


def test_names_lead_to_classes(tmp_path):
    """`module:Class` and `file.py:Class` both name an environment; what is missing is said."""
    assert load_class("sim.environments:Script") is Script
    path = tmp_path / "mine.py"
    path.write_text("import warpdrive as wd\nclass Mine(wd.Env): ...\nclass Other: ...\n")
    assert load_class(f"{path}:Mine").__name__ == "Mine"
    for name, message in (
        ("Script", "environment 'Script' must be given as module:Class or file.py:Class"),
        (f"{path}:Mina", f"unknown environment in {path}: 'Mina'; did you mean 'Mine'?"),
        (f"{path}:Other", f"unknown environment in {path}: 'Other'"),
        (f"{tmp_path}/no.py:Mine", f"there is no file {tmp_path}/no.py"),
        ("no_such_module:Mine", "environment 'no_such_module:Mine': there is no module 'no_such_module'"),
    ):
        with pytest.raises(ValueError) as caught:
            load_class(name)
        assert message in str(caught.value)


def test_the_nearest_name():
    """A similar name is asked for; where none is similar all are listed."""
    assert nearest("lon", ["pairs", "lone"]) == "did you mean 'lone'?" and nearest("xyz", ["pairs", "lone"]) == ""
    assert str(unknown_name("group", "xyz", {"pairs": 1, "lone": 2})) == "unknown group 'xyz'; known: lone, pairs"
