"""The replay page: what it accepts, what it stores, and that a browser plays it from disk."""

import base64
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warpdrive.view import Episode, write_replay

LOW, HIGH = (-4.0, 2.0), (16.0, 14.0)
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def episode(steps: int = 60, taggers: int = 2, runners: int = 5, **changes: Any) -> Episode:
    """Agents on a random walk; the last runner leaves halfway; agent 0 stands in the middle of the world."""
    rng = np.random.default_rng(3)
    agents = taggers + runners
    heading = rng.uniform(-20, 20, (1, agents)) + rng.normal(0, 0.2, (steps + 1, agents)).cumsum(0)
    walk = 0.1 * np.stack([np.cos(heading), np.sin(heading)], -1).cumsum(0)
    position = np.clip(rng.uniform(LOW, HIGH, (agents, 2)) + walk, LOW, HIGH)
    position[:, 0] = 6, 8
    active = np.ones((steps + 1, agents), bool)
    active[steps // 2 :, -1] = False
    reward = rng.normal(0.1, 1, (steps, agents)).astype(np.float32)
    fields: dict[str, Any] = {
        "title": "A chase",
        "groups": {"tagger": taggers, "runner": runners},
        "position": position,
        "active": active,
        "reward": reward,
        "low": LOW,
        "high": HIGH,
        "heading": heading,
        "radius": 0.3,
        "info": {"environment": "Tag", "seed": "3"},
    }
    return Episode(**(fields | changes))


def mean_returns(shown: Episode, frame: int) -> list[float]:
    """Return of each group before a frame, mean over its agents, in double precision."""
    total = shown.reward[:frame].astype(np.float64).sum(0)
    ends = np.cumsum(list(shown.groups.values()))[:-1]
    return [float(part.mean()) for part in np.split(total, ends)]


class Page(HTMLParser):
    """Reads a page as a browser does: tags, and the text in each element."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(dict(attrs).get("id") or tag)

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    @property
    def data(self) -> dict[str, Any]:
        return json.loads("".join(self.texts["data"]))


def decode(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype)


def changed(array: np.ndarray, index: tuple[int, ...], value: float) -> np.ndarray:
    array = array.copy()
    array[index] = value
    return array


GOOD = episode()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"title": " "}, "title must be a string that is not blank, got ' '"),
        ({"groups": {}}, "groups must map at least one name to its number of agents, got {}"),
        ({"groups": {"": 7}}, "groups must have names that are strings and not blank, got ''"),
        ({"groups": {"tagger": 7, "runner": 0}}, "groups['runner'] must be a positive integer, got 0"),
        ({"groups": {"tagger": 7.0}}, "groups['tagger'] must be a positive integer, got 7.0"),
        (
            {"groups": {"tagger": 8}},
            "position must be an array of real numbers of shape (61, 8, 2), got float64 of shape",
        ),
        ({"position": [[0, 0]]}, "position must be an array of shape (T + 1, 7, 2) with T of 1 or more, got list"),
        ({"position": GOOD.position[:1]}, "with T of 1 or more, got float64 of shape (1, 7, 2)"),
        (
            {"position": changed(GOOD.position, (3, 0, 1), np.nan)},
            "position must be finite, got nan at index (3, 0, 1)",
        ),
        ({"active": GOOD.active.astype(int)}, "active must be an array of booleans of shape (61, 7), got int64"),
        (
            {"active": GOOD.active[1:]},
            "active must be an array of booleans of shape (61, 7), got bool of shape (60, 7)",
        ),
        ({"reward": GOOD.reward[1:]}, "reward must be an array of real numbers of shape (60, 7), got float32 of shape"),
        ({"reward": changed(GOOD.reward, (5, 1), -np.inf)}, "reward must be finite, got -inf at index (5, 1)"),
        ({"reward": np.full((60, 7), 1e39)}, "reward must be finite, got 1e+39 at index (0, 0)"),
        ({"heading": GOOD.position}, "heading must be an array of real numbers of shape (61, 7), got float64 of shape"),
        ({"heading": changed(GOOD.heading, (0, 6), np.inf)}, "heading must be finite, got inf at index (0, 6)"),
        ({"low": (0.0, np.nan)}, "low must be a pair of finite numbers, x and y, got (0.0, nan)"),
        ({"high": 5}, "high must be a pair of finite numbers, x and y, got 5"),
        ({"high": (16.0, 2.0)}, "high must exceed low in x and in y, got low (-4.0, 2.0) and high (16.0, 2.0)"),
        ({"radius": 0}, "radius must be a positive number, or None to have one chosen, got 0"),
        ({"info": {"seed": 3}}, "info must map labels to texts, got 'seed': 3; turn both into strings"),
    ],
)
def test_a_bad_episode_is_refused(changes: dict, says: str, tmp_path: Path) -> None:
    """An episode that cannot be shown is refused in one sentence, and nothing is written."""
    with pytest.raises(ValueError, match=re.escape(says)):
        write_replay(replace(GOOD, **changes), tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_the_page_holds_the_episode(tmp_path: Path) -> None:
    """What the page stores decodes to the episode, to the precision promised."""
    write_replay(GOOD, tmp_path / "page.html")
    data = Page(tmp_path / "page.html").data
    frames, agents, _ = GOOD.position.shape
    assert (data["steps"], data["agents"], data["radius"]) == (frames - 1, agents, 0.3)
    assert data["groups"] == [{"name": "tagger", "count": 2}, {"name": "runner", "count": 5}]
    size = np.subtract(HIGH, LOW)
    place = LOW + decode(data["position"], "<u2").reshape(frames, agents, 2) / 65535 * size
    assert (np.abs(place - GOOD.position) <= size / 65535).all()
    turn = decode(data["heading"], "u1").reshape(frames, agents) / 256 * 2 * np.pi
    assert np.cos(turn - GOOD.heading).min() >= np.cos(np.pi / 256) - 1e-9
    active = np.unpackbits(decode(data["active"], "u1"), bitorder="little")[: frames * agents]
    assert (active.reshape(frames, agents) == GOOD.active).all()
    assert (decode(data["reward"], "<f4").reshape(frames - 1, agents) == GOOD.reward).all()


def test_places_outside_lie_on_the_edge(tmp_path: Path) -> None:
    """A place outside the rectangle is moved to its edge instead of wrapping around."""
    outside = replace(GOOD, position=changed(changed(GOOD.position, (4, 1, 0), 1e9), (4, 1, 1), -1e9))
    write_replay(outside, tmp_path / "page.html")
    place = decode(Page(tmp_path / "page.html").data["position"], "<u2").reshape(outside.position.shape)
    assert place[4, 1].tolist() == [65535, 0]


def test_a_large_episode_stays_small(tmp_path: Path) -> None:
    """500 steps of 110 agents make less than 1.5 MB."""
    write_replay(episode(steps=500, taggers=10, runners=100), tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 1_500_000


HOSTILE = "</script><script>alert('1')</script> \"quoted\" & 'single' <!-- <b> {{ 7 * 7 }}"


def test_texts_are_escaped(tmp_path: Path) -> None:
    """No text of the episode can become markup."""
    write_replay(GOOD, tmp_path / "plain.html")
    hostile = replace(GOOD, title=HOSTILE, groups={HOSTILE: 2, HOSTILE + "2": 5}, info={HOSTILE: HOSTILE, "seed": "3"})
    write_replay(hostile, tmp_path / "page.html")
    page = Page(tmp_path / "page.html")
    assert page.tags == Page(tmp_path / "plain.html").tags
    assert page.texts["h1"] == page.texts["title"] == [HOSTILE]
    assert page.data["groups"][0]["name"] == HOSTILE


def test_the_page_replaces_an_older_one_whole(tmp_path: Path) -> None:
    """Folders are made, an older page is replaced, nothing else is left, and others may read the page as usual."""
    path = tmp_path / "new" / "folder" / "page.html"
    write_replay(GOOD, path)
    write_replay(replace(GOOD, title="Newer"), path)
    assert Page(path).texts["h1"] == ["Newer"]
    assert list(path.parent.iterdir()) == [path]
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_failed_write_leaves_the_older_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that dies before its end leaves the older page as it was, and no partial file."""
    path = tmp_path / "page.html"
    write_replay(GOOD, path)
    before = path.read_bytes()

    def full(source: Path, target: Path) -> None:
        assert source.parent == target.parent
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        write_replay(replace(GOOD, title="Newer"), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# ---- In a browser ----------------------------------------------------------------------------------------------------


def find_chromium() -> str:
    """Return where chromium is, or fail: a page that no browser has played is not tested."""
    found = shutil.which("chromium")
    if found is None:
        pytest.fail("the replay page is tested in a browser: run `apt-get install chromium`", pytrace=False)
    return found


def test_a_missing_browser_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without chromium the tests of the page fail and say how to install it."""
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        find_chromium()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = find_chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        yield launched
        launched.close()


class Visit:
    """Pages opened from disk, with everything they asked for and complained about."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser, self.folder = browser, folder
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.contexts: list[Any] = []

    def open(self, shown: Episode, *, width: int = 1200, height: int = 800, **options: Any) -> Any:
        path = self.folder / "page.html"
        write_replay(shown, path)
        context = self.browser.new_context(viewport={"width": width, "height": height}, **options)
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        page.goto(path.as_uri())
        return page


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Visit]:
    """Pages to open; afterwards none may have used a network or written to the console."""
    opened = Visit(browser, tmp_path)
    yield opened
    for context in opened.contexts:
        context.close()
    assert opened.requests
    assert all(url.startswith(("file://", "data:")) for url in opened.requests), opened.requests
    assert not opened.complaints


def wait(page: Any, condition: str, seconds: float = 10) -> None:
    """Wait until an expression holds; the page's policy bars the eval that Playwright's own wait needs."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(20)


def ask(page: Any, expression: str) -> Any:
    return page.evaluate(f"window.replay.{expression}")


def swatch(page: Any, group: int) -> list[int]:
    """Colour of a group in the legend."""
    color = page.evaluate(
        f"getComputedStyle(document.querySelector('[data-group=\"{group}\"] .swatch')).backgroundColor"
    )
    return [int(part) for part in re.findall(r"\d+", color)]


def pixel(page: Any, x: float, y: float) -> list[int]:
    """Red, green, blue and opacity of the view at a place in CSS pixels."""
    return page.evaluate(
        """([x, y]) => {
            const view = document.getElementById("view"), ratio = view.width / view.clientWidth;
            const copy = document.createElement("canvas");
            [copy.width, copy.height] = [1, 1];
            const pen = copy.getContext("2d", { willReadFrequently: true });
            pen.drawImage(view, -Math.floor(x * ratio), -Math.floor(y * ratio));
            return [...pen.getImageData(0, 0, 1, 1).data];
        }""",
        [x, y],
    )


def test_time_is_under_control(visit: Visit) -> None:
    """The page starts at rest; play runs to the end and stops; the slider, the buttons and the chart seek."""
    page = visit.open(GOOD)
    assert (ask(page, "frame"), ask(page, "frames"), ask(page, "playing")) == (0, 61, False)
    page.get_by_role("button", name="Play", exact=True).click()
    wait(page, "window.replay.frame >= 5")
    page.get_by_role("button", name="Pause").click()
    frame = ask(page, "frame")
    page.get_by_role("button", name="One step forward").click()
    assert (ask(page, "frame"), ask(page, "playing")) == (frame + 1, False)
    page.get_by_role("button", name="One step back").click()
    assert ask(page, "frame") == frame
    page.get_by_role("slider", name="Step").fill("37")
    assert ask(page, "frame") == 37
    assert page.locator("#step").inner_text() == "Step 37 / 60"
    page.get_by_label("Speed").select_option("8")
    assert ask(page, "speed") == 8
    page.get_by_role("button", name="Play", exact=True).click()
    wait(page, "window.replay.frame === 60 && !window.replay.playing")
    box = page.locator("#chart").bounding_box()
    page.mouse.click(box["x"] + 44 + (box["width"] - 52) / 2, box["y"] + 50)
    assert ask(page, "frame") == pytest.approx(30, abs=1)


def test_the_keyboard_does_it_all(visit: Visit) -> None:
    """Every key that the help lists does what the help says, once, wherever the focus is."""
    page = visit.open(GOOD)
    press = page.keyboard.press
    for focus in ("body", "#seek"):
        page.evaluate("document.activeElement.blur()")
        page.locator(focus).focus()
        press("Home")
        for key, frame in {"ArrowRight": 1, "Shift+ArrowRight": 11, "ArrowLeft": 10, "End": 60, "Home": 0}.items():
            press(key)
            assert ask(page, "frame") == frame, (focus, key)
        press("Space")
        assert ask(page, "playing")
        press("Space")
        assert not ask(page, "playing")
    page.locator("#play").focus()
    press("Space")
    assert ask(page, "playing")
    press("ArrowRight")
    assert not ask(page, "playing")
    for key, speed in (("+", 2), ("+", 4), ("-", 2)):
        press(key)
        assert ask(page, "speed") == speed
    for _ in range(9):
        press("-")
    assert ask(page, "speed") == 0.25
    assert page.locator("#speed").input_value() == "0.25"
    press("t")
    assert ask(page, "trails") and page.get_by_label("Trails").is_checked()
    press("?")
    assert page.get_by_role("dialog").is_visible()
    press("Escape")
    assert not page.get_by_role("dialog").is_visible()


def test_returns_are_those_of_numpy(visit: Visit) -> None:
    """At any step the returns shown are the mean over the group of the rewards so far."""
    page = visit.open(GOOD)
    for frame in (0, 1, 23, 60):
        ask(page, f"seek({frame})")
        want = mean_returns(GOOD, frame)
        assert ask(page, "returns") == pytest.approx(want, abs=1e-9)
        for group, value in enumerate(want):
            cells = page.locator(f"[data-group='{group}'] td").all_inner_texts()
            assert float(cells[1].replace("\u2212", "-")) == pytest.approx(value, abs=0.0051)
            size = list(GOOD.groups.values())[group]
            there = int(np.split(GOOD.active[frame], [2])[group].sum())
            assert cells[0] == (str(size) if there == size else f"{there} of {size}")
        own = GOOD.reward[:frame, 4].astype(np.float64).sum()
        assert ask(page, f"agentReturn(4, {frame})") == pytest.approx(own, abs=1e-9)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_agents_are_drawn_where_they_are(visit: Visit, scheme: str) -> None:
    """The pixel at an agent's place has the colour of its group; one that left is hollow; y grows upwards."""
    page = visit.open(GOOD, color_scheme=scheme, device_scale_factor=2)
    width, height = page.evaluate("[view.clientWidth, view.clientHeight]")
    assert page.evaluate("[view.width, view.height]") == [2 * width, 2 * height]
    assert swatch(page, 0) != swatch(page, 1)
    for frame in (0, 41):
        ask(page, f"seek({frame})")
        assert pixel(page, width / 2, height / 2)[:3] == swatch(page, 0)  # agent 0 stands in the middle
        # The margin is the same on all sides, so it follows from the two sizes.
        scale = (width - height) / ((HIGH[0] - LOW[0]) - (HIGH[1] - LOW[1]))
        for agent, (x, y) in enumerate(GOOD.position[frame]):
            place = ask(page, f"pixel({agent})")
            assert place == pytest.approx([width / 2 + (x - 6) * scale, height / 2 - (y - 8) * scale], abs=2)
            inside = pixel(page, *place)
            if GOOD.active[frame, agent]:
                assert inside == [*swatch(page, int(agent >= 2)), 255]
            else:
                assert inside[:3] not in (swatch(page, 0), swatch(page, 1))


def test_the_pointer_names_an_agent(visit: Visit) -> None:
    """Over an agent a note tells its index, group and return; a click keeps it until a click on the ground."""
    page = visit.open(GOOD)
    ask(page, "seek(20)")
    box = page.locator("#view").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    wait(page, "!document.getElementById('tip').hidden")
    told = page.locator("#tip").inner_text()
    assert told.startswith("Agent 0, tagger 1 of 2")
    shown = re.search(r"return so far (\S+)", told)
    assert shown and float(shown[1].replace("\u2212", "-")) == pytest.approx(GOOD.reward[:20, 0].sum(), abs=0.0051)
    page.mouse.down()
    page.mouse.up()
    page.mouse.move(box["x"] + 1, box["y"] + 1)
    page.wait_for_timeout(50)
    assert ask(page, "hovered") == 0  # a click keeps hold of it
    page.mouse.down()
    page.mouse.up()
    wait(page, "document.getElementById('tip').hidden")


def test_trails_change_the_picture(visit: Visit) -> None:
    """Trails are drawn when asked for and gone when not."""
    page = visit.open(GOOD)
    ask(page, "seek(30)")
    picture = "document.getElementById('view').toDataURL()"
    without = page.evaluate(f"window.before = {picture}")
    assert without == page.evaluate(picture)
    page.get_by_label("Trails").check()
    wait(page, f"{picture} !== window.before")
    page.get_by_label("Trails").uncheck()
    wait(page, f"{picture} === window.before")


@pytest.mark.parametrize("size", [(360, 740), (1366, 768)])
def test_the_page_fits(visit: Visit, size: tuple[int, int]) -> None:
    """Nothing sticks out sideways, even with long texts, and on a desk the controls are in sight."""
    page = visit.open(replace(GOOD, info={"checkpoint": "x" * 200}), width=size[0], height=size[1])
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    controls = page.locator(".controls").bounding_box()
    assert controls["y"] + controls["height"] <= size[1]


def test_hostile_texts_are_only_shown(visit: Visit) -> None:
    """Markup in a title, a name or the table is shown as text, also in the note that the script makes."""
    page = visit.open(replace(GOOD, title=HOSTILE, groups={HOSTILE: 2, "b": 5}, info={HOSTILE: HOSTILE}))
    assert page.locator("h1").inner_text() == HOSTILE
    page.locator("#view").hover()
    wait(page, "!document.getElementById('tip').hidden")
    assert HOSTILE in page.locator("#tip").inner_text()


def test_the_least_episode_plays(visit: Visit) -> None:
    """One step, one agent, no heading, no radius, no reward and no table make a page too."""
    least = Episode(
        title="Least",
        groups={"one": 1},
        position=np.zeros((2, 1, 2)),
        active=np.ones((2, 1), bool),
        reward=np.zeros((1, 1)),
        low=(0.0, 0.0),
        high=(1.0, 1.0),
    )
    page = visit.open(least)
    page.keyboard.press("Space")
    wait(page, "window.replay.frame === 1 && !window.replay.playing")
    assert page.locator("[data-group='0'] td").all_inner_texts() == ["1", "0.00"]
