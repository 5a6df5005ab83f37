"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347), independently for each policy.

One update: collect `rollout_steps` steps of all environments; estimate advantages by GAE with the policy that acted;
then for `epochs` epochs split the environments at random into `minibatches`, and on each step Adam down the gradient of

    mean over samples of  -min(r A, clip(r, 1 - clip, 1 + clip) A) + value_coef (V - R)^2 / 2 - entropy H

where r is the probability of the action now over then (eq. 7 and 9). Agents that had left take no part in any mean.
"""

from dataclasses import dataclass
from typing import Literal

from warpdrive.env.environment import positive_int
from warpdrive.learn.settings import check_common, require

__all__ = ["PPO"]


@dataclass(frozen=True, kw_only=True)
class PPO:
    """Proximal policy optimisation.

    Args:
        lr: learning rate of Adam at the start.
        gamma: discount of rewards a step.
        gae_lambda: weight of longer returns in the advantage (Schulman et al. 2016).
        clip: how far the probability ratio may move before its gradient stops, at the start.
        value_clip: how far a value may move from the one at the rollout before its gradient stops; None: freely.
        entropy: weight of the entropy bonus at the start.
        value_coef: weight of the value loss.
        max_grad_norm: gradients are scaled down to this norm.
        epochs: passes over each rollout.
        minibatches: parts of each pass, each of whole environments.
        rollout_steps: steps of every environment in each update.
        normalize_advantage: whether advantages are shifted and scaled to mean 0 and deviation 1.
        advantage_over: over what they are normalised: each rollout, or each minibatch for itself.
        adam_eps: term for stability in Adam's denominator.
        lr_final: learning rate at the end, reached linearly; None: constant.
        entropy_final: entropy weight at the end; None: constant.
        clip_final: clip at the end; None: constant.
    """

    lr: float = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_clip: float | None = None
    entropy: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    epochs: int = 4
    minibatches: int = 4
    rollout_steps: int = 64
    normalize_advantage: bool = True
    advantage_over: Literal["rollout", "minibatch"] = "rollout"
    adam_eps: float = 1e-5
    lr_final: float | None = None
    entropy_final: float | None = None
    clip_final: float | None = None

    def __post_init__(self) -> None:
        check_common(self)
        require(self, "clip", self.clip > 0, "positive")
        require(self, "clip_final", self.clip_final is None or self.clip_final > 0, "positive or null")
        require(self, "value_clip", self.value_clip is None or self.value_clip > 0, "positive or null")
        require(self, "advantage_over", self.advantage_over in ("rollout", "minibatch"), "'rollout' or 'minibatch'")
        for name in ("epochs", "minibatches"):
            positive_int(f"PPO.{name}", getattr(self, name))
