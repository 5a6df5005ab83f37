"""The examination: an environment is run phase by phase, and each phase again under conditions that must not matter."""

import time
from collections.abc import Iterable

import torch

from warpdrive.check.devices import compare_devices
from warpdrive.check.episodes import FOLLOWED, examine_leaks, examine_repeats, examine_resumes
from warpdrive.check.examination import Examination
from warpdrive.check.phase import examine_phase
from warpdrive.check.randomness import examine_randomness
from warpdrive.check.report import KINDS, Report
from warpdrive.env.environment import Env, positive_int, unknown_name

__all__ = ["check"]


def check(
    env: Env,
    *,
    steps: int = 100,
    num_envs: int = 4,
    seed: int = 0,
    device: str | None = None,
    keeps: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> Report:
    """Examine an environment for faults that give wrong numbers silently: races, leaks, indices out of bounds, ...

    It is run with random actions on the CPU; where there is a GPU, that is compared as well.

    Args:
        env: the environment; a small one (few agents) is examined more thoroughly in the same time.
        steps: steps to run.
        num_envs: copies to run, at least 2.
        seed: of actions and of the environment.
        device: "cpu" to leave the GPU out, "cuda" to insist on it; None: the GPU too if there is one.
        keeps: fields of the state that are meant to survive a reset.
        ignore: kinds of faults not to report, of warpdrive.check.report.KINDS.

    Raises:
        ValueError: an argument that does not fit. PhaseError: a phase that does not compile.
    """
    if not isinstance(env, Env):
        raise ValueError(f"env must be an instance of a wd.Env subclass, got {env!r}")
    positive_int("steps", steps)
    if positive_int("num_envs", num_envs) < 2:
        raise ValueError("num_envs must be at least 2: environments are compared with each other")
    keeps, ignore = tuple(keeps), tuple(ignore)
    for name in keeps:
        if name not in env.state.fields:
            raise unknown_name("field in keeps:", name, env.state.fields)
    for kind in ignore:
        if kind not in KINDS:
            raise unknown_name("kind of fault in ignore:", kind, KINDS)
    if device not in (None, "cpu", "cuda"):
        raise ValueError(f"device must be 'cpu', 'cuda' or None, got {device!r}")
    return _examined(Examination(env, steps, num_envs, seed, device, set(keeps), set(ignore)))


def _examined(x: Examination) -> Report:
    """Do all of it."""
    start = time.perf_counter()
    stage = x.stage
    examine_randomness(x)
    stage.reset()
    _resets(x)
    history, ended, mid = [stage.image()], False, None
    for step in range(1, x.steps + 1):
        x.step = step
        stage.randomize_actions()
        before = stage.image()
        stage._step()
        looped = stage.image()
        stage.load(before)
        _phases(x, range(len(x.calls)), _thorough_now(x))
        after = stage.image()
        if len(history) <= FOLLOWED:
            history.append(looped)
        _schedule(x, looped, after)
        ended = ended or bool(stage.over.any())
        if x.step in (x.steps // 3 + 1, 2 * x.steps // 3 + 1):
            _resets(x)
            examine_leaks(x)
            mid = mid or stage.state_dict()
    examine_repeats(x, history)
    if mid is not None:
        examine_resumes(x, mid)
    if not ended and x.env.episode_length is None:
        x.report.notes.append(
            f"no episode ended in {x.steps} steps of random actions, and episode_length is None: perhaps none ever does"
        )
    x.report.examined = [kind for kind in KINDS if kind not in x.ignore and kind != "device"]
    if x.device != "cpu":
        _devices(x)
    x.report.seconds = time.perf_counter() - start
    return x.report


def _thorough_now(x: Examination) -> bool:
    """Whether this step is examined agent by agent: the first few, and others evenly spread."""
    early = x.thorough // 2
    rest = max(1, x.thorough - early)
    return x.step <= early or (x.step - early) % max(1, -(-(x.steps - early) // rest)) == 0


def _phases(x: Examination, calls: Iterable[int], thorough: bool) -> None:
    """Run calls one after the other, the author's with examination."""
    for i in calls:
        if x.calls[i].guarded and not bool(x.stage.over.any()):
            continue
        if i in x.phases:
            examine_phase(x, i, thorough)
        else:
            x.stage.run(i)


def _resets(x: Examination) -> None:
    """Examine the reset phases now, on a copy."""
    saved, step = x.stage.image(), x.step
    fields, x.step = x.store.fields, 0
    fields["over"].fill_(True)
    fields["final_slot"].fill_(-1)
    _phases(x, range(x.first_guarded, len(x.calls)), True)
    names = x.reset_names()
    gone = ~fields["active"].any(1)
    if bool(gone.any()):
        x.fault("termination", names, "active", int(gone.nonzero()[0]), None, "no agent takes part after a reset")
    x.step = step
    x.stage.load(saved)


def _schedule(x: Examination, looped: torch.Tensor, after: torch.Tensor) -> None:
    """A step phase by phase leaves what the loop over agents does."""
    consequences = {"race", "lost-update", "other-environment", "out-of-bounds", "repeatability"}
    where = x.differing(looped, after)
    if len(where) and not consequences & x.report.kinds():
        x.fault("schedule", "step", *x.place(int(where[0])), "the two ways to run a step differ")


def _devices(x: Examination) -> None:
    """Examine it on the GPU too, where there is one."""
    if not torch.cuda.is_available():
        if x.device == "cuda":
            raise ValueError("device 'cuda' is not there: PyTorch sees no CUDA GPU; use device='cpu'")
        return
    compare_devices(x)
