"""Times the fused kernels against PyTorch's layers, after a check that both compute the same.

    python benchmarks/fused.py [--seconds 170] [--only WORD] [--json FILE]

Every case is a CUDA graph: it is replayed once to warm up, then seven times, and the median counts. Without a GPU, and
with TRITON_INTERPRET=1, it only checks, on a few samples. Cases that fail print their traceback, and the next one runs.
"""

import argparse
import json
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton

from warpdrive.env.spaces import ActionSpace, Discrete, MultiDiscrete
from warpdrive.learn.fused_update import FusedUpdate, UpdateTiles
from warpdrive.learn.fused_wide import FusedWide, WideTiles, kept_widths
from warpdrive.learn.learner import CHUNK, _Batch
from warpdrive.learn.loss import SurrogateLoss, loss_arguments
from warpdrive.learn.rollout import Samples
from warpdrive.policy.fused_forward import ForwardTiles, fused_forward
from warpdrive.policy.mlp import MLP, ActorCritic, Kept

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")


@dataclass(frozen=True)
class Workload:
    """A policy and the size of its rollout."""

    features: int
    space: ActionSpace
    policy: MLP
    dtype: torch.dtype
    envs: int
    agents: int
    steps: int
    minibatches: int
    clipped: bool
    live: float = 0.9  # share of samples of agents that take part

    def module(self) -> ActorCritic:
        """The policy with heads that are not nearly zero."""
        module = self.policy.build(self.features, self.space, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            module.actor_head.weight.mul_(30.0)
        return module.to(DEVICE)

    def samples(self) -> Samples:
        """A random rollout, in which some agents do not take part."""
        torch.manual_seed(1)
        heads = self.space.heads if isinstance(self.space, MultiDiscrete) else ()

        def new(steps: int, size: int = 1, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            flat = torch.randn(size, steps, self.envs, self.agents, device=DEVICE, dtype=dtype)
            return flat.permute(1, 2, 3, 0)

        alive = torch.rand(self.steps, self.envs, self.agents, device=DEVICE) < self.live
        action = torch.stack([torch.randint(n, (self.steps, self.envs, self.agents), device=DEVICE) for n in heads])
        s = Samples(
            segment=None,  # type: ignore[arg-type]
            env_fastest=False,
            obs=new(self.steps + 1, self.features, self.dtype),
            mask=None,
            final_obs=new(1, self.features, self.dtype),
            action=action.int().permute(1, 2, 3, 0),
            log_prob=new(self.steps)[..., 0] * 0.1 - sum(float(torch.tensor(float(n)).log()) for n in heads),
            value=new(self.steps + 1)[..., 0],
            final_value=new(1)[..., 0],
            reward=new(self.steps)[..., 0],
            alive=alive,
            terminated=torch.zeros_like(alive),
            present=alive[0].clone(),
        )
        s.advantage.copy_(new(self.steps)[..., 0])
        s.target.copy_(new(self.steps)[..., 0])
        return s


def size(full: int, tiny: int) -> int:
    """The size for a GPU, or for the interpreter."""
    return full if ON_GPU else tiny


WORKLOADS = {
    "spread": Workload(
        18,
        Discrete(5),
        MLP(64, 64, activation="tanh", separate_value=True),
        torch.float32,
        size(16384, 6),
        3,
        size(128, 2),
        4,
        True,
    ),
    "cartpole": Workload(
        4, Discrete(2), MLP(64, 64, activation="tanh"), torch.float32, size(16384, 8), 1, size(64, 3), 4, True
    ),
    # Tag by its authors' settings: each policy's share.
    **{
        name: Workload(
            71,
            MultiDiscrete(21, 21),
            MLP(256, 256) if ON_GPU else MLP(32, 32),
            torch.bfloat16,
            size(2000, 3),
            size(agents, 5),
            size(20, 2),
            1,
            False,
            live,
        )
        # Of the runners so many are in the game on average when all play at random.
        for name, agents, live in (("tag 10", 10, 1.0), ("tag 100", 100, 0.31))
    },
}


def measure(work: Callable[[], object]) -> float:
    """Microseconds that a replay of `work` as a CUDA graph takes; 0 without a GPU.

    It is captured on the current stream, see main.
    """
    for _ in range(3):
        work()  # compiles; PyTorch's libraries choose their kernels
    if not ON_GPU:
        return 0.0
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        work()
    graph.replay()
    times = []
    for _ in range(7):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1000.0 * begin.elapsed_time(end))
    return statistics.median(times)


def relative(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Norm of the difference over that of what is wanted; NaN counts as infinite."""
    error = float((got.double() - wanted.double()).norm() / wanted.double().norm().clamp(min=1e-12))
    return error if error == error else float("inf")


class Bench:
    """The inputs of a workload, and what PyTorch's layers give for them."""

    def __init__(self, workload: Workload) -> None:
        self.w, self.s, self.module = workload, workload.samples(), workload.module()
        self.coefficients = torch.tensor([0.2, -1.0, 0.01, 0.5], device=DEVICE)
        self.moments = torch.tensor([0.0, 1.0], device=DEVICE)
        order = torch.randperm(workload.envs, device=DEVICE)
        self.envs = None if workload.minibatches == 1 else order[: workload.envs // workload.minibatches]
        self.loss = SurrogateLoss(workload.space, clipped=workload.clipped)
        self.obs = self.s.flat(self.s.obs[:1])
        with torch.no_grad():
            self.wanted_out = self.module(self.obs.float())
        self.wanted_grads, self.wanted_metrics = self.present(torch.float32)

    def forward(self) -> torch.Tensor:
        """PyTorch's forward pass of one step's agents, with weights cast before."""
        with torch.no_grad():
            return self.module(self.obs, self.weights)

    def present(self, dtype: torch.dtype | None = None) -> tuple[list[torch.Tensor], torch.Tensor]:
        """A minibatch's gradients and metrics by PyTorch's layers, as the learner has them."""
        for p in self.module.parameters():
            p.grad = None
        batch = _Batch(self.s, self.envs)
        count = batch.weight.sum().clamp(min=1.0)
        moments = torch.stack([self.moments[0], self.moments[1], 1.0 / count])
        metrics = torch.zeros(5, device=DEVICE)
        for rows in batch.chunks(CHUNK[DEVICE.type]):
            obs = batch.obs[rows]
            metrics += self.loss.backward(
                out=self.module(obs if dtype is None else obs.to(dtype)),
                log_std=None,
                **loss_arguments(batch, rows),
                coefficients=self.coefficients,
                moments=moments,
            )
        return [p.grad for p in self.module.parameters()], metrics  # type: ignore[misc]

    def errors(self, grads: list[torch.Tensor], metrics: torch.Tensor) -> dict[str, float]:
        """Greatest relative error of a parameter's gradient, and that of the metrics."""
        pairs = zip(grads, self.wanted_grads, strict=True)
        return {"grad": max(relative(a, b) for a, b in pairs), "metrics": relative(metrics, self.wanted_metrics)}

    def cases(self) -> dict[str, Callable[[], dict[str, object]]]:
        """Name of each case -> what runs it."""
        w, m, s = self.w, self.module, self.s
        wide = bool(wide_choices(w))
        with torch.no_grad():  # a graph kept with them would keep its nodes' stream
            self.weights = m.weights(w.dtype)

        def present_forward() -> dict[str, object]:
            return {"us": measure(self.forward), "error": relative(self.forward(), self.wanted_out)}

        def present_update() -> dict[str, object]:
            us = measure(self.present)
            return {"us": us, **self.errors(*self.present())}

        def fused(precision: str, tiles: ForwardTiles, keep: Kept | None = None) -> dict[str, object]:
            with torch.no_grad():
                weights = m.weights(torch.bfloat16 if precision == "bf16" else torch.float32)
            present = s.present if wide else None
            rows = s.present.reshape(-1) if wide else slice(None)

            def run() -> torch.Tensor:
                return fused_forward(m, self.obs, weights, precision, tiles, present, keep)

            return {"us": measure(run), "error": relative(run()[rows], self.wanted_out[rows])}

        def kept_update(tiles: WideTiles) -> dict[str, object]:
            """The update after a rollout that kept the layers: so filled, but for whom took no part in some step."""
            work = FusedWide(m, w.space, clipped=w.clipped, samples=[s], once=True, tiles=tiles)
            for t, kept in enumerate(s.kept or []):
                fused_forward(m, s.flat(s.obs[t : t + 1]), self.weights, "bf16", None, s.alive[t], kept)
            return update(work)

        def update(work: FusedUpdate | FusedWide) -> dict[str, object]:
            def run() -> None:
                work.run(self.envs, self.coefficients, self.moments)

            us = measure(run)
            first = work.sums.total.clone()
            run()
            same = torch.equal(first, work.sums.total)
            return {"us": us, **self.errors(work.sums.gradients, work.sums.metrics), "repeatable": same}

        cases: dict[str, Callable[[], dict[str, object]]] = {
            "forward present": present_forward,
            "update present": present_update,
        }
        for precision, f in forward_choices(w):
            cases[f"forward {precision} {tuple(f)}"] = lambda p=precision, t=f: fused(p, t)  # type: ignore[misc]
        for precision, u in update_choices(w):
            cases[f"update {precision} {tuple(u)}"] = lambda p=precision, t=u: update(  # type: ignore[misc]
                FusedUpdate(m, w.space, clipped=w.clipped, samples=[self.s], precision=p, tiles=t)
            )
        if wide:
            x, *hidden = (torch.empty(len(self.obs), n, dtype=w.dtype, device=DEVICE) for n in kept_widths(m))
            for precision, f in forward_choices(w):
                if precision == "bf16":
                    cases[f"forward kept {tuple(f)}"] = lambda t=f: fused("bf16", t, Kept(x, hidden))  # type: ignore[misc]
        for t in wide_choices(w):
            cases[f"update wide {tuple(t)}"] = lambda t=t: update(  # type: ignore[misc]
                FusedWide(m, w.space, clipped=w.clipped, samples=[s], tiles=t)
            )
            cases[f"update kept {tuple(t)}"] = lambda t=t: kept_update(t)  # type: ignore[misc]
        return cases


def forward_choices(w: Workload) -> list[tuple[str, ForwardTiles]]:
    """Precisions and divisions to try for the forward pass."""
    if not ON_GPU:
        return [(p, ForwardTiles(16, 16, 4, 1)) for p in ("bf16", "tf32")]
    if w.dtype == torch.bfloat16:
        shapes = [(128, 64, 8, 2), (128, 64, 8, 1), (64, 32, 4, 2), (64, 64, 4, 2), (128, 32, 8, 2)]
        return [("bf16", ForwardTiles(*shape)) for shape in shapes]
    shapes = [(32, 64, 4, 1), (64, 64, 2, 1), (64, 64, 4, 1), (128, 64, 8, 1)]
    return [(p, ForwardTiles(*shape)) for p in ("bf16", "tf32") for shape in shapes] + [
        ("tf32x3", ForwardTiles(32, 64, 4, 1)),
        ("tf32x3", ForwardTiles(64, 64, 4, 1)),
    ]


def update_choices(w: Workload) -> list[tuple[str, UpdateTiles]]:
    """Precisions and divisions to try for the update."""
    if not ON_GPU:
        return [(p, UpdateTiles(16, 4, 1)) for p in ("bf16", "tf32")]
    if w.policy.hidden[0] > 128:
        return []
    choices = [
        ("bf16", (32, 2, 4)),
        ("bf16", (64, 4, 2)),
        ("bf16", (64, 4, 3, 168)),
        ("tf32", (64, 4, 2)),
        ("tf32", (64, 4, 3, 168)),
    ]
    choices += [("bf16", (64, 4, 4, 128)), ("bf16", (128, 8, 1))]
    if w.features > 4:
        choices += [("bf16", (32, 4, 2)), ("bf16", (128, 4, 2)), ("tf32", (128, 8, 1)), ("tf32", (32, 4, 3, 168))]
        choices += [("tf32x3", (64, 4, 2)), ("tf32x3", (32, 4, 2))]
    return [(p, UpdateTiles(*shape)) for p, shape in choices]


def wide_choices(w: Workload) -> list[WideTiles]:
    """Divisions to try for the update of a wide network, the library's first."""
    if not ON_GPU:
        return [WideTiles(16, 16, 16, 2, 4, 16, 16, 4, 1, 16, 3, 16, 4)]
    if w.policy.hidden[0] <= 128:
        return []
    others = [{"stages": 2}, {"stages": 4}, {"columns": 256}, {"columns": 64, "warps": 4}]
    others += [{"head_programs": 1}]
    others += [{"sum_stages": 2}, {"sum_stages": 4}, {"sum_rows": 32, "sum_stages": 4}]
    others += [{"sum_rows": 128, "sum_stages": 2}, {"sum_features": 64, "sum_warps": 4}]
    return [WideTiles(), *(WideTiles(**other) for other in others)]


def main() -> None:
    """Run everything on a stream of its own.

    A graph cannot be captured on the default stream, and the nodes that autograd keeps for a parameter run on the
    stream that they were made on, captured or not.
    """
    if not ON_GPU:
        run_cases()
        return
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run_cases()


def run_cases() -> None:
    """Run the cases that there is time for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=170.0, help="start no case after this long")
    parser.add_argument("--only", default="", help="run only cases with this word in their name")
    parser.add_argument("--json", default="", help="write the results to this file")
    args = parser.parse_args()
    start = time.monotonic()
    rows: list[dict[str, object]] = []
    device = torch.cuda.get_device_name() if ON_GPU else "Triton's interpreter"
    print(f"{device}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    for name, workload in WORKLOADS.items():
        try:
            cases = Bench(workload).cases()
        except Exception:
            traceback.print_exc()
            continue
        for case, run in cases.items():
            if args.only not in f"{name} {case}":
                continue
            if time.monotonic() - start > args.seconds:
                print(f"{name} {case}: no time left", flush=True)
                continue
            began = time.monotonic()
            row: dict[str, object] = {"workload": name, "case": case}
            try:
                row |= run()
            except Exception:
                row["failed"] = traceback.format_exc()
            rows.append(row)
            took = time.monotonic() - began
            text = " ".join(
                f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in row.items()
                if key not in ("workload", "case")
            )
            print(f"{name:9} {case:32} {text}  [{took:.1f} s]", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"device": device, "torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
