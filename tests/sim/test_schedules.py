"""Every schedule gives the same bits, and a replica's results depend on nothing but itself."""

import functools
import hashlib
from collections.abc import Callable

import pytest
import torch

import warpdrive as wd
from sim.environments import Dice, Kinds, Script
from warpdrive.sim import launcher
from warpdrive.sim.launcher import choose_schedule, choose_unit
from warpdrive.sim.program import Program

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
# (pairs or None, environments) -> digest of all arrays of five steps; more than a block of agents in the second.
DIGESTS: dict[tuple[int | None, int], str] = {
    (None, 67): "8d4a636e437427e2",
    (1100, 3): "1b6d0c2066cdaebe",
}
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
ENVIRONMENTS: dict[str, Callable[[], wd.Env]] = {"script": lambda: Script(late=1), "dice": Dice, "kinds": Kinds}


def trace(env: wd.Env, num_envs: int, steps: int = 12, eager: bool = False, **options) -> list[dict[str, torch.Tensor]]:
    """All arrays after the reset and after every one of some random steps, copied to the CPU."""
    sim = wd.Simulator(env, num_envs, seed=5, **options)
    sim.reset()
    states = []
    for _ in range(steps):
        states.append(sim.state_dict() | {f"final/{k}": v.cpu().clone() for k, v in sim.final_obs.items()})
        if eager:
            sim._enqueue(random=True)
        else:
            sim.random_step()
    return [*states, sim.state_dict()]


def assert_same(one: list[dict[str, torch.Tensor]], two: list[dict[str, torch.Tensor]], envs: int) -> None:
    """All arrays of the first environments agree to the bit, at every step."""
    for t, (a, b) in enumerate(zip(one, two, strict=True)):
        assert a.keys() == b.keys()
        for name in a:
            x, y = (
                v[name]
                if name == "field/seed"
                else v[name][..., :envs, :, :]
                if name.startswith("final/")
                else v[name][:envs]
                for v in (a, b)
            )
            assert torch.equal(x, y), f"{name} after step {t}"


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_loop_and_split_agree_on_the_cpu(name):
    """One kernel a phase and one loop over all give the same bits in every array."""
    make = ENVIRONMENTS[name]
    one, two = (trace(make(), 9, device="cpu", schedule=schedule) for schedule in ("loop", "split"))
    assert_same(one, two, 9)
    assert name == "kinds" or any(state["field/over"].any() for state in one)


@pytest.mark.parametrize("threads", [1, 3, 5])
def test_neither_the_number_of_environments_nor_of_threads_matters(threads, monkeypatch):
    """The first seven of seventy environments, on several threads, do what seven alone do on one."""
    monkeypatch.setattr(launcher, "CHUNK", 4)
    monkeypatch.setattr(launcher.os, "cpu_count", lambda: threads)
    many = trace(Dice(), 70, device="cpu")
    monkeypatch.setattr(launcher, "CHUNK", 1000)
    assert_same(trace(Dice(), 7, device="cpu"), many, 7)


def test_auto_takes_the_fastest_that_can_run():
    """On the CPU loop; on CUDA fused for few agents, mixed for many."""
    assert choose_schedule("auto", 5, CPU) == "loop"
    assert choose_schedule("auto", 5, CUDA) == "fused"
    assert choose_schedule("auto", 110, CUDA) == choose_schedule("auto", 2000, CUDA) == "mixed"
    assert choose_schedule("fused", 2000, CUDA) == "fused"


def test_environments_get_threads_that_they_fill():
    """Warps where few lanes of one stay idle, blocks for others, and several agents a thread beyond a block."""
    assert [choose_unit(n) for n in (1, 3, 8, 25, 32)] == ["warp"] * 5
    assert [choose_unit(n) for n in (17, 33, 128)] == ["block"] * 3
    assert [choose_unit(n) for n in (129, 5000)] == ["strided"] * 2


@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_many_agents_begin_anew_where_environments_are_listed(rows, monkeypatch):
    """Beyond 128 agents kernels go through the list of those that are over, in turns where they are more than rows."""
    monkeypatch.setattr(launcher, "LISTED_ROWS", rows)
    make = functools.partial(Script, pairs=140, episode_length=3)
    loop, split = (trace(make(), 9, 8, device="cpu", schedule=schedule) for schedule in ("loop", "split"))
    assert_same(loop, split, 9)
    assert sum(int(state["field/over"].sum()) for state in loop) >= 18


