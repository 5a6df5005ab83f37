"""Running mean and variance of observations, kept inside the policy."""

import torch
from torch import nn

__all__ = ["Normalizer"]


class Normalizer(nn.Module):
    """Shifts and scales D features to mean 0 and variance 1, by moments gathered in float32.

    Args:
        size: number of features, D.
        limit: results are clipped to +-limit.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor

    def __init__(self, size: int, limit: float = 10.0) -> None:
        super().__init__()
        self.limit = limit
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Normalised observations (B, D) float32, in the memory order of `obs`."""
        scale = torch.rsqrt(self.variance + 1e-5)
        return ((obs.float() - self.mean) * scale).clamp_(-self.limit, self.limit)

    @torch.no_grad()
    def update(self, obs: torch.Tensor, weight: torch.Tensor) -> None:
        """Take in the observations (B, D) of weight 1, leaving out those of weight 0 (B,) float32.

        Counts and moments are merged as by Chan et al. 1979 ("Updating formulae and a pairwise algorithm for computing
        sample variances"); nothing waits for the device, and an empty batch changes nothing.
        """
        obs, w = obs.float(), weight[:, None]
        # What stands in the row of an absent agent may be anything: select, do not multiply.
        obs = torch.where(w > 0, obs, self.mean)
        count = weight.sum(dtype=torch.float64)
        some = count > 0
        mean = (obs * w).sum(0) / count.clamp(min=1.0).float()
        variance = ((obs - mean).square() * w).sum(0) / count.clamp(min=1.0).float()
        total = self.count + count
        share = (count / total.clamp(min=1.0)).float()
        step = mean - self.mean
        merged = torch.where(
            self.count > 0,
            self.variance * (1 - share) + variance * share + step.square() * share * (1 - share),
            variance,
        )
        self.variance.copy_(torch.where(some, merged, self.variance))
        self.mean.copy_(torch.where(some, self.mean + step * share, self.mean))
        self.count.copy_(total)
