"""The examination: an environment is run phase by phase, and each phase again under conditions that must not matter."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from warpdrive.check.report import KINDS, Fault, Report
from warpdrive.check.sources import atomic_fields, own_generators
from warpdrive.check.stage import GUARD, NOBODY, Stage, differing
from warpdrive.env.environment import Env, positive_int, unknown_name
from warpdrive.env.phases import Phase
from warpdrive.env.state import BUILT_IN

__all__ = ["check"]

AUTHORS = {"reward", "terminated", "active", "ended"}  # built-in members that an author may write
WORK = 12_000  # runs of one phase for one agent, which take about a tenth of a millisecond each
MIXED = 6  # first steps in which environments are given each other's contents, besides every tenth
FOLLOWED = 12  # steps that two copies are followed after a reset
FLAGS = ("terminated", "ended", "active", "over")


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
    return Examination(env, steps, num_envs, seed, device, set(keeps), set(ignore)).run()


class Examination:
    """One run of `check`; the arguments are those."""

    def __init__(
        self, env: Env, steps: int, num_envs: int, seed: int, device: str | None, keeps: set[str], ignore: set[str]
    ) -> None:
        self.env, self.steps, self.seed, self.device = env, steps, seed, device
        self.keeps, self.ignore = keeps, ignore
        self.report = Report(type(env).__name__, num_envs, env.num_agents, steps)
        self.stage = Stage(env, num_envs, seed)
        self.wide = Stage(env, num_envs + 2, seed)
        self.store = self.stage.store
        self.calls = self.stage.calls
        self.phases = {i: phase for i, phase in self._author_calls()}
        self.atomic = {phase: atomic_fields(phase.function) for phase in set(self.phases.values())}  # type: ignore[arg-type]
        self.whole = {n for n, b in self.store.blocks.items() if not b.view.is_floating_point()}
        self.step = 0
        self.first_guarded = self.stage.launcher.program.first_guarded
        per_step = num_envs * sum(self.stage.count(i) for i in self.phases)
        self.thorough = max(4, WORK // per_step)  # steps that are examined agent by agent
        self._seen: set[tuple[str, str, str]] = set()
        self._spread = False  # whether a NaN is about: what follows is its consequence

    def _author_calls(self) -> Iterable[tuple[int, Phase]]:
        env, number = self.env, 1
        for phase in env.step:
            yield number, phase
            number += 1
        number += 2
        for phase in env.observe:
            yield number, phase
            number += 1
        number += len(env.groups) + 1
        for phase in (*env.reset, *env.observe):
            yield number, phase
            number += 1

    # ------------------------------------------------------------------ reporting

    def fault(
        self,
        kind: str,
        phase: str,
        field: str,
        env: int | None,
        agent: int | None,
        message: str,
        step: int | None = None,
    ) -> None:
        """Note the first fault of a kind in a phase and field."""
        key = (kind, phase, field)
        if kind in self.ignore or key in self._seen:
            return
        self._seen.add(key)
        self.report.faults.append(Fault(kind, phase, field, env, agent, self.step if step is None else step, message))

    def known(self, kind: str, phase: str) -> bool:
        """Whether a fault of this kind in this phase is noted already."""
        return any(f.kind == kind and f.phase == phase for f in self.report.faults)

    def place(self, index: int) -> tuple[str, int | None, int | None]:
        """Field, environment and agent that a byte of the memory belongs to."""
        store = self.store
        env, agent = int(store.env_of[index]), int(store.agent_of[index])
        name = store.names[int(store.field_of[index])]
        return name, (env if env >= 0 else None), (agent if agent >= 0 else None)

    def differing(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Bytes within arrays that differ between two images."""
        where = differing(a, b)
        return where[~self.store.guard[where]]

    # ------------------------------------------------------------------ the course of it

    def run(self) -> Report:
        """Do all of it."""
        start = time.perf_counter()
        stage = self.stage
        self._sources()
        stage.reset()
        self._resets()
        history, ended, mid = [stage.image()], False, None
        for step in range(1, self.steps + 1):
            self.step = step
            stage.randomize_actions()
            before = stage.image()
            stage._step()
            looped = stage.image()
            stage.load(before)
            self._phases(range(len(self.calls)), self._thorough_now())
            after = stage.image()
            if len(history) <= FOLLOWED:
                history.append(looped)
            self._schedule(looped, after)
            ended = ended or bool(stage.over.any())
            if self.step in (self.steps // 3 + 1, 2 * self.steps // 3 + 1):
                self._resets()
                self._leaks()
                mid = mid or stage.state_dict()
        self._repeats(history)
        if mid is not None:
            self._resumes(mid)
        if not ended and self.env.episode_length is None:
            self.report.notes.append(
                f"no episode ended in {self.steps} steps of random actions, and episode_length is None: "
                "perhaps none ever does"
            )
        self.report.examined = [kind for kind in KINDS if kind not in self.ignore and kind != "device"]
        if self.device != "cpu":
            self._devices()
        self.report.seconds = time.perf_counter() - start
        return self.report

    def _thorough_now(self) -> bool:
        """Whether this step is examined agent by agent: the first few, and others evenly spread."""
        early = self.thorough // 2
        rest = max(1, self.thorough - early)
        return self.step <= early or (self.step - early) % max(1, -(-(self.steps - early) // rest)) == 0

    def _phases(self, calls: Iterable[int], thorough: bool) -> None:
        """Run calls one after the other, the author's with examination."""
        for i in calls:
            if self.calls[i].guarded and not bool(self.stage.over.any()):
                continue
            if i in self.phases:
                self._examine(i, thorough)
            else:
                self.stage.run(i)

    def _resets(self) -> None:
        """Examine the reset phases now, on a copy."""
        saved, step = self.stage.image(), self.step
        fields, self.step = self.store.fields, 0
        fields["over"].fill_(True)
        fields["final_slot"].fill_(-1)
        self._phases(range(self.first_guarded, len(self.calls)), True)
        names = self._reset_names()
        gone = ~fields["active"].any(1)
        if bool(gone.any()):
            self.fault(
                "termination", names, "active", int(gone.nonzero()[0]), None, "no agent takes part after a reset"
            )
        self.step = step
        self.stage.load(saved)

    def _reset_names(self) -> str:
        return ", ".join(phase.name for phase in self.env.reset) or "reset"

    # ------------------------------------------------------------------ one phase

    def _examine(self, i: int, thorough: bool) -> None:
        """Run call i, and run it again from the same state as it should not matter; leave the state after the first."""
        stage, phase = self.stage, self.phases[i]
        name = phase.name
        start = stage.image()

        def image(*run: Any) -> torch.Tensor:
            stage.load(start)
            stage.run(i, *run)
            return stage.image()

        base = image()
        where = self.differing(base, image())
        if len(where) and not self.known("repeatability", name):
            self.fault(
                "repeatability", name, *self.place(int(where[0])), "run twice from one state it gives two results"
            )
            return stage.load(base)
        if phase.kind == "agent":
            for order in ("descending", "shuffled"):
                where = self.differing(base, image(order))
                if len(where):
                    self._race(i, start, where)
                    break
        self._bounds(i, start, base)
        if thorough:
            self._alone(i, start)
            if self.step <= MIXED or self.step % 10 == 0:
                self._strangers(i, start, base)
        base = torch.where(self.store.guard, start, base)
        stage.load(base)
        self._values(i, start)

    def _owners(self, i: int) -> Iterable[tuple[int, int]]:
        return ((env, agent) for env in range(self.stage.num_envs) for agent in range(self.stage.count(i)))

    def _race(self, i: int, start: torch.Tensor, where: torch.Tensor) -> None:
        name = self.phases[i].name
        if self.known("race", name) or self.known("lost-update", name):
            return
        self._alone(i, start)  # it names writers
        if not self.known("lost-update", name) and not self.known("race", name):
            field, env, agent = self.place(int(where[0]))
            self.fault("race", name, field, env, agent, "other orders of the agents give other results")

    def _alone(self, i: int, start: torch.Tensor) -> None:
        """Run call i for one agent at a time: what it changes must be its own."""
        stage, store, phase = self.stage, self.store, self.phases[i]
        atomic = self.atomic[phase]
        writers, touched = torch.full_like(store.env_of, NOBODY), []
        exempt = torch.tensor([n in self.whole and bool(atomic & {n.split(".")[-1], "*"}) for n in store.names])
        stage.load(start)
        for env, agent in self._owners(i):
            stage.run_alone(i, env, agent)
            changed = differing(store.arena, start)
            if not len(changed):
                continue
            store.arena[changed] = start[changed]
            agent += stage.first(i)
            label = None if phase.kind == "env" else agent
            own_env = store.env_of[changed] == env
            fields = {store.names[n] for n in store.field_of[changed].unique().tolist()}
            for field in fields & (BUILT_IN.keys() - AUTHORS):
                self.fault("simulator-field", phase.name, field, env, label, "it writes a member of the simulator's")
            for index in changed[~own_env].tolist():
                field, other, _ = self.place(index)
                if int(store.env_of[index]) == GUARD:
                    self.fault("out-of-bounds", phase.name, field, env, label, "it writes outside the array")
                else:
                    whose = f"environment {other}'s" if other is not None else "what all environments share"
                    self.fault("other-environment", phase.name, field, env, label, f"it writes {whose} element")
            if phase.kind == "env":
                continue
            changed = changed[own_env]
            free = ~exempt[store.field_of[changed]]
            before = writers[changed]
            twice = free & (before != NOBODY) & (before != agent)
            for index in changed[twice].tolist():
                field, *_ = self.place(index)
                first = int(writers[index])
                self.fault("lost-update", phase.name, field, env, agent,
                           f"agents {first} and {agent} both write one element{self._of(index)}")  # fmt: skip
            touched.append(changed)
            writers[changed] = torch.where(twice, before, agent).to(writers.dtype)
        if phase.kind == "env":
            return
        written = torch.cat(touched).unique() if touched else torch.empty(0, dtype=torch.int64)
        owners = store.agent_of[written]
        foreign = (writers[written] >= 0) & (owners >= 0) & (writers[written] != owners)
        for index in written[foreign].tolist():
            field, home, owner_of = self.place(index)
            if not any(
                f.kind == "lost-update" and (f.phase, f.field) == (phase.name, field) for f in self.report.faults
            ):
                if store.names[int(store.field_of[index])] in self.whole and atomic & {field.split(".")[-1], "*"}:
                    continue
                self.fault(
                    "race", phase.name, field, home, int(writers[index]), f"it writes agent {owner_of}'s element"
                )

    def _of(self, index: int) -> str:
        owner = int(self.store.agent_of[index])
        return f" of agent {owner}" if owner >= 0 else " of the environment"

    def _bounds(self, i: int, start: torch.Tensor, base: torch.Tensor) -> None:
        """Run call i with other values in the bands around arrays: nothing may change, in the bands or elsewhere."""
        stage, store, name = self.stage, self.store, self.phases[i].name
        stage.load(start)
        store.mark_guards()
        marked = stage.image()
        stage.run(i)
        after = stage.image()
        wrote = differing(base, start)
        wrote = torch.cat([wrote[store.guard[wrote]], store.guards_marked(after)])
        if len(wrote) and not self.known("out-of-bounds", name):
            field = self.place(int(wrote[0]))[0]
            for env, agent in self._owners(i):
                stage.load(marked)
                stage.run_alone(i, env, agent)
                if len(store.guards_marked(store.arena)):
                    break
            else:
                env, agent = 0, 0
            self.fault("out-of-bounds", name, field, env, self._label(i, agent), "it writes outside the array")
        read = self.differing(after, base)
        if len(read) and not self.known("out-of-bounds", name):
            result, env_or_none, agent_or_none = self.place(int(read[0]))
            field = self._read_from(i, start, base) or result
            self.fault("out-of-bounds", name, field, env_or_none, agent_or_none,
                       f"it reads outside the array, and {result!r} depends on what stands there")  # fmt: skip

    def _read_from(self, i: int, start: torch.Tensor, base: torch.Tensor) -> str | None:
        """The field whose band call i reads."""
        stage, store = self.stage, self.store
        for number, name in enumerate(store.names):
            stage.load(start)
            band = store.guard & (store.field_of == number)
            store.arena.copy_(torch.where(band, store._marked, store.arena))
            stage.run(i)
            if len(self.differing(stage.image(), base)):
                return name
        return None

    def _label(self, i: int, agent: int) -> int | None:
        return None if self.phases[i].kind == "env" else agent + self.stage.first(i)

    def _strangers(self, i: int, start: torch.Tensor, base: torch.Tensor) -> None:
        """Run call i with other contents of the other environments, and with more of them: results stay."""
        stage, wide, name = self.stage, self.wide, self.phases[i].name
        if not self.known("other-environment", name):
            for env in [self.step % stage.num_envs]:
                stage.load(start)
                for block in self.store.blocks.values():
                    axis = 1 if block.name.endswith(".final_obs") else 0
                    if block.view.shape[axis] == stage.num_envs and block.name != "seed":
                        block.view.copy_(block.view.narrow(axis, env, 1).clone().expand_as(block.view))
                stage.run(i)
                where = differing(stage.image(), base)
                where = where[self.store.env_of[where] == env]
                if len(where):
                    field, _, agent = self.place(int(where[0]))
                    self.fault("other-environment", name, field, env, agent, "its result depends on other environments")
                    break
        stage.load(start)
        E = stage.num_envs
        for block in self.store.blocks.values():
            axis, target = (1 if block.name.endswith(".final_obs") else 0), wide.store.blocks[block.name].view
            if block.name == "seed":
                target.copy_(block.view)
            else:
                target.narrow(axis, 0, E).copy_(block.view)
                target.narrow(axis, E, 2).copy_(block.view.narrow(axis, 0, 2))
        wide.run(i)
        stage.load(base)
        if self.known("num-envs", name) or self.known("other-environment", name):
            return
        for block in self.store.blocks.values():
            axis, other = (1 if block.name.endswith(".final_obs") else 0), wide.store.blocks[block.name].view
            if block.name != "seed":
                other = other.narrow(axis, 0, E)
            bits = torch.int32 if block.view.dtype.itemsize == 4 else torch.uint8
            if block.view.dtype.itemsize in (1, 4):
                unequal = block.view.view(bits) != other.view(bits)
            else:
                unequal = (block.view != other) & ~((block.view != block.view) & (other != other))
            if bool(unequal.any()):
                at = unequal.nonzero()[0].tolist()[axis:]
                agent = at[1] if len(at) > 1 and self.by_agent(block.name) else None
                if agent is not None and "." in block.name:
                    agent += self.env.first_agent[block.name.split(".")[0]]
                self.fault("num-envs", name, block.name, at[0], agent,
                           f"{E} and {E + 2} environments give different results")  # fmt: skip
                break

    def by_agent(self, name: str) -> bool:
        """Whether a block's second axis (after the slots of final observations) counts agents."""
        return "." in name or {**BUILT_IN, **self.env.state.fields}[name].kind == "agent"

    def _values(self, i: int, start: torch.Tensor) -> None:
        """Look at what stands in the arrays after call i."""
        env, store, phase = self.env, self.store, self.phases[i]
        fields = store.fields
        if not self._spread:
            for block in store.blocks.values():
                author = block.name in env.state.fields or block.name == "reward" or block.name.endswith(".obs")
                if not author or not block.view.is_floating_point():
                    continue
                strict = block.name not in env.state.fields
                wrong = ~block.view.isfinite() if strict else block.view.isnan()
                if bool(wrong.any()):
                    at = wrong.nonzero()[0].tolist()
                    agent = at[1] if self.by_agent(block.name) else None
                    if agent is not None and "." in block.name:
                        agent += env.first_agent[block.name.split(".")[0]]
                    value = float(block.view[tuple(at)])
                    self.fault("not-finite", phase.name, block.name, at[0], agent, f"it becomes {value}")
                    self._spread = True
                    break
        for name, group in env.groups.items():
            if phase not in env.observe:
                break
            first = env.first_agent[name]
            active = self.stage.of_group(fields["active"], name)
            obs = self.stage.obs[name]
            low = obs < group.obs_low if group.obs_low is not None else torch.zeros_like(obs, dtype=torch.bool)
            high = obs > group.obs_high if group.obs_high is not None else torch.zeros_like(low)
            wrong = (low | high) & active[..., None] & self._written(f"{name}.obs", start)
            if bool(wrong.any()):
                e, a, f = wrong.nonzero()[0].tolist()
                self.fault("obs-bounds", phase.name, f"{name}.obs", e, first + a,
                           f"feature {f} is {obs[e, a, f]:g}, beyond [{group.obs_low}, {group.obs_high}]")  # fmt: skip
            if group.mask:
                mask, begin = self.stage.mask[name], 0
                touched = self._written(f"{name}.mask", start)
                for head, choices in enumerate(group.action.heads):  # type: ignore[union-attr]
                    own = slice(begin, begin + choices)
                    begin += choices
                    wrong = (mask[..., own] == 0).all(-1) & active & touched[..., own].any(-1)
                    if bool(wrong.any()):
                        e, a = wrong.nonzero()[0].tolist()
                        self.fault("mask", phase.name, f"{name}.mask", e, first + a,
                                   f"all {choices} choices of head {head} are forbidden")  # fmt: skip
        if phase in env.step and i < self.first_guarded:
            wrong = ~fields["alive"] & (fields["reward"] != 0) & self._written("reward", start)
            if bool(wrong.any()):
                e, a = wrong.nonzero()[0].tolist()
                reward = float(fields["reward"][e, a])
                self.fault("reward-after-leaving", phase.name, "reward", e, a,
                           f"an agent that has left gets a reward of {reward:g}")  # fmt: skip
        if self.calls[i].guarded and phase in env.reset:
            for name in ("terminated", "ended"):
                wrong = fields[name] & self._written(name, start)
                if bool(wrong.any()):
                    at = wrong.nonzero()[0].tolist()
                    self.fault("termination", phase.name, name, at[0], at[1] if len(at) > 1 else None,
                               "a reset phase sets it, so that the new episode ends")  # fmt: skip

    def _written(self, name: str, start: torch.Tensor) -> torch.Tensor:
        """Where a block differs from an earlier image."""
        block = self.store.blocks[name]
        count = block.padded.numel() * block.padded.element_size()
        old = start[block.start : block.start + count].view(block.padded.dtype).view(block.padded.shape)
        for axis, length in enumerate(block.view.shape):
            old = old.narrow(axis, (old.shape[axis] - length) // 2, length)
        return block.view != old

    # ------------------------------------------------------------------ the whole

    def _schedule(self, looped: torch.Tensor, after: torch.Tensor) -> None:
        consequences = {"race", "lost-update", "other-environment", "out-of-bounds", "repeatability"}
        where = self.differing(looped, after)
        if len(where) and not consequences & self.report.kinds():
            self.fault("schedule", "step", *self.place(int(where[0])), "the two ways to run a step differ")

    def _sources(self) -> None:
        """Random numbers that do not come from the keyed stream."""
        params = {name for name, spec in self.env.state.fields.items() if spec.kind == "param"}
        for i, phase in self.phases.items():
            places = own_generators(phase.function, params)  # type: ignore[arg-type]
            if places and not self.known("randomness", phase.name):
                field, env, agent, ignored = self._ignored(i)
                self.fault("randomness", phase.name, field, env, agent, f"wp.rand_init in {places[0]}{ignored}")

    def _ignored(self, i: int) -> tuple[str, int | None, int | None, str]:
        """First field that call i changes, and which of seed and step it does not depend on."""
        stage = self.stage
        saved = stage.image()
        if not self.calls[i].guarded:  # a reset phase starts from zeros, so that one sees what it changes
            stage.reset()
        self.store.fields["over"].fill_(True)
        start = stage.image()

        def image(change: Callable[[], Any]) -> torch.Tensor:
            stage.load(start)
            change()
            stage.run(i)
            return stage.image()

        def authors(a: torch.Tensor, b: torch.Tensor) -> list[int]:
            return [k for k in self.differing(a, b).tolist() if self.place(k)[0] not in ("seed", "clock")]

        base = image(lambda: None)
        changed = authors(base, start)
        blind = []
        if not authors(base, image(lambda: self.store.fields["seed"].add_(1))):
            blind.append("seed")
        if not authors(base, image(lambda: self.store.fields["clock"].add_(1))):
            blind.append("step")
        stage.load(saved)
        place = self.place(changed[0]) if changed else ("none", None, None)
        return *place, f": the numbers do not change with the {' and the '.join(blind)}" if blind else ""

    def _leaks(self) -> None:
        """Reset two copies that differ in all that an episode leaves, and follow both."""
        stage, store, env = self.stage, self.store, self.env
        saved = stage.image()
        authors = [n for n, f in env.state.fields.items() if f.kind in ("agent", "env") and n not in self.keeps]

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
        left = sorted({self.place(k)[0] for k in self.differing(one, two).tolist()} - {"step"})
        own = [n for n in left if n in authors or n.endswith((".obs", ".mask"))]
        for after in range(FOLLOWED + 1):
            found = self._visible(self.differing(one, two))
            if found is not None:
                field, e, a = self.place(found)
                cause = next((n for n in own if n in authors), None) or (own[0] if own else field)
                if any(f.kind in ("leak", "termination") and f.field == cause for f in self.report.faults):
                    break
                kind = "termination" if field in FLAGS else "leak"
                first = next(
                    (k for k in self.differing(begin(False), begin(True)).tolist() if self.place(k)[0] == cause), found
                )
                _, e, a = self.place(first)
                self.fault(kind, self._reset_names(), cause, e, a,
                           f"what stood there before the reset shows in {field!r} {after} steps after it")  # fmt: skip
                break
            one, two = (self._follow(image) for image in (one, two))
        else:
            rest = [n for n in own if n in authors]
            still = {self.place(k)[0] for k in self.differing(one, two).tolist()} & set(rest)
            for name in sorted(still):
                note = f"field {name!r} keeps its value over a reset; no effect was seen in {FOLLOWED} steps"
                if note not in self.report.notes:
                    self.report.notes.append(note)
        stage.load(saved)

    def _follow(self, image: torch.Tensor) -> torch.Tensor:
        self.stage.load(image)
        self.stage.random_step()
        return self.stage.image()

    def _visible(self, where: torch.Tensor) -> int | None:
        """The first of these bytes that a learner sees: observations, masks, rewards, ends; ends come first."""
        found: int | None = None
        for number in self.store.field_of[where].unique().tolist():
            name = self.store.names[number]
            index = int(where[self.store.field_of[where] == number][0])
            if name in FLAGS:
                return index
            if found is None and (name in ("reward", "truncated") or name.endswith((".obs", ".mask"))):
                found = index
        return found

    def _repeats(self, history: list[torch.Tensor]) -> None:
        """The same seed again gives the same course."""
        other = Stage(self.env, self.stage.num_envs, self.seed)
        other.reset()
        bad = self.report.kinds() & {"out-of-bounds", "other-environment"}
        for step, image in enumerate(history):
            if step:
                other.random_step()
            where = self.differing(other.image(), image)
            if len(where) and not bad and not self.report.kinds() & {"repeatability", "lost-update", "race"}:
                self.fault("repeatability", "step" if step else self._reset_names(), *self.place(int(where[0])),
                           "a second run with the same seed differs", step)  # fmt: skip
            if len(where):
                return

    def _resumes(self, state: dict[str, torch.Tensor]) -> None:
        """A saved state goes on as the original does."""
        copies = [Stage(self.env, self.stage.num_envs, self.seed + k) for k in (0, 1)]
        for copy in copies:
            copy.reset()
            copy.load_state_dict(state)
        for step in range(FOLLOWED):
            for copy in copies:
                copy.random_step()
            where = self.differing(*(copy.image() for copy in copies))
            kept = [k for k in where.tolist() if not self.place(k)[0].endswith(".final_obs")]  # it is not saved
            if kept:
                if not self.report.kinds() & {"repeatability", "out-of-bounds", "other-environment"}:
                    place = self.place(kept[0])
                    self.fault("repeatability", "step", *place, "a saved state goes on differently", step)
                return

    def _devices(self) -> None:
        if not torch.cuda.is_available():
            if self.device == "cuda":
                raise ValueError("device 'cuda' is not there: PyTorch sees no CUDA GPU; use device='cpu'")
            return
        from warpdrive.check.devices import compare_devices

        compare_devices(self)
