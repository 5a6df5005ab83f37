"""Free memory is what the machine, the container and the device have left, and all ways of running out are known."""

import pytest
import torch

from warpdrive.sim import memory
from warpdrive.sim.memory import Peak, free_memory, is_out_of_memory

CPU = torch.device("cpu")
VERSIONS = {
    2: ("0::/box/inner\n", "box", "memory.max", "memory.current", "inactive_file"),
    1: (
        "7:cpu:/x\n4:memory,hugetlb:/box/inner\n0::/\n",
        "memory/box",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
}


@pytest.fixture(params=VERSIONS)
def group(request, tmp_path, monkeypatch):
    """A folder of a control group of version 2 or 1, and a function that writes limit, usage and cache into it."""
    text, folder, *names = VERSIONS[request.param]
    (tmp_path / "cgroup").write_text(text)
    monkeypatch.setattr(memory, "PROCESS", tmp_path)
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    path = tmp_path / folder
    path.mkdir(parents=True)

    def write(limit, usage, cache):
        (path / names[0]).write_text(f"{limit}\n")
        (path / names[1]).write_text(f"{usage}\n")
        (path / "memory.stat").write_text(f"anon 3\n{names[2]} {cache}\n")

    return write


def test_the_limit_of_a_container_counts(group):
    """What a group above the process's own has left, file caches added, bounds the free memory; "max" does not."""
    everything = free_memory(CPU)
    group(5_000_000, 3_000_000, 400_000)
    assert free_memory(CPU) == 2_400_000
    group(1_000, 3_000_000, 0)
    assert free_memory(CPU) == 0
    group("max", 3_000_000, 0)
    assert free_memory(CPU) > 0.5 * everything


def test_the_peak_is_seen_after_it_is_over():
    """40 MB taken and given back show, also where freed memory lay ready for them; a peak of before does not."""
    parts = [torch.ones(250_000) for _ in range(100)]
    torch.ones(7_500_000)  # freed: from now on the C library takes blocks of up to 30 MB from its heap
    parts += [torch.ones(250_000) for _ in range(100)]
    pin = torch.ones(1000)  # lies above them, so that the heap cannot shrink below it
    del parts
    first = Peak(CPU)
    block = torch.ones(10_000_000)
    del block
    assert 38e6 < first.num_bytes() < 80e6
    assert Peak(CPU).num_bytes() < 20e6
    del pin


def failing_capture():
    """An error that came of an allocation that failed."""
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        finally:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
    except RuntimeError as error:
        return error


def test_every_way_of_running_out_is_known():
    """PyTorch's errors on CPU and GPU, Python's own, Warp's, and those that come of one; no other error."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("Failed to allocate 8 bytes on device 'cuda:0': out of memory"))
    assert is_out_of_memory(failing_capture())
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("num_envs must be a positive integer, got 0"))
