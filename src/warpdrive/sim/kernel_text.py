"""The calls of a step, and the source text of the kernels that make them.

In the text a call's function is named `call_0`, `call_1`, ..., that for random actions `randomize_GROUP`, a scripted
policy `choose`, and the state struct `State`.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warpdrive.sim import episode

__all__ = ["Call", "KernelText"]

SCRIPT_USE = 1 << 23  # keeps the streams of scripted policies apart from those of phases, actions and minibatches


@dataclass(frozen=True)
class Call:
    """One function of the schedule: run for "agent", "env" or an agent of a group; `guarded`: only where over."""

    function: Any
    kind: str
    group: str | None
    use: int
    guarded: bool

    def text(self, agent: str = "agent") -> str:
        """The call for the environment `env` and an agent."""
        if self.kind == "env":
            return f"call_{self.use}(s, env)"
        group = f"s.{self.group}, " if self.function is episode.keep else ""
        return f"call_{self.use}(s, {group}env, {agent})"

    @property
    def guard(self) -> list[str]:
        """What stands before the lines of a guarded call."""
        return ["if s.over[env]:"] if self.guarded else []


def _indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line for line in lines]


class KernelText:
    """Source text of an environment's kernels, as lines; `Program` tells what each is for.

    Args:
        calls: of a step, in order; the use of each is its index.
        groups: names of the groups of agents.
        by_groups: indices of the calls whose threads stand in the order of the groups' observations.
    """

    def __init__(self, calls: Sequence[Call], groups: Sequence[str], by_groups: Sequence[int]) -> None:
        self.calls, self.groups, self.by_groups = calls, groups, by_groups

    def phase(self, i: int) -> list[str]:
        """Of `Program.phase_kernel`."""
        call, names = self.calls[i], self.groups
        lines = ["    env = wp.tid()" if call.kind == "env" else "    env, agent = wp.tid()"]
        if i in self.by_groups:
            lines = [
                "    thread = int(wp.tid())",
                f"    first = int(s.{names[0]}.first)",
                f"    count = int(s.{names[0]}.count)",
            ]
            for before, name in itertools.pairwise(names):
                lines += [
                    f"    if first == s.{before}.first and thread >= s.over.shape[0] * count:",
                    "        thread -= s.over.shape[0] * count",
                    f"        count = s.{name}.count",
                    f"        first = s.{name}.first",
                ]
            lines += [
                "    env = int(wp.uint32(thread) // wp.uint32(count))",  # with a sign it takes twice as long
                "    agent = first + thread - env * count",
            ]
        return [f"def phase_{i}(s: State):", *lines, *self._body(call, [call.text()])]

    @staticmethod
    def _body(call: Call, lines: list[str]) -> list[str]:
        """The lines that make a call, in a kernel of its own."""
        return _indented(call.guard) + _indented([f"s.use = {call.use}", *lines], 1 + len(call.guard))

    def listed(self, i: int) -> list[str]:
        """Of `Program.listed_kernel`."""
        call = self.calls[i]
        return [
            f"def listed_{i}(s: State, rows: int, over_envs: wp.array(dtype=int), num_over: wp.array(dtype=int)):",
            "    row = wp.tid()" if call.kind == "env" else "    row, agent = wp.tid()",
            f"    s.use = {call.use}",
            "    for at in range(row, num_over[0], rows):",
            "        env = over_envs[at]",
            f"        {call.text()}",
        ]

    def random(self, group: str) -> list[str]:
        """Of `Program.random_kernel`."""
        return [
            f"def random_{group}(s: State):",
            "    env, agent = wp.tid()",
            f"    randomize_{group}(s, s.{group}, env, agent)",
        ]

    def script(self, number: int, group: str) -> list[str]:
        """Of the scripted policy of a number; see `Program.script_kernels`."""
        return [
            f"def script_{number}(s: State):",
            "    env, i = wp.tid()",
            f"    s.use = {SCRIPT_USE + number}",
            f"    if s.{group}.active[env, i]:",
            "        choose(s, env, i)",
            "    else:",
            f"        for k in range(s.{group}.action.shape[2]):",
            f"            s.{group}.action[env, i, k] = s.{group}.action.dtype(0)",
        ]

    def ordered(self, i: int) -> list[str]:
        """Of `Program.ordered_kernel`."""
        call, lines = self.calls[i], [self.calls[i].text()]
        if call.kind != "env":
            lines = ["for k in range(first, last):", f"    {call.text('order[k]')}"]
        return [
            f"def ordered_{i}(s: State, order: wp.array(dtype=int), first: int, last: int, first_env: int):",
            "    env = first_env + wp.tid()",
            *self._body(call, lines),
        ]

    def loop_reset(self) -> list[str]:
        """Of `Program.loop_kernel`, the guarded calls only."""
        guarded = [call for call in self.calls if call.guarded]
        return [
            "def loop_reset(s: State, first_env: int):",
            "    env = first_env + wp.tid()",
            *_indented(self._loop(guarded)),
        ]

    def loop_step(self) -> list[str]:
        """Of `Program.loop_kernel`, whole steps."""
        lines = [
            "def loop_step(s: State, first_env: int, num_steps: int, randomize: int):",
            "    env = first_env + wp.tid()",
            "    for _ in range(num_steps):",
            "        if randomize != 0:",
        ]
        for name in self.groups:
            lines.append(f"            for agent_{name} in range(s.{name}.count):")
            lines.append(f"                randomize_{name}(s, s.{name}, env, agent_{name})")
        return lines + _indented(self._loop(self.calls), 2)

    @staticmethod
    def _loop(calls: Sequence[Call]) -> list[str]:
        """Calls one after the other, each agent after agent; those that are guarded come last."""
        lines: list[str] = []
        depth = 0
        for call in calls:
            if call.guarded and not depth:
                lines, depth = lines + call.guard, 1
            own = [call.text()]
            if call.kind != "env":
                count = "s.num_agents" if call.group is None else f"s.{call.group}.count"
                own = [f"for agent_{call.use} in range({count}):", f"    {call.text(f'agent_{call.use}')}"]
            lines += _indented([f"s.use = {call.use}", *own], depth)
        return lines

    def fused(self, part: str, calls: Sequence[Call], unit: str) -> list[str]:
        """Of `Program.fused_kernel`, for the calls of a part."""
        barrier = "warp" if unit == "warp" else "block"
        more = ", num_steps: int, randomize: int" if part == "step" else ""
        lines = [
            f"def fused_{part}(s: State, num_envs: int, size: int, units: int, envs_per_unit: int{more}):",
            "    block, thread = wp.tid()",
        ]
        if unit == "strided":
            lines += ["    env = block", "    inside = bool(True)"]
        else:
            lines += [
                "    lane = thread % size",
                "    local = lane // s.num_agents",
                "    agent = lane - local * s.num_agents",
                "    env = (block * units + thread // size) * envs_per_unit + local",
                "    inside = local < envs_per_unit and env < num_envs",
            ]
        body: list[str] = []
        if part == "step":
            body.append("if inside and randomize != 0:")
            for name in self.groups:
                draw = f"randomize_{name}(s, s.{name}, env, {{}})"
                body += _indented(self._for_agents(unit, name, f"r_{name}", draw))
            body.append(f"{barrier}_barrier()")
        body.append("here = inside")
        depth = 0
        for call in calls:
            if call.guarded and not depth:
                body += ["if here:", "    here = s.over[env]", f"if {barrier}_any(here):"]
                depth = 1
            own = [f"if {'thread' if unit == 'strided' else 'agent'} == 0:", f"    {call.text()}"]
            if call.kind != "env":
                own = self._for_agents(unit, call.group, f"i_{call.use}", call.text("{}"))
            own = ["if here:", *_indented([f"s.use = {call.use}", *own]), f"{barrier}_barrier()"]
            body += _indented(own, depth)
        if part == "step":
            return [*lines, "    for _ in range(num_steps):", *_indented(body, 2)]
        return lines + _indented(body)

    @staticmethod
    def _for_agents(unit: str, group: str | None, index: str, call: str) -> list[str]:
        """A call for the agents of a group, or for all; `call` has {} where the index within the group belongs."""
        if unit == "strided":
            count = "s.num_agents" if group is None else f"s.{group}.count"
            return [f"for {index} in range(thread, {count}, size):", f"    {call.format(index)}"]
        if group is None:
            return [call.format("agent")]
        return [
            f"{index} = agent - s.{group}.first",
            f"if {index} >= 0 and {index} < s.{group}.count:",
            f"    {call.format(index)}",
        ]
