"""The list of environments that are over."""

import pytest
import torch

from warpdrive.sim.over import OverList
from warpdrive.sim.store import start_warp


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("num_envs", [1, 37, 1023, 1024, 1025, 5000])
def test_it_holds_each_once(num_envs, device):
    """Whatever their number: none, some or all; what stood in the list before does not matter."""
    start_warp()
    listed, over = OverList(num_envs, torch.device(device)), torch.zeros(num_envs, dtype=torch.bool, device=device)
    launch = listed.record(over)
    generator = torch.Generator().manual_seed(num_envs)
    for share in (0.0, 0.3, 1.0, 0.02, 0.0):
        over.copy_(torch.rand(num_envs, generator=generator) < share)
        launch.launch()
        if device == "cuda":
            torch.cuda.synchronize()
        envs, number = (array.numpy() for array in listed.arrays)
        assert sorted(envs[: number[0]].tolist()) == over.nonzero().flatten().tolist()
