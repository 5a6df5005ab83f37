"""The store: one memory for Warp and PyTorch, of every type, laid out as it says."""

import io

import pytest
import torch

import warpdrive as wd
from sim.environments import Dice, Kinds, Script
from warpdrive.sim import store as store_module
from warpdrive.sim.memory import require_memory
from warpdrive.sim.store import Store

E, SLOTS = 3, 4


@pytest.fixture(scope="module")
def sim() -> wd.Simulator:
    sim = wd.Simulator(Kinds(SLOTS), E, device="cpu")
    sim.reset()
    sim.step()
    return sim


def indices(*shape: int) -> list[torch.Tensor]:
    """The index along each axis of an array of this shape."""
    return list(torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij"))


def test_every_type_of_field_arrives_in_pytorch(sim):
    """What a phase writes at [env, agent, ...] is read there, in the type declared, scalar, vector or matrix."""
    env, agent = indices(E, 3)
    x = 10 * env + agent
    turn = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    expected = {
        "real": x * 0.5,
        "whole": (-x).int(),
        "flag": agent == 1,
        "byte": (200 + agent).to(torch.uint8),
        "large": x * 10_000_000_000,
        "fine": torch.full((E, 3), 1 / 3, dtype=torch.float64),
        "plane": torch.stack([x + 1.0, agent + 2.0], -1),
        "solid": torch.stack([env.float(), agent.float(), torch.ones(E, 3)], -1),
        "matrix": x[..., None, None] * turn,
        "env_real": torch.arange(E).float(),
    }
    for name, value in expected.items():
        found = getattr(sim.state, name)
        assert found.dtype == value.dtype and torch.equal(found, value), name


def test_extra_axes_by_number_and_by_name(sim):
    """Extra axes have the length declared or in sizes, and stand after the agent and before components."""
    env, agent, k = indices(E, 3, 3)
    assert torch.equal(sim.state.three, (100 * (10 * env + agent) + k).float())
    env, agent, k = indices(E, 3, SLOTS)
    assert torch.equal(sim.state.named, (100 * (10 * env + agent) + k).int())
    env, agent, j, k = indices(E, 3, 2, SLOTS)
    assert torch.equal(sim.state.grid, torch.stack([10 * env + agent, 10 * j + k], -1).float())
    _, a, b, c = indices(E, SLOTS, 3, 2)
    assert torch.equal(sim.state.env_grid, ((100 * a + 10 * b + c) % 256).to(torch.uint8))


def test_what_pytorch_writes_phases_read():
    """A value put into a view of a field is there in the next step."""
    sim = wd.Simulator(Script(episode_length=None), 2, device="cpu")
    sim.reset()
    sim.state.count[1, 0] = 41
    sim.action["pairs"][1, 0] = 1
    sim.step()
    assert sim.obs["pairs"][:, 0, 0].tolist() == [0.0, 42.0]
    sim.state.count[0, 1] = 7
    sim.refresh()
    assert sim.obs["pairs"][0, 1, 0] == 7.0


def test_nothing_moves(sim):
    """Views stay views of the same memory over steps, resets and restored states."""
    arrays = {**vars(sim.state), **sim.obs, **{f"final {k}": v for k, v in sim.final_obs.items()}}
    arrays |= {f"action {k}": v for k, v in sim.action.items()} | {f"mask {k}": v for k, v in sim.mask.items()}
    before = {name: array.data_ptr() for name, array in arrays.items()}
    for _ in range(3):
        sim.random_step()
    sim.reset()
    sim.load_state_dict(sim.state_dict())
    assert {name: array.data_ptr() for name, array in arrays.items()} == before
    for name, block in sim.store.results.obs.items():
        assert block.data_ptr() == sim.obs[name].data_ptr()
    assert sim.reward.data_ptr() == sim.state.reward.data_ptr()
    assert sim.rewards["boxed"].data_ptr() == sim.reward.data_ptr() + 2 * sim.reward.element_size()


def test_observations_masks_and_actions_are_feature_major():
    """In memory the feature is slowest and the agent fastest, so that (batch, features) is a contiguous transpose."""
    store = Store(Kinds(SLOTS), E, torch.device("cpu"), torch.float32)
    for block in (store.results.obs["boxed"], store.action["masked"], store.results.mask["masked"]):
        envs, count, _ = block.shape
        assert block.stride() == (count, 1, envs * count)
        flat = block.reshape(envs * count, -1)
        assert flat.t().is_contiguous() and flat.data_ptr() == block.data_ptr(), "no copy"
    assert store.new_obs("boxed", 5).stride() == (E, 1, 1, 5 * E)
    assert store.new_obs("masked", 5, agent_fastest=False).stride() == (2 * E, 1, E, 5 * E * 2)
    assert store.new_obs("masked", 5, agent_fastest=False).shape == (5, E, 2, 1)
    assert (store.new_mask("masked") == 1).all() and store.new_mask("masked").shape == (1, E, 2, 7)


def test_the_size_told_is_the_size_taken():
    """num_bytes is the sum over all arrays, with two blocks of observations a group."""
    for env in (Kinds(SLOTS), Script(), Dice()):
        store = Store(env, 5, torch.device("cpu"), torch.bfloat16)
        tensors = [t for name, t in store.fields.items() if name != "seed"]
        for block in (store.action, store.results.obs, store.results.mask, store.results.final_obs):
            tensors += block.values()
        assert store.num_bytes() == sum(t.numel() * t.element_size() for t in tensors)


def test_too_little_memory_is_told_before_anything_is_allocated(monkeypatch):
    """A store that cannot fit is refused with the GiB it needs, without a single array."""
    monkeypatch.setattr(store_module.torch, "zeros", lambda *_, **__: pytest.fail("allocated"))
    monkeypatch.setattr(store_module, "open", lambda *_, **__: io.StringIO("MemAvailable: 1048576 kB"), raising=False)
    with pytest.raises(MemoryError) as caught:
        wd.Simulator(Script(), 10**9, device="cpu")
    monkeypatch.undo()
    needed = Store(Script(), 1, torch.device("cpu"), torch.float32).num_bytes() * 10**9 / 2**30
    assert f"a simulation of 1000000000 x Script needs {needed:.2f} GiB on cpu" in str(caught.value)
    assert str(caught.value).endswith("take fewer environments")


def test_free_memory_is_asked_of_the_system():
    """A byte fits, a billion GiB do not."""
    require_memory(1, torch.device("cpu"), "a test")
    with pytest.raises(MemoryError, match=r"a test needs 1000000000\.00 GiB on cpu, of which \d+\.\d\d GiB are free"):
        require_memory(10**9 * 2**30, torch.device("cpu"), "a test")


def test_observations_in_bfloat16():
    """In bfloat16 a third is rounded to 8 bits, and a group that asks for float32 keeps it whole."""
    sim = wd.Simulator(Kinds(SLOTS), 2, device="cpu", obs_dtype=torch.bfloat16)
    sim.reset()
    assert sim.obs["masked"].dtype == sim.final_obs["masked"].dtype == torch.bfloat16
    assert (sim.obs["masked"] == torch.tensor(1 / 3).bfloat16()).all()
    assert sim.obs["boxed"].dtype == torch.float32 and (sim.obs["boxed"][..., 0] == torch.tensor(1 / 3)).all()
