"""Gradients of networks whose weights do not fit a multiprocessor, in bfloat16: layer by layer.

Each hidden layer is a kernel forwards and one backwards, and the heads with the loss are one; what comes out of each
layer and the gradient in front of it lie in memory between them. A last kernel makes the weights' gradients of that:
for each layer the sum over samples of gradient times input. Sums are kept by program and added up in a fixed order, so
that the same samples give the same bits. All are near what an H200's memory allows (docs/design.md).

Who learns from a rollout once, as A2C does, learns with the weights that it acted with. Then the rollout keeps what
comes out of each layer, if there is memory for it, and nothing is computed forwards again but the heads.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from warpdrive.env.spaces import ActionSpace
from warpdrive.learn.fused_samples import Sums, Tower, sample_arguments
from warpdrive.learn.rollout import Samples
from warpdrive.learn.wide_layers import back_layer, first_layer, head, layer, outer
from warpdrive.policy.fused_layers import block, multiprocessors
from warpdrive.policy.fused_present import Present, list_present
from warpdrive.policy.mlp import ActorCritic, Kept
from warpdrive.sim.memory import require_memory, total_memory

__all__ = ["FusedWide", "WideTiles", "kept_widths"]

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


def _inputs(features: int) -> int:
    """Columns of the rows that go into the first layer: the features and a one, in whole 16 bytes."""
    return -(-(features + 1) // 8) * 8


def kept_widths(module: ActorCritic) -> list[int]:
    """Numbers of a sample that a rollout keeps: what goes into the first layer, and what comes out of each."""
    return [_inputs(module.obs_size), *map(block, module.hidden)]


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
        self._kept: list[Kept | None] = [None] * len(self.samples)
        if once and module.critic is None:
            self._keep()

    def _keep(self) -> None:
        """Let rollouts keep what comes out of each layer, if that takes no more than its share of memory."""
        widths = kept_widths(self.module)
        needed = 2 * sum(s.log_prob.numel() for s in self.samples) * sum(widths)
        if needed > KEPT_SHARE * total_memory(self._device):
            return
        require_memory(needed, self._device, "what a rollout keeps of its policy's layers")
        for i, s in enumerate(self.samples):
            count, step = s.log_prob.numel(), s.present.numel()
            x, *hidden = (torch.empty(count, w, dtype=torch.bfloat16, device=self._device) for w in widths)
            own = [slice(t * step, (t + 1) * step) for t in range(len(s.log_prob))]
            s.kept = [Kept(x[rows], [h[rows] for h in hidden]) for rows in own]
            self._kept[i] = Kept(x, hidden)

    def _parts(self, rows: int) -> list[tuple[int, int]]:
        """Beginning and length of equal parts that cover so many samples, each of them whole tiles of every kernel."""
        tiles = self.tiles
        whole = math.lcm(tiles.head_rows * self._programs, tiles.rows, tiles.sum_rows)
        size = -(-rows // (-(-rows // self.chunk) * whole)) * whole
        return [(start, size) for start in range(0, rows, size)]

    def run(self, envs: torch.Tensor | None, coefficients: torch.Tensor, moments: torch.Tensor) -> None:
        """Enqueue on PyTorch's current stream; arguments as FusedUpdate.run's."""
        weights = self.module.weights(torch.bfloat16)
        hidden = [weights.actor, weights.critic or []]
        lists = [list_present(s.taken(s.alive, envs).unsqueeze(0)) for s in self.samples]
        for index, tower in enumerate(self._towers):
            # With one tower both heads are one product; with two each has its own.
            layers = [*hidden[index], weights.heads[index]]
            first = True
            for s, kept, listed in zip(self.samples, self._kept, lists, strict=True):
                arguments = sample_arguments(s, envs, self.module, coefficients, moments)
                for start, size in self._parts(arguments[1][0]):
                    self._part(tower, layers, arguments, listed, start, size, kept, first)
                    first = False
        self.sums.add_up()

    def _part(
        self,
        tower: Tower,
        layers: list[Any],
        arguments: tuple,
        listed: Present,
        start: int,
        size: int,
        kept: Kept | None,
        first: bool,
    ) -> None:
        """One tower's share of the sums by `size` samples of the list from `start` on, if there are so many.

        `kept` is what the rollout kept of all samples.
        """
        arrays, numbers, constants = arguments
        tiles, partial = self.tiles, self.sums.partial
        obs, mask, action, _, log_prob, value, advantage, target, envs, coefficients, moments, log_std = arrays[:12]
        counts, obs_at, mask_at, action_at, flat_at = (
            numbers[a:b] for a, b in ((1, 3), (3, 7), (7, 11), (11, 15), (18, 21))
        )
        features, outputs, policy = constants["D"], tower.constants["OUTP"], tower.constants["P"]
        (w1, b1), (w_head, b_head) = layers[0], layers[-1]
        wide1, width1 = constants["H1"], constants["H1P"]
        wide2, width2 = constants["H2"], constants["H2P"]
        two = constants["LAYERS"] == 2
        to_w1, to_b1, to_w2, to_b2, to_wa, to_ba, to_wc, to_bc, to_log_std, to_metrics = tower.to
        part = listed.total, start, size

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
        by_sample = {"KEPT": kept is not None}
        made = kept
        # fmt: off
        if made is None:
            inputs = _inputs(features)
            made = Kept(new(inputs), [new(width1)])
            launch(
                first_layer, obs, *listed, envs, *arrays[12:], w1, b1, made.x, made.hidden[0], start, size, *counts,
                *obs_at, *w1.stride(), D=features, DP=block(features + 1), DX=inputs, H=wide1,
                NORMALIZE=constants["NORMALIZE"], **of_samples, **tiling(width1),
            )
            if two:
                made.hidden.append(new(width2))
                launch(
                    layer, made.hidden[0], *layers[1], made.hidden[1], *part, *layers[1][0].stride(),
                    N=wide1, N_WIDTH=width1, H=wide2, CHUNK=min(tiles.chunk, width1), **pipeline, **tiling(width2),
                )
        x, h1, h2 = made.x, made.hidden[0], made.hidden[-1]
        grad2, grad = new(width2), new(outputs)
        launch(
            head, mask, action, *listed, log_prob, value, advantage, target, envs, coefficients, moments, log_std,
            h2, w_head, b_head, grad2, grad, partial, start, size, *counts, *mask_at, *action_at, *flat_at,
            *w_head.stride(), partial.stride(0), to_ba, to_bc, to_log_std, to_metrics,
            grid=(self._programs,), H=wide2, WIDTH=width2, **tower.constants, MASKED=constants["MASKED"], **of_samples,
            **by_sample, ROWS=tiles.head_rows, CHUNK=min(tiles.head_chunk, width2), **pipeline, FIRST=first,
            num_warps=tiles.head_warps,
        )
        grad1 = grad2
        if two:
            w2 = layers[1][0]
            grad1 = new(width1)
            launch(
                back_layer, grad2, h1, w2, grad1, listed.order, *part, *w2.stride(), N=wide2, N_WIDTH=width2, H=wide1,
                CHUNK=min(tiles.chunk, width2), **by_sample, **pipeline, **tiling(width1),
            )
        # fmt: on
        add_up = functools.partial(self._sum, (listed.order, *part), kept=kept, first=first)
        # Of the first layer the column of ones gives the biases; of the heads the last column is the critic's.
        add_up(grad1, wide1, x, features, (to_w1, features, 1), extra=to_b1)
        if two:
            add_up(grad2, wide2, h1, wide1, (to_w2, wide1, 1), bias=to_b2)
        extra = to_wc if tower.constants["HAS_VALUE"] else None
        add_up(h2, wide2, grad, policy, (to_wa, 1, wide2), extra=extra)

    def _sum(
        self,
        part: tuple[Any, ...],
        left: torch.Tensor,
        m: int,
        right: torch.Tensor,
        n: int,
        to: tuple[int, int, int],
        *,
        extra: int | None = None,
        bias: int | None = None,
        kept: Kept | None,
        first: bool,
    ) -> None:
        """Add up left[row, :m] right[row, :n] to `to`, offset and strides; and right's column n and left alone."""
        tiles, partial = self.tiles, self.sums.partial
        width = left.shape[1]
        features = min(tiles.sum_features, width)
        splits = max(1, self._multiprocessors // (width // features))
        by_sample = [] if kept is None else [array.data_ptr() for array in (kept.x, *kept.hidden)]
        outer[(width // features, splits)](
            left,
            right,
            partial,
            *part,
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
            LEFT_KEPT=left.data_ptr() in by_sample,
            RIGHT_KEPT=right.data_ptr() in by_sample,
            ROWS=tiles.sum_rows,
            SPLITS=splits,
            STAGES=tiles.sum_stages,
            FIRST=first,
            num_warps=tiles.sum_warps,
        )
