"""Drawing actions: distribution, log-probability, masks, bounds, faults, repeatability."""

import pytest
import scipy.stats
import torch
from torch.distributions import Categorical, Normal

from warpdrive.env.spaces import Box, Discrete, MultiDiscrete
from warpdrive.policy import actions
from warpdrive.policy.actions import NO_ACTION, NOT_FINITE, ActionSampler

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
E, K = 400, 5


class Drawn:
    """Actions drawn once for E x K agents."""

    def __init__(self, space, out, device="cpu", mask=None, active=None, seed=1, clock=0, **options):
        kind = torch.float32 if isinstance(space, Box) else torch.int32
        shape = out.shape[:2]
        self.action = torch.full((*shape, space.size), -7, dtype=kind, device=device)
        self.raw = torch.full_like(self.action, -7)
        self.log_prob = torch.full(shape, float("nan"), device=device)
        self.value = torch.full(shape, float("nan"), device=device)
        self.fault = torch.zeros(4, dtype=torch.int32, device=device)
        active = torch.ones(shape, dtype=torch.bool) if active is None else active
        log_std = options.pop("log_std", None)
        sampler = ActionSampler(
            space,
            action=self.action,
            active=active.to(device),
            seed=torch.tensor([seed], dtype=torch.int32, device=device),
            clock=torch.as_tensor(clock, dtype=torch.int32).expand(shape[0]).contiguous().to(device),
            fault=self.fault,
            log_std=None if log_std is None else log_std.to(device),
            **options,
        )
        sampler(out.to(device), None if mask is None else mask.to(device), self.raw, self.log_prob, self.value)
        for name, tensor in list(vars(self).items()):
            setattr(self, name, tensor.cpu())


