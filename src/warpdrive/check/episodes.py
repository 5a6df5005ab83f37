"""The examination of whole episodes: what a reset leaves, whether a seed and a saved state repeat."""

import torch

from warpdrive.check.examination import Examination
from warpdrive.check.stage import Stage

__all__ = ["FOLLOWED", "examine_leaks", "examine_repeats", "examine_resumes"]

FOLLOWED = 12  # steps that two copies are followed after a reset
FLAGS = ("terminated", "ended", "active", "over")


def examine_leaks(x: Examination) -> None:
    """Reset two copies that differ in all that an episode leaves, and follow both."""
    stage, store, env = x.stage, x.store, x.env
    saved = stage.image()
    authors = [n for n, f in env.state.fields.items() if f.kind in ("agent", "env") and n not in x.keeps]

    def begin(poison: bool) -> torch.Tensor:
        stage.load(saved)
        if poison:
            names = [*authors, "reward", "terminated", "ended"]
            names += [f"{g}.obs" for g in env.groups] + [f"{g}.mask" for g in stage.mask]
            for name in names:
                view = store.blocks[name].view
                if view.dtype == torch.bool:
                    view.logical_not_()
                elif name.endswith(".mask"):
                    view.copy_(1 - view)
                else:
                    view.add_(1)
        stage.reset()
        return stage.image()

    one, two = begin(False), begin(True)
    left = sorted({x.place(k)[0] for k in x.differing(one, two).tolist()} - {"step"})
    own = [n for n in left if n in authors or n.endswith((".obs", ".mask"))]
    for after in range(FOLLOWED + 1):
        found = _visible(x, x.differing(one, two))
        if found is not None:
            field, e, a = x.place(found)
            cause = next((n for n in own if n in authors), None) or (own[0] if own else field)
            if any(f.kind in ("leak", "termination") and f.field == cause for f in x.report.faults):
                break
            kind = "termination" if field in FLAGS else "leak"
            first = next((k for k in x.differing(begin(False), begin(True)).tolist() if x.place(k)[0] == cause), found)
            _, e, a = x.place(first)
            x.fault(kind, x.reset_names(), cause, e, a,
                       f"what stood there before the reset shows in {field!r} {after} steps after it")  # fmt: skip
            break
        one, two = (_follow(x, image) for image in (one, two))
    else:
        rest = [n for n in own if n in authors]
        still = {x.place(k)[0] for k in x.differing(one, two).tolist()} & set(rest)
        for name in sorted(still):
            note = f"field {name!r} keeps its value over a reset; no effect was seen in {FOLLOWED} steps"
            if note not in x.report.notes:
                x.report.notes.append(note)
    stage.load(saved)


def _follow(x: Examination, image: torch.Tensor) -> torch.Tensor:
    x.stage.load(image)
    x.stage.random_step()
    return x.stage.image()


def _visible(x: Examination, where: torch.Tensor) -> int | None:
    """The first of these bytes that a learner sees: observations, masks, rewards, ends; ends come first."""
    found: int | None = None
    for number in x.store.field_of[where].unique().tolist():
        name = x.store.names[number]
        index = int(where[x.store.field_of[where] == number][0])
        if name in FLAGS:
            return index
        if found is None and (name in ("reward", "truncated") or name.endswith((".obs", ".mask"))):
            found = index
    return found


def examine_repeats(x: Examination, history: list[torch.Tensor]) -> None:
    """The same seed again gives the same course."""
    other = Stage(x.env, x.stage.num_envs, x.seed)
    other.reset()
    bad = x.report.kinds() & {"out-of-bounds", "other-environment"}
    for step, image in enumerate(history):
        if step:
            other.random_step()
        where = x.differing(other.image(), image)
        if len(where) and not bad and not x.report.kinds() & {"repeatability", "lost-update", "race"}:
            x.fault("repeatability", "step" if step else x.reset_names(), *x.place(int(where[0])),
                       "a second run with the same seed differs", step)  # fmt: skip
        if len(where):
            return


def examine_resumes(x: Examination, state: dict[str, torch.Tensor]) -> None:
    """A saved state goes on as the original does."""
    copies = [Stage(x.env, x.stage.num_envs, x.seed + k) for k in (0, 1)]
    for copy in copies:
        copy.reset()
        copy.load_state_dict(state)
    for step in range(FOLLOWED):
        for copy in copies:
            copy.random_step()
        where = x.differing(*(copy.image() for copy in copies))
        kept = [k for k in where.tolist() if not x.place(k)[0].endswith(".final_obs")]  # it is not saved
        if kept:
            if not x.report.kinds() & {"repeatability", "out-of-bounds", "other-environment"}:
                place = x.place(kept[0])
                x.fault("repeatability", "step", *place, "a saved state goes on differently", step)
            return
