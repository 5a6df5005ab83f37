"""The schedule is chosen by measuring once, kept on disk whatever happens to the file, and changes no result."""

import concurrent.futures
import json

import pytest
import torch
import warp as wp

import warpdrive as wd
from sim.environments import Dice, Kinds, Script
from sim.test_schedules import assert_same, trace
from warpdrive.sim import choice, simulator
from warpdrive.sim.choice import Candidate, choose, is_worth_measuring, key_of, seconds_a_step

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
KEY = {"code": "abc", "num_envs": 7}


class Timer:
    """Seconds for each candidate as given, and which were asked for."""

    def __init__(self, fused=2.0, split=3.0, blocks=None):
        self.times = {"fused": {128: fused, **(blocks or {})}, "mixed": {128: 4.0}, "split": {128: split}}
        self.asked = []

    def __call__(self, candidate):
        self.asked.append(candidate)
        return self.times[candidate.schedule].get(candidate.block_dim, 9.0)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder for the choices of the test, which is not there yet."""
    monkeypatch.setattr(choice, "folder", lambda: tmp_path / "choices")
    return tmp_path / "choices"


def test_the_fastest_is_chosen_and_then_known(folder):
    """All are measured the first time; the second time none is, and the same is chosen."""
    timer = Timer(fused=2.0, split=3.0, blocks={64: 2.5, 256: 1.0})
    assert choose(KEY, timer) == Candidate("fused", 256)
    first = [Candidate("fused"), Candidate("mixed"), Candidate("split")]
    assert timer.asked == [*first, Candidate("fused", 64), Candidate("fused", 256)]
    again = Timer()
    assert choose(KEY, again) == Candidate("fused", 256)
    assert again.asked == []
    (file,) = folder.iterdir()
    content = json.loads(file.read_text())
    assert content["key"] == KEY
    assert [row["seconds"] for row in content["seconds"]] == [2.0, 4.0, 3.0, 2.5, 1.0]


def test_block_sizes_are_measured_for_fused_kernels_only():
    """Where split is faster, nothing more is compiled."""
    timer = Timer(fused=3.0, split=2.0)
    assert choose(KEY, timer) == Candidate("split")
    assert len(timer.asked) == 3


def test_no_way_to_step_counts_more_than_another(monkeypatch):
    """Twice as fast in one way and half as fast in the other is as good; all ways see equal parts of an episode."""
    now, order = [0.0], []
    monkeypatch.setattr(choice.time, "perf_counter", lambda: now[0])

    def run(name, seconds):
        def work():
            order.append(name)
            now[0] += seconds * choice.STEPS

        return work

    first = seconds_a_step([run("a", 2.0), run("b", 2.0)], 6 * choice.STEPS, CPU)
    second = seconds_a_step([run("c", 1.0), run("d", 4.0)], 6 * choice.STEPS, CPU)
    assert first == pytest.approx(2.0) and second == pytest.approx(2.0)
    assert "".join(order) == "ababab" + "cdcdcd"


@pytest.mark.parametrize(
    ("length", "num_envs", "steps"),
    [(300, 10, 300), (None, 10, 500), (2000, 10, 500), (300, 1 << 22, 128), (25, 10, 100)],
)
def test_an_episode_is_timed(length, num_envs, steps):
    """For agents leave in the course of one; but no more than takes about a second, and no less than can be timed."""
    env = hot(1.0)()
    env.episode_length = length
    assert choice.steps_to_time(env, num_envs) == steps


def test_another_key_is_measured():
    """A choice is for its key alone."""
    choose(KEY, Timer())
    timer = Timer(fused=3.0, split=2.0)
    assert choose(KEY | {"num_envs": 8}, timer) == Candidate("split")
    assert timer.asked


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[1, 2]",
        lambda text: "\x00\xff",
        lambda text: text.replace('"abc"', '"abd"'),  # of another key
        lambda text: text.replace('"fused"', '"warp"'),
        lambda text: text.replace("128", '"128"'),
        lambda text: text.replace("block_dim", "block"),
        lambda text: text.replace("chosen", "taken"),
    ],
)
def test_a_damaged_file_is_measured_anew(folder, damage):
    """Whatever does not read as a choice for this key is ignored and replaced."""
    choose(KEY, Timer(blocks={}))
    (file,) = folder.iterdir()
    file.write_text(damage(file.read_text()), encoding="latin-1")
    timer = Timer(fused=3.0, split=2.0)
    assert choose(KEY, timer) == Candidate("split")
    assert len(timer.asked) == 3
    assert choose(KEY, Timer()) == Candidate("split")


def test_a_folder_that_cannot_be_written_does_not_matter(folder):
    """The choice is made and not kept."""
    folder.write_text("a file in the way")
    for _ in range(2):
        timer = Timer()
        assert choose(KEY, timer) == Candidate("fused")
        assert timer.asked


def test_many_at_once_leave_one_whole_file(folder):
    """Measurements that end at the same time replace each other's file and leave nothing else."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        chosen = list(pool.map(lambda _: choose(KEY, Timer()), range(64)))
    assert set(chosen) == {Candidate("fused")}
    (file,) = folder.iterdir()
    assert json.loads(file.read_text())["chosen"] == {"schedule": "fused", "block_dim": 128}


