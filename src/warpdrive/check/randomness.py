"""The examination of random numbers: they must come from the stream that wd.random keys."""

from collections.abc import Callable
from typing import Any

import torch

from warpdrive.check.examination import Examination
from warpdrive.check.sources import own_generators

__all__ = ["examine_randomness"]


def examine_randomness(x: Examination) -> None:
    """Random numbers that do not come from the keyed stream."""
    params = {name for name, spec in x.env.state.fields.items() if spec.kind == "param"}
    for i, phase in x.phases.items():
        places = own_generators(phase.function, params)  # type: ignore[arg-type]
        if places and not x.known("randomness", phase.name):
            field, env, agent, ignored = _ignored(x, i)
            x.fault("randomness", phase.name, field, env, agent, f"wp.rand_init in {places[0]}{ignored}")


def _ignored(x: Examination, i: int) -> tuple[str, int | None, int | None, str]:
    """First field that call i changes, and which of seed and step it does not depend on."""
    stage = x.stage
    saved = stage.image()
    if not x.calls[i].guarded:  # a reset phase starts from zeros, so that one sees what it changes
        stage.reset()
    x.store.fields["over"].fill_(True)
    start = stage.image()

    def image(change: Callable[[], Any]) -> torch.Tensor:
        stage.load(start)
        change()
        stage.run(i)
        return stage.image()

    def authors(a: torch.Tensor, b: torch.Tensor) -> list[int]:
        return [k for k in x.differing(a, b).tolist() if x.place(k)[0] not in ("seed", "clock")]

    base = image(lambda: None)
    changed = authors(base, start)
    blind = []
    if not authors(base, image(lambda: x.store.fields["seed"].add_(1))):
        blind.append("seed")
    if not authors(base, image(lambda: x.store.fields["clock"].add_(1))):
        blind.append("step")
    stage.load(saved)
    place = x.place(changed[0]) if changed else ("none", None, None)
    return *place, f": the numbers do not change with the {' and the '.join(blind)}" if blind else ""
