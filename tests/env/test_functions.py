"""Whole numbers that many agents of an environment add up, raise or lower at once."""

import pytest
import torch
import warp as wp

import warpdrive as wd

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SCHEDULES = [("cpu", "loop"), ("cpu", "split")]
SCHEDULES += [pytest.param("cuda", schedule, marks=pytest.mark.gpu) for schedule in ("split", "mixed", "fused")]


class TallyState(wd.State):
    """A number of each agent, and what an environment makes of all of them."""

    agents: wd.Agents
    number: wd.PerAgent[int]
    wide: wd.PerAgent[wp.int64]
    total: wd.PerEnv[int]
    least: wd.PerEnv[int]
    greatest: wd.PerEnv[int]
    long_least: wd.PerEnv[wp.int64]
    long_greatest: wd.PerEnv[wp.int64]


@wd.per_agent
def tally(s: TallyState, env: int, agent: int):
    """Agents with a number divisible by 3 stay away, so that a warp is not whole."""
    number = s.number[env, agent]
    if number % 3 != 0:
        wd.atomic_add(s.total, env, number)
        wd.atomic_min(s.least, env, number)
        wd.atomic_max(s.greatest, env, number)
        wd.atomic_min(s.long_least, env, s.wide[env, agent])
        wd.atomic_max(s.long_greatest, env, s.wide[env, agent])


@wd.per_agent("agents")
def observe(s: TallyState, env: int, i: int):
    """One's own number."""
    wd.put(s.agents.obs, env, i, 0, float(s.number[env, i]))


class Tally(wd.Env):
    """Agents that count together."""

    state = TallyState
    step = (tally,)
    observe = (observe,)

    def __init__(self, num_agents: int) -> None:
        super().__init__(groups={"agents": wd.Group(num_agents, obs=1, action=wd.Discrete(2))})


@pytest.mark.parametrize(("device", "schedule"), SCHEDULES)
@pytest.mark.parametrize("num_agents", [1, 5, 40, 1000])
def test_many_agents_at_once_give_what_one_after_the_other_would(num_agents, device, schedule):
    """Sums, least and greatest of numbers of both signs agree with PyTorch's, in 32 and in 64 bits."""
    sim = wd.Simulator(Tally(num_agents), 37, device=device, schedule=schedule)
    sim.reset()
    generator = torch.Generator().manual_seed(num_agents)
    number = torch.randint(-(10**6), 10**6, (37, num_agents), generator=generator)
    # Many share their upper half, so that the lower half decides, with and without its highest bit.
    long = torch.randint(-3, 3, number.shape, generator=generator) * 2**32 + torch.randint(
        0, 2**32, number.shape, generator=generator
    )
    here = number % 3 != 0
    state = sim.state
    state.number.copy_(number)
    state.wide.copy_(long)
    big, huge = 2**31 - 1, 2**63 - 1
    for field, start in (
        ("total", 7),
        ("least", big),
        ("greatest", -big),
        ("long_least", huge),
        ("long_greatest", -huge),
    ):
        getattr(state, field).fill_(start)
    sim.step()
    expected = {
        "total": 7 + (number * here).sum(1),
        "least": number.masked_fill(~here, big).amin(1),
        "greatest": number.masked_fill(~here, -big).amax(1),
        "long_least": long.masked_fill(~here, huge).amin(1),
        "long_greatest": long.masked_fill(~here, -huge).amax(1),
    }
    for field, value in expected.items():
        assert torch.equal(getattr(state, field).cpu().long(), value), field
