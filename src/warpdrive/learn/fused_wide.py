"""Gradients of networks whose weights do not fit a multiprocessor, in bfloat16: layer by layer.

Each hidden layer is a kernel forwards and one backwards, and the heads with the loss are one; what comes out of each
layer and the gradient in front of it lie in memory between them. A last kernel makes the weights' gradients of that:
for each layer the sum over samples of gradient times input. Sums are kept by program and added up in a fixed order, so
that the same samples give the same bits. All are near what an H200's memory allows (docs/design.md).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from warpdrive.env.spaces import ActionSpace
from warpdrive.learn.fused_samples import Sums, Tower, sample_arguments
from warpdrive.learn.rollout import Samples
from warpdrive.learn.wide_layers import back_layer, first_layer, head, layer, outer
from warpdrive.policy.fused_layers import block, multiprocessors
from warpdrive.policy.mlp import ActorCritic

__all__ = ["FusedWide", "WideTiles"]

# Samples whose layers are in memory at once: for two layers of 256 features 2.3 KB each.
CHUNK = 1 << 20


class WideTiles(NamedTuple):
    """How the kernels divide their work.

    Attributes:
        rows, columns: samples and features of a layer that a program makes.
        chunk, stages: features that it takes in at a time, and how many such tiles are on their way.
        warps: of a program.
        head_rows, head_chunk, head_warps: the same of the kernel of the heads.
        head_programs: of it on each multiprocessor.
        sum_rows, sum_stages: samples at a time of the sums of outer products, and tiles on their way.
        sum_features, sum_warps: features of their left factor, and warps.
    """

    rows: int = 128
    columns: int = 128
    chunk: int = 64
    stages: int = 3
    warps: int = 8
    head_rows: int = 64
    head_chunk: int = 64
    head_warps: int = 4
    head_programs: int = 2
    sum_rows: int = 64
    sum_stages: int = 3
    sum_features: int = 128
    sum_warps: int = 8


class FusedWide:
    """Gradients and metrics of a minibatch for an ActorCritic of one or two wide hidden layers, in bfloat16.

    Args:
        module: all of whose parameters learn.
        space: of its actions.
        clipped: PPO's loss, otherwise A2C's.
        samples: of the segments that it acts for.
        tiles: how the kernels divide their work.
        chunk: samples whose layers are in memory at once.

    Attributes:
        sums: their totals are what `run` leaves.
    """

    def __init__(
        self,
        module: ActorCritic,
        space: ActionSpace,
        *,
        clipped: bool,
        samples: Sequence[Samples],
        tiles: WideTiles | None = None,
        chunk: int = CHUNK,
    ) -> None:
        self.module, self.samples, self.tiles, self.chunk = module, list(samples), tiles or WideTiles(), chunk
        self._device = samples[0].obs.device
        self._multiprocessors = multiprocessors(self._device)
        self._programs = self.tiles.head_programs * self._multiprocessors
        self.sums = Sums(module, self._programs)
        alone = [False] if module.critic is None else [False, True]
        self._towers = [Tower(module, space, self.sums, critic, clipped) for critic in alone]

    def run(self, envs: torch.Tensor | None, coefficients: torch.Tensor, moments: torch.Tensor) -> None:
        """Enqueue on PyTorch's current stream; arguments as FusedUpdate.run's."""
        weights = self.module.weights(torch.bfloat16)
        hidden = [weights.actor, weights.critic or []]
        for index, tower in enumerate(self._towers):
            # With one tower both heads are one product; with two each has its own.
            layers = [*hidden[index], weights.heads[index]]
            first = True
            for s in self.samples:
                arguments = sample_arguments(s, envs, self.module, coefficients, moments)
                rows = arguments[1][0]
                # Parts of equal size, whole tiles of every kernel; each program of the heads has equally many.
                tiles = self.tiles
                whole = math.lcm(tiles.head_rows * self._programs, tiles.rows, tiles.sum_rows)
                size = -(-rows // (-(-rows // self.chunk) * whole)) * whole
                for start in range(0, rows, size):
                    self._part(tower, layers, arguments, start, size, first)
                    first = False
        self.sums.add_up()

    def _part(self, tower: Tower, layers: list[Any], arguments: tuple, start: int, size: int, first: bool) -> None:
        """One tower's share of the sums by `size` samples from `start` on, of which those beyond the end are none."""
        arrays, numbers, constants = arguments
        tiles, partial = self.tiles, self.sums.partial
        obs, mask, action, alive, log_prob, value, advantage, target, envs, coefficients, moments, log_std = arrays[:12]
        counts, obs_at, mask_at, action_at, alive_at, flat_at = (
            numbers[a:b] for a, b in ((0, 3), (3, 7), (7, 11), (11, 15), (15, 18), (18, 21))
        )
        features, outputs, policy = constants["D"], tower.constants["OUTP"], tower.constants["P"]
        (w1, b1), (w_head, b_head) = layers[0], layers[-1]
        wide1, width1 = constants["H1"], constants["H1P"]
        wide2, width2 = constants["H2"], constants["H2P"]
        two = constants["LAYERS"] == 2
        inputs = -(-(features + 1) // 8) * 8  # and the one, in whole 16 bytes
        to_w1, to_b1, to_w2, to_b2, to_wa, to_ba, to_wc, to_bc, to_log_std, to_metrics = tower.to

        def new(width: int) -> torch.Tensor:
            return torch.empty(size, width, dtype=torch.bfloat16, device=self._device)

        def tiling(width: int) -> dict[str, Any]:
            columns = min(tiles.columns, width)
            division = {"ROWS": tiles.rows, "COLUMNS": columns, "num_warps": tiles.warps}
            return {"grid": (size // tiles.rows * (width // columns),), "WIDTH": width, **division}

        def launch(kernel: Any, *given: Any, grid: tuple[int, ...], **named: Any) -> None:
            kernel[grid](*given, TANH=constants["TANH"], **named)

        of_samples = {key: constants[key] for key in ("GATHERED", "ENV_FASTEST")}
        pipeline = {"STAGES": tiles.stages}
        x, h1 = new(inputs), new(width1)
        # fmt: off
        launch(
            first_layer, obs, alive, envs, *arrays[12:], w1, b1, x, h1, start, *counts, *obs_at, *alive_at,
            *w1.stride(), D=features, DP=block(features + 1), DX=inputs, H=wide1, NORMALIZE=constants["NORMALIZE"],
            **of_samples, **tiling(width1),
        )
        h2 = h1
        if two:
            w2, b2 = layers[1]
            h2 = new(width2)
            launch(
                layer, h1, w2, b2, h2, *w2.stride(), N=wide1, N_WIDTH=width1, H=wide2,
                CHUNK=min(tiles.chunk, width1), **pipeline, **tiling(width2),
            )
        grad2, grad = new(width2), new(outputs)
        launch(
            head, mask, action, alive, log_prob, value, advantage, target, envs, coefficients, moments, log_std,
            h2, w_head, b_head, grad2, grad, partial, start, *counts, *mask_at, *action_at, *alive_at, *flat_at,
            *w_head.stride(), partial.stride(0), to_ba, to_bc, to_log_std, to_metrics,
            grid=(self._programs,), H=wide2, WIDTH=width2, **tower.constants, MASKED=constants["MASKED"], **of_samples,
            ROWS=tiles.head_rows, CHUNK=min(tiles.head_chunk, width2), **pipeline,
            TURNS=size // (tiles.head_rows * self._programs), FIRST=first, num_warps=tiles.head_warps,
        )
        grad1 = grad2
        if two:
            grad1 = new(width1)
            launch(
                back_layer, grad2, h1, w2, grad1, *w2.stride(), N=wide2, N_WIDTH=width2, H=wide1,
                CHUNK=min(tiles.chunk, width2), **pipeline, **tiling(width1),
            )
        # fmt: on
        # Of the first layer the column of ones gives the biases; of the heads the last column is the critic's.
        self._sum(grad1, wide1, x, features, (to_w1, features, 1), extra=to_b1, first=first)
        if two:
            self._sum(grad2, wide2, h1, wide1, (to_w2, wide1, 1), bias=to_b2, first=first)
        extra = to_wc if tower.constants["HAS_VALUE"] else None
        self._sum(h2, wide2, grad, policy, (to_wa, 1, wide2), extra=extra, first=first)

    def _sum(
        self,
        left: torch.Tensor,
        m: int,
        right: torch.Tensor,
        n: int,
        to: tuple[int, int, int],
        *,
        extra: int | None = None,
        bias: int | None = None,
        first: bool,
    ) -> None:
        """Add up left[row, :m] right[row, :n] to `to`, offset and strides; and right's column n and left alone."""
        tiles, partial = self.tiles, self.sums.partial
        width = left.shape[1]
        features = min(tiles.sum_features, width)
        count = len(left) // tiles.sum_rows
        splits = max(1, min(count, self._multiprocessors // (width // features)))
        outer[(width // features, splits)](
            left,
            right,
            partial,
            partial.stride(0),
            to[0],
            extra or 0,
            bias or 0,
            *to[1:],
            M=m,
            M_TILE=features,
            M_WIDTH=width,
            N=n,
            N_TILE=block(right.shape[1]),
            N_WIDTH=right.shape[1],
            EXTRA=extra is not None,
            BIAS=bias is not None,
            ROWS=tiles.sum_rows,
            TILES=count,
            SPLITS=splits,
            STAGES=tiles.sum_stages,
            FIRST=first,
            num_warps=tiles.sum_warps,
        )