@pytest.mark.parametrize("schedule", ["split", "mixed", "fused"])
@pytest.mark.parametrize(("pairs", "listed"), [(300, True), (40, False)])
def test_every_call_is_made_once_by_kernels_made_before_loading(pairs, listed, schedule, monkeypatch):
    """Beyond 128 agents what begins anew is a kernel a phase, after the environments that are over were listed."""
    keys, existing = [], []
    monkeypatch.setattr(launcher.Launcher, "_record", lambda self, kernel, *_: keys.append(kernel.key))
    monkeypatch.setattr(launcher.OverList, "record", lambda self, over: keys.append("list"))
    monkeypatch.setattr(Program, "_load", lambda self, *_: existing.append(set(self._kernels)))
    env = Script(pairs=pairs, episode_length=3)
    sim = wd.Simulator(env, 5, device="cpu")
    program = Program(env, {name: torch.float32 for name in env.groups}, "anew")
    keys.clear(), existing.clear()  # the simulator's own
    made = launcher.Launcher(program, sim.store, schedule, sim.launcher.params)
    guarded = range(program.first_guarded, len(program.calls))
    anew = ["fused_reset"] if schedule != "split" else [f"phase_{i}" for i in guarded]
    if listed:
        anew = ["list", *(f"listed_{i}" for i in guarded)]
    made.restart(sim.results)
    assert keys == anew
    keys.clear()
    made.step(sim.results)
    assert (
        keys
        == {
            "fused": ["fused_step"],
            "mixed": ["fused_change", *(f"phase_{i}" for i in program.observe_calls), *anew],
            "split": [*(f"phase_{i}" for i in range(program.first_guarded)), *anew],
        }[schedule]
    )
    assert existing and all(set(program._kernels) == kernels for kernels in existing)


class VisitsState(wd.State):
    """Agents of three groups that count who observed them."""

    a: wd.Agents
    b: wd.Agents
    c: wd.Agents
    visits: wd.PerAgent[int]


@wd.per_agent
def visit(s: VisitsState, env: int, agent: int):
    s.visits[env, agent] = s.visits[env, agent] + 1 + 100 * env + 10000 * agent


class Visits(wd.Env):
    """Three groups, observed in one phase."""

    state = VisitsState
    observe = (visit,)

    def __init__(self, *counts: int):
        groups = {n: wd.Group(c, obs=1, action=wd.Discrete(2)) for n, c in zip("abc", counts, strict=True)}
        super().__init__(groups=groups, params={})


@pytest.mark.parametrize("counts", [(1, 1, 1), (3, 1, 5), (100, 7, 30)])
def test_one_phase_observes_all_groups_whatever_the_order_of_its_threads(counts):
    """A kernel of its own goes by groups: every agent of every environment has one thread."""
    sims = [wd.Simulator(Visits(*counts), 6, device="cpu", schedule=schedule) for schedule in ("loop", "split")]
    for sim in sims:
        sim.reset()
        sim.random_step()
    program = sims[1].launcher.program
    assert [program.goes_by_groups(i) for i in program.observe_calls] == [True]
    assert torch.equal(sims[0].state.visits, sims[1].state.visits)
    assert torch.equal(sims[0].state.visits % 100, torch.full((6, sum(counts)), 2))


def test_schedules_that_cannot_run_are_refused():
    """Fused needs CUDA; other names do not exist."""
    with pytest.raises(ValueError, match="'fused' needs a CUDA device; on the CPU take 'loop' or 'split'"):
        wd.Simulator(Script(), 2, device="cpu", schedule="fused")
    with pytest.raises(ValueError, match="schedule must be 'auto', 'split', 'mixed', 'fused' or 'loop', got 'fast'"):
        wd.Simulator(Script(), 2, device="cpu", schedule="fast")


