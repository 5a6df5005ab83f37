"""Simple Spread and Simple Tag are stepped as JaxMARL's, so that a comparison of speed compares the same work."""

import warnings

import numpy as np
import pytest
import torch

import warpdrive as wd
from warpdrive.zoo.mpe_simple_spread import SimpleSpread
from warpdrive.zoo.mpe_simple_tag import SimpleTag

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    jax = pytest.importorskip("jax")
    jaxmarl = pytest.importorskip("jaxmarl")

NUM_ENVS, STEPS = 16, 80
EPISODE = 26  # JaxMARL tests its limit of 25 before it counts the step
TOLERANCE = 2e-5  # absolute and relative; both sides compute in float32
NEAR_TIE = 1e-5  # closer than this to touching, rounding decides
CASES = {
    "spread": (SimpleSpread, "MPE_simple_spread_v3", {}, {}),
    "spread of five": (
        SimpleSpread,
        "MPE_simple_spread_v3",
        dict(num_agents=5, local_ratio=0.3),
        dict(num_agents=5, num_landmarks=5, local_ratio=0.3),
    ),
    "tag": (SimpleTag, "MPE_simple_tag_v3", {}, {}),
}


def scatter(sim: wd.Simulator, rng: np.random.Generator) -> None:
    """New places and velocities: of some environments close together, of others beyond the edge."""
    spread = torch.tensor(rng.choice([0.15, 0.5, 1.3], (sim.num_envs, 1, 1)))
    for name in ("position", "velocity", "landmark"):
        value = getattr(sim.state, name)
        value.copy_((1.0 if name == "velocity" else spread) * torch.tensor(rng.uniform(-1, 1, value.shape)))
    sim.refresh()


def near_tie(position: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """For each environment, whether two discs touch so nearly that rounding may decide."""
    distance = np.linalg.norm(position[:, :, None] - position[:, None], axis=-1)
    gap = np.abs(distance - radius[:, None] - radius)
    first, second = np.triu_indices(len(radius), 1)
    return (gap[:, first, second] < NEAR_TIE).any(1)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_jaxmarl(name):
    """From the same states by the same actions: the same observations, rewards and ends, step by step."""
    env, original, options, names = CASES[name]
    sim = wd.Simulator(env(episode_length=EPISODE, **options), num_envs=NUM_ENVS, device="cpu", seed=3)
    sim.reset()
    peer, rng = jaxmarl.make(original, **names), np.random.default_rng(7)
    template = peer.reset(jax.random.PRNGKey(0))[1]
    assert [peer.observation_space(a).shape[0] for a in peer.agents] == [
        group.obs for group in sim.env.groups.values() for _ in range(group.count)
    ]

    def hand_over():
        """The state of ours as one of theirs."""
        place = torch.cat([sim.state.position, sim.state.landmark], 1).numpy()
        still = np.zeros((NUM_ENVS, sim.state.landmark.shape[1], 2), np.float32)
        wide = jax.tree.map(lambda x: np.broadcast_to(x, (NUM_ENVS, *np.shape(x))), template)
        return wide.replace(
            p_pos=place.copy(),
            p_vel=np.concatenate([sim.state.velocity.numpy(), still], 1),
            step=sim.state.step.numpy().copy(),
        )

    step = jax.jit(jax.vmap(peer.step_env))
    keys = jax.random.split(jax.random.PRNGKey(0), NUM_ENVS)
    compared, cuts, rewards = 0, 0, []
    for t in range(STEPS):
        if t % 7 == 0:
            scatter(sim, rng)
        before = hand_over()
        actions = {
            group: torch.tensor(rng.integers(0, 5, tuple(value.shape)), dtype=torch.int32)
            for group, value in sim.action.items()
        }
        sim.step(actions)
        given = torch.cat(list(actions.values()), 1)[..., 0].numpy()
        obs, after, reward, done, _ = step(keys, before, {a: given[:, i] for i, a in enumerate(peer.agents)})
        np.testing.assert_array_equal(np.asarray(done["__all__"]), sim.over.numpy())
        assert not sim.ended.any()
        cuts += int(sim.truncated.sum())

        clear = ~near_tie(np.asarray(after.p_pos), np.asarray(peer.rad))
        over = sim.over[:, None, None]
        ours = [
            torch.where(over, sim.final_obs[g], sim.obs[g])[:, i] for g in sim.obs for i in range(sim.obs[g].shape[1])
        ]
        for agent, seen in zip(peer.agents, ours, strict=True):
            np.testing.assert_allclose(
                seen.numpy()[clear], np.asarray(obs[agent])[clear], atol=TOLERANCE, rtol=TOLERANCE
            )
        paid = np.stack([np.asarray(reward[a]) for a in peer.agents], 1)
        np.testing.assert_allclose(sim.reward.numpy()[clear], paid[clear], atol=TOLERANCE, rtol=TOLERANCE)
        rewards.append(paid[clear])
        compared += int(clear.sum())
    assert compared > 0.97 * NUM_ENVS * STEPS
    assert cuts == NUM_ENVS * (STEPS // EPISODE)
    assert np.concatenate(rewards).std() > 0.1, "the test shows little when rewards are all the same"
