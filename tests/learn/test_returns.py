"""Advantages and returns: hand-computed episodes, and a plain float64 loop on random ones."""

import pytest
import torch

from warpdrive.learn.returns import gae

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
GAMMA, LAMBDA = 0.9, 0.8


def reference(reward, alive, terminated, ended, final_slot, value, final_value):
    """GAE by its definition, agent by agent and step by step."""
    steps, num_envs, agents = reward.shape
    advantage = torch.zeros(reward.shape, dtype=torch.float64)
    target = torch.zeros_like(advantage)
    for env in range(num_envs):
        for i in range(agents):
            for t in range(steps):
                if not alive[t, env, i]:
                    continue
                total, weight, u = 0.0, 1.0, t
                while True:
                    stop = True
                    if terminated[u, env, i]:
                        after = 0.0
                    elif ended[u, env]:
                        slot = int(final_slot[u, env])
                        after = float(final_value[slot, env, i]) if slot >= 0 else 0.0
                    elif u + 1 < steps and not alive[u + 1, env, i]:
                        after = 0.0
                    else:
                        after = float(value[u + 1, env, i])
                        stop = u + 1 == steps
                    total += weight * (float(reward[u, env, i]) + GAMMA * after - float(value[u, env, i]))
                    if stop:
                        break
                    weight *= GAMMA * LAMBDA
                    u += 1
                advantage[t, env, i] = total
                target[t, env, i] = total + float(value[t, env, i])
    return advantage, target


def run(device, reward, alive, terminated, ended, final_slot, value, final_value):
    """The kernel's advantages and returns, on the CPU."""
    inputs = dict(
        reward=reward,
        alive=alive,
        terminated=terminated,
        ended=ended,
        final_slot=final_slot,
        value=value,
        final_value=final_value,
    )
    moved = {name: tensor.to(device) for name, tensor in inputs.items()}
    advantage = torch.full(reward.shape, float("nan"), device=device)
    target = torch.full_like(advantage, float("nan"))
    discount = torch.tensor([GAMMA, LAMBDA], device=device)
    gae(**moved, discount=discount, advantage_out=advantage, return_out=target)
    return advantage.cpu(), target.cpu()


def episode(steps=3):
    """One environment, one agent, reward 1, value 0.5 and a final value of 5, nothing ends."""
    flags = torch.zeros(steps, 1, 1, dtype=torch.bool)
    return dict(
        reward=torch.ones(steps, 1, 1),
        alive=~flags,
        terminated=flags.clone(),
        ended=flags[..., 0].clone(),
        final_slot=torch.full((steps, 1), -1, dtype=torch.int32),
        value=torch.full((steps + 1, 1, 1), 0.5),
        final_value=torch.full((1, 1, 1), 5.0),
    )


def test_termination_is_not_bootstrapped():
    """The return of a last step that terminates is its reward alone."""
    e = episode(1)
    e["terminated"][0] = True
    e["ended"][0] = True
    e["final_slot"][0] = 0
    advantage, target = run("cpu", **e)
    assert target.item() == pytest.approx(1.0)
    assert advantage.item() == pytest.approx(0.5)


def test_truncation_is_bootstrapped_from_the_final_observation():
    """The return of a step at which the episode is cut goes on with the value of what it ended on."""
    e = episode(1)
    e["ended"][0] = True
    e["final_slot"][0] = 0
    _, target = run("cpu", **e)
    assert target.item() == pytest.approx(1.0 + GAMMA * 5.0)


def test_the_end_of_a_rollout_is_bootstrapped_from_the_next_value():
    """Where nothing ends, the return goes on with the value of the observation after the last step."""
    _, target = run("cpu", **episode(1))
    assert target.item() == pytest.approx(1.0 + GAMMA * 0.5)


def test_a_dying_agent_gets_nothing_after_its_death():
    """An agent that terminates at step 1 of 3 has advantages up to there, and zeros after."""
    e = episode(3)
    e["terminated"][1] = True
    e["alive"][2] = False
    e["reward"][2] = 100.0
    advantage, target = run("cpu", **e)
    last = 1.0 - 0.5
    assert advantage.flatten().tolist() == pytest.approx([1 + GAMMA * 0.5 - 0.5 + GAMMA * LAMBDA * last, last, 0.0])
    assert target[2].item() == 0.0


def test_one_episode_does_not_leak_into_the_one_before():
    """What happens after an episode's end changes nothing before it."""
    e = episode(4)
    e["ended"][1] = True
    e["final_slot"][1] = 0
    before = run("cpu", **e)[0][:2].clone()
    e["reward"][2:] = 1000.0
    e["value"][2:] = -1000.0
    assert torch.equal(run("cpu", **e)[0][:2], before)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(3))
def test_random_episodes_agree_with_the_definition(device, seed):
    """On random rewards, deaths and ends the kernel agrees with a float64 loop, whatever the strides."""
    g = torch.Generator().manual_seed(seed)
    steps, num_envs, agents = 13, 5, 3
    ended = torch.rand(steps, num_envs, generator=g) < 0.2
    terminated = torch.rand(steps, num_envs, agents, generator=g) < 0.1
    alive = torch.rand(steps, num_envs, agents, generator=g) < 0.8
    terminated &= alive
    inputs = dict(
        reward=torch.randn(steps, num_envs, 7, generator=g)[:, :, 2:5],
        alive=alive,
        terminated=terminated,
        ended=ended,
        final_slot=torch.randint(-1, 2, (steps, num_envs), generator=g, dtype=torch.int32),
        value=torch.randn(steps + 1, agents, num_envs, generator=g).transpose(1, 2),
        final_value=torch.randn(2, num_envs, agents, generator=g),
    )
    advantage, target = run(device, **inputs)
    wanted = reference(**inputs)
    torch.testing.assert_close(advantage.double(), wanted[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(target.double(), wanted[1], rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
def test_a_captured_estimate_follows_the_discount():
    """A replayed graph reads gamma and lambda anew."""
    e = {name: tensor.cuda() for name, tensor in episode(5).items()}
    advantage, target = torch.zeros(5, 1, 1).cuda(), torch.zeros(5, 1, 1).cuda()
    discount = torch.tensor([0.5, 0.5]).cuda()
    gae(**e, discount=discount, advantage_out=advantage, return_out=target)  # loads the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gae(**e, discount=discount, advantage_out=advantage, return_out=target)
    discount.copy_(torch.tensor([GAMMA, LAMBDA]))
    graph.replay()
    assert torch.equal(advantage.cpu(), run("cuda", **episode(5))[0])
