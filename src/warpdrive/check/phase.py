"""The examination of one phase: it runs again under conditions that must not matter."""

from collections.abc import Iterable
from typing import Any

import torch

from warpdrive.check.examination import Examination
from warpdrive.check.stage import GUARD, NOBODY, differing
from warpdrive.check.values import examine_values
from warpdrive.env.state import BUILT_IN

__all__ = ["examine_phase"]

AUTHORS = {"reward", "terminated", "active", "ended"}  # built-in members that an author may write
MIXED = 6  # first steps in which environments are given each other's contents, besides every tenth


def examine_phase(x: Examination, i: int, thorough: bool) -> None:
    """Run call i, and run it again from the same state as it should not matter; leave the state after the first."""
    stage, phase = x.stage, x.phases[i]
    name = phase.name
    start = stage.image()

    def image(*run: Any) -> torch.Tensor:
        stage.load(start)
        stage.run(i, *run)
        return stage.image()

    base = image()
    where = x.differing(base, image())
    if len(where) and not x.known("repeatability", name):
        x.fault("repeatability", name, *x.place(int(where[0])), "run twice from one state it gives two results")
        return stage.load(base)
    if phase.kind == "agent":
        for order in ("descending", "shuffled"):
            where = x.differing(base, image(order))
            if len(where):
                _race(x, i, start, where)
                break
    _bounds(x, i, start, base)
    if thorough:
        _alone(x, i, start)
        if x.step <= MIXED or x.step % 10 == 0:
            _strangers(x, i, start, base)
    base = torch.where(x.store.guard, start, base)
    stage.load(base)
    examine_values(x, i, start)


def _owners(x: Examination, i: int) -> Iterable[tuple[int, int]]:
    return ((env, agent) for env in range(x.stage.num_envs) for agent in range(x.stage.count(i)))


def _race(x: Examination, i: int, start: torch.Tensor, where: torch.Tensor) -> None:
    name = x.phases[i].name
    if x.known("race", name) or x.known("lost-update", name):
        return
    _alone(x, i, start)  # it names writers
    if not x.known("lost-update", name) and not x.known("race", name):
        field, env, agent = x.place(int(where[0]))
        x.fault("race", name, field, env, agent, "other orders of the agents give other results")


def _alone(x: Examination, i: int, start: torch.Tensor) -> None:
    """Run call i for one agent at a time: what it changes must be its own."""
    stage, store, phase = x.stage, x.store, x.phases[i]
    atomic = x.atomic[phase]
    writers, touched = torch.full_like(store.env_of, NOBODY), []
    exempt = torch.tensor([n in x.whole and bool(atomic & {n.split(".")[-1], "*"}) for n in store.names])
    stage.load(start)
    for env, agent in _owners(x, i):
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
            x.fault("simulator-field", phase.name, field, env, label, "it writes a member of the simulator's")
        for index in changed[~own_env].tolist():
            field, other, _ = x.place(index)
            if int(store.env_of[index]) == GUARD:
                x.fault("out-of-bounds", phase.name, field, env, label, "it writes outside the array")
            else:
                whose = f"environment {other}'s" if other is not None else "what all environments share"
                x.fault("other-environment", phase.name, field, env, label, f"it writes {whose} element")
        if phase.kind == "env":
            continue
        changed = changed[own_env]
        free = ~exempt[store.field_of[changed]]
        before = writers[changed]
        twice = free & (before != NOBODY) & (before != agent)
        for index in changed[twice].tolist():
            field, *_ = x.place(index)
            first = int(writers[index])
            x.fault("lost-update", phase.name, field, env, agent,
                       f"agents {first} and {agent} both write one element{_of(x, index)}")  # fmt: skip
        touched.append(changed)
        writers[changed] = torch.where(twice, before, agent).to(writers.dtype)
    if phase.kind == "env":
        return
    written = torch.cat(touched).unique() if touched else torch.empty(0, dtype=torch.int64)
    owners = store.agent_of[written]
    foreign = (writers[written] >= 0) & (owners >= 0) & (writers[written] != owners)
    for index in written[foreign].tolist():
        field, home, owner_of = x.place(index)
        if not any(f.kind == "lost-update" and (f.phase, f.field) == (phase.name, field) for f in x.report.faults):
            if store.names[int(store.field_of[index])] in x.whole and atomic & {field.split(".")[-1], "*"}:
                continue
            x.fault("race", phase.name, field, home, int(writers[index]), f"it writes agent {owner_of}'s element")


