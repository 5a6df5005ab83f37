"""wd.tune measures sizes on this machine, chooses one, and leaves all that it was given as it was."""

import copy
import json

import pytest
import torch

import warpdrive as wd
from learn.bandit import Bandit
from warpdrive.learn import tune as tune_module
from warpdrive.sim.memory import release_memory

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
POLICIES = {"left": wd.MLP(8), "right": wd.MLP(8)}
PPO = wd.PPO(rollout_steps=4, minibatches=2, epochs=1)


def tune(device="cpu", **options):
    """A short search on bandits."""
    return wd.tune(Bandit(), POLICIES, PPO, device=device, **{"seconds": 20.0, "most_envs": 64, **options})


@pytest.fixture(autouse=True)
def few_updates(monkeypatch):
    """Time each size for a moment only."""
    monkeypatch.setattr(tune_module, "ENOUGH_SECONDS", 0.0)


@pytest.mark.parametrize("device", DEVICES)
def test_it_measures_and_chooses(device):
    """Rows have rates, memory and times that fit each other; the choice is one of them; all is plain data."""
    seen = []
    found = tune(device, start=16, report=seen.append)
    assert seen == list(found.rows)
    assert {16, 32, 64} <= {row.num_envs for row in found.rows if row.rollout_steps == 4}
    assert any(row.rollout_steps != 4 for row in found.rows)
    for row in found.rows:
        assert row.env_steps_per_s == pytest.approx(row.num_envs * row.rollout_steps / row.seconds_per_update)
        assert row.agent_steps_per_s == pytest.approx(5 * row.env_steps_per_s)
        assert row.num_bytes > row.num_envs * row.rollout_steps * 5 * 2 * 2  # at the least, observations in bf16
    assert found.chosen in found.rows
    assert (found.num_envs, found.rollout_steps) == (found.chosen.num_envs, found.chosen.rollout_steps)
    assert f"{found.num_envs} environments x {found.rollout_steps} steps: " in found.why
    assert json.loads(json.dumps(found.to_dict()))["chosen"]["num_envs"] == found.num_envs
    lines = str(found).splitlines()
    assert len(lines) == len(found.rows) + 2
    assert [line.split()[1] for line in lines if line.startswith("*")] == [str(found.num_envs)]


def test_what_is_handed_over_stays_as_it_was():
    """Modules are copied before they learn, and PyTorch's random numbers are not drawn from."""
    left = torch.nn.Linear(2, 3)
    before, state = copy.deepcopy(left.state_dict()), torch.get_rng_state()
    wd.tune(Bandit(), {"left": left, "right": wd.MLP(8)}, PPO, device="cpu", most_envs=16, lengths=False)
    assert all(torch.equal(value, before[name]) for name, value in left.state_dict().items())
    assert all(p.grad is None for p in left.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_an_algorithm_for_each_policy():
    """Each keeps its own settings but for the length of the rollout."""
    algorithms = {"left": wd.PPO(rollout_steps=4, minibatches=8), "right": wd.A2C(rollout_steps=4)}
    found = wd.tune(Bandit(), POLICIES, algorithms, device="cpu", start=8, most_envs=8, seconds=30)
    assert {(8, 4), (8, 8)} <= {(row.num_envs, row.rollout_steps) for row in found.rows}
    assert min(row.num_envs for row in found.rows) == 8  # a minibatch holds whole environments


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_running_out_of_memory_ends_the_search(monkeypatch, error):
    """A size that does not fit ends the doubling; the best before is chosen, and training goes on to work."""

    class Trainer(wd.Trainer):
        def step(self):
            if self.sim.num_envs > 32:
                raise error
            super().step()

    monkeypatch.setattr(tune_module, "Trainer", Trainer)
    found = tune(start=16, lengths=False)
    assert [row.num_envs for row in found.rows] == [16, 32]
    assert "64 environments x 4 steps do not fit into memory" in found.why
    trainer = wd.Trainer(wd.Simulator(Bandit(), found.num_envs, device="cpu"), POLICIES, PPO)
    trainer.train(1000)


def test_another_error_is_not_taken_for_the_end_of_memory(monkeypatch):
    """A fault in training is not hidden."""

    class Trainer(wd.Trainer):
        def step(self):
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(tune_module, "Trainer", Trainer)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        tune()


def test_too_little_memory_for_the_first_size(monkeypatch):
    """Nothing is chosen where not even the first size fits."""
    monkeypatch.setattr(tune_module, "free_memory", lambda device: 1000)
    with pytest.raises(MemoryError, match=r"not even 16 environments can be trained: .* would need .* GiB free"):
        tune()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"seconds": 0}, "seconds must be a positive number, got 0"),
        ({"seconds": float("inf")}, "seconds must be a positive number, got inf"),
        ({"seconds": "long"}, "seconds must be a positive number, got 'long'"),
        ({"start": 1}, "start must be at least the number of minibatches, 2, got 1"),
        ({"start": 0}, "start must be a positive integer, got 0"),
        ({"most_envs": 1.5}, "most_envs must be a positive integer, got 1.5"),
        ({"most_envs": 1}, "most_envs must be at least the number of minibatches, 2, got 1"),
        ({"device": "gpu"}, "device must be 'cpu', 'cuda' or 'cuda:N', got 'gpu'"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(options, sentence):
    """Each argument that does not fit is named with what would be right."""
    with pytest.raises(ValueError) as caught:
        tune(**options)
    assert str(caught.value) == sentence


@pytest.mark.gpu
def test_a_full_gpu_ends_the_search_and_is_freed():
    """With little memory allowed to PyTorch, a size that runs out, in a capture too, is the end, and nothing stays."""
    device = torch.device("cuda", 0)
    policies = {"left": wd.MLP(512, 512), "right": wd.MLP(512, 512)}
    wd.Trainer(wd.Simulator(Bandit(), 8), policies, wd.PPO(rollout_steps=32)).step()
    release_memory(device)  # what stays now, cuBLAS's workspaces, a process takes once
    before = torch.cuda.memory_allocated(device)
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(0.5 * 2**30 / total, device)
    try:
        found = wd.tune(Bandit(), policies, wd.PPO(rollout_steps=32), device=device, start=512, lengths=False)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
    assert "do not fit into memory" in found.why
    assert torch.cuda.memory_allocated(device) < before + 2**24
    trainer = wd.Trainer(wd.Simulator(Bandit(), found.num_envs), policies, wd.PPO(rollout_steps=32))
    trainer.train(found.num_envs * 32 * 2)
