"""JaxMARL's and gymnax's environments through one interface: arrays of all agents in all environments."""

import contextlib
import io
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["Cartpole", "Mpe", "make"]


class Mpe:
    """A scenario of JaxMARL's MPE.

    Observations are (n, E, D), of all agents as long as the longest; rewards (n, E); actions (n, E); over (E,).
    """

    num_actions = 5

    def __init__(self, scenario: str, num_envs: int) -> None:
        # It prints while it is imported, and makes arrays for games that are not played here: a GPU takes longer.
        with contextlib.redirect_stdout(io.StringIO()), jax.default_device(jax.devices("cpu")[0]):
            import jaxmarl

        self.env = jaxmarl.make(scenario)
        self.num_envs, self.agents = num_envs, list(self.env.agents)
        self.num_agents = len(self.agents)
        self.obs_size = max(self.env.observation_space(a).shape[0] for a in self.agents)

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """The state of all environments and their observations."""
        obs, state = jax.vmap(self.env.reset)(jax.random.split(key, self.num_envs))
        return state, self._stack(obs)

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, jax.Array, jax.Array, jax.Array]:
        """State, observations, rewards and ends after a step; who is over has begun anew."""
        keys = jax.random.split(key, self.num_envs)
        actions = {a: action[i] for i, a in enumerate(self.agents)}
        obs, state, reward, done, _ = jax.vmap(self.env.step)(keys, state, actions)
        return state, self._stack(obs), jnp.stack([reward[a] for a in self.agents]), done["__all__"]

    def _stack(self, obs: dict[str, jax.Array]) -> jax.Array:
        rows = [obs[a] for a in self.agents]
        return jnp.stack([jnp.pad(row, ((0, 0), (0, self.obs_size - row.shape[1]))) for row in rows])


class Cartpole:
    """gymnax's CartPole-v1, with an axis of one agent."""

    num_actions, num_agents, obs_size = 2, 1, 4

    def __init__(self, num_envs: int) -> None:
        import gymnax

        self.env, self.params = gymnax.make("CartPole-v1")
        self.num_envs = num_envs

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """See Mpe."""
        obs, state = jax.vmap(self.env.reset, (0, None))(jax.random.split(key, self.num_envs), self.params)
        return state, obs[None]

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, jax.Array, jax.Array, jax.Array]:
        """See Mpe."""
        keys = jax.random.split(key, self.num_envs)
        step = jax.vmap(self.env.step, (0, 0, 0, None))
        obs, state, reward, terminated, truncated, _ = step(keys, state, action[0], self.params)
        return state, obs[None], reward[None], terminated | truncated


def make(game: str, num_envs: int) -> Mpe | Cartpole:
    """The game by warpdrive's name for it."""
    if game == "cartpole":
        return Cartpole(num_envs)
    return Mpe({"spread": "MPE_simple_spread_v3", "tag": "MPE_simple_tag_v3"}[game], num_envs)
