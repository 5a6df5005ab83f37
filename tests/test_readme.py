"""The README is true: its code runs, its commands and links exist."""

import re
import subprocess
import sys
from pathlib import Path

import warpdrive as wd

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ENVIRONMENT, USE = re.findall(r"```python\n(.*?)```", README, re.S)


def test_its_environment_learns(tmp_path):
    """The complete environment, run as a file, comes much nearer to its beacon."""
    source = tmp_path / "meet.py"
    source.write_text(ENVIRONMENT, encoding="utf-8")
    done = subprocess.run([sys.executable, str(source)], text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    returns = [float(line) for line in done.stdout.split() if line != "None"]
    assert returns[-1] > 0.4 * returns[0]  # they are negative: distances


def test_its_lines_of_use_run(tmp_path, monkeypatch):
    """What it shows of the simulator runs, with the shapes that its comments say."""
    (tmp_path / "meet_again.py").write_text(ENVIRONMENT, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import meet_again

    scope = {"wd": wd, "Meet": meet_again.Meet}
    exec(USE, scope)
    sim = scope["sim"]
    assert sim.obs["walkers"].shape == (2000, 4, 2)
    assert sim.state.position.shape == (2000, 4, 2)


def test_its_links_and_commands_exist():
    """Files it links to are there, and its first two commands begin with the set-up script."""
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target
    commands = re.findall(r"```bash\n(bash .*?)\n```", README)
    assert [c.split(" && ")[0] for c in commands] == ["bash setup.sh", "bash setup.sh dev"]
    assert (ROOT / "setup.sh").exists()
