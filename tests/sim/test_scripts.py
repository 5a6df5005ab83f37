"""Scripted policies: they act from the state, for active agents of their group alone, and draw by key."""

import pytest
import torch
import warp as wp

import warpdrive as wd
from sim.environments import Dice, DiceState, Kinds, KindsState, Script, ScriptState


@wd.per_agent("pairs")
def follow(s: ScriptState, env: int, i: int):
    s.pairs.action[env, i, 0] = s.step[env] + 2 * i


@wd.per_agent("pairs")
def leave(s: ScriptState, env: int, i: int):
    s.pairs.action[env, i, 0] = 1
    if s.step[env] == 1 and i == 0:
        s.pairs.action[env, i, 0] = 2


@wd.per_agent("lone")
def count(s: ScriptState, env: int, i: int):
    s.lone.action[env, i, 0] = s.count[env, s.lone.first + i] + 1


class Followed(Script):
    """Script with policies: follow (the step), leave (after one step), count."""

    scripted = (follow, leave, count)


@wd.per_agent("left")
def gamble(s: DiceState, env: int, i: int):
    rng = wd.random(s, env, i)
    s.left.action[env, i, 0] = wp.randi(rng, 0, 3)
    s.left.action[env, i, 1] = wp.randi(rng, 0, 4)


@wd.per_agent("right")
def slide(s: DiceState, env: int, i: int):
    rng = wd.random(s, env, s.right.first + i)
    s.right.action[env, i, 0] = wp.randf(rng, -0.1, 0.2)


class Gambled(Dice):
    """Dice with policies that draw."""

    scripted = (gamble, slide)


@wd.per_agent("masked")
def allowed(s: KindsState, env: int, i: int):
    s.masked.action[env, i, 0] = 0
    if s.masked.mask[env, i, 0] == wp.uint8(0):
        s.masked.action[env, i, 0] = 1
    s.masked.action[env, i, 1] = 3


class Allowed(Kinds):
    """Kinds with a policy that heeds the mask."""

    scripted = (allowed,)


def simulate(env: wd.Env, num_envs: int = 5, device: str = "cpu", **options) -> wd.Simulator:
    sim = wd.Simulator(env, num_envs, device=device, **options)
    sim.reset()
    return sim


def test_a_script_sees_the_state_and_writes_its_groups_actions_only():
    """Actions are what the rule says of the state before the step; the other group's stay."""
    sim = simulate(Followed())
    sim.action["lone"].fill_(5)
    for step in range(3):
        sim.script_actions("pairs", "follow")
        expected = torch.tensor([[step], [step + 2]], dtype=torch.int32).expand(5, 2, 1)
        assert torch.equal(sim.action["pairs"], expected)
        assert bool((sim.action["lone"] == 5).all())
        sim.action["pairs"].fill_(1)
        sim.step({"lone": torch.zeros(5, 1, dtype=torch.int32)})
        sim.action["lone"].fill_(5)
    assert sim.state.count[0].tolist() == [3, 3, 0]


def test_an_agent_that_is_not_active_gets_action_0():
    """Who has left acts no more."""
    sim = simulate(Followed())
    for _ in range(2):
        sim.script_actions("pairs", "leave")
        sim.step({"lone": torch.zeros(5, 1, dtype=torch.int32)})
    sim.script_actions("pairs", "leave")
    assert sim.action["pairs"][..., 0].tolist() == [[0, 1]] * 5


def test_a_script_reads_its_mask():
    """Agent 0 may not choose 0 in the first head, agent 1 may."""
    sim = simulate(Allowed(), 3)
    sim.script_actions("masked", "allowed")
    assert sim.action["masked"].tolist() == [[[1, 3], [0, 3]]] * 3


