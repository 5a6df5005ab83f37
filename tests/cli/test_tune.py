"""`warpdrive tune` and `warpdrive train --num-envs auto`, run as a user runs them."""

import json

import pytest
import yaml

from warpdrive.cli import train as train_module
from warpdrive.cli.main import main
from warpdrive.cli.tune import _without
from warpdrive.learn import tune as tune_module
from warpdrive.learn.checkpoint import load_checkpoint

SMALL = ["--env.num_taggers", "1", "--env.num_runners", "2", "--env.episode_length", "10"]
SMALL += ["--algorithm.rollout_steps", "4", "--algorithm.minibatches", "2", "--algorithm.epochs", "1"]
SMALL += ["--policies.taggers.hidden", "[8]", "--policies.runners.hidden", "[8]", "--device", "cpu"]


@pytest.fixture(autouse=True)
def few_updates(monkeypatch):
    """Time each size for a moment only."""
    monkeypatch.setattr(tune_module, "ENOUGH_SECONDS", 0.0)


def test_tune_prints_a_table_the_choice_and_how_to_train(tmp_path, capsys):
    """The table has all that was measured, the last line is a command with all options that were given."""
    target = tmp_path / "sizes.json"
    assert main(["tune", "tag", *SMALL, "--most-envs", "32", f"--json={target}", "--start", "16"]) == 0
    printed = capsys.readouterr().out
    head, *_ = printed.splitlines()
    for name in ("num_envs", "rollout_steps", "env steps/s", "agent steps/s", "memory", "seconds per update"):
        assert name in head
    report = json.loads(target.read_text())
    assert report["name"] == "warpdrive.zoo.tag:Tag" and report["num_agents"] == 3
    assert [16, 4] in [[row["num_envs"], row["rollout_steps"]] for row in report["rows"]]
    chosen = report["chosen"]
    size = f"--num-envs {chosen['num_envs']} --algorithm.rollout_steps {chosen['rollout_steps']}"
    assert report["why"] in printed
    assert f"warpdrive train tag {' '.join(SMALL[:6])}" in printed
    assert printed.rstrip().endswith(size)
    assert "--json" not in printed and "--most" not in printed


def test_auto_trains_with_the_number_it_chose(tmp_path, capsys, monkeypatch):
    """The number is printed, written down and kept on resuming, and the result is that of this number, bit for bit."""
    monkeypatch.setattr(train_module, "TUNE_SECONDS", 3.0)
    folder, plain = tmp_path / "auto", tmp_path / "plain"
    # At least twenty updates of four steps: at most 16 environments.
    args = ["train", "tag", *SMALL, "--env-steps", "1300", "--replay", "false"]
    assert main([*args, "--num-envs", "auto", "--out", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "num_envs auto: 16 environments x 4 steps: the highest rate; 16 environments are the most allowed" in printed
    assert "with more, env_steps would be less than 20 updates" in printed
    assert yaml.safe_load((folder / "config.yaml").read_text())["num_envs"] == 16
    saved = load_checkpoint(folder)
    assert saved["settings"]["num_envs"] == 16
    assert main([*args, "--num-envs", "16", "--out", str(plain)]) == 0
    for policy, weights in load_checkpoint(plain)["trainer"]["policies"].items():
        for name, value in weights.items():
            assert bool((value == saved["trainer"]["policies"][policy][name]).all())
    assert main(["train", "--resume", str(folder), "--env-steps", "1400", "--replay", "false"]) == 0
    assert load_checkpoint(folder)["trainer"]["env_steps"] == 1408
    assert main(["train", "--resume", str(folder), "--num-envs", "auto"]) == 1
    assert "num_envs cannot be 'auto' with --resume" in capsys.readouterr().err


def test_tune_reads_the_configuration_of_a_run(tmp_path, capsys):
    """What a run's config.yaml says besides environment, algorithm and policies does not matter."""
    config = tmp_path / "config.yaml"
    config.write_text("{name: 'warpdrive.zoo.cartpole:CartPole', num_envs: auto, env_steps: 5, out: x, seed: 3}")
    assert main(["tune", "--config", str(config), "--most-envs", "16", "--seconds", "1", "--device", "cpu"]) == 0
    assert f"warpdrive train --config {config} --device cpu --num-envs 16" in capsys.readouterr().out


def test_options_of_the_search_are_left_out():
    """With their values, in either way of writing them; values that look like them stay."""
    args = ["tag", "--most-envs", "3", "--env.x", "json", "--json=a", "--seconds", "--5", "--start=2", "--assign", "x"]
    names = {"most_envs", "json", "seconds", "start"}
    assert _without(names, args) == ["tag", "--env.x", "json", "--assign", "x"]


@pytest.mark.parametrize("args", [["tune"], ["tune", "--help"], ["tune", "tag", "--help"]])
def test_help_is_there(args, capsys):
    """Help lists the options of the search, and with an environment those of training."""
    assert main(args) == 0
    printed = capsys.readouterr().out
    assert "--most_envs" in printed
    assert ("--env.num_runners" in printed) == ("tag" in args)
    assert "--save_seconds" not in printed


@pytest.mark.parametrize(
    ("args", "status", "sentence"),
    [
        (["tune", "tga"], 1, "unknown configuration 'tga'; did you mean 'tag'?"),
        (["tune", "--seconds", "3"], 1, "name what to tune"),
        (["tune", "tag", "--num-envs", "3"], 1, "unknown option --num_envs; did you mean --most_envs?"),
        (["tune", "tag", "--seconds", "0"], 1, "seconds must be a positive number, got 0.0"),
        (["tune", "tag", "--start", "4"], 1, "start must be at least the number of minibatches, 8, got 4"),
        (["tune", "tag", "--most-envs", "many"], 2, "many"),
        (["train", "tag", "--num-envs", "many"], 2, "many"),
        (["train", "tag", "--num-envs", "auto", "--env-steps", "0"], 1, "env_steps must be a positive integer, got 0"),
        (["bench", "tag", "--num-envs", "auto"], 1, "num_envs must be a positive integer, got 'auto'"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(args, status, sentence, capsys):
    """Each mistake ends with its status and one line on standard error."""
    assert main(args) == status
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert errors[0].startswith("warpdrive: ")
    assert sentence in errors[0]
