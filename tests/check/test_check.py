"""The kit finds and names every kind of fault, and raises no false alarm."""

import json

import pytest
import torch

import warpdrive as wd
from check import broken
from warpdrive.check.report import CAUSES, KINDS, Fault, Report
from warpdrive.cli.main import main
from warpdrive.zoo.acrobot import Acrobot
from warpdrive.zoo.cartpole import CartPole
from warpdrive.zoo.mountain_car import MountainCar
from warpdrive.zoo.mountain_car_continuous import MountainCarContinuous
from warpdrive.zoo.mpe_simple_adversary import SimpleAdversary
from warpdrive.zoo.mpe_simple_crypto import SimpleCrypto
from warpdrive.zoo.mpe_simple_push import SimplePush
from warpdrive.zoo.mpe_simple_reference import SimpleReference
from warpdrive.zoo.mpe_simple_speaker_listener import SimpleSpeakerListener
from warpdrive.zoo.mpe_simple_spread import SimpleSpread
from warpdrive.zoo.mpe_simple_tag import SimpleTag
from warpdrive.zoo.mpe_simple_world_comm import SimpleWorldComm
from warpdrive.zoo.pendulum import Pendulum
from warpdrive.zoo.tag import Tag
from warpdrive.zoo.tag_gridworld import TagGridworld

# class -> kind, phase, field, environment, agent, step of the fault; ... where any will do
FAULTS = {
    broken.Race: ("race", "follow", "x", 0, ..., 1),
    broken.ForeignWrite: ("race", "push", "y", 0, ..., 1),
    broken.LostUpdate: ("lost-update", "pay", "reward", 0, 1, 1),
    broken.SharedTotal: ("lost-update", "collect", "total", 0, 1, 1),
    broken.ReadsOutside: ("out-of-bounds", "peek", "x", 0, 2, 1),
    broken.WritesOutside: ("out-of-bounds", "look_too_far", "walkers.obs", 0, 0, 0),
    broken.OtherEnvironment: ("other-environment", "spill", "total", 1, None, 1),
    broken.NumEnvs: ("num-envs", "crowd", "y", 0, 0, 1),
    broken.Leak: ("leak", "place_half", "y", 0, 0, ...),
    broken.Termination: ("termination", "place_fallen", "fallen", 0, 0, ...),
    broken.StillBorn: ("termination", "place, place_dead", "active", 0, None, 0),
    broken.RewardAfterLeaving: ("reward-after-leaving", "thank", "reward", 0, 1, 6),
    broken.Randomness: ("randomness", "place_alike", "x", 0, 0, 0),
    broken.NotFinite: ("not-finite", "sink", "y", 0, 0, 7),
    broken.ObsBounds: ("obs-bounds", "look", "walkers.obs", 0, 0, 7),
    broken.Mask: ("mask", "forbid", "walkers.mask", 0, 2, 3),
    broken.SimulatorField: ("simulator-field", "rewind", "step", 0, 0, 6),
}

CLASSIC = [CartPole, MountainCar, MountainCarContinuous, Acrobot, Pendulum]
MPE = [
    *(SimpleSpread, SimpleTag, SimpleAdversary, SimplePush),
    *(SimpleSpeakerListener, SimpleReference, SimpleCrypto, SimpleWorldComm),
]


def examined(env, **options) -> Report:
    return wd.check(env, **{"steps": 24, "num_envs": 3, "device": "cpu"} | options)


@pytest.mark.parametrize("env", FAULTS, ids=lambda env: env.__name__)
def test_it_names_every_kind_of_fault(env):
    """Kind, phase, field, environment, agent and step are right, and it sees no other kind of fault."""
    report = examined(env())
    wanted = FAULTS[env]
    assert report.kinds() == {wanted[0]}, str(report)
    first = report.faults[0]
    found = (first.kind, first.phase, first.field, first.env, first.agent, first.step)
    assert all(w is ... or f == w for f, w in zip(found, wanted, strict=True)), str(report)
    assert not report.ok
    assert CAUSES[first.kind] in str(report)


@pytest.mark.parametrize("env", [broken.Sound(), broken.Counting()], ids=["sound", "counting"])
def test_it_raises_no_false_alarm_on_sound_environments(env):
    """Nothing is found, nothing is noted, and the same again is the same."""
    report = examined(env)
    assert report.ok, str(report)
    assert not report.notes


