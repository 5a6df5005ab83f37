"""Lists of those who take part against torch.nonzero."""

import pytest
import torch

pytest.importorskip("triton")
from warpdrive.policy.fused_present import list_present

DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(torch.cuda.is_available(), reason="compiled kernels run on the GPU")),
    pytest.param("cuda", marks=pytest.mark.gpu),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (3, 700), (50, 97), (2048, 2)])
def test_the_list_holds_who_takes_part_in_order(device, share, shape):
    """Of blocks that are full, empty or cut, of columns of a wider array and of its transpose."""
    g = torch.Generator().manual_seed(shape[0])
    wide = torch.rand(shape[0], shape[1] + 2, generator=g) < share
    for flags in (wide[:, 1:-1], wide[:, 1:-1].t()):
        placed = torch.empty_strided(flags.shape, flags.stride(), dtype=torch.bool, device=device).copy_(flags)
        order, count = list_present(placed)
        wanted = flags.reshape(-1).nonzero()[:, 0]
        assert int(count) == len(wanted)
        assert order.dtype == torch.int32
        torch.testing.assert_close(order[: len(wanted)].cpu().long(), wanted)
