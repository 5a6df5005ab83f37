"""Every schedule gives the same bits, and a replica's results depend on nothing but itself."""

import functools
import hashlib
from collections.abc import Callable

import pytest
import torch

import warpdrive as wd
from sim.environments import Dice, Kinds, Script
from warpdrive.sim import launcher
from warpdrive.sim.launcher import choose_schedule, choose_unit, reset_block
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


def test_many_agents_begin_anew_in_one_turn():
    """A thread an agent in whole warps, as far as registers go for one whatever a kernel takes."""
    assert [reset_block(n) for n in (129, 160, 300, 512, 1000)] == [160, 160, 320, 512, 512]


@pytest.mark.parametrize(("pairs", "reset", "own"), [(300, (67, 320), True), (40, (23, 128), False)])
def test_blocks_that_begin_anew_have_their_own_size(pairs, reset, own, monkeypatch):
    """Beyond 128 agents, in a module of their own that is loaded before it runs; the rest of a step keeps its block."""
    sizes, loaded = {}, []

    def record(self, kernel, dim, inputs, block_dim=256):
        if kernel.key.startswith("fused"):
            assert dim[1] == block_dim and inputs[2] * inputs[3] == block_dim
            sizes[kernel.key] = dim
            assert (kernel.module, block_dim) in loaded

    monkeypatch.setattr(launcher.Launcher, "_record", record)
    monkeypatch.setattr(
        Program, "_load", lambda self, module, device, block_dim=None: loaded.append((module, block_dim))
    )
    env = Script(pairs=pairs, episode_length=3)
    sim = wd.Simulator(env, 67, device="cpu")
    program = Program(env, {name: torch.float32 for name in env.groups}, "blocks")
    made = launcher.Launcher(program, sim.store, "mixed", sim.launcher.params)
    made.step(sim.results)
    assert sizes == {"fused_change": (67, 128) if own else reset, "fused_reset": reset}
    assert (program.fused_kernel("reset", made.unit).module is not program.module) == own


@pytest.mark.parametrize("schedule", ["mixed", "fused"])
@pytest.mark.parametrize(("pairs", "alone"), [(300, True), (40, False)])
def test_many_agents_are_observed_anew_by_kernels_of_their_own(pairs, alone, schedule, monkeypatch):
    """Beyond 128 agents, after the rest of beginning anew; every call is made once, by kernels made before loading."""
    keys, existing = [], []
    monkeypatch.setattr(launcher.Launcher, "_record", lambda self, kernel, *_: keys.append(kernel.key))
    monkeypatch.setattr(Program, "_load", lambda self, *_: existing.append(set(self._kernels)))
    env = Script(pairs=pairs, episode_length=3)
    sim = wd.Simulator(env, 5, device="cpu")
    program = Program(env, {name: torch.float32 for name in env.groups}, "anew")
    keys.clear(), existing.clear()  # the simulator's own
    made = launcher.Launcher(program, sim.store, schedule, sim.launcher.params)
    last = len(program.calls)
    own = [f"phase_{last - 2}", f"phase_{last - 1}"] if alone else []
    assert [call.guarded for call in program.calls[-2:]] == [True, True]
    made.restart(sim.results)
    assert keys == ["fused_reset", *own]
    assert program._part("reset", made.unit) == range(program.first_guarded, last - len(own))
    keys.clear()
    made.step(sim.results)
    before = [f"phase_{i}" for i in program.observe_calls]
    assert keys == (["fused_step"] if schedule == "fused" else ["fused_change", *before, "fused_reset", *own])
    assert program._part("step", made.unit) == range(last)
    assert existing and all(set(program._kernels) == kernels for kernels in existing)


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
