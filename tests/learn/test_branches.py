"""Work side by side: what may be, in which order, and that it is done before what follows."""

import pytest
import torch
from torch import nn

from warpdrive.learn.branches import branches, together
from warpdrive.sim.simulator import capture


def policy(fused):
    module = nn.Linear(1, 1)
    module.fused = fused
    return module


def test_fused_policies_have_branches_and_others_share_one():
    """The most agents come first; modules that may share buffers stay one after the other."""
    policies = {"a": policy("wide"), "b": nn.Linear(1, 1), "c": policy("whole"), "d": policy("")}
    assert branches({"a": 3, "b": 1, "c": 9, "d": 4}, policies) == [["c"], ["b", "d"], ["a"]]
    assert branches({"b": 2}, policies) == [["b"]]
    assert branches({"a": 1, "c": 1}, policies) == [["a"], ["c"]]


@pytest.mark.parametrize(
    ("device", "captured"),
    [("cpu", False), *(pytest.param("cuda", captured, marks=pytest.mark.gpu) for captured in (False, True))],
)
def test_branches_begin_after_what_was_before_and_end_before_what_follows(device, captured):
    """Each branch reads what stood before them all, and what follows reads all of theirs."""
    device = torch.device(device)
    x = torch.zeros(1 << 22, device=device)
    sums = torch.zeros(3, len(x), device=device)
    total = torch.zeros_like(x)

    def work(i):
        for _ in range(10):
            sums[i].add_(x)

    def run():
        x.add_(1.0)
        sums.zero_()
        together([lambda i=i: work(i) for i in range(3)], device)
        torch.sum(sums, 0, out=total)

    if captured:
        run = capture(run, device)
    for turn in range(1, 4):
        run()
        assert bool((total == 30.0 * turn).all())
