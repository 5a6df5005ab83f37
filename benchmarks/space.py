"""Time the search for neighbours: all agents compared against cell lists, by number of agents and of neighbours.

    python benchmarks/space.py                        # the table by which layouts are chosen
    python benchmarks/space.py --agents 110 --neighbours 10 --envs 2000 --device cuda

Agents walk at random on a square, and look at their nearest others, or (--fold) sum over those within the radius that
holds as many. Each row is a simulator of its own: microseconds of a step without any search, and what searching adds to
it, the sorting of cell lists included, as the least and the median of repeated, synchronised runs.
"""

import argparse
import functools
import json
import math
import statistics
import time
from typing import Any

import torch
import warp as wp

import warpdrive as wd
from warpdrive import space
from warpdrive.space import search as searching

METHODS = {"none": None, "all": False, "cells": True}


class WalkState(space.Cells):
    """Walkers on the unit square."""

    walkers: wd.Agents
    position: wd.PerAgent[wp.vec2]
    radius: wd.Param[float]


@wd.per_agent
def place(s: WalkState, env: int, agent: int):
    """Begin anywhere."""
    rng = wd.random(s, env, agent)
    s.position[env, agent] = wp.vec2(wp.randf(rng), wp.randf(rng))


@wd.per_agent
def walk(s: WalkState, env: int, agent: int):
    """Take a small random step."""
    rng = wd.random(s, env, agent)
    x = s.position[env, agent][0] + wp.randf(rng, -0.01, 0.01)
    y = s.position[env, agent][1] + wp.randf(rng, -0.01, 0.01)
    s.position[env, agent] = wp.vec2(wp.clamp(x, 0.0, 1.0), wp.clamp(y, 0.0, 1.0))


@wd.per_agent("walkers")
def look_nowhere(s: WalkState, env: int, i: int):
    """Observe the own position."""
    wd.put(s.walkers.obs, env, i, 0, s.position[env, i][0])
    wd.put(s.walkers.obs, env, i, 1, s.position[env, i][1])


@wp.func
def total(s: Any, env: int, agent: int, other: int, distance: float, sum: wp.vec2) -> wp.vec2:
    """The sum of distances and of places along x."""
    return sum + wp.vec2(distance, s.position[env, other][0])


@functools.cache
def look_phase(neighbours: int, cells: bool, fold: bool, static: bool) -> wd.per_agent:
    """The phase that searches; `static`: compiled for one of the methods alone."""
    near = space.Search("position", cells=cells if static else None)
    nearest, crowd = near.nearest(neighbours), near.fold(total)
    if fold:

        @wd.per_agent("walkers")
        def look(s: WalkState, env: int, i: int):
            found = crowd(s, env, i, s.radius, wp.vec2(0.0, 0.0))
            wd.put(s.walkers.obs, env, i, 0, found[0])
            wd.put(s.walkers.obs, env, i, 1, found[1])

    else:

        @wd.per_agent("walkers")
        def look(s: WalkState, env: int, i: int):
            index, distance = nearest(s, env, i)
            far = float(0.0)
            way = float(0.0)
            for j in range(neighbours):
                if index[j] >= 0:
                    far += distance[j]
                    way += s.position[env, index[j]][0]
            wd.put(s.walkers.obs, env, i, 0, far)
            wd.put(s.walkers.obs, env, i, 1, way)

    return look


class Walk(wd.Env):
    """Walkers that look at their neighbours by one of METHODS."""

    state = WalkState
    reset = (place,)
    step = (walk,)

    def __init__(self, agents: int, neighbours: int, method: str, fold: bool, static: bool) -> None:
        near, cells = space.Search("position"), METHODS[method]
        layout = near.layout(agents, (0, 0), (1, 1), neighbours=neighbours, cells=bool(cells))
        look = look_nowhere if cells is None else look_phase(neighbours, cells, fold, static)
        self.observe = (*layout.phases, look)
        super().__init__(
            groups={"walkers": wd.Group(agents, obs=2, action=wd.Discrete(2))},
            params=layout.params | {"radius": math.sqrt(neighbours / (math.pi * agents))},
            sizes=layout.sizes,
        )


def microseconds(env: Walk, num_envs: int, device: str | None, schedule: Any, seconds: float) -> tuple[float, float]:
    """Least and median time of a step in repeated runs that take about `seconds` together."""
    sim = wd.Simulator(env, num_envs, device=device, schedule=schedule)
    sim.reset()
    wait = torch.cuda.synchronize if sim.device.type == "cuda" else lambda: None

    def run(steps: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(steps):
            sim.step()
        wait()
        return (time.perf_counter() - start) / steps * 1e6

    run(3)
    repeats = 10
    steps = max(1, int(seconds * 1e6 / repeats / run(3)))
    times = [run(steps) for _ in range(repeats)]
    return min(times), statistics.median(times)


def main() -> None:
    """Print a table, and write it as JSON where --json names a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, nargs="+", default=[30, 100, 300, 1000, 3000])
    parser.add_argument("--neighbours", type=int, nargs="+", default=[1, 4, 10])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--envs", type=int, help="default: about 200 000 agents on a GPU, 3000 on the CPU")
    parser.add_argument("--per-cell", type=float, nargs="+", help="agents in a cell; default: as the library chooses")
    parser.add_argument("--fold", action="store_true", help="sum over those within a radius")
    parser.add_argument("--static", action="store_true", help="compile for one method alone")
    parser.add_argument("--device", help="default: the GPU if there is one")
    parser.add_argument("--schedule", default="auto", choices=["auto", "split", "fused", "loop"])
    parser.add_argument("--seconds", type=float, default=1.0, help="of measuring, for each row")
    parser.add_argument("--json")
    options = parser.parse_args()
    gpu = torch.cuda.is_available() and options.device != "cpu"
    rows = []
    print(
        f"{'agents':>6} {'envs':>6} {'k':>3} {'method':>6} {'per cell':>8} {'least us':>10} {'median us':>10}",
        flush=True,
    )
    for agents in options.agents:
        envs = options.envs or max(1, (200_000 if gpu else 3000) // agents)
        for neighbours in options.neighbours:
            for method in options.methods:
                for per_cell in (options.per_cell or [None]) if method == "cells" else [None]:
                    if per_cell is not None:
                        searching.per_cell = lambda neighbours, value=per_cell: value
                    env = Walk(agents, neighbours, method, options.fold, options.static)
                    least, median = microseconds(env, envs, options.device, options.schedule, options.seconds)
                    rows.append(dict(agents=agents, envs=envs, neighbours=neighbours, method=method,
                                     per_cell=per_cell, least_us=least, median_us=median))  # fmt: skip
                    chosen = "" if per_cell is None else f"{per_cell:g}"
                    print(f"{agents:6} {envs:6} {neighbours:3} {method:>6} {chosen:>8} {least:10.1f} {median:10.1f}",
                          flush=True)  # fmt: skip
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"options": vars(options), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
