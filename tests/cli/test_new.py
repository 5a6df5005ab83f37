"""`warpdrive new` writes what works: its test passes, it trains and can be played, and the tutorial tells the truth."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import warpdrive
from warpdrive.cli.main import main
from warpdrive.learn.checkpoint import load_checkpoint

ROOT = Path(__file__).parent.parent.parent
TUTORIAL = (ROOT / "docs" / "first-environment.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A new environment, as a user makes it."""
    where = tmp_path_factory.mktemp("mine")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        assert main(["new", "my_env"]) == 0
    return where / "my_env"


def python(*args, cwd):
    """`python ARGS` in a process that finds this WarpDrive."""
    paths = [str(Path(warpdrive.__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, *map(str, args)], cwd=cwd, env=environment, text=True, capture_output=True, timeout=300
    )


def test_it_writes_three_files_that_a_linter_passes(folder):
    """Environment, test and configuration are there, formatted as this package is."""
    assert {p.name for p in folder.iterdir()} == {"my_env.py", "test_my_env.py", "config.yaml"}
    source = (folder / "my_env.py").read_text()
    assert "class MyEnv(wd.Env):" in source and "{{" not in source
    if python("-m", "ruff", "--version", cwd=folder).returncode == 0:
        common = ["--isolated", "--no-cache", "--line-length", "120", "my_env"]
        for command in (["check", "--select", "E,F,W,I,UP,B"], ["format", "--check"]):
            done = python("-m", "ruff", *command, *common, cwd=folder.parent)
            assert done.returncode == 0, done.stdout


def test_its_test_passes_and_it_trains(folder, tmp_path, monkeypatch):
    """`pytest my_env` passes; training from its configuration leaves a run that can be shown and played on."""
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "my_env", cwd=folder.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout

    monkeypatch.chdir(folder.parent)  # where a user stands, who names files from there
    run = tmp_path / "run"
    assert main(["train", "--config", "my_env/config.yaml", "--env-steps", "4096", "--out", str(run)]) == 0
    assert (run / "replay.html").exists()
    assert load_checkpoint(run)["trainer"]["env_steps"] >= 4096
    assert yaml.safe_load((run / "config.yaml").read_text())["env"] == dict(walkers=4, side=10.0, episode_length=50)
    assert main(["train", "--resume", str(run), "--env-steps", "8192", "--replay", "false"]) == 0
    monkeypatch.chdir(tmp_path)  # a checkpoint knows its environment from anywhere
    assert main(["eval", str(run), "--episodes", "4"]) == 0


def test_a_configuration_names_files_from_its_folder_or_from_here(folder, tmp_path, monkeypatch):
    """What --config names is looked for beside the configuration first, then in the present folder."""
    config = tmp_path / "elsewhere.yaml"
    config.write_text("name: my_env/my_env.py:MyEnv\nnum_envs: 2\n")
    monkeypatch.chdir(folder.parent)
    assert main(["train", "--config", str(config), "--help"]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--config", str(config), "--help"]) == 1
    assert main(["train", "--config", str(folder / "config.yaml"), "--help"]) == 0


def test_a_folder_elsewhere(tmp_path):
    """The folder can be given with a path, which is made; the last part is the name."""
    assert main(["new", str(tmp_path / "games" / "river_2")]) == 0
    assert "class River2(wd.Env)" in (tmp_path / "games" / "river_2" / "river_2.py").read_text()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("there", "there is already there; choose another name"),
        (
            "MyEnv",
            "small letters, digits and single underscores, as in my_env, and is no word of Python's; got 'MyEnv'",
        ),
        ("2fast", "got '2fast'"),
        ("my-env", "got 'my-env'"),
        ("my_env_", "got 'my_env_'"),
        ("while", "got 'while'"),
        ("", "got ''"),
        ("..", "got '..'"),
        ("torch", "Python has a module 'torch' already"),
        ("random", "Python has a module 'random' already"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_sentence(name, sentence, tmp_path, monkeypatch, capsys):
    """A folder that exists and a name that does not fit end with status 1, one line, and nothing written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    assert main(["new", name]) == 1
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1 and errors[0].startswith("warpdrive: ") and sentence in errors[0]
    assert [p.name for p in tmp_path.iterdir()] == ["there"] and not any((tmp_path / "there").iterdir())


def test_help(capsys):
    """It says what it makes; without a name it does so as an error."""
    assert main(["new", "--help"]) == 0
    assert main(["new"]) == 2
    assert "my_env" in capsys.readouterr().out


# ---------------------------------------------------------------- the tutorial


def test_the_tutorial_shows_what_is_written(folder):
    """Each passage of the generated files that the tutorial quotes stands there word for word."""
    written = "".join(p.read_text() for p in sorted(folder.iterdir()) if p.is_file())
    quoted = re.findall(r"```(?:python|yaml)\n(.*?)```", TUTORIAL.split("## Make it yours")[0], re.S)
    assert len(quoted) >= 6
    for passage in quoted:
        assert passage in written, passage


def test_the_tutorials_change_works(folder, tmp_path):
    """The lines that the tutorial adds, put where it says, keep the test green and end episodes by the rules."""
    mine = tmp_path / "my_env"
    mine.mkdir()
    phase, listed, test = re.findall(r"```python\n(.*?)```", TUTORIAL.split("## Make it yours")[1], re.S)
    source = (folder / "my_env.py").read_text()
    before = '@wd.per_agent("walkers")\ndef look('
    assert before in source and "    step = (walk,)\n" in source
    source = source.replace(before, f"{phase}\n\n{before}").replace("step = (walk,)\n", listed)
    (mine / "my_env.py").write_text(source)
    (mine / "test_my_env.py").write_text((folder / "test_my_env.py").read_text() + "\n\n" + test)
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "my_env", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
