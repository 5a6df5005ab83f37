"""The measurements that stand in the README and in docs/benchmarks.md, in one run.

    python benchmarks/suite.py --json benchmarks/results/suite-h200.json

Parts: `environments` steps every bundled environment in 10 000 replicas; `simulation` and `training` are the rows of
the table; `scaling` doubles the number of environments, and of agents. --only takes some of them; --quick makes all
sizes small, to try the script itself.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml

import warpdrive as wd
from warpdrive.env.registry import load_class
from warpdrive.measure.machine import copy_rate, describe_machine, matrix_rate
from warpdrive.measure.rates import measure_simulation, measure_training
from warpdrive.measure.shares import kernel_shares
from warpdrive.sim.simulator import choose_device
from warpdrive.zoo.cartpole import CartPole
from warpdrive.zoo.mpe_simple_spread import SimpleSpread
from warpdrive.zoo.tag import Tag
from warpdrive.zoo.tag_gridworld import TagGridworld

CONFIGS = Path(wd.__file__).parent / "zoo" / "configs"
# JaxMARL's recipe for MPE (its ippo_ff_mpe.yaml): four passes in four minibatches over rollouts of 128 steps.
RECIPE = wd.PPO(
    rollout_steps=128, epochs=4, minibatches=4, lr=2.5e-4, lr_final=0.0, gamma=0.99, gae_lambda=0.95,
    clip=0.2, value_clip=0.2, entropy=0.01, value_coef=0.5, max_grad_norm=0.5,
)  # fmt: skip


def small_policy() -> wd.MLP:
    """The network of that recipe."""
    return wd.MLP(64, 64, activation="tanh", separate_value=True)


def tag(taggers: int = 10, runners: int = 100) -> Tag:
    """Tag by the original rules, ten nearest others observed."""
    return Tag(num_taggers=taggers, num_runners=runners)


def tag_where_all_stay() -> Tag:
    """The same where runners who are tagged stay in the game, so that no sample is left out."""
    return Tag(num_taggers=10, num_runners=100, runner_exits_game_after_tagged=False)


def grid(taggers: int) -> TagGridworld:
    """Tag on a grid with the partial observation."""
    return TagGridworld(num_taggers=taggers, use_full_observation=False)


SIMULATION: list[tuple[str, Callable[[], wd.Env], int]] = [
    ("simple_spread", SimpleSpread, 100_000),
    ("CartPole", CartPole, 100_000),
    ("Tag, 10 + 100 agents", tag, 2000),
    ("Tag, 100 + 900 agents", lambda: tag(100, 900), 2000),
    ("Tag on a grid, 999 + 1 agents, partial observation", lambda: grid(999), 2000),
]
# Name, environment, number of environments, policies, algorithm, precision of products ("auto": as the observations).
TRAINING: list[tuple[str, Callable[[], wd.Env], int, Callable[[], dict[str, wd.MLP]], Any, Any]] = [
    ("simple_spread", SimpleSpread, 16384, lambda: {"agents": small_policy()}, RECIPE, "tf32"),
    ("simple_spread", SimpleSpread, 16384, lambda: {"agents": small_policy()}, RECIPE, "bf16"),
    ("simple_spread", SimpleSpread, 1024, lambda: {"agents": small_policy()}, RECIPE, "tf32"),
    ("CartPole", CartPole, 16384, lambda: {"agents": small_policy()}, RECIPE, "tf32"),
    ("Tag on a grid, 4 + 1 agents, 32 x 32", TagGridworld, 2000,
     lambda: {"taggers": wd.MLP(32, 32), "runner": wd.MLP(32, 32)}, wd.A2C(), "auto"),
    ("Tag, 10 + 100 agents, 256 x 256", tag, 2000,
     lambda: {"taggers": wd.MLP(256, 256), "runners": wd.MLP(256, 256)}, wd.A2C(), "auto"),
    ("Tag, 10 + 100 agents, 256 x 256", tag, 100,
     lambda: {"taggers": wd.MLP(256, 256), "runners": wd.MLP(256, 256)}, wd.A2C(), "auto"),
    ("Tag, 10 + 100 agents who all stay, 256 x 256", tag_where_all_stay, 2000,
     lambda: {"taggers": wd.MLP(256, 256), "runners": wd.MLP(256, 256)}, wd.A2C(), "auto"),
]  # fmt: skip
SCALING: list[tuple[str, Callable[[], wd.Env], list[int]]] = [
    ("simple_spread", SimpleSpread, [10**k * m for k in range(2, 6) for m in (1, 2, 5)] + [10**6]),
    ("CartPole", CartPole, [10**k * m for k in range(2, 7) for m in (1, 2, 5)]),
    ("Tag, 10 + 100 agents", tag, [100 * 2**k for k in range(8)]),
]
AGENTS: list[tuple[str, Callable[[int], wd.Env], list[int]]] = [
    ("Tag, a tenth taggers, 200 environments", lambda n: tag(n // 10, n - n // 10), [10 * 2**k for k in range(9)]),
    ("Tag on a grid, one runner, 2000 environments", lambda n: grid(n - 1), [5 * 2**k for k in range(9)]),
]


def trainer_of(
    make_env: Callable[[], wd.Env],
    num_envs: int,
    policies: Callable[[], dict[str, wd.MLP]],
    algorithm: Any,
    precision: Any,
    device: torch.device,
) -> wd.Trainer:
    """A trainer of one row of TRAINING."""
    return wd.Trainer(wd.Simulator(make_env(), num_envs, device=device), policies(), algorithm, precision=precision)


def environments(device: torch.device, size: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Every bundled configuration's environment with random actions."""
    for path in sorted(CONFIGS.glob("*.yaml")):
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        env = load_class(settings["name"])(**settings.get("env", {}))
        make = lambda env=env: wd.Simulator(env, size, device=device)  # noqa: E731
        yield {"name": path.stem} | measure_simulation(make, repeats)


