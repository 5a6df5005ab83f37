"""Adam (Kingma & Ba 2015, arXiv 1412.6980) in PyTorch's fused kernel."""

from collections.abc import Iterable

import torch
from torch.optim.adam import adam

__all__ = ["Adam"]


class Adam:
    """Adam, the same bits as torch.optim.Adam(fused=True).

    PyTorch's class imports the compiler, torch._dynamo, on its first use: more than two seconds of every start. The
    state is made here at once, for graphs need it at fixed addresses.

    Args:
        parameters: that are moved, all on one device.
        lr: learning rate, a tensor: what it holds at a step is used.
        eps: term for stability in the denominator.

    Attributes:
        state: of each parameter, in order: "step" (), "exp_avg" and "exp_avg_sq" of the parameter's shape.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], lr: torch.Tensor, eps: float) -> None:
        self.parameters, self.lr, self.eps = list(parameters), lr, eps
        self.state = [
            {
                "step": torch.zeros((), dtype=torch.float32, device=p.device),
                "exp_avg": torch.zeros_like(p, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(p, memory_format=torch.preserve_format),
            }
            for p in self.parameters
        ]

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameters that have a gradient."""
        moved = [(p, s) for p, s in zip(self.parameters, self.state, strict=True) if p.grad is not None]
        adam(
            [p for p, _ in moved],
            [p.grad for p, _ in moved],  # type: ignore[misc]
            [s["exp_avg"] for _, s in moved],
            [s["exp_avg_sq"] for _, s in moved],
            [],
            [s["step"] for _, s in moved],
            fused=True,
            capturable=self.lr.device.type == "cuda",
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.lr,
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )
