"""Minibatches hold every environment once, drawn in runs of neighbours."""

import pytest
import torch

import warpdrive as wd
from learn.bandit import Bandit
from warpdrive.learn.learner import run_length


@pytest.mark.parametrize(
    ("num_envs", "minibatches", "length"),
    [(16384, 4, 32), (1024, 4, 32), (256, 4, 8), (96, 4, 2), (97, 4, 1), (8, 4, 1), (4, 4, 1), (1000, 1, 8)],
)
def test_runs_leave_plenty_to_draw_from(num_envs, minibatches, length):
    """At least eight runs a minibatch, none cut, and no longer than helps."""
    assert run_length(num_envs, minibatches) == length


@pytest.mark.parametrize("num_envs", [96, 97])
def test_minibatches_hold_every_environment_once(num_envs):
    """Nearly equal parts of all environments, other ones in every epoch and update, the same for the same seed."""

    def drawn(seed: int) -> list[torch.Tensor]:
        sim = wd.Simulator(Bandit(), num_envs, seed=seed, device="cpu")
        trainer = wd.Trainer(sim, {"left": wd.MLP(4), "right": wd.MLP(4)}, wd.PPO(rollout_steps=2, minibatches=4))
        learner = trainer.learners["left"]
        orders = []
        for _ in range(2):
            for epoch in range(2):
                parts = learner._minibatches(epoch)
                sizes = [len(part) for part in parts]
                assert len(sizes) == 4 and max(sizes) - min(sizes) <= 1
                orders.append(torch.cat(parts))
            learner.counter.add_(1)
        return orders

    orders = drawn(3)
    for order in orders:
        assert torch.equal(order.sort().values, torch.arange(num_envs))
    assert len({tuple(order.tolist()) for order in orders}) == len(orders)
    assert all(torch.equal(a, b) for a, b in zip(orders, drawn(3), strict=True))
    assert not torch.equal(orders[0], drawn(4)[0])
