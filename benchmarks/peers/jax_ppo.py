"""PPO in JAX in the manner of JaxMARL's IPPO and of PureJaxRL: rollout, advantages and all epochs in one jit."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.nn.initializers import orthogonal
from rows import RECIPE

__all__ = ["Runner", "begin", "make_update"]

OPTIMIZER = optax.chain(optax.clip_by_global_norm(RECIPE["max_grad_norm"]), optax.scale_by_adam(eps=RECIPE["adam_eps"]))


class Runner(NamedTuple):
    """All that goes on from one update to the next."""

    params: Any
    moments: Any  # of the optimiser
    state: Any
    obs: jax.Array
    episode_return: jax.Array  # (E,), mean over agents, of the episode that is going on
    key: jax.Array
    update: jax.Array
    total: jax.Array  # updates after which the learning rate is 0


class Samples(NamedTuple):
    """What a rollout leaves, (T, n * E, ...)."""

    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    over: jax.Array


def new_params(key: jax.Array, obs_size: int, num_actions: int) -> dict[str, list[tuple[jax.Array, jax.Array]]]:
    """Actor and critic with hidden layers of their own, orthogonal, biases 0."""
    width, keys = RECIPE["hidden"], iter(jax.random.split(key, 6))

    def tower(outputs: int, gain: float) -> list[tuple[jax.Array, jax.Array]]:
        shapes = [(obs_size, width, 2.0**0.5), (width, width, 2.0**0.5), (width, outputs, gain)]
        return [(orthogonal(g)(next(keys), (i, o)), jnp.zeros(o)) for i, o, g in shapes]

    return {"actor": tower(num_actions, 0.01), "critic": tower(1, 1.0)}


def forward(params: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Logits (..., A) and value (...) of observations (..., D)."""

    def tower(layers: Any) -> jax.Array:
        h = x
        for w, b in layers[:-1]:
            h = jnp.tanh(h @ w + b)
        w, b = layers[-1]
        return h @ w + b

    return tower(params["actor"]), tower(params["critic"])[..., 0]


def chosen(logits: jax.Array, action: jax.Array) -> jax.Array:
    """Logarithm of the probability of `action`."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]


def loss(params: Any, batch: tuple[Samples, jax.Array, jax.Array]) -> jax.Array:
    """Schulman et al. 2017 (arXiv 1707.06347), eq. 7 and 9, with a clipped value and normalised advantages."""
    samples, advantage, target = batch
    logits, value = forward(params, samples.obs)
    ratio = jnp.exp(chosen(logits, samples.action) - samples.log_prob)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clip = RECIPE["clip"]
    policy = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()
    near = samples.value + jnp.clip(value - samples.value, -RECIPE["value_clip"], RECIPE["value_clip"])
    critic = 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2).mean()
    log_probs = jax.nn.log_softmax(logits)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    return policy + RECIPE["value_coef"] * critic - RECIPE["entropy"] * entropy


def advantages(samples: Samples, last_value: jax.Array) -> jax.Array:
    """GAE (Schulman et al. 2016, arXiv 1506.02438), (T, n * E); every end of an episode counts as a termination."""

    def back(carry: Any, step: Any) -> Any:
        later, next_value = carry
        value, reward, over = step
        going_on = 1.0 - over
        error = reward + RECIPE["gamma"] * next_value * going_on - value
        later = error + RECIPE["gamma"] * RECIPE["gae_lambda"] * going_on * later
        return (later, value), later

    start = (jnp.zeros_like(last_value), last_value)
    steps = (samples.value, samples.reward, samples.over)
    return jax.lax.scan(back, start, steps, reverse=True, unroll=8)[1]


def begin(game: Any, seed: jax.Array, total: jax.Array) -> Runner:
    """A policy that has learnt nothing, and environments at their start."""
    key, net_key, env_key = jax.random.split(jax.random.PRNGKey(seed), 3)
    params = new_params(net_key, game.obs_size, game.num_actions)
    state, obs = game.reset(env_key)
    zero = jnp.zeros(game.num_envs)
    return Runner(params, OPTIMIZER.init(params), state, obs, zero, key, jnp.int32(0), jnp.float32(total))


def make_update(game: Any, whole_agents: bool) -> Any:
    """The function that makes one update: Runner -> Runner, (sum of returns that ended, number of them).

    With `whole_agents` a minibatch has all steps of its agents, else samples are dealt one by one.
    """
    steps, num_actors = RECIPE["rollout_steps"], game.num_agents * game.num_envs

    def flat(x: jax.Array) -> jax.Array:
        return x.reshape((num_actors, *x.shape[2:]))

    def act(runner: Runner, _: None) -> tuple[Runner, tuple[Samples, jax.Array, jax.Array]]:
        key, act_key, step_key = jax.random.split(runner.key, 3)
        x = flat(runner.obs)
        logits, value = forward(runner.params, x)
        action = jax.random.categorical(act_key, logits)
        actions = action.reshape(game.num_agents, game.num_envs)
        state, obs, reward, over = game.step(step_key, runner.state, actions)
        total = runner.episode_return + reward.mean(0)
        ended = (total * over).sum(), over.sum()
        runner = runner._replace(state=state, obs=obs, key=key, episode_return=total * (1 - over))
        everybody = jnp.broadcast_to(over, reward.shape).astype(jnp.float32)
        return runner, (Samples(x, action, chosen(logits, action), value, flat(reward), flat(everybody)), *ended)

    def epoch(carry: Any, _: None) -> tuple[Any, None]:
        params, moments, key, batch, rate = carry
        key, order_key = jax.random.split(key)
        parts = RECIPE["minibatches"]
        if whole_agents:
            order = jax.random.permutation(order_key, num_actors)

            def deal(x: jax.Array) -> jax.Array:
                x = x[:, order].reshape((steps, parts, num_actors // parts, *x.shape[2:]))
                return jnp.swapaxes(x, 0, 1)
        else:
            order = jax.random.permutation(order_key, steps * num_actors)

            def deal(x: jax.Array) -> jax.Array:
                return x.reshape((steps * num_actors, *x.shape[2:]))[order].reshape((parts, -1, *x.shape[2:]))

        def minibatch(carry: Any, part: Any) -> tuple[Any, None]:
            params, moments = carry
            step, moments = OPTIMIZER.update(jax.grad(loss)(params, part), moments)
            return (jax.tree.map(lambda p, s: p - rate * s, params, step), moments), None

        (params, moments), _ = jax.lax.scan(minibatch, (params, moments), jax.tree.map(deal, batch))
        return (params, moments, key, batch, rate), None

    def update(runner: Runner, _: None) -> tuple[Runner, tuple[jax.Array, jax.Array]]:
        runner, (samples, returns, episodes) = jax.lax.scan(act, runner, None, steps)
        advantage = advantages(samples, forward(runner.params, flat(runner.obs))[1])
        batch = samples, advantage, advantage + samples.value
        rate = RECIPE["lr"] * jnp.maximum(0.0, 1.0 - runner.update / runner.total)
        carry = runner.params, runner.moments, runner.key, batch, rate
        (params, moments, key, _, _), _ = jax.lax.scan(epoch, carry, None, RECIPE["epochs"])
        runner = runner._replace(params=params, moments=moments, key=key, update=runner.update + 1)
        return runner, (returns.sum(), episodes.sum())

    return update
