"""Running moments of observations: as NumPy's, without the agents that have left."""

import numpy as np
import pytest
import torch

from warpdrive.policy.normalizer import Normalizer

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_moments_are_those_of_all_batches_together(device):
    """After batches of unequal size and scale, mean and variance are those of their union."""
    rng = np.random.default_rng(0)
    batches = [rng.normal(m, s, (n, 4)).astype(np.float32) for m, s, n in ((3, 1, 50), (-2, 5, 7), (0, 0.1, 200))]
    normalizer = Normalizer(4).to(device)
    for batch in batches:
        normalizer.update(torch.from_numpy(batch).to(device), torch.ones(len(batch), device=device))
    union = np.concatenate(batches).astype(np.float64)
    np.testing.assert_allclose(normalizer.mean.cpu(), union.mean(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(normalizer.variance.cpu(), union.var(0), rtol=1e-4)
    assert float(normalizer.count) == len(union)


def test_absent_agents_change_nothing():
    """Rows of weight 0 take no part, even if they hold NaN; a batch of them leaves all as it was."""
    rng = np.random.default_rng(1)
    rows = torch.from_numpy(rng.normal(1, 2, (40, 3)).astype(np.float32))
    weight = torch.from_numpy((rng.random(40) < 0.5).astype(np.float32))
    poisoned = torch.where(weight[:, None] > 0, rows, float("nan"))
    normalizer = Normalizer(3)
    normalizer.update(poisoned, weight)
    np.testing.assert_allclose(normalizer.mean, rows[weight > 0].numpy().mean(0), rtol=1e-4)
    before = {k: v.clone() for k, v in normalizer.state_dict().items()}
    normalizer.update(poisoned, torch.zeros(40))
    assert all(torch.equal(v, before[k]) for k, v in normalizer.state_dict().items())


def test_normalised_features_have_mean_zero_and_variance_one_and_are_bounded():
    """What comes out of the data gathered has unit moments; an outlier is clipped."""
    rows = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)) * 7 + 100
    normalizer = Normalizer(3)
    normalizer.update(rows, torch.ones(500))
    out = normalizer(rows)
    assert out.mean(0).abs().max() < 1e-3
    assert (out.var(0, correction=0) - 1).abs().max() < 1e-3
    assert normalizer(torch.full((1, 3), 1e6)).max() == 10.0


def test_the_state_survives_being_saved():
    """After load_state_dict another normaliser gives the same and goes on the same."""
    first, second = Normalizer(3), Normalizer(3)
    g = torch.Generator().manual_seed(0)
    first.update(torch.randn(20, 3, generator=g) + 5, torch.ones(20))
    second.load_state_dict(first.state_dict())
    rows = torch.randn(30, 3, generator=g)
    for normalizer in (first, second):
        normalizer.update(rows, torch.ones(30))
    assert torch.equal(first(rows), second(rows))
    assert float(second.count) == 50