def outputs(space, seed=0, same=False):
    """Random policy outputs (E, K, P + 1), feature-major; the same for all agents if asked."""
    g = torch.Generator().manual_seed(seed)
    width = space.num_outputs + 1
    if same:
        return torch.randn(width, generator=g).expand(E, K, width).contiguous()
    return torch.randn(width, E, K, generator=g).permute(1, 2, 0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_logits_in_registers_and_in_memory_give_the_same_bits(device, greedy, masked, monkeypatch):
    """Heads of few and of many choices are drawn from by different code, which does the same."""
    space = MultiDiscrete(4, 21, 3)
    out = 3.0 * outputs(space)
    mask = (torch.rand(E, K, 28, generator=torch.Generator().manual_seed(1)) < 0.6).to(torch.uint8) if masked else None
    active = torch.rand(E, K, generator=torch.Generator().manual_seed(2)) < 0.8
    drawn = []
    for held in (32, 0):
        monkeypatch.setattr(actions, "HELD", held)
        drawn.append(Drawn(space, out, device, mask=mask, active=active, greedy=greedy))
    assert not masked or drawn[0].fault[0] == NO_ACTION
    for name in ("action", "raw", "log_prob", "value"):
        torch.testing.assert_close(*(getattr(d, name) for d in drawn), rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_log_probability_and_value_are_those_of_the_outputs(device, dtype):
    """Log-probabilities agree with torch.distributions for what was drawn; the value is the last output."""
    space = MultiDiscrete(4, 3)
    out = outputs(space).to(dtype)
    d = Drawn(space, out, device)
    wide = out.double()
    wanted = Categorical(logits=wide[..., :4]).log_prob(d.raw[..., 0])
    wanted += Categorical(logits=wide[..., 4:7]).log_prob(d.raw[..., 1])
    torch.testing.assert_close(d.log_prob.double(), wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(d.value, out[..., -1].float())
    assert torch.equal(d.action, d.raw)
    assert d.fault.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("device", DEVICES)
def test_draws_follow_the_distribution(device):
    """Over many agents with equal logits the counts pass a chi-squared test, and two heads are independent."""
    space = MultiDiscrete(5, 3)
    out = outputs(space, seed=2, same=True)
    d = Drawn(space, out, device)
    joint = torch.softmax(out[0, 0, :5].double(), 0)[:, None] * torch.softmax(out[0, 0, 5:8].double(), 0)
    seen = torch.zeros(5, 3)
    for a, b in d.raw.view(-1, 2).tolist():
        seen[a, b] += 1
    assert scipy.stats.chisquare(seen.flatten().numpy(), joint.flatten().numpy() * E * K).pvalue > 1e-3


def test_masked_actions_are_never_drawn_and_the_rest_share_their_probability():
    """No masked choice is drawn, and log-probabilities are those over the allowed ones."""
    space = Discrete(6)
    g = torch.Generator().manual_seed(0)
    mask = (torch.rand(E, K, 6, generator=g) < 0.4).to(torch.uint8)
    mask[..., 2] = torch.where(mask.sum(-1) == 0, 1, mask[..., 2])
    out = outputs(space)
    out[..., :6][mask == 0] += 50.0  # the policy wants nothing more than what is forbidden
    d = Drawn(space, out, mask=mask)
    assert bool((torch.gather(mask, 2, d.raw.long()) == 1).all())
    allowed = out[..., :6].double().masked_fill(mask == 0, float("-inf"))
    wanted = Categorical(logits=allowed).log_prob(d.raw[..., 0])
    torch.testing.assert_close(d.log_prob.double(), wanted, rtol=1e-4, atol=1e-4)


def test_a_mask_that_forbids_all_is_reported_with_its_agent():
    """The fault names environment and agent, and nothing forbidden is counted as drawn."""
    space = Discrete(3)
    mask = torch.ones(E, K, 3, dtype=torch.uint8)
    mask[17, 3] = 0
    d = Drawn(space, outputs(space), mask=mask, clock=9)
    assert d.fault.tolist() == [NO_ACTION, 17, 3, 9]
    assert d.log_prob[17, 3] == 0


def test_one_forbidden_head_leaves_the_agent_without_log_probability():
    """Where only the second head is forbidden altogether, the agent's log-probability is 0 all the same."""
    space = MultiDiscrete(2, 3)
    mask = torch.ones(E, K, 5, dtype=torch.uint8)
    mask[4, 1, 2:] = 0
    d = Drawn(space, outputs(space), mask=mask)
    assert d.fault.tolist() == [NO_ACTION, 4, 1, 0]
    assert d.raw[4, 1, 1] == 0
    assert d.log_prob[4, 1] == 0
    assert int((d.log_prob == 0).sum()) == 1


def test_a_mean_that_is_not_finite_is_reported():
    """NaN in one component of a Box is a fault; the draw stays finite and has log-probability 0."""
    space = Box(-1.0, 1.0, 2)
    out = outputs(space)
    out[8, 4, 1] = float("nan")
    d = Drawn(space, out, log_std=torch.zeros(2))
    assert d.fault.tolist() == [NOT_FINITE, 8, 4, 0]
    assert bool(d.raw.isfinite().all())
    assert d.log_prob[8, 4] == 0


@pytest.mark.parametrize("column", [0, 3], ids=["logit", "value"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_outputs_that_are_not_finite_are_reported(column, bad):
    """NaN or infinity in a logit or in the value is a fault that names environment and agent."""
    space = Discrete(3)
    out = outputs(space)
    out[5, 2, column] = bad
    d = Drawn(space, out)
    assert d.fault.tolist() == [NOT_FINITE, 5, 2, 0]
    assert bool(d.value.isfinite().all())


def test_inactive_agents_do_nothing():
    """An agent that has left gets action, log-probability and value 0, and its outputs are no fault."""
    space = Discrete(3)
    active = torch.arange(E * K).view(E, K) % 3 != 0
    out = outputs(space)
    out[~active] = float("nan")
    d = Drawn(space, out, active=active)
    assert d.fault[0] == 0
    for tensor in (d.action[..., 0], d.log_prob, d.value):
        assert bool((tensor[~active] == 0).all())
    assert bool((d.log_prob[active] < 0).all())


@pytest.mark.parametrize("device", DEVICES)
def test_box_draws_are_gaussian_and_stay_within_bounds(device):
    """Draws have the given mean and deviation; the environment gets them mapped to the bounds and clipped."""
    space = Box([-2.0, 0.0], [2.0, 1.0])
    log_std = torch.tensor([-0.5, 0.4])
    out = outputs(space, seed=3, same=True)
    d = Drawn(space, out, device, log_std=log_std)
    for k in range(2):
        mean, deviation = float(out[0, 0, k]), float(log_std[k].exp())
        test = scipy.stats.kstest(((d.raw[..., k] - mean) / deviation).flatten().numpy(), "norm")
        assert test.pvalue > 1e-3
    low, high = torch.tensor(space.low), torch.tensor(space.high)
    wanted = (low + (d.raw + 1) / 2 * (high - low)).clamp(low, high)
    torch.testing.assert_close(d.action, wanted)
    assert bool((d.action[..., 1] == 1.0).any())  # some were clipped
    wanted = Normal(out[..., :2], log_std.exp()).log_prob(d.raw).sum(-1)
    torch.testing.assert_close(d.log_prob, wanted, rtol=1e-4, atol=1e-4)


def test_greedy_takes_the_likeliest():
    """Greedy actions are the argmax of each head among the allowed, and a Box's mean."""
    space = MultiDiscrete(4, 3)
    mask = torch.ones(E, K, 7, dtype=torch.uint8)
    mask[:, :, 1] = 0
    out = outputs(space)
    d = Drawn(space, out, mask=mask, greedy=True)
    assert torch.equal(d.raw[..., 0].long(), out[..., :4].masked_fill(mask[..., :4] == 0, float("-inf")).argmax(-1))
    assert torch.equal(d.raw[..., 1].long(), out[..., 4:7].argmax(-1))
    box = Box(-1.0, 1.0, 2)
    out = outputs(box)
    assert torch.equal(Drawn(box, out, log_std=torch.zeros(2), greedy=True).raw, out[..., :2])


def test_draws_depend_on_seed_step_environment_and_agent_alone():
    """The same key gives the same draw, also with fewer environments or other offsets; another key another."""
    space = Discrete(1000)
    out = torch.zeros(E, K, 1001)
    base = Drawn(space, out).raw
    assert torch.equal(base, Drawn(space, out).raw)
    assert torch.equal(base[:50], Drawn(space, out[:50]).raw)
    assert torch.equal(base[100:], Drawn(space, out[100:], env_offset=100).raw)
    assert torch.equal(base[:, 2:], Drawn(space, out[:, 2:], agent_offset=2).raw)
    for other in (Drawn(space, out, seed=2).raw, Drawn(space, out, clock=1).raw):
        assert float((other == base).float().mean()) < 0.01


def test_each_environment_draws_by_its_own_clock():
    """Where clocks differ, an environment draws, and is reported, by its own count of steps."""
    space = Discrete(1000)
    out = torch.zeros(E, K, 1001)
    clock = torch.arange(E) % 2
    mixed = Drawn(space, out, clock=clock).raw
    assert torch.equal(mixed[0::2], Drawn(space, out, clock=0).raw[0::2])
    assert torch.equal(mixed[1::2], Drawn(space, out, clock=1).raw[1::2])
    out[3, 2, 0] = float("inf")
    assert Drawn(space, out, clock=clock).fault.tolist() == [NOT_FINITE, 3, 2, 1]


@pytest.mark.gpu
@pytest.mark.parametrize("space", [MultiDiscrete(4, 3), Box(-1.0, 1.0, 2)], ids=["discrete", "box"])
def test_a_captured_draw_follows_the_clock(space):
    """A replayed graph reads the clock anew: it draws what a direct launch at that step draws."""
    out = outputs(space).cuda()
    action = torch.zeros(E, K, space.size, dtype=torch.float32 if isinstance(space, Box) else torch.int32).cuda()
    raw = torch.zeros_like(action)
    log_prob, value = torch.zeros(E, K).cuda(), torch.zeros(E, K).cuda()
    clock = torch.zeros(E, dtype=torch.int32).cuda()
    sampler = ActionSampler(
        space,
        action=action,
        active=torch.ones(E, K, dtype=torch.bool).cuda(),
        seed=torch.ones(1, dtype=torch.int32).cuda(),
        clock=clock,
        fault=torch.zeros(4, dtype=torch.int32).cuda(),
        log_std=torch.zeros(2).cuda() if isinstance(space, Box) else None,
    )
    wanted = []
    for step in range(3):
        clock.fill_(step)
        sampler(out, None, raw, log_prob, value)  # also loads the kernel, which a capture may not
        wanted.append((raw.clone(), log_prob.clone()))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sampler(out, None, raw, log_prob, value)
    for step in range(3):
        clock.fill_(step)
        graph.replay()
        assert torch.equal(raw, wanted[step][0])
        assert torch.equal(log_prob, wanted[step][1])
    assert not torch.equal(wanted[0][0], wanted[1][0])
