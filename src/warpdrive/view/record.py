"""Recording an episode of a checkpoint's policies for the replay page."""

from pathlib import Path

import numpy as np

from warpdrive.learn.evaluation import load_trained, play
from warpdrive.sim.simulator import Simulator
from warpdrive.view.replay import Episode, write_replay

__all__ = ["write_episode"]


def write_episode(checkpoint: str | Path, path: Path, *, seed: int = 1, greedy: bool = False) -> None:
    """Play one episode of a checkpoint's policies on the CPU and write it as a page.

    Raises:
        CheckpointError: the checkpoint cannot be used.
        ValueError: the environment has no view.
    """
    trained = load_trained(checkpoint)
    env, view = trained.env, trained.env.view()
    if view is None:
        raise ValueError(f"{type(env).__name__} cannot be shown: give it a method view() that returns a wd.View")
    sim = Simulator(env, 1, seed=seed, device="cpu")
    fields = sim.store.fields
    frames: dict[str, list[np.ndarray]] = {"position": [], "heading": [], "active": [], "reward": []}

    def frame() -> None:
        frames["position"].append(fields[view.position][0].numpy().copy())
        if view.heading is not None:
            frames["heading"].append(fields[view.heading][0].numpy().copy())
        frames["active"].append(fields["active"][0].numpy().copy())

    def watch() -> None:
        if not started:
            return
        frames["reward"].append(fields["reward"][0].numpy().copy())
        if bool(sim.over[0]):
            # A new episode stands in the store already: show the last place of everybody, and who left at the end.
            for name in ("position", "heading"):
                if frames[name]:
                    frames[name].append(frames[name][-1])
            frames["active"].append(frames["active"][-1] & ~fields["terminated"][0].numpy())
            started.clear()
        else:
            frame()

    started = [True]
    player = trained.player(sim, greedy=greedy)
    sim.seed(seed)
    sim.reset()  # as play() does: the same seed gives the same start
    frame()
    outcome = play(player, seed, watch)
    episode = Episode(
        title=f"{type(env).__name__} after {trained.env_steps:,} environment steps",
        groups={name: group.count for name, group in env.groups.items()},
        position=np.stack(frames["position"]),
        active=np.stack(frames["active"]),
        reward=np.stack(frames["reward"]),
        low=view.low,
        high=view.high,
        heading=np.stack(frames["heading"]) if frames["heading"] else None,
        radius=view.radius,
        info={
            "environment": type(env).__name__,
            "trained for": f"{trained.env_steps:,} environment steps",
            "length of this episode": f"{int(outcome.lengths[0])} steps",
            "seed": str(seed),
        },
    )
    write_replay(episode, Path(path))
