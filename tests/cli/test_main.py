"""The command line, run as a user runs it: training, playing, going on, breaking off, and being refused."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from warpdrive.cli.main import main
from warpdrive.cli.options import CONFIGS, find_environment
from warpdrive.cli.train import make_simulator, make_trainer, train_parser
from warpdrive.learn.checkpoint import load_checkpoint
from warpdrive.learn.learner import Learner

SMALL = ["--num-envs", "8", "--env.num_taggers", "2", "--env.num_runners", "3", "--env.episode_length", "20"]
SMALL += ["--algorithm.rollout_steps", "10", "--policies.taggers.hidden", "[16]", "--policies.runners.hidden", "[16]"]


def command(*args, **options):
    """`warpdrive ARGS` in a process of its own."""
    code = "import sys; from warpdrive.cli.main import main; sys.exit(main())"
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], text=True, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a small finished run."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    assert main(["train", "tag", *SMALL, "--env-steps", "400", "--out", str(folder)]) == 0
    return folder


def test_training_leaves_all_that_belongs_to_a_run(run):
    """Configuration, metrics, TensorBoard file, checkpoint and replay page are there and say what was done."""
    names = {path.name for path in run.iterdir()}
    assert {"config.yaml", "metrics.jsonl", "checkpoint.pt", "replay.html"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    settings = yaml.safe_load((run / "config.yaml").read_text())
    assert settings["num_envs"] == 8
    assert settings["env"]["num_runners"] == 3
    assert settings["env"]["grid_length"] == 20.0  # what was not said is written down too
    assert settings["policies"]["taggers"]["hidden"] == [16]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["env_steps"] == 400
    assert {"return/taggers", "return/runners", "policy/taggers/entropy", "share/rollout"} <= set().union(*rows)
    assert load_checkpoint(run)["trainer"]["env_steps"] == 400


def test_a_saved_configuration_runs_again_with_the_same_result(run, tmp_path):
    """Training from a run's config.yaml gives the same weights, bit for bit."""
    again = tmp_path / "again"
    assert main(["train", "--config", str(run / "config.yaml"), "--out", str(again), "--replay", "false"]) == 0
    assert not (again / "replay.html").exists()
    first, second = (load_checkpoint(folder)["trainer"]["policies"] for folder in (run, again))
    for policy, weights in first.items():
        for name, value in weights.items():
            assert bool((value == second[policy][name]).all())


