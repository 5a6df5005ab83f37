"""JaxMARL's and gymnax's side of the comparison."""

import platform
import time
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import jax_games
import jax_ppo
from rows import CHUNK

__all__ = ["prepare", "versions"]

UPDATES = 1  # in one call


def versions() -> dict[str, Any]:
    """Versions of what takes part."""
    names = ("jax", "jaxmarl", "gymnax", "optax", "flax")
    return {name: version(name) for name in names} | {
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
    }


def prepare(case: dict[str, Any]) -> "Simulate | Train":
    """What is to be timed."""
    found = jax.default_backend()
    if (found == "cpu") != (case["device"] == "cpu"):
        raise RuntimeError(f"JAX runs on {found!r} here and not on {case['device']!r}")
    return (Simulate if case["work"] == "simulate" else Train)(case)


class Simulate:
    """Steps with random actions."""

    def __init__(self, case: dict[str, Any]) -> None:
        game = jax_games.make(case["game"], case["num_envs"])
        chunk = CHUNK[case["device"]]
        self.steps_per_call = game.num_envs * chunk
        self.how = f"{chunk} steps a jit"

        def step(carry: Any, _: None) -> tuple[Any, None]:
            key, state, obs, total, episodes = carry
            key, action_key, step_key = jax.random.split(key, 3)
            actions = jax.random.randint(action_key, (game.num_agents, game.num_envs), 0, game.num_actions)
            state, obs, reward, over = game.step(step_key, state, actions)
            # The observations ride along, so that they are computed and stored in every step.
            return (key, state, obs, total + reward.mean(0), episodes + over), None

        @partial(jax.jit, donate_argnums=0)
        def run(carry: Any) -> Any:
            return jax.lax.scan(step, carry, None, chunk)[0]

        @jax.jit
        def start(key: jax.Array) -> Any:
            key, reset_key = jax.random.split(key)
            state, obs = game.reset(reset_key)
            return key, state, obs, jnp.zeros(game.num_envs), jnp.zeros(game.num_envs, jnp.int32)

        self.carry, self.calls = start(jax.random.PRNGKey(0)), 0
        self._run = run.lower(self.carry).compile()

    def call(self) -> None:
        """Make some steps."""
        self.carry = self._run(self.carry)
        self.calls += 1

    def wait(self) -> None:
        """Wait for the device."""
        jax.block_until_ready(self.carry)

    def facts(self) -> dict[str, Any]:
        """Mean reward of an agent in a step, and mean length of episodes."""
        steps, episodes = self.calls * self.steps_per_call, int(self.carry[4].sum())
        return {
            "episodes": episodes,
            "length": steps / max(1, episodes),
            "reward_per_step": float(self.carry[3].sum()) / steps,
        }


class Train:
    """Updates of PPO by the common recipe."""

    def __init__(self, case: dict[str, Any]) -> None:
        game = jax_games.make(case["game"], case["num_envs"])
        whole_agents = case["variant"] == "same cut"
        self.how = f"float32, minibatches of {'whole agents' if whole_agents else 'single samples'}"
        self.steps_per_call = game.num_envs * jax_ppo.RECIPE["rollout_steps"] * UPDATES
        update = jax_ppo.make_update(game, whole_agents)

        @partial(jax.jit, donate_argnums=0)
        def run(runner: jax_ppo.Runner) -> Any:
            return jax.lax.scan(update, runner, None, UPDATES)

        self._begin = jax.jit(partial(jax_ppo.begin, game))
        self.runner = self._begin(0, 1e9)
        self._run = run.lower(self.runner).compile()
        self.ended = (jnp.zeros(UPDATES), jnp.zeros(UPDATES))

    def call(self) -> None:
        """Make one update."""
        self.runner, self.ended = self._run(self.runner)

    def wait(self) -> None:
        """Wait for the device."""
        jax.block_until_ready(self.runner)

    def facts(self) -> dict[str, Any]:
        """Return of the episodes that ended in the last update."""
        returns, episodes = (float(x.sum()) for x in self.ended)
        return {"episodes": episodes, "return": returns / max(1.0, episodes)}

    def learn(self, seed: int, updates: int) -> dict[str, Any]:
        """Train from a seed; mean return of an agent in the episodes that ended in each update."""
        self.runner = self._begin(seed, float(updates))  # a float, or it would compile anew
        self.wait()
        ended, start = [], time.perf_counter()
        for _ in range(updates // UPDATES):
            self.call()
            ended.append(self.ended)
        self.wait()
        seconds = time.perf_counter() - start
        pairs = [(float(r), float(n)) for rs, ns in ended for r, n in zip(rs, ns, strict=True)]
        return {"returns": [r / n if n else None for r, n in pairs], "seconds": seconds}
