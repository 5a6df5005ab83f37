"""The store: every array of a simulation, allocated once, seen by PyTorch and by Warp as the same memory."""

from dataclasses import dataclass, field
from typing import Any

import torch
import warp as wp

from warpdrive.env.environment import Env
from warpdrive.env.spaces import Box
from warpdrive.env.state import BUILT_IN, Field
from warpdrive.sim.memory import require_memory

__all__ = ["OUTPUTS", "Results", "Store", "start_warp", "warp_array", "warp_device"]

# What a step leaves for its caller. A rollout gives each of its steps arrays of its own for these.
OUTPUTS = ("reward", "terminated", "alive", "ended", "truncated", "over", "final_slot")


def torch_dtype(dtype: Any) -> torch.dtype:
    """PyTorch's type for the scalar inside a Warp type."""
    return wp.dtype_to_torch(getattr(dtype, "_wp_scalar_type_", dtype))


def inner_shape(dtype: Any) -> tuple[int, ...]:
    """Shape of one value of a Warp type: () for a scalar, (2,) for a vec2."""
    return tuple(getattr(dtype, "_shape_", ()))


def start_warp() -> None:
    """Start Warp's runtime; more than once does nothing."""
    wp.config.log_level = wp.LOG_WARNING  # its banner and its line a module are not for our users
    wp.init()


def warp_device(device: torch.device) -> Any:
    """Warp's name for a PyTorch device."""
    start_warp()
    return wp.device_from_torch(device)


def warp_array(tensor: torch.Tensor, dtype: Any) -> Any:
    """The Warp array over a tensor's memory; trailing axes of a vector or matrix type become one element."""
    outer = tensor.dim() - len(inner_shape(dtype))
    size = tensor.element_size()
    return wp.array(
        ptr=tensor.data_ptr(),
        dtype=dtype,
        shape=tuple(tensor.shape[:outer]),
        strides=tuple(stride * size for stride in tensor.stride()[:outer]),
        device=warp_device(tensor.device),
    )


@dataclass
class Results:
    """Where one step reads masks from and leaves its results.

    Attributes:
        arrays: for each name of OUTPUTS a tensor (E, N) or (E,).
        obs: group -> tensor (E, n, D) that the observations after this step are written to.
        mask: group -> tensor uint8 (E, n, A) of the actions allowed after this step, for groups that have masks.
        final_obs: group -> tensor (K, E, n, D): observations that episodes ended on.
        rolling: whether `final_count` goes on from step to step (a rollout) or starts at zero in each.
    """

    arrays: dict[str, torch.Tensor]
    obs: dict[str, torch.Tensor]
    mask: dict[str, torch.Tensor]
    final_obs: dict[str, torch.Tensor]
    rolling: bool = False


@dataclass
class Store:
    """All arrays of `num_envs` copies of an environment.

    Attributes:
        fields: name -> tensor (E, N, ...) or (E, ...) or (1,), in the order environment, agent, extra axes, components.
        action: group -> tensor (E, n, size), int32 or float32.
        results: where a plain step leaves its results.
    """

    env: Env
    num_envs: int
    device: torch.device
    obs_dtype: torch.dtype
    fields: dict[str, torch.Tensor] = field(default_factory=dict)
    action: dict[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_memory(self.num_bytes(), self.device, f"a simulation of {self.num_envs} x {type(self.env).__name__}")
        for name, spec in self.all_fields().items():
            if spec.kind in ("agent", "env", "shared"):
                self.fields[name] = torch.zeros(self._shape(spec), dtype=torch_dtype(spec.dtype), device=self.device)
        for name, group in self.env.groups.items():
            dtype = torch.float32 if isinstance(group.action, Box) else torch.int32
            # Feature-major, as everything with features: neighbouring agents at neighbouring addresses.
            flat = torch.zeros((group.action.size, self.num_envs, group.count), dtype=dtype, device=self.device)
            self.action[name] = flat.permute(1, 2, 0)
        self.results = Results(
            arrays={name: self.fields[name] for name in OUTPUTS},
            obs={name: self.new_obs(name)[0] for name in self.env.groups},
            mask={name: self.new_mask(name)[0] for name, group in self.env.groups.items() if group.mask},
            final_obs={name: self.new_obs(name) for name in self.env.groups},
        )

    def all_fields(self) -> dict[str, Field]:
        """The author's fields and the built-in ones."""
        return {**BUILT_IN, **self.env.state.fields}

    def group_obs_dtype(self, name: str) -> torch.dtype:
        """Type of a group's observations."""
        return torch.float32 if self.env.groups[name].float32 else self.obs_dtype

    def new_obs(self, name: str, slots: int = 1, agent_fastest: bool = True) -> torch.Tensor:
        """Zeroed observations (slots, E, n, D), in memory [D, slots, E, n] or, not agent_fastest, [D, slots, n, E]."""
        return self._block(name, self.env.groups[name].obs, self.group_obs_dtype(name), slots, agent_fastest)

    def new_mask(self, name: str, slots: int = 1, agent_fastest: bool = True) -> torch.Tensor:
        """An action mask block (slots, E, n, A) uint8 that allows everything, laid out as the observations."""
        return self._block(name, self.env.groups[name].action.num_outputs, torch.uint8, slots, agent_fastest).fill_(1)

    def _block(self, name: str, features: int, dtype: torch.dtype, slots: int, agent_fastest: bool) -> torch.Tensor:
        count = self.env.groups[name].count
        inner = (self.num_envs, count) if agent_fastest else (count, self.num_envs)
        flat = torch.zeros((features, slots, *inner), dtype=dtype, device=self.device)
        return flat.permute(1, 2, 3, 0) if agent_fastest else flat.permute(1, 3, 2, 0)

    def _shape(self, spec: Field) -> tuple[int, ...]:
        lead = {"agent": (self.num_envs, self.env.num_agents), "env": (self.num_envs,), "shared": (1,)}[spec.kind]
        extra = tuple(self.env.sizes[axis] if isinstance(axis, str) else axis for axis in spec.axes)
        return lead + extra + inner_shape(spec.dtype)

    def num_bytes(self) -> int:
        """Bytes that the store takes."""
        total = 0
        for spec in self.all_fields().values():
            if spec.kind in ("agent", "env"):
                total += _product(self._shape(spec)) * torch_dtype(spec.dtype).itemsize
        for name, group in self.env.groups.items():
            per_agent = 2 * group.obs * self.group_obs_dtype(name).itemsize + 4 * group.action.size
            per_agent += group.action.num_outputs if group.mask else 0
            total += per_agent * self.num_envs * group.count
        return total


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for length in shape:
        total *= length
    return total
