"""Which policy acts for which agents: groups, or single agents of a group, mapped to policies by name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from warpdrive.env.environment import Env, unknown_name

__all__ = ["RANDOM", "Segment", "segments"]

RANDOM = "random"  # the opponent that acts at random

Assignment = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True)
class Segment:
    """A run of neighbouring agents of one group that one policy acts for: agents `first` to `last` - 1."""

    group: str
    first: int
    last: int
    policy: str

    @property
    def count(self) -> int:
        """Number of agents, k."""
        return self.last - self.first


def segments(
    env: Env, policies: Iterable[str], assign: Assignment | None, opponents: Mapping[str, str] | None = None
) -> list[Segment]:
    """The policy of every agent that has one, as runs of neighbours.

    Args:
        env: the environment.
        policies: names of the policies.
        assign: group -> name of its policy, or a name for each of its agents. A group left out, or all where this is
            None, goes to the policy of its own name; where there is one policy only, to that.
        opponents: group -> scripted policy, or "random", that plays it: such groups have no policy here.

    Raises:
        ValueError: an unknown name, a list of wrong length, a policy nobody uses, or a policy that would have to act
            for groups with different observations or actions.
    """
    names, assign, opponents = list(policies), dict(assign or {}), dict(opponents or {})
    for group in assign:
        if group not in env.groups:
            raise unknown_name("group in assign:", group, env.groups)
    for group, script in opponents.items():
        if group not in env.groups:
            raise unknown_name("group in opponents:", group, env.groups)
        if script != RANDOM and script not in env.scripts[group]:
            raise unknown_name(f"scripted policy of {group!r} in opponents:", script, [RANDOM, *env.scripts[group]])
        if group in assign:
            raise ValueError(f"group {group!r} is in assign and in opponents; leave it out of one")
    result: list[Segment] = []
    for name, description in env.groups.items():
        if name in opponents:
            continue
        total = description.count
        wanted = assign.get(name, name if name in names or len(names) != 1 else names[0])
        each = [wanted] * total if isinstance(wanted, str) else list(wanted)
        if len(each) != total:
            raise ValueError(
                f"assign[{name!r}] must name one policy, or one for each of {total} agents; got {len(each)} names"
            )
        start = 0
        for i in range(1, total + 1):
            if i == total or each[i] != each[start]:
                if each[start] not in names:
                    raise unknown_name(f"policy for group {name!r}:", each[start], names)
                result.append(Segment(name, start, i, each[start]))
                start = i
    for policy in names:
        groups = [env.groups[s.group] for s in result if s.policy == policy]
        if not groups:
            raise ValueError(f"policy {policy!r} acts for no agent; leave it out or name it in assign")
        if len({(g.obs, g.action, g.mask) for g in groups}) > 1:
            raise ValueError(
                f"policy {policy!r} is to act for groups with different observations or actions: "
                f"{sorted({s.group for s in result if s.policy == policy})}; give each a policy of its own"
            )
    return result