def test_eval_reads_only_the_checkpoint(run, tmp_path, capsys):
    """With nothing but the checkpoint file, eval prints every match and how trained compares with random."""
    alone = tmp_path / "alone.pt"
    alone.write_bytes((run / "checkpoint.pt").read_bytes())
    results = tmp_path / "results.json"
    assert main(["eval", str(alone), "--episodes", "16", "--json", str(results)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"taggers: -?[\d.]+ trained against -?[\d.]+ at random", printed)
    matches = json.loads(results.read_text())
    assert len(matches) == 4
    assert all(set(match) == {"taggers", "runners"} for match in matches.values())


def test_matches_pit_everybody_against_everybody(run, tmp_path, capsys):
    """--matches prints a row for each pairing, with intervals, and writes them; a checkpoint can play itself."""
    results = tmp_path / "results.json"
    args = ["eval", str(run), "--matches", "--episodes", "6", "--seed", "2", "--json", str(results)]
    assert main([*args, "--against", str(run / "checkpoint.pt")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Tag, trained for 400 environment steps; 6 episodes a match")
    data = json.loads(results.read_text())
    assert len(data["matches"]) == 16
    for line, match in zip(lines[2:], data["matches"], strict=True):
        taggers = match["returns"]["taggers"]
        assert line.split()[:2] == list(match["players"].values())
        assert f"{taggers['mean']:.2f} +- {taggers['high'] - taggers['mean']:.2f}" in line
    by_players = {tuple(match["players"].values()): match["returns"] for match in data["matches"]}
    other = str(run / "checkpoint.pt")
    assert by_players["trained", "trained"] == by_players[other, other]


def test_replay_writes_a_page(run, tmp_path):
    """replay writes an episode of a checkpoint to the page that it is told."""
    page = tmp_path / "page.html"
    assert main(["replay", str(run), "--out", str(page), "--seed", "3"]) == 0
    assert page.read_text().lstrip().lower().startswith("<!doctype html")


def test_a_run_goes_on_from_its_checkpoint(run, tmp_path, capsys):
    """--resume continues a run in its folder to a new goal, and its metrics go on where they stopped."""
    folder = tmp_path / "longer"
    folder.mkdir()
    for name in ("config.yaml", "checkpoint.pt", "metrics.jsonl"):
        (folder / name).write_bytes((run / name).read_bytes())
    assert main(["train", "--resume", str(folder), "--env-steps", "800", "--replay", "false"]) == 0
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [row["env_steps"] for row in rows]
    assert steps == sorted(set(steps))
    assert steps[0] <= 400 < steps[-1] == 800


def test_ctrl_c_ends_cleanly_with_a_checkpoint(tmp_path):
    """An interrupted run saves, says how to go on, and ends with status 130."""
    folder = tmp_path / "stopped"
    process = command("train", "tag", *SMALL, "--out", folder, "--env-steps", 10**9, stdout=subprocess.PIPE)
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"warpdrive train --resume {folder}" in printed
    assert "Traceback" not in printed
    assert load_checkpoint(folder)["trainer"]["env_steps"] > 0


def tensors(state, path=""):
    """Every tensor of a nested state, by its path."""
    if isinstance(state, torch.Tensor):
        return {path: state}
    parts = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list | tuple) else ()
    return {key: value for name, part in parts for key, value in tensors(part, f"{path}/{name}").items()}


def test_a_run_stopped_within_an_update_goes_on_bit_for_bit(tmp_path, monkeypatch):
    """The update under way when Ctrl-C comes is finished first: half of one could not be resumed."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    args = ["train", "tag", *SMALL, "--env-steps", "320", "--replay", "false", "--out"]
    assert main([*args, str(whole)]) == 0
    update, calls = Learner.update, []

    def interrupted(self):
        calls.append(self)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        update(self)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "update", interrupted)
        assert main([*args, str(cut)]) == 130
    stopped = load_checkpoint(cut)["trainer"]["env_steps"]
    assert 0 < stopped < 320
    assert main(["train", "--resume", str(cut)]) == 0
    expected, found = (tensors(load_checkpoint(folder)["trainer"]) for folder in (whole, cut))
    assert expected.keys() == found.keys() and len(expected) > 20
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name


def test_a_run_stopped_twice_keeps_its_last_checkpoint(tmp_path, monkeypatch, capsys):
    """Who insists is obeyed at once; nothing half done is saved."""

    def interrupted(self):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Learner, "update", interrupted)
    assert main(["train", "tag", *SMALL, "--env-steps", "160", "--out", str(tmp_path / "run")]) == 130
    printed = capsys.readouterr().out
    assert "stopped within an update, which is lost" in printed and "there is no checkpoint yet" in printed
    assert not (tmp_path / "run" / "checkpoint.pt").exists()


def test_an_environment_in_a_file_of_the_users_own(tmp_path, capsys):
    """file.py:Class trains, and its checkpoint can be evaluated."""
    source = Path(__file__).parent.parent / "learn" / "bandit.py"
    mine = tmp_path / "mine.py"
    mine.write_text(source.read_text())
    folder = tmp_path / "run"
    args = [f"{mine}:Bandit", "--num-envs", "8", "--env-steps", "512", "--out", str(folder)]
    assert main(["train", *args, "--algorithm", "A2C", "--algorithm.lr", "1e-2", "--env.left", "2"]) == 0
    assert "no replay: Bandit has no method view()" in capsys.readouterr().out
    assert not (folder / "replay.html").exists()
    assert main(["train", "--resume", str(folder)]) == 0
    assert "already trained for 640 environment steps" in capsys.readouterr().out
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    assert settings["algorithm"]["name"] == "A2C"
    assert settings["algorithm"]["lr"] == 1e-2
    assert main(["eval", str(folder), "--episodes", "4"]) == 0


def test_groups_can_share_a_policy(tmp_path):
    """--assign gives one group the policy of the other."""
    folder = tmp_path / "run"
    args = [*SMALL, "--env-steps", "80", "--out", str(folder), "--replay", "false"]
    assert main(["train", "tag", *args, "--assign", "{runners: taggers}"]) == 0
    assert list(load_checkpoint(folder)["trainer"]["policies"]) == ["taggers"]


def test_a_group_can_be_played_by_a_script(tmp_path, capsys):
    """--opponents trains against a scripted policy; its checkpoint is evaluated against that one."""
    folder = tmp_path / "run"
    args = [*SMALL, "--env-steps", "80", "--out", str(folder)]
    assert main(["train", "tag", *args, "--opponents", "{runners: runner}"]) == 0
    assert list(load_checkpoint(folder)["trainer"]["policies"]) == ["taggers"]
    assert yaml.safe_load((folder / "config.yaml").read_text())["opponents"] == {"runners": "runner"}
    assert (folder / "replay.html").exists()
    assert main(["eval", str(folder), "--episodes", "4"]) == 0
    args = ["train", "tag", *SMALL, "--opponents", "{runners: runer}"]
    assert main(args) == 1
    assert "in opponents: 'runer'; did you mean 'runner'?" in capsys.readouterr().err


def test_bench_without_a_name(capsys):
    """It takes Tag, in the size for the device."""
    assert main(["bench", "--device", "cpu", "--repeats", "1", "--sizes", "[2]", "--train", "false"]) == 0
    assert main(["bench", "--repeats", "1", "--sizes", "[2]", "--train", "false"]) == 0
    assert "simulate, random actions" in capsys.readouterr().out


def test_bench_prints_a_table_and_json(tmp_path, capsys):
    """bench measures stepping and training and says which share of the machine's limits was reached."""
    results = tmp_path / "bench.json"
    assert main(["bench", "tag", "--num-envs", "16", "--repeats", "1", "--json", str(results)]) == 0
    assert "env steps/s" in capsys.readouterr().out
    report = json.loads(results.read_text())
    simulate, rollout, train = report["rows"]
    assert rollout["env_steps_per_s"] > train["env_steps_per_s"] > 0
    assert simulate["env_steps_per_s"] > 0 and report["commit"]
    assert 0 < simulate["share_of_copy_rate"] < 1.5
    assert train["passes"] == 4


def test_bench_takes_the_options_of_train_and_several_sizes(tmp_path):
    """A curve over sizes of an environment with other parameters, without training."""
    results = tmp_path / "bench.json"
    args = ["tag-gridworld", "--env.num-taggers", "2", "--sizes", "[4,8]", "--train", "false", "--repeats", "2"]
    assert main(["bench", *args, "--json", str(results)]) == 0
    rows = json.loads(results.read_text())["rows"]
    assert [(row["num_envs"], row["num_agents"], row["repeats"]) for row in rows] == [(4, 3, 2), (8, 3, 2)]
    assert all(row["bytes_per_env"] > 0 and row["least"] <= row["env_steps_per_s"] <= row["most"] for row in rows)


def test_list_names_the_bundled_configurations(capsys):
    """list prints every configuration and what it trains in, whole."""
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    for path in CONFIGS.glob("*.yaml"):
        assert path.stem in printed and yaml.safe_load(path.read_text())["name"] in printed


@pytest.mark.parametrize("args", [[], ["--help"], ["train", "tag", "--help"], ["eval", "--help"], ["bench", "--help"]])
def test_help_is_there(args, capsys):
    """Help is printed on request; Tag's training lists every option with its text."""
    assert main(args) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "usage" in printed
    if "tag" in args:
        for option in ("--env.tagging_distance", "--algorithm.gae_lambda", "--policies.runners.hidden", "--num_envs"):
            assert option in printed
        assert "side of the square" in printed


@pytest.mark.parametrize(
    ("args", "status", "sentence"),
    [
        (["trian"], 2, "unknown command 'trian'; did you mean 'train'?"),
        (["train", "tga"], 1, "unknown configuration 'tga'; did you mean 'tag'?"),
        (["train"], 1, "name what to train"),
        (["train", "tag", "--num-env", "3"], 1, "unknown option --num_env; did you mean --num_envs?"),
        (["train", "tag", "--env.num_tagers", "3"], 1, "did you mean --env.num_taggers?"),
        (["train", "tag", "--algorithm.lrr", "1"], 1, "did you mean --algorithm.lr?"),
        (["train", "tag", "--algorithm", "A3C"], 1, "unknown algorithm 'A3C'; did you mean 'A2C'?"),
        (["train", "tag", "--algorithm.lr", "fast"], 2, "algorithm.lr"),
        (["train", "tag", "--num-envs", "0"], 1, "num_envs must be a positive integer, got 0"),
        (["train", "tag", "--env-steps", "-5"], 1, "env_steps must be a positive integer, got -5"),
        (["train", "tag", "--env.num_taggers", "-1"], 1, "num_taggers must be a positive integer, got -1"),
        (["train", "tag", "--num-envs", "1000000000"], 1, "GiB"),
        (["train", "nowhere.py:Mine"], 1, "there is no file"),
        (["train", "warpdrive.zoo.tag:Tagg"], 1, "did you mean 'Tag'?"),
        (["train", "--config", "nowhere.yaml"], 1, "there is no file 'nowhere.yaml'"),
        (["train", "--resume", "nowhere"], 1, "nowhere is not a run's folder"),
        (["eval", "nowhere.pt"], 1, "there is no checkpoint at nowhere.pt"),
        (["eval", "nowhere.pt", "--matches"], 1, "there is no checkpoint at nowhere.pt"),
        (["train", "tag", "--opponents", "runner"], 2, "opponents must be names by group, such as"),
        (["train", "tag", "--num-envs", "x"], 2, "num_envs must be a whole number or 'auto', got x"),
        (["train", "tag", "--precision", "fp8"], 2, "precision must be one of auto, float32, tf32, bf16, got fp8"),
        (["train", "tag", "--algorithm.lr", "fast"], 2, "algorithm.lr must be a number, got fast"),
        (["train", "tag", "--num-envs", "8", "--out", "/proc/x"], 1, "--out: cannot make the folder '/proc/x'"),
        (["eval", "nowhere.pt", "--json", "/nowhere/x.json"], 1, "--json: there is no folder '/nowhere'"),
        (["eval", "nowhere.pt", "--episodes", "1"], 1, "episodes must be an integer of at least 2"),
        (["eval", "nowhere.pt", "--matches", "--episodes", "1"], 1, "episodes must be an integer of at least 2"),
        (["eval", "nowhere.pt", "--against", "a.pt"], 1, "give --matches as well"),
        (["eval", "nowhere.pt", "--matchs"], 1, "unknown option --matchs; did you mean --matches?"),
        (["bench", "--repeats", "0"], 1, "repeats must be a positive integer, got 0"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(args, status, sentence, capsys):
    """Each mistake ends with its status and one line on standard error that says what would be right."""
    assert main(args) == status
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert errors[0].startswith("warpdrive: ")
    assert sentence in errors[0]


def test_a_run_is_not_overwritten(run, capsys):
    """A folder that holds a run is refused, with both ways out."""
    assert main(["train", "tag", *SMALL, "--out", str(run)]) == 1
    assert "--resume" in capsys.readouterr().err


def test_unknown_settings_in_a_file_are_refused(tmp_path, capsys):
    """A misspelt key in a configuration is an error with the nearest name, not ignored."""
    config = tmp_path / "config.yaml"
    config.write_text("name: warpdrive.zoo.tag:Tag\nenv:\n  num_tagers: 3\n")
    assert main(["train", "--config", str(config)]) == 1
    assert "did you mean 'env.num_taggers'?" in capsys.readouterr().err


def test_a_policy_that_breaks_ends_training_and_leaves_the_checkpoint_before(tmp_path, capsys):
    """NaN in a policy is one sentence that names it and the agent; the checkpoint before still loads, finite."""
    folder = tmp_path / "run"
    args = ["train", "tag", *SMALL, "--out", str(folder), "--replay", "false"]
    assert main([*args, "--env-steps", "160"]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", str(folder), "--env-steps", "8000", "--algorithm.lr", "1e38"]) == 1
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert re.search(r"policy '\w+' gave NaN or infinity for agent \d of group", errors[0])
    trainer = load_checkpoint(folder)["trainer"]
    assert trainer["env_steps"] == 160
    assert all(bool(w.isfinite().all()) for policy in trainer["policies"].values() for w in policy.values())


@pytest.mark.parametrize("precision", ["auto", "float32", "tf32", "bf16"])
def test_the_precision_asked_for_is_that_of_the_policies(precision):
    """Also where observations stay float32, as those of MPE do."""
    env_class, settings, _ = find_environment(["simple-spread"], "train")
    asked = ["--precision", precision, "--num-envs", "4", "--device", "cpu"]
    settings = train_parser(env_class, settings).parse(asked).as_dict()
    trainer = make_trainer(make_simulator(env_class(), settings), settings)
    module = trainer.policies["agents"]
    assert module.kind(trainer.sim.obs["agents"].dtype) == (torch.bfloat16 if precision == "bf16" else torch.float32)
    assert module.precision == precision
