"""`warpdrive train` and `warpdrive list`."""

import datetime
import json
import signal
import time
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import yaml

from warpdrive.cli.options import ALGORITHMS, CONFIGS, Parser, algorithm_of, find_environment, mlp, value_of
from warpdrive.cli.startup import StartUp
from warpdrive.env.environment import Env, positive_int, unknown_name
from warpdrive.learn.metrics import MetricsWriter
from warpdrive.learn.trainer import Trainer
from warpdrive.learn.tune import tune
from warpdrive.policy.mlp import MLP
from warpdrive.sim.simulator import Simulator, choose_device

__all__ = [
    "choose_algorithm",
    "list_configurations",
    "make_simulator",
    "make_trainer",
    "run_settings",
    "simulator_options",
    "train",
    "train_parser",
    "trainer_options",
]

LEAST_UPDATES = 20  # that a number of environments chosen by itself must leave of env_steps
TUNE_SECONDS = 30.0


def run_settings(
    num_envs: int | Literal["auto"] = 200,
    env_steps: int = 1_000_000,
    seed: int = 0,
    device: str | None = None,
    precision: Literal["auto", "float32", "tf32", "bf16"] = "auto",
    fuse: bool = True,
    schedule: Literal["auto", "split", "mixed", "fused", "loop"] = "auto",
    assign: dict[str, str] | None = None,
    opponents: dict[str, str] | None = None,
    frozen: list[str] | None = None,
    out: str | None = None,
    save_seconds: float = 60.0,
    replay: bool = True,
    show: bool = False,
) -> None:
    """What a run needs besides environment, algorithm and policies.

    Args:
        num_envs: number of environments that are simulated side by side; auto measures which number trains fastest.
        env_steps: environment steps to train for, over all environments together.
        seed: of all random numbers; the same seed gives the same result on the same device.
        device: cpu, cuda or cuda:N; by default the GPU if there is one.
        precision: of observations and of the policies' arithmetic; auto is bf16 on a GPU and float32 on the CPU; tf32
            is float32 but for products of fused kernels on a GPU.
        fuse: whether policies run as fused kernels where they can, on a GPU with Triton.
        schedule: how the phases of a step are run; the results are the same.
        assign: group -> group whose policy it shares, e.g. '{runners: taggers}'.
        opponents: group -> scripted policy of the environment, or random, that plays it, e.g. '{runners: runner}'; the
            group has no policy then.
        frozen: groups whose policies act but do not learn.
        out: folder of the run; by default runs/NAME-TIME.
        save_seconds: time between two checkpoints.
        replay: whether to leave a page that plays an episode of the trained policies.
        show: whether to open that page in a browser at the end.
    """


def train_parser(
    env_class: type[Env],
    settings: dict[str, Any],
    options: Callable[..., None] = run_settings,
    command: str = "train",
    what: str = "Train policies",
) -> Parser:
    """All options of training in an environment; `settings` are the defaults, `options` what a run needs besides."""
    groups = [name for name, field in env_class.state.fields.items() if field.kind == "group"]
    algorithm_name = settings.get("algorithm", {}).get("name", "PPO")
    parser = Parser(prog=f"warpdrive {command} NAME", description=f"{what} in {env_class.__name__}.")
    parser.add_argument("--config", help="a YAML file of settings, as a run's config.yaml")
    if command == "train":
        parser.add_argument("--resume", help="a run's folder: go on from its checkpoint with its settings")
    parser.add_argument("--name", help="the environment, as module:Class or file.py:Class")
    parser.add_function_arguments(options, None)
    parser.add_class_arguments(env_class, "env")
    parser.add_argument("--algorithm.name", choices=list(ALGORITHMS), help="also: --algorithm PPO")
    parser.add_class_arguments(algorithm_of(algorithm_name), "algorithm")
    for group in groups:
        parser.add_function_arguments(mlp, f"policies.{group}")
    try:
        parser.set_defaults(_flat({"algorithm": {"name": algorithm_name}, **settings}, parser))
    except KeyError as error:
        raise ValueError(f"the configuration has an unknown setting {error}") from None
    return parser


def _flat(settings: dict[str, Any], parser: Parser) -> dict[str, Any]:
    """Settings with dotted names, each checked against the parser's."""
    known = {action.dest for action in parser._actions}
    result: dict[str, Any] = {}

    def walk(prefix: str, values: dict[str, Any]) -> None:
        for key, value in values.items():
            name = f"{prefix}{key}"
            nested = any(k.startswith(name + ".") for k in known)
            if nested and isinstance(value, dict):
                walk(name + ".", value)
            elif name in known:
                result[name] = value
            else:
                raise unknown_name("setting", name, known)

    walk("", settings)
    return result