def _of(x: Examination, index: int) -> str:
    owner = int(x.store.agent_of[index])
    return f" of agent {owner}" if owner >= 0 else " of the environment"


def _bounds(x: Examination, i: int, start: torch.Tensor, base: torch.Tensor) -> None:
    """Run call i with other values in the bands around arrays: nothing may change, in the bands or elsewhere."""
    stage, store, name = x.stage, x.store, x.phases[i].name
    stage.load(start)
    store.mark_guards()
    marked = stage.image()
    stage.run(i)
    after = stage.image()
    wrote = differing(base, start)
    wrote = torch.cat([wrote[store.guard[wrote]], store.guards_marked(after)])
    if len(wrote) and not x.known("out-of-bounds", name):
        field = x.place(int(wrote[0]))[0]
        for env, agent in _owners(x, i):
            stage.load(marked)
            stage.run_alone(i, env, agent)
            if len(store.guards_marked(store.arena)):
                break
        else:
            env, agent = 0, 0
        x.fault("out-of-bounds", name, field, env, _label(x, i, agent), "it writes outside the array")
    read = x.differing(after, base)
    if len(read) and not x.known("out-of-bounds", name):
        result, env_or_none, agent_or_none = x.place(int(read[0]))
        field = _read_from(x, i, start, base) or result
        x.fault("out-of-bounds", name, field, env_or_none, agent_or_none,
                   f"it reads outside the array, and {result!r} depends on what stands there")  # fmt: skip


def _read_from(x: Examination, i: int, start: torch.Tensor, base: torch.Tensor) -> str | None:
    """The field whose band call i reads."""
    stage, store = x.stage, x.store
    for number, name in enumerate(store.names):
        stage.load(start)
        band = store.guard & (store.field_of == number)
        store.arena.copy_(torch.where(band, store._marked, store.arena))
        stage.run(i)
        if len(x.differing(stage.image(), base)):
            return name
    return None


def _label(x: Examination, i: int, agent: int) -> int | None:
    return None if x.phases[i].kind == "env" else agent + x.stage.first(i)


def _strangers(x: Examination, i: int, start: torch.Tensor, base: torch.Tensor) -> None:
    """Run call i with other contents of the other environments, and with more of them: results stay."""
    stage, wide, name = x.stage, x.wide, x.phases[i].name
    if not x.known("other-environment", name):
        for env in [x.step % stage.num_envs]:
            stage.load(start)
            for block in x.store.blocks.values():
                axis = 1 if block.name.endswith(".final_obs") else 0
                if block.view.shape[axis] == stage.num_envs and block.name != "seed":
                    block.view.copy_(block.view.narrow(axis, env, 1).clone().expand_as(block.view))
            stage.run(i)
            where = differing(stage.image(), base)
            where = where[x.store.env_of[where] == env]
            if len(where):
                field, _, agent = x.place(int(where[0]))
                x.fault("other-environment", name, field, env, agent, "its result depends on other environments")
                break
    stage.load(start)
    E = stage.num_envs
    for block in x.store.blocks.values():
        axis, target = (1 if block.name.endswith(".final_obs") else 0), wide.store.blocks[block.name].view
        if block.name == "seed":
            target.copy_(block.view)
        else:
            target.narrow(axis, 0, E).copy_(block.view)
            target.narrow(axis, E, 2).copy_(block.view.narrow(axis, 0, 2))
    wide.run(i)
    stage.load(base)
    if x.known("num-envs", name) or x.known("other-environment", name):
        return
    for block in x.store.blocks.values():
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
            agent = at[1] if len(at) > 1 and x.by_agent(block.name) else None
            if agent is not None and "." in block.name:
                agent += x.env.first_agent[block.name.split(".")[0]]
            x.fault("num-envs", name, block.name, at[0], agent,
                       f"{E} and {E + 2} environments give different results")  # fmt: skip
            break