def main() -> None:
    """Measure, print a line for each row, and write all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="environments,simulation,training,scaling")
    parser.add_argument("--device", default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", default="")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    device = choose_device(options.device)
    copy, matrix = copy_rate(device), matrix_rate(device)
    report: dict[str, Any] = describe_machine(device)
    report |= {"copy_bytes_per_s": copy, "matrix_operations_per_s": matrix}
    parts = options.only.split(",")

    def keep(part: str, row: dict[str, Any]) -> None:
        report.setdefault(part, []).append(row)
        print(
            f"{part:12} {row['name']:50} {row['num_envs']:8} x {row['num_agents']:<5} {row['work']:24} "
            f"{row['env_steps_per_s']:.4g} env steps/s, {row['agent_steps_per_s']:.4g} agent steps/s",
            flush=True,
        )
        if options.json:
            Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")

    def simulate(part: str, name: str, make: Callable[[], wd.Env], size: int) -> None:
        size = min(size, 8) if options.quick else size
        env = make()
        try:
            keep(
                part, {"name": name} | measure_simulation(lambda: wd.Simulator(env, size, device=device), repeats, copy)
            )
        except MemoryError as error:
            print(f"{part:12} {name}: {error}", flush=True)

    repeats = options.repeats
    if "environments" in parts:
        for row in environments(device, 8 if options.quick else 10_000, repeats):
            keep("environments", row)
    if "simulation" in parts:
        for name, make, size in SIMULATION:
            simulate("simulation", name, make, size)
    if "training" in parts:
        for name, make_env, size, policies, algorithm, precision in TRAINING:
            size = min(size, 8) if options.quick else size
            make = partial(trainer_of, make_env, size, policies, algorithm, precision, device)
            if device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats(device)
            rows, trainer = measure_training(make, repeats, matrix)
            if device.type == "cuda":
                rows[-1]["shares"] = kernel_shares(trainer)
            del trainer
            for row in rows:
                keep("training", {"name": name, "precision": precision} | row)
    if "scaling" in parts:
        for name, make, sizes in SCALING:
            for size in sizes:
                simulate("scaling", name, make, size)
        for name, make_agents, counts in AGENTS:
            for count in counts[:2] if options.quick else counts:
                simulate("agents", name, lambda n=count, m=make_agents: m(n), 200 if "200 " in name else 2000)


if __name__ == "__main__":
    main()