def choose_algorithm(args: list[str], settings: dict[str, Any]) -> list[str]:
    """Take `--algorithm NAME` out of the arguments: which options there are depends on it."""
    rest, i = [], 0
    while i < len(args):
        name, equals, value = args[i].partition("=")
        if name in ("--algorithm", "--algorithm.name"):
            if not equals:
                i += 1
                value = args[i] if i < len(args) else ""
            algorithm_of(value)
            if settings.get("algorithm", {}).get("name", "PPO") != value:
                settings["algorithm"] = {"name": value}  # the other algorithm's settings would not fit
        else:
            rest.append(args[i])
        i += 1
    return rest


def simulator_options(settings: dict[str, Any]) -> dict[str, Any]:
    """What a run's settings say of its simulator besides environment, number and seed."""
    kinds = {"auto": None, "float32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
    return {
        "device": settings["device"],
        "obs_dtype": kinds[settings["precision"]],
        "schedule": settings["schedule"],
    }


def make_simulator(env: Env, settings: dict[str, Any], num_envs: int | None = None) -> Simulator:
    """The simulator that a run's settings describe."""
    if num_envs is None:
        num_envs = settings["num_envs"]
    return Simulator(env, num_envs, seed=settings["seed"], **simulator_options(settings))


def trainer_options(env: Env, settings: dict[str, Any]) -> dict[str, Any]:
    """What a run's settings say of its trainer besides the simulator, as wd.Trainer takes it."""
    opponents = settings["opponents"] or {}
    assign = {group: group for group in env.groups if group not in opponents} | (settings["assign"] or {})
    for group in assign.values():
        if group not in env.groups:
            raise unknown_name("group in assign:", group, env.groups)
    policies: dict[str, MLP | torch.nn.Module] = {
        name: mlp(**settings["policies"][name]) for name in env.groups if name in assign.values()
    }
    options = dict(settings["algorithm"])
    algorithm = algorithm_of(options.pop("name"))(**options)
    return {
        "policies": policies,
        "algorithm": algorithm,
        "assign": assign,
        "opponents": opponents,
        "frozen": settings["frozen"] or (),
        "precision": settings["precision"],
        "fuse": settings["fuse"],
    }


def make_trainer(sim: Simulator, settings: dict[str, Any]) -> Trainer:
    """The trainer that a run's settings describe."""
    return Trainer(sim, **trainer_options(sim.env, settings))


def choose_num_envs(env: Env, settings: dict[str, Any]) -> int:
    """The number of environments that trains fastest, of those that leave enough updates; says so."""
    from rich.console import Console

    options = trainer_options(env, settings)
    algorithm = options["algorithm"]
    most = settings["env_steps"] // (algorithm.rollout_steps * LEAST_UPDATES)
    console = Console(highlight=False)
    with console.status("measuring how many environments train fastest"):
        found = tune(
            env,
            **options,
            **simulator_options(settings),
            most_envs=max(most, getattr(algorithm, "minibatches", 1)),
            lengths=False,
            seconds=TUNE_SECONDS,
        )
    limit = (
        f": with more, env_steps would be less than {LEAST_UPDATES} updates" if found.rows[-1].num_envs == most else ""
    )
    console.print(f"num_envs auto: {found.why}{limit}", soft_wrap=True)
    return found.num_envs


def train(args: Sequence[str], began: float = 0.0) -> int:
    """Train, show progress, and leave a folder with configuration, metrics, checkpoint and replay.

    Args:
        args: of the command line.
        began: seconds that imports have taken.
    """
    started, start = time.monotonic(), StartUp(began)
    resume = value_of("--resume", args)
    if resume is not None:
        if not Path(resume, "config.yaml").is_file():
            raise ValueError(f"--resume: {resume} is not a run's folder: it has no config.yaml")
        args = [*args, "--config", str(Path(resume, "config.yaml"))]
    env_class, settings, rest = find_environment(args, "train")
    rest = choose_algorithm(rest, settings)
    parser = train_parser(env_class, settings)
    if "-h" in rest or "--help" in rest:
        parser.print_help()
        return 0
    settings = parser.parse(rest).as_dict()
    settings.pop("config", None)
    settings.pop("resume", None)
    choose_device(settings["device"])
    env = env_class(**settings["env"])
    module = settings["name"].rpartition(":")[0]
    label = Path(module).stem if module.endswith(".py") else module.rpartition(".")[2]
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = Path(resume or settings["out"] or Path("runs", f"{label}-{stamp}"))
    if resume is None and (folder / "checkpoint.pt").exists():
        raise ValueError(f"{folder} already holds a run; continue it with --resume {folder}, or choose another --out")

    positive_int("env_steps", settings["env_steps"])
    if settings["num_envs"] == "auto":
        if resume is not None:
            raise ValueError("num_envs cannot be 'auto' with --resume: a run keeps its number of environments")
        start.end("simulator")
        settings["num_envs"] = choose_num_envs(env, settings)
        start.end("measuring sizes")
    sim = make_simulator(env, settings)
    trainer = make_trainer(sim, settings)
    if resume is not None:
        trainer.load(folder / "checkpoint.pt")
    start.end("simulator")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out: cannot make the folder {str(folder)!r}: {error.strerror}") from None
    (folder / "config.yaml").write_text(yaml.safe_dump(_plain(settings), sort_keys=False), encoding="utf-8")
    return _run(trainer, settings, folder, label, started, start)


def _run(trainer: Trainer, settings: dict[str, Any], folder: Path, label: str, started: float, start: StartUp) -> int:
    from rich.console import Console

    from warpdrive.view.progress import Progress

    sim = trainer.sim
    writer = MetricsWriter(folder, keep_updates=trainer.update)
    start.end("imports")
    title = f"{label}: {settings['num_envs']} x {sim.env.num_agents} agents, {trainer_name(settings)} on {sim.device}"
    checkpoint = folder / "checkpoint.pt"
    plain, episodes = _plain(settings), 0
    newest: dict[str, Any] = {}  # returns and length of the episodes that ended last
    console = Console()
    first = True

    def save() -> None:
        trainer.save(checkpoint, plain)

    status = 0
    if trainer.env_steps >= settings["env_steps"]:
        text = f"already trained for {trainer.env_steps} environment steps; to go on give a greater --env-steps"
        console.print(text, highlight=False)
    with Progress(title, settings["env_steps"], console) as progress:

        def report(row: dict[str, Any]) -> None:
            nonlocal episodes, first
            if first:
                first = False
                start.end("first update")
                where = start.to_dict()
                row |= where
                console.print(start.line(where), highlight=False, soft_wrap=True)
            episodes += int(row["episodes"])
            row["episodes_total"] = episodes
            row["seconds"] = time.monotonic() - started
            writer.write(row)
            newest.update({k: v for k, v in row.items() if k == "length" or k.startswith("return/")})
            progress.show({**newest, **row}, final=trainer.env_steps >= settings["env_steps"])

        asked: list[int] = []  # to stop: done after the update that is under way, for half of one cannot be resumed

        def interrupt(signum: int, frame: Any) -> None:
            if asked:
                raise KeyboardInterrupt
            asked.append(signum)

        previous = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            trainer.prepare()
            if sim.device.type == "cuda":
                start.end("graph capture")
            goal, seconds = settings["env_steps"], settings["save_seconds"]
            trainer.train(goal, report=report, save=save, save_seconds=seconds, stop=lambda: bool(asked))
        except KeyboardInterrupt:  # asked twice: what the last checkpoint has is all that is whole
            console.print("stopped within an update, which is lost", highlight=False)
        finally:
            writer.close()
            for number, handler in previous.items():
                signal.signal(number, handler)
    if asked:
        status = 130
        done = f"{trainer.env_steps} environment steps"
        again = (
            f"go on with: warpdrive train --resume {folder}" if checkpoint.exists() else "there is no checkpoint yet"
        )
        console.print(f"stopped after {done}; {again}", soft_wrap=True, highlight=False)
    if settings["replay"] and not status and sim.env.view() is None:
        console.print(f"no replay: {type(sim.env).__name__} has no method view()", highlight=False)
    elif settings["replay"] and not status:
        from warpdrive.view.record import write_episode

        page = folder / "replay.html"
        write_episode(checkpoint, page)
        console.print(f"an episode of the trained policies: {page}", highlight=False, soft_wrap=True)
        if settings["show"]:
            webbrowser.open(page.resolve().as_uri())
    console.print(f"checkpoint: {checkpoint}", highlight=False, soft_wrap=True)
    return status


def trainer_name(settings: dict[str, Any]) -> str:
    """Name of the algorithm in a run's settings."""
    return str(settings["algorithm"]["name"])


def _plain(value: Any) -> Any:
    """Settings as plain YAML data."""
    return json.loads(json.dumps(value))


def list_configurations(args: Sequence[str]) -> int:
    """Print the bundled configurations."""
    from rich.console import Console
    from rich.table import Column, Table

    parser = Parser(prog="warpdrive list", description="List the bundled configurations and their environments.")
    if "-h" in args or "--help" in args:
        parser.print_help()
        return 0
    parser.parse(args)
    names = Column("environment", overflow="fold")  # for a name that is cut says nothing
    table = Table(Column("configuration", no_wrap=True), names, "what it is", box=None, padding=(0, 2))
    for path in sorted(CONFIGS.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        table.add_row(path.stem, yaml.safe_load(text)["name"], text.splitlines()[0].removeprefix("# "))
    Console(width=None if Console().is_terminal else 160).print(table)
    return 0
