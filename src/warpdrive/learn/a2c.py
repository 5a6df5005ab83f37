"""Advantage actor-critic (Mnih et al. 2016, arXiv 1602.01783, all environments in step), for each policy by itself.

One update: collect `rollout_steps` steps of all environments, estimate advantages, and take one step of Adam down the
gradient of

    mean over samples of  -log pi(a) A + value_coef (V - R)^2 / 2 - entropy H

in one pass over the data. Agents that had left take no part in any mean.
"""

from dataclasses import dataclass

from warpdrive.learn.settings import check_common

__all__ = ["A2C"]


@dataclass(frozen=True, kw_only=True)
class A2C:
    """Advantage actor-critic.

    Args:
        lr: learning rate of Adam at the start.
        gamma: discount of rewards a step.
        gae_lambda: weight of longer returns in the advantage (Schulman et al. 2016); 1: the whole return.
        entropy: weight of the entropy bonus at the start.
        value_coef: weight of the value loss.
        max_grad_norm: gradients are scaled down to this norm.
        rollout_steps: steps of every environment in each update.
        normalize_advantage: whether advantages are shifted and scaled to mean 0 and deviation 1 over each rollout.
        adam_eps: term for stability in Adam's denominator.
        lr_final: learning rate at the end, reached linearly; None: constant.
        entropy_final: entropy weight at the end; None: constant.
    """

    lr: float = 1e-3
    gamma: float = 0.99
    gae_lambda: float = 1.0
    entropy: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    rollout_steps: int = 20
    normalize_advantage: bool = False
    adam_eps: float = 1e-5
    lr_final: float | None = None
    entropy_final: float | None = None

    def __post_init__(self) -> None:
        check_common(self)