def test_more_than_a_block_of_agents_on_the_cpu():
    """An environment of 1101 agents steps, and its last agents do what they are told."""
    sim = wd.Simulator(Script(pairs=1100, episode_length=3), 2, device="cpu")
    sim.reset()
    sim.action["pairs"][:, 1090:] = 1
    for count in (1.0, 2.0):
        sim.step()
        assert sim.obs["pairs"][0, 1089, 0] == 0.0 and (sim.obs["pairs"][:, 1090:, 0] == count).all()
        assert (sim.obs["lone"][..., 0] == 10 * count).all()


# One more environment for each unit of threads of the fused schedule; Script has one agent more than pairs.
LARGER: dict[str, Callable[[], wd.Env]] = {
    f"script {n}": functools.partial(Script, pairs=n, episode_length=3) for n in (2, 16, 40, 300, 1100)
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ENVIRONMENTS | LARGER)
def test_all_schedules_agree_on_cuda(name):
    """Split, fused and loop, captured, and each of them eagerly, give the same bits in every array."""
    make = (ENVIRONMENTS | LARGER)[name]
    first = trace(make(), 67, device="cuda", schedule="split")
    for schedule in ("split", "mixed", "fused", "loop"):
        assert_same(first, trace(make(), 67, device="cuda", schedule=schedule), 67)
        assert_same(first, trace(make(), 67, device="cuda", schedule=schedule, eager=True), 67)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", DIGESTS)
def test_whole_numbers_are_the_same_on_every_device(size, device):
    """Script computes in whole and half numbers only: the CPU and CUDA give the same bits, written down here."""
    pairs, num_envs = size
    env = Script(late=1) if pairs is None else Script(pairs=pairs, episode_length=3)
    states = trace(env, num_envs, steps=5, device=device, obs_dtype=torch.float32)
    digest = hashlib.sha256()
    for state in states:
        for name in sorted(state):
            digest.update(name.encode() + state[name].contiguous().numpy().tobytes())
    assert digest.hexdigest()[:16] == DIGESTS[size]


@pytest.mark.gpu
@pytest.mark.parametrize("schedule", ["mixed", "fused"])
def test_a_masked_reset_of_many_agents_on_cuda(schedule):
    """What begins anew is what a kernel for each phase makes of it, and the rest stays."""
    states = []
    for each in ("split", schedule):
        sim = wd.Simulator(Script(pairs=300, episode_length=5), 67, device="cuda", schedule=each)
        sim.reset()
        sim.random_step(3)
        sim.reset(torch.arange(67, device="cuda") % 3 == 0)
        states.append(sim.state_dict())
    assert_same([states[0]], [states[1]], 67)


@pytest.mark.gpu
def test_a_replica_on_cuda_does_not_depend_on_how_many_there_are():
    """The first seven of a thousand environments do what seven alone do."""
    assert_same(trace(Dice(), 7, device="cuda"), trace(Dice(), 1000, device="cuda"), 7)


@pytest.mark.gpu
def test_a_state_continues_on_cuda():
    """A simulator that loads another's state goes on with the same bits, through a captured graph made before."""
    one, two = (wd.Simulator(Dice(), 9, seed=seed, device="cuda") for seed in (1, 2))
    for sim in (one, two):
        sim.reset()
        sim.random_step()
    two.load_state_dict(one.state_dict())
    for _ in range(8):
        one.random_step()
        two.random_step()
    other = two.state_dict()
    assert all(torch.equal(value, other[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize(
    ("device", "schedule"),
    [("cpu", "loop"), ("cpu", "split")]
    + [pytest.param("cuda", schedule, marks=pytest.mark.gpu) for schedule in ("split", "mixed", "fused")],
)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_many_steps_in_one_launch_are_as_many_launches(name, device, schedule, monkeypatch):
    """Seventy random steps at once, in launches of at most 33, give the bits that seventy single ones give."""
    monkeypatch.setattr(launcher, "MOST_STEPS", 33)
    one, two = (wd.Simulator(ENVIRONMENTS[name](), 67, seed=3, device=device, schedule=schedule) for _ in range(2))
    for sim in (one, two):
        sim.reset()
    one.random_step(70)
    for _ in range(70):
        two.random_step()
    other = two.state_dict()
    assert all(torch.equal(value, other[key]) for key, value in one.state_dict().items())
    assert one.statistics() == two.statistics()
