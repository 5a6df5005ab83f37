"""Continuous Tag in plain NumPy, written from the rules alone: what `warpdrive.zoo.tag` is compared with.

E environments, N agents (taggers first), n agents of a group. Every number is float32, in the order of operations that
the rules name, so that all but sines and cosines can be compared to the bit.
"""

import numpy as np

F = np.float32
PI2 = F(2 * np.pi)
NEAR = 1e-5  # closer than this to a tie or an edge, the last bit of a sine may decide


class TagReference:
    """E games of Tag. `position` (E, N, 2); `heading`, `speed`, `acceleration`, `active` (E, N); `clock` (E,)."""

    def __init__(self, num_envs, **options):
        rules = dict(
            num_taggers=10, num_runners=100, grid_length=20.0, episode_length=500, max_speed=1.0,
            num_acceleration_levels=20, num_turn_levels=20, max_acceleration=0.1, min_acceleration=-0.1,
            max_turn=2.356, min_turn=-2.356, tagging_distance=0.02, edge_hit_penalty=0.0,
            step_penalty_for_tagger=0.0, step_reward_for_runner=0.0, tag_reward_for_tagger=10.0,
            tag_penalty_for_runner=-10.0, end_of_game_reward_for_runner=1.0, runner_exits_game_after_tagged=True,
            num_other_agents_observed=10, use_full_observation=False, egocentric=False,
            skill_level_tagger=1.0, skill_level_runner=1.0,
        )  # fmt: skip
        assert options.keys() <= rules.keys()
        for name, value in (rules | options).items():
            setattr(self, name, F(value) if isinstance(value, float) else value)
        self.rules = rules | options
        self.num_agents = self.num_taggers + self.num_runners
        shape = (num_envs, self.num_agents)
        self.position = np.zeros((*shape, 2), F)
        self.heading, self.speed, self.acceleration = np.zeros(shape, F), np.zeros(shape, F), np.zeros(shape, F)
        self.active = np.ones(shape, bool)
        self.clock = np.zeros(num_envs, int)
        self.is_tagger = np.arange(self.num_agents) < self.num_taggers
        skills = np.where(self.is_tagger, self.rules["skill_level_tagger"], self.rules["skill_level_runner"])
        self.top_speed = (self.rules["max_speed"] * skills).astype(F)
        self.changes = self._levels("acceleration")
        self.turns = self._levels("turn")

    def _levels(self, what):
        low, high = self.rules[f"min_{what}"], self.rules[f"max_{what}"]
        count = self.rules[f"num_{what}_levels"]
        levels = F(low) + np.arange(count).astype(F) * F((high - low) / max(1, count - 1))
        np.testing.assert_allclose(levels, np.linspace(low, high, count), rtol=1e-6, atol=1e-7)
        return np.concatenate([[F(0)], levels])

    def set_state(self, where=slice(None), **arrays):
        """Take over arrays by name, in the environments `where`."""
        for name, value in arrays.items():
            getattr(self, name)[where] = np.asarray(value)[where]

    def step(self, actions, where=slice(None), **moved):
        """One step. `actions` (E, N, 2); `moved` replaces what motion led to, in the environments `where`.

        Returns: obs (group -> (E, n, D)), reward (E, N), terminated (E, N), truncated (E,). Nothing restarts.
        """
        self.move(actions)
        self.set_state(where, **moved)
        reward, terminated, truncated = self.judge()
        return self.observe(), reward, terminated, truncated

    def move(self, actions):
        """Drive every agent in the game; sets `crossed`, and `unsure` where rounding may decide about the edge."""
        go = self.active
        acceleration = self.acceleration + self.changes[actions[..., 0]]
        speed = np.clip(self.speed + acceleration, F(0), self.top_speed)
        acceleration[(speed == 0) | (speed == self.top_speed)] = 0
        heading = np.mod(self.heading + self.turns[actions[..., 1]], PI2)
        angle = heading.astype(np.float64)
        way = np.stack([np.cos(angle), np.sin(angle)], -1).astype(F)
        aim = self.position + speed[..., None] * way
        position = np.clip(aim, F(0), self.grid_length)
        self.crossed = go & (aim != position).any(-1)
        close = np.minimum(abs(aim), abs(aim - self.grid_length)).min(-1) < NEAR
        self.unsure = go & close & (speed > 0)
        self.acceleration[go], self.speed[go] = acceleration[go], speed[go]
        self.heading[go], self.position[go] = heading[go], position[go]
        self.clock += 1

    def judge(self):
        """Tags, rewards and who is out, from where everybody stands. Sets `tags` (E, num_runners): tagger or -1."""
        nt, was = self.num_taggers, self.active.copy()
        reward = np.where(self.is_tagger, self.step_penalty_for_tagger, self.step_reward_for_runner)
        reward = (reward + self.edge_hit_penalty * self.crossed.astype(F)) * was
        reward = reward.astype(F)
        reach = F(self.rules["tagging_distance"] * self.rules["grid_length"])
        self.tags = np.full((len(reward), self.num_runners), -1)
        terminated = np.zeros_like(was)
        for env in range(len(reward)):
            for r in np.flatnonzero(was[env, nt:]):
                distances = squared(self.position[env, nt + r], self.position[env, :nt])
                if distances.min() < reach * reach:
                    self.tags[env, r] = np.argmin(distances)  # the first of equals
            tagged = self.tags[env] >= 0
            reward[env, nt:][tagged] += self.tag_penalty_for_runner
            np.add.at(reward[env], self.tags[env][tagged], self.tag_reward_for_tagger)
            if self.runner_exits_game_after_tagged:
                self.active[env, nt:][tagged] = False
                terminated[env, nt:] = tagged
            if self.clock[env] == self.episode_length:
                reward[env, nt:][self.active[env, nt:]] += self.end_of_game_reward_for_runner
            if not self.active[env, nt:].any():
                terminated[env] |= was[env]
        return reward, terminated, self.clock >= self.episode_length

    def observe(self):
        """What every agent sees, by group; sets `blurred` (E, N) where neighbours are so near to a tie that
        rounding may decide their order."""
        e, n = self.active.shape
        slots = n - 1 if self.use_full_observation else self.num_other_agents_observed
        self.blurred = np.zeros((e, n), bool)
        obs = np.zeros((e, n, 7, slots), F)
        time = np.where(self.active, (self.clock.astype(F) / F(self.episode_length))[:, None], F(0))
        for env in range(e):
            here = self.position[env]
            if self.use_full_observation:
                others = np.stack([np.delete(np.arange(n), agent) for agent in range(n)])
                there = self.active[env, others]
            else:
                others, there, self.blurred[env] = nearest(here, self.active[env], slots)
            width = others.shape[1]
            there = there & self.active[env][:, None]
            offset = (here[others] - here[:, None]) / F(np.sqrt(2.0) * self.rules["grid_length"])
            if self.egocentric:  # turned back by the agent's own heading
                turned = (offset[..., 0] + 1j * offset[..., 1]) * np.exp(-1j * self.heading[env].astype(float))[:, None]
                offset = np.stack([turned.real, turned.imag], -1)
            features = [
                offset[..., 0],
                offset[..., 1],
                (self.speed[env, others] - self.speed[env][:, None]) / self.max_speed,
                (self.acceleration[env, others] - self.acceleration[env][:, None]) / self.max_speed,
                (self.heading[env, others] - self.heading[env][:, None]) / PI2,
                self.is_tagger[others],
                np.ones_like(there),
            ]
            obs[env, :, :, :width] = np.stack(features, 1) * there[:, None, :]
        obs = np.concatenate([obs.reshape(e, n, 7 * slots), time[..., None]], -1)
        return {"taggers": obs[:, : self.num_taggers], "runners": obs[:, self.num_taggers :]}


def squared(a, b):
    """Squared distances between points (..., 2)."""
    delta = b - a
    return delta[..., 0] * delta[..., 0] + delta[..., 1] * delta[..., 1]


def nearest(position, active, slots):
    """The nearest active others of every agent: indices (N, <= slots), which of them exist, and near ties (N,)."""
    n = len(position)
    distances = squared(position[:, None], position[None])
    distances[:, ~active] = np.inf
    np.fill_diagonal(distances, np.inf)
    # A float that is not negative orders as its bits do; with the index below them, one sort does ties as well.
    keys = (distances.view(np.uint32).astype(np.uint64) << np.uint64(32)) | np.arange(n, dtype=np.uint64)
    first = min(slots + 1, n)  # one more, to see whether the last slot was a near tie
    keys = np.sort(np.partition(keys, first - 1, axis=1)[:, :first], axis=1)
    found = np.sqrt((keys >> np.uint64(32)).astype(np.uint32).view(F))
    others = (keys & np.uint64(0xFFFFFFFF)).astype(int)[:, :slots]
    with np.errstate(invalid="ignore"):
        blurred = (np.diff(found, axis=1) < NEAR).any(1)
    return others, np.isfinite(found[:, :slots]), blurred