def test_a_fault_while_measuring_is_not_hidden(folder):
    """It reaches the caller, and nothing is written."""

    def fail(candidate):
        raise wd.PhaseError("phase 'walk' cannot be compiled")

    with pytest.raises(wd.PhaseError):
        choose(KEY, fail)
    assert not folder.exists()


def test_measuring_is_for_large_simulations_on_a_gpu():
    """Not on the CPU, and not where a step is short anyway."""
    assert is_worth_measuring(2000, 110, CUDA)
    assert not is_worth_measuring(2000, 110, CPU)
    assert not is_worth_measuring(100, 25, CUDA)


FACTOR = 2


@wp.func
def scaled(x: float):
    return x * float(FACTOR)


class HotState(wd.State):
    """Agents with a number."""

    agents: wd.Agents
    heat: wd.PerAgent[float]
    level: wd.Param[int]


def hot(power):
    """An environment class with a phase that closes over a number."""

    @wd.per_agent
    def warm(s: HotState, env: int, agent: int):
        s.heat[env, agent] = scaled(s.heat[env, agent]) + wp.static(power)

    @wd.per_agent("agents")
    def look(s: HotState, env: int, i: int):
        wd.put(s.agents.obs, env, i, 0, s.heat[env, i])

    class Hot(wd.Env):
        state = HotState
        step = (warm,)
        observe = (look,)

        def __init__(self, count=2, level=1):
            groups = {"agents": wd.Group(count, obs=1, action=wd.Discrete(2))}
            super().__init__(groups=groups, params={"level": level})

    return Hot


def key(env=None, num_envs=4, obs=torch.float32):
    return key_of(env or hot(1.0)(), num_envs, obs, CPU)


def test_the_key_holds_what_decides(monkeypatch):
    """Code, what it calls and names, sizes, whole parameters, observations and number of environments; and no more."""
    assert key() == key()
    assert json.loads(json.dumps(key())) == key()
    others = [key(hot(2.0)()), key(hot(1.0)(count=3)), key(hot(1.0)(level=2)), key(num_envs=5), key(obs=torch.bfloat16)]
    monkeypatch.setitem(globals(), "FACTOR", 3)
    others.append(key())
    assert all(other != key_of(hot(1.0)(), 4, torch.float32, CPU) for other in others[:-1])
    assert len({json.dumps(other, sort_keys=True) for other in others}) == len(others)
    assert key(Kinds(4)) != key(Kinds(5))


@pytest.mark.parametrize("make", [lambda: Script(late=1), Dice])
def test_measuring_changes_no_result(monkeypatch, make):
    """A simulator that measured before it began gives the same bits; the CPU's schedules stand in for a GPU's."""
    before = trace(make(), 9, device="cpu")
    measured = []

    def choose_on_cpu(key, seconds):
        for candidate in (Candidate("split"), Candidate("loop")):
            measured.append(seconds(candidate))
        return candidate

    monkeypatch.setattr(simulator, "is_worth_measuring", lambda *args: True)
    monkeypatch.setattr(simulator, "choose", choose_on_cpu)
    state = torch.get_rng_state()
    assert_same(before, trace(make(), 9, device="cpu"), 9)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(measured) == 2 and all(0 < seconds < 10 for seconds in measured)


def test_what_is_asked_for_is_not_measured(monkeypatch):
    """A schedule by name, and auto where there is nothing to choose, measure nothing."""
    monkeypatch.setattr(simulator, "choose", None)
    assert wd.Simulator(Script(), 2, device="cpu").schedule == "loop"
    monkeypatch.setattr(simulator, "is_worth_measuring", lambda *args: True)
    assert wd.Simulator(Script(), 2, device="cpu", schedule="split").schedule == "split"


@pytest.mark.gpu
def test_a_large_simulation_on_a_gpu_measures_once(monkeypatch, folder):
    """The first simulator writes its choice, the second reads it, and both give the bits of the rule's schedule."""
    expected = trace(Dice(), 67, device="cuda")
    monkeypatch.setattr(choice, "WORTH_AGENTS", 0)
    first = trace(Dice(), 67, device="cuda")
    (file,) = folder.iterdir()
    assert len(json.loads(file.read_text())["seconds"]) >= 2
    monkeypatch.setattr(simulator.Simulator, "_seconds", None)
    second = trace(Dice(), 67, device="cuda")
    for other in (first, second):
        assert_same(expected, other, 67)


def test_choices_lie_in_the_cache_of_kernels(monkeypatch):
    """The folder is in Warp's cache, wherever the user has that."""
    monkeypatch.undo()
    assert choice.folder().parent.is_dir()
    monkeypatch.setattr(wp.config, "kernel_cache_dir", "/some/where")
    assert str(choice.folder()) == "/some/where/warpdrive-choices"
