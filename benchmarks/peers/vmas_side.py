"""VMAS's side of the comparison: simulation only, for it has no trainer of its own."""

import platform
from importlib.metadata import version
from typing import Any

import torch

__all__ = ["prepare", "versions"]

EPISODE = 25  # it cannot reset some environments alone: all begin and end together


def versions() -> dict[str, Any]:
    """Versions of what takes part."""
    return {"python": platform.python_version(), "torch": torch.__version__, "vmas": version("vmas")}


def prepare(case: dict[str, Any]) -> "Simulate":
    """What is to be timed."""
    if case["work"] != "simulate":
        raise RuntimeError("VMAS has no trainer of its own")
    return Simulate(case)


class Simulate:
    """One episode of all environments with random actions."""

    def __init__(self, case: dict[str, Any]) -> None:
        import vmas

        self.device = torch.device(case["device"])
        self.env = vmas.make_env(
            scenario={"spread": "simple_spread", "tag": "simple_tag"}[case["game"]],
            num_envs=case["num_envs"],
            device=self.device,
            continuous_actions=False,
            seed=0,
        )
        self.sizes = [space.n for space in self.env.action_space]
        self.steps_per_call = self.env.num_envs * EPISODE
        self.how = f"eager PyTorch, all reset together every {EPISODE} steps"
        self.total, self.calls = torch.zeros(self.env.num_envs, device=self.device), 0

    @torch.no_grad()
    def call(self) -> None:
        """Make one episode."""
        self.env.reset()
        for _ in range(EPISODE):
            actions = [torch.randint(n, (self.env.num_envs, 1), device=self.device) for n in self.sizes]
            _, rewards, _, _ = self.env.step(actions)
            self.total += sum(rewards) / len(rewards)
        self.calls += 1

    def wait(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def facts(self) -> dict[str, Any]:
        """Mean reward of an agent in a step."""
        steps = self.calls * self.steps_per_call
        return {"length": EPISODE, "reward_per_step": float(self.total.double().sum()) / steps}
