"""Gradients of networks whose weights do not fit a multiprocessor, in bfloat16: layer by layer.

Each hidden layer is a kernel forwards and one backwards, and the heads with the loss are one; what comes out of each
layer and the gradient in front of it lie in memory between them. A last kernel makes the weights' gradients of that:
for each layer the sum over samples of gradient times input. Sums are kept by program and added up in a fixed order, so
that the same samples give the same bits. All are near what an H200's memory allows (docs/design.md).

Who learns from a rollout once, as A2C does, learns with the weights that it acted with. Then the rollout keeps what
comes out of each layer, if there is memory for it, and nothing is computed forwards again but the heads.
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
from warpdrive.policy.mlp import ActorCritic, Kept
from warpdrive.sim.memory import require_memory, total_memory

__all__ = ["FusedWide", "WideTiles"]

# Samples whose layers are in memory at once: for two layers of 256 features 2.3 KB each.
CHUNK = 1 << 20
# Of a GPU's memory what a rollout keeps may take. Not of what is free: results would depend on what else runs.
KEPT_SHARE = 1 / 8


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


class _Layers(NamedTuple):
    """What goes into the first layer of some samples, with the one, and what comes out of each: bfloat16 rows."""

    x: torch.Tensor
    hidden: list[torch.Tensor]


def _inputs(features: int) -> int:
    """Columns of the rows that go into the first layer: the features and a one, in whole 16 bytes."""
    return -(-(features + 1) // 8) * 8


class FusedWide:
    """Gradients and metrics of a minibatch for an ActorCritic of one or two wide hidden layers, in bfloat16.

    Args:
        module: all of whose parameters learn.
        space: of its actions.
        clipped: PPO's loss, otherwise A2C's.
        samples: of the segments that it acts for.
        once: whether it learns from each rollout once, all of it.
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
        once: bool = False,
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
        self._kept: list[_Layers | None] = [None] * len(self.samples)
        if once and module.critic is None:
            self._keep()

    def _keep(self) -> None:
        """Let rollouts keep what comes out of each layer, if that takes no more than its share of memory."""
        rows = [sum(size for _, size in self._parts(s.log_prob.numel())) for s in self.samples]
        widths = [_inputs(self.module.obs_size), *map(block, self.module.hidden)]
        needed = 2 * sum(rows) * sum(widths)
        if needed > KEPT_SHARE * total_memory(self._device):
            return
        require_memory(needed, self._device, "what a rollout keeps of its policy's layers")
        for i, (s, count) in enumerate(zip(self.samples, rows, strict=True)):
            # Rows behind the last sample stay 0.
            x, *hidden = (torch.zeros(count, w, dtype=torch.bfloat16, device=self._device) for w in widths)
            present = s.present.t() if s.env_fastest else s.present
            step = present.numel()
            own = [slice(t * step, (t + 1) * step) for t in range(len(s.log_prob))]
            s.kept = [Kept(x[rows_of], [h[rows_of] for h in hidden], present) for rows_of in own]
            self._kept[i] = _Layers(x, hidden)

    def _parts(self, rows: int) -> list[tuple[int, int]]:
        """Beginning and length of parts of equal length that cover so many samples, each whole tiles of every kernel.

        Each program of the heads has equally many; samples beyond `rows` are none.
        """
        tiles = self.tiles
        whole = math.lcm(tiles.head_rows * self._programs, tiles.rows, tiles.sum_rows)
        size = -(-rows // (-(-rows // self.chunk) * whole)) * whole
        return [(start, size) for start in range(0, rows, size)]

    def run(self, envs: torch.Tensor | None, coefficients: torch.Tensor, moments: torch.Tensor) -> None:
        """Enqueue on PyTorch's current stream; arguments as FusedUpdate.run's."""
        weights = self.module.weights(torch.bfloat16)
        hidden = [weights.actor, weights.critic or []]
        for index, tower in enumerate(self._towers):
            # With one tower both heads are one product; with two each has its own.
            layers = [*hidden[index], weights.heads[index]]
            first = True
            for s, kept in zip(self.samples, self._kept, strict=True):
                arguments = sample_arguments(s, envs, self.module, coefficients, moments)
                for start, size in self._parts(arguments[1][0]):
                    here = slice(start, start + size)
                    given = None if kept is None else _Layers(kept.x[here], [h[here] for h in kept.hidden])
                    self._part(tower, layers, arguments, start, size, given, first)
                    first = False
        self.sums.add_up()

    def _part(
        self,
        tower: Tower,
        layers: list[Any],
        arguments: tuple,
        start: int,
        size: int,
        given: "_Layers | None",
        first: bool,
    ) -> None:
        """One tower's share of the sums by `size` samples from `start` on, of which those beyond the end are none.

        `given` is what the rollout kept of them.
        """
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
        # fmt: off
        if given is None:
            inputs = _inputs(features)
            x, h1 = new(inputs), new(width1)
            launch(
                first_layer, obs, alive, envs, *arrays[12:], w1, b1, x, h1, start, *counts, *obs_at, *alive_at,
                *w1.stride(), D=features, DP=block(features + 1), DX=inputs, H=wide1,
                NORMALIZE=constants["NORMALIZE"], **of_samples, **tiling(width1),
            )
            given = _Layers(x, [h1])
            if two:
                given.hidden.append(new(width2))
                launch(
                    layer, h1, *layers[1], given.hidden[1], *layers[1][0].stride(), N=wide1, N_WIDTH=width1, H=wide2,
                    CHUNK=min(tiles.chunk, width1), **pipeline, **tiling(width2),
                )
        x, h1, h2 = given.x, given.hidden[0], given.hidden[-1]
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
            w2 = layers[1][0]
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