def test_it_raises_no_false_alarm_on_tag():
    """Tag, with agents that leave and episodes that end both ways."""
    report = examined(Tag(num_taggers=2, num_runners=3, tagging_distance=0.2, episode_length=15), steps=40)
    assert report.ok, str(report)
    fixed = examined(Tag(num_taggers=2, num_runners=2, tagging_distance=0.2, fixed_start=True), steps=10)
    assert fixed.ok, str(fixed)


@pytest.mark.parametrize("full", [True, False], ids=["full", "partial"])
def test_it_raises_no_false_alarm_on_tag_on_a_grid(full):
    """Tag on a grid, whose taggers gather what happens to the runner, and whose episodes end both ways."""
    report = examined(TagGridworld(grid_length=6, use_full_observation=full, episode_length=9))
    assert report.ok, str(report)


@pytest.mark.parametrize("env", CLASSIC, ids=lambda env: env.__name__)
def test_it_raises_no_false_alarm_on_classic_control(env):
    """Environments of one agent, with whole episodes, and bounds that observations keep."""
    report = examined(env(episode_length=9))
    assert report.ok, str(report)
    assert not report.notes


@pytest.mark.parametrize("continuous", [False, True], ids=["discrete", "continuous"])
@pytest.mark.parametrize("env", MPE, ids=lambda env: env.__name__)
def test_it_raises_no_false_alarm_on_mpe(env, continuous):
    """Several groups, some who speak, and goals that are drawn for each episode."""
    report = examined(env(continuous=continuous, episode_length=6), steps=14)
    assert report.ok, str(report)


def test_what_is_meant_can_be_said():
    """Fields that may survive and kinds that do not matter are left out of the report."""
    assert examined(broken.Leak(), keeps=["y"]).ok
    assert examined(broken.NumEnvs(), ignore=["num-envs"]).ok
    assert "perhaps none ever does" in str(examined(broken.SharedTotal(None), ignore=["lost-update"], steps=4))


def test_arguments_that_do_not_fit_get_one_sentence():
    """Names are compared with those there are."""
    with pytest.raises(ValueError, match="did you mean 'total'"):
        wd.check(broken.Sound(), keeps=["totl"])
    with pytest.raises(ValueError, match="did you mean 'race'"):
        wd.check(broken.Sound(), ignore=["races"])
    with pytest.raises(ValueError, match="at least 2"):
        wd.check(broken.Sound(), num_envs=1)
    with pytest.raises(ValueError, match="obs_low must not be above"):
        wd.Group(1, obs=1, action=wd.Discrete(2), obs_low=1.0, obs_high=0.0)
    with pytest.raises(ValueError, match="obs_high must be a finite number"):
        wd.Group(1, obs=1, action=wd.Discrete(2), obs_high=float("inf"))


def test_the_report_explains_every_kind():
    """Each kind has a line of what is examined and one of what causes it."""
    assert KINDS.keys() == CAUSES.keys()
    text = str(Fault("leak", "place", "x", None, 3, 2, "it stays"))
    assert text.startswith("leak: phase 'place', field 'x', agent 3, step 2: it stays. Usual cause: no reset phase")


def test_the_command_line(tmp_path, capsys):
    """Exit status, table and JSON."""
    sound = f"{broken.__file__}:Sound"
    assert main(["check", sound, "--device", "cpu", "--steps", "6", "--env.episode_length", "4"]) == 0
    assert "no faults" in capsys.readouterr().out
    target = tmp_path / "report.json"
    args = ["check", f"{broken.__file__}:LostUpdate", "--device", "cpu", "--steps", "3", "--json", str(target)]
    assert main(args) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "lost-update" in out
    assert "phase 'pay'" in out
    report = json.loads(target.read_text())
    assert not report["ok"]
    assert report["faults"][0]["kind"] == "lost-update"
    assert report["faults"][0]["agent"] == 1
    assert "gather them" in report["faults"][0]["cause"]


@pytest.mark.gpu
def test_it_compares_the_gpu():
    """On a GPU the same environments are sound in every schedule, and near what the CPU computes."""
    assert torch.cuda.is_available()
    for env in (broken.Sound(), broken.Counting()):
        report = examined(env, device="cuda")
        assert report.ok, str(report)
        assert report.devices == ["cpu", "cuda"]
        assert "device" in report.examined


@pytest.mark.gpu
@pytest.mark.parametrize("env", [*CLASSIC, *MPE, Tag, TagGridworld], ids=lambda env: env.__name__)
def test_bundled_environments_are_sound_on_the_gpu(env):
    """Nothing is found in any environment that comes with warpdrive, as it comes."""
    report = examined(env(), device="cuda", steps=12)
    assert report.ok, str(report)
