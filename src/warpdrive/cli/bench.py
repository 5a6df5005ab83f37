"""`warpdrive bench`: how fast this machine steps and trains."""

import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import warp as wp

from warpdrive.cli.options import Parser, configuration, find_environment
from warpdrive.cli.train import make_simulator, make_trainer, train_parser
from warpdrive.env.environment import positive_int
from warpdrive.sim.simulator import Simulator, choose_device
from warpdrive.sim.store import Store
from warpdrive.view.progress import short

__all__ = ["bench", "copy_rate", "matrix_rate", "step_bytes"]


def bench_options(
    name: str | None = None, num_envs: int | None = None, device: str | None = None, repeats: int = 5, json: str = ""
) -> None:
    """What is measured.

    Args:
        name: a bundled configuration; by default tag-original on a GPU and tag on the CPU.
        num_envs: number of environments; by default the configuration's.
        device: cpu, cuda or cuda:N; by default the GPU if there is one.
        repeats: timings of each row, of which the median is shown.
        json: a file to write the results to as well.
    """


def _times(work: Callable[[], Any], device: torch.device, repeats: int) -> list[float]:
    """Seconds of each call of `work`, each waited for."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    work()
    wait()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        wait()
        seconds.append(time.perf_counter() - start)
    return seconds


def copy_rate(device: torch.device) -> float:
    """Bytes a second that a large copy reads and writes on the device."""
    count = (1 << 30) if device.type == "cuda" else (1 << 26)
    source = torch.ones(count, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / statistics.median(_times(lambda: target.copy_(source), device, 7))


def matrix_rate(device: torch.device) -> float:
    """Floating-point operations a second of a large matrix product: bf16 on a GPU, float32 on the CPU."""
    size, kind = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    return 2 * size**3 / statistics.median(_times(lambda: torch.mm(a, b), device, 7))


def step_bytes(store: Store) -> int:
    """The fewest bytes a step of all environments moves: state read and written, actions read, the rest written.

    Fields that a step may leave alone are counted as if it touched them; what caches save, such as an agent's reading
    of all others, is not counted at all.
    """
    total = sum(
        2 * store.fields[name].nbytes for name, f in store.env.state.fields.items() if f.kind in ("agent", "env")
    )
    for name in ("active", "episode_return"):
        total += 2 * store.fields[name].nbytes
    total += sum(store.fields[name].nbytes for name in ("reward", "terminated", "alive", "over", "truncated"))
    total += sum(action.nbytes for action in store.action.values())
    return total + sum(obs.numel() * obs.element_size() for obs in store.results.obs.values())


def _row(work: str, sim: Simulator, steps: int, seconds: list[float]) -> dict[str, Any]:
    rates = sorted(sim.num_envs * steps / s for s in seconds)
    rate = statistics.median(rates)
    return {
        "work": work,
        "num_envs": sim.num_envs,
        "num_agents": sim.env.num_agents,
        "schedule": sim.schedule,
        "env_steps_per_s": rate,
        "agent_steps_per_s": rate * sim.env.num_agents,
        "least": rates[0],
        "most": rates[-1],
        "repeats": len(rates),
        "microseconds_per_step": 1e6 * sim.num_envs / rate,
    }


def bench(args: Sequence[str]) -> int:
    """Measure stepping with random actions and training; print a table, or write it as JSON as well."""
    parser = Parser(prog="warpdrive bench", description="Measure how fast an environment steps and trains here.")
    parser.add_function_arguments(bench_options, None)
    if "-h" in args or "--help" in args:
        parser.print_help()
        return 0
    args = ["--name", *args] if args and not args[0].startswith("-") else list(args)
    options = parser.parse(args)
    positive_int("repeats", options.repeats)
    device = choose_device(options.device)
    name = options.name or ("tag-original" if device.type == "cuda" else "tag")
    env_class, settings, _ = find_environment([name] if ":" in name else [configuration(name).stem], "measure")
    settings = train_parser(env_class, settings).parse([]).as_dict() | {"device": str(device)}
    settings["num_envs"] = options.num_envs or settings["num_envs"]
    env = env_class(**settings["env"])
    rows, copy, matrix = [], copy_rate(device), matrix_rate(device)

    start = time.perf_counter()
    sim = make_simulator(env, settings)
    sim.reset()
    sim.random_step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    set_up = time.perf_counter() - start
    steps = 200 if device.type == "cuda" else max(1, 50_000 // (sim.num_envs * env.num_agents) * 10)

    row = _row("simulate, random actions", sim, steps, _times(lambda: sim.random_step(steps), device, options.repeats))
    row["set_up_seconds"] = set_up
    row["bytes_per_step"] = step_bytes(sim.store)
    row["share_of_copy_rate"] = row["bytes_per_step"] * row["env_steps_per_s"] / sim.num_envs / copy
    rows.append(row)

    start = time.perf_counter()
    trainer = make_trainer(sim, settings)
    trainer.step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    set_up = time.perf_counter() - start
    updates = 10 if device.type == "cuda" else 1

    def learn() -> None:
        for _ in range(updates):
            trainer.step()

    seconds = _times(learn, device, options.repeats)
    row = _row(f"train, {settings['algorithm']['name']}", sim, trainer.rollout_steps * updates, seconds)
    weights = {name: sum(p.numel() for p in module.parameters()) for name, module in trainer.policies.items()}
    passes = settings["algorithm"].get("epochs", 1)
    agents = {name: sum(s.count for s in trainer.segments if s.policy == name) for name in weights}
    operations = sum(2 * weights[n] * agents[n] * (1 + 3 * passes) for n in weights)  # forward 1, and back 2 more
    row["set_up_seconds"], row["passes"] = set_up, passes
    row["share_of_matrix_rate"] = operations * row["env_steps_per_s"] / matrix
    if device.type == "cuda":
        row["memory_gb"] = torch.cuda.max_memory_allocated(device) / 1e9
    trainer.check_faults()
    rows.append(row)
    report = {
        "configuration": name,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "CPU",
        "versions": {"torch": torch.__version__, "warp": wp.config.version, "python": platform.python_version()},
        "date": time.strftime("%Y-%m-%d"),
        "copy_bytes_per_s": copy,
        "matrix_operations_per_s": matrix,
        "rows": rows,
    }
    _print(report)
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 140)
    table = Table(
        "work",
        "envs x agents",
        "env steps/s",
        "agent steps/s",
        "us a step",
        "limit reached",
        "set-up",
        box=None,
        padding=(0, 2),
    )
    for row in report["rows"]:
        if "share_of_copy_rate" in row:
            limit = f"{row['share_of_copy_rate']:.1%} of copy rate"
        else:
            limit = f"{row['share_of_matrix_rate']:.1%} of matrix rate"
        table.add_row(
            row["work"],
            f"{row['num_envs']} x {row['num_agents']}",
            short(row["env_steps_per_s"]),
            short(row["agent_steps_per_s"]),
            f"{row['microseconds_per_step']:.1f}",
            limit,
            f"{row['set_up_seconds']:.1f} s",
        )
    console.print(
        f"{report['configuration']} on {report['device']}: copies {report['copy_bytes_per_s'] / 1e9:.0f} GB/s, "
        f"matrix products {report['matrix_operations_per_s'] / 1e12:.3g} TFLOP/s",
        highlight=False,
    )
    console.print(table)
