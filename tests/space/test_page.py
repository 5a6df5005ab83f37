"""The page on neighbours tells the truth: its flock runs, has no faults, and sees what NumPy sees."""

import re
from pathlib import Path

import numpy as np
import pytest

import warpdrive as wd
from space.crowd import nearest

PAGE = (Path(__file__).parent.parent.parent / "docs" / "space.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def flock(tmp_path_factory):
    """Its environment, from a file."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "flock_of_page.py").write_text(re.findall(r"```python\n(.*?)```", PAGE, re.S)[0], encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        import flock_of_page

        yield flock_of_page.Flock


@pytest.mark.parametrize("birds", [2, 300])
def test_its_flock_sees_the_nearest(flock, birds):
    """Few are compared and many are sorted into cells; they see the sines of the nearest ones' headings."""
    env = flock(birds=birds)
    assert bool(env.params["cell_columns"]) == (birds == 300)
    sim = wd.Simulator(env, 3, device="cpu")
    sim.reset()
    for _ in range(12):
        sim.random_step()
    for e in range(3):
        position, heading = sim.state.position[e].numpy(), sim.state.heading[e].numpy().astype(float)
        index, square = nearest(position, np.ones(birds, bool), 5)
        turn = np.where(index < 0, 0, np.sin(heading[index] - heading[:, None]))
        np.testing.assert_allclose(sim.obs["birds"][e, :, :5], turn, atol=1e-5)
        np.testing.assert_allclose(sim.obs["birds"][e, :, 5:], 1 / (1 + np.sqrt(square)), rtol=1e-5)
    assert (sim.reward != 0).any() or birds == 2


def test_its_flock_has_no_faults(flock):
    """The kit finds nothing, with cells and without."""
    report = wd.check(flock(birds=4, side=2.0), steps=8, num_envs=2, device="cpu")
    assert report.ok, str(report)


def test_its_functions_exist():
    """Every function in its table is one of Search."""
    for name in re.findall(r"^\| `near\.(\w+)", PAGE, re.M):
        assert callable(getattr(wd.space.Search, name))