def test_draws_are_keyed():
    """One seed draws the same for few environments and many, another seed and the next step draw something else."""
    drawn = {}
    for name, options in {"a": {}, "b": {"seed": 1}, "many": {"num_envs": 40}}.items():
        sim = simulate(Gambled(), **options)
        drawn[name] = []
        for _ in range(2):
            for group, policy in (("left", "gamble"), ("right", "slide")):
                sim.script_actions(group, policy)
                drawn[name].append(sim.action[group].clone())
            sim.random_step()
    for few, many in zip(drawn["a"], drawn["many"], strict=True):
        assert torch.equal(few, many[:5])
    left, right, left_later, right_later = drawn["many"]
    assert not torch.equal(left, left_later)
    assert not torch.isin(right, right_later).any()
    assert not torch.isin(drawn["b"][1], right).any()
    assert len(right.unique()) == 40 * 3  # neither environments nor agents share a stream
    assert left[..., 0].unique().tolist() == [0, 1, 2] and left[..., 1].unique().tolist() == [0, 1, 2, 3]


def test_scripts_change_nothing_else():
    """With a scripted policy called in between, random steps go on to the bit as without."""
    one, two = simulate(Gambled()), simulate(Gambled())
    for _ in range(8):
        one.random_step()
        two.script_actions("left", "gamble")
        two.random_step()
    for name, value in one.store.fields.items():
        assert torch.equal(value, two.store.fields[name]), name


@pytest.mark.gpu
@pytest.mark.parametrize("schedule", ["split", "fused"])
def test_a_gpu_draws_as_the_cpu(schedule):
    """Actions of scripts are those of the CPU, in captured steps as well."""
    sims = [simulate(Gambled(), 100, "cpu"), simulate(Gambled(), 100, "cuda", schedule=schedule)]
    for _ in range(7):
        for group, policy in (("left", "gamble"), ("right", "slide")):
            for sim in sims:
                sim.script_actions(group, policy)
            assert torch.equal(sims[0].action[group], sims[1].action[group].cpu())
        for sim in sims:
            sim.step()


@wd.per_agent("left")
def misspelt(s: DiceState, env: int, i: int):
    s.left.acton[env, i, 0] = 1


@wd.per_agent
def everybody(s: DiceState, env: int, agent: int):
    s.thrown[env, agent, 0] = 1.0


@wd.per_agent("left")
def random(s: DiceState, env: int, i: int):
    s.left.action[env, i, 0] = 1


@wd.per_agent("lfet")
def lost(s: DiceState, env: int, i: int):
    s.left.action[env, i, 0] = 1


@pytest.mark.parametrize(
    ("scripted", "sentence"),
    [
        ((everybody,), "'everybody' must act for the agents of one group"),
        ((gamble, gamble), "'gamble' is listed twice for group 'left'"),
        ((random,), "may not be called random or trained"),
        ((lost,), "unknown group in phase 'lost' of Wrong: 'lfet'; did you mean 'left'?"),
        (("gamble",), "Wrong.scripted must list phases"),
    ],
)
def test_a_script_that_does_not_fit_is_refused(scripted, sentence):
    """An environment refuses scripts for no group, twice the same, with a reserved name, or that are none."""
    wrong = type("Wrong", (Dice,), {"scripted": scripted})
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")) as error:
        wrong()
    assert "\n" not in str(error.value)


def test_an_unknown_script_is_refused_with_the_nearest():
    """Names of group and policy are checked."""
    sim = simulate(Gambled())
    with pytest.raises(ValueError, match=r"unknown scripted policy of 'left': 'gambel'; did you mean 'gamble'\?"):
        sim.script_actions("left", "gambel")
    with pytest.raises(ValueError, match=r"unknown group 'lft'; did you mean 'left'\?"):
        sim.script_actions("lft", "gamble")


def test_a_script_that_does_not_compile_is_one_sentence():
    """The error names the policy, the line and the nearest member."""
    wrong = type("Wrong", (Dice,), {"scripted": (misspelt,)})
    sim = simulate(wrong())
    with pytest.raises(wd.PhaseError, match=r"phase 'misspelt' of Wrong .*field 'acton'; did you mean 'action'"):
        sim.script_actions("left", "misspelt")
