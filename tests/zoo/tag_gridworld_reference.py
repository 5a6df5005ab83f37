"""Tag on a grid in plain NumPy, written from the rules alone: what `warpdrive.zoo.tag_gridworld` is compared with.

E environments, N agents (the taggers, then the runner). Places are integers; every other number is float32, so that all
can be compared to the bit.
"""

import numpy as np

F = np.float32
MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])


class TagGridworldReference:
    """E games. `position` (E, N, 2) integers, `clock` (E,)."""

    def __init__(self, num_envs, **options):
        rules = dict(
            num_taggers=4, grid_length=100, episode_length=100, wall_hit_penalty=0.1, step_cost_for_tagger=0.01,
            tag_reward_for_tagger=10.0, tag_penalty_for_runner=5.0, use_full_observation=True, random_start=False,
        )  # fmt: skip
        assert options.keys() <= rules.keys()
        for name, value in (rules | options).items():
            setattr(self, name, F(value) if isinstance(value, float) else value)
        self.num_agents = self.num_taggers + 1
        self.position = np.zeros((num_envs, self.num_agents, 2), int)
        self.clock = np.zeros(num_envs, int)
        self.start(np.ones(num_envs, bool))

    def start(self, where, position=None):
        """Begin an episode in the environments `where`; a random start is the simulator's to draw."""
        self.clock[where] = 0
        if position is None:
            self.position[where, :-1] = self.grid_length // 2
            self.position[where, -1] = 0
        else:
            self.position[where] = position[where]

    def step(self, actions):
        """One step of actions (E, N). Returns reward (E, N), terminated (E, N), truncated (E,). Nothing restarts."""
        aim = self.position + MOVES[actions]
        self.position = np.clip(aim, 0, self.grid_length)
        self.clock += 1
        reward = np.where((aim != self.position).any(-1), -self.wall_hit_penalty, F(0)).astype(F)
        caught = (self.position[:, :-1] == self.position[:, -1:]).all(-1).any(-1)
        for env in range(len(reward)):
            if caught[env]:
                reward[env, :-1] += self.tag_reward_for_tagger
                reward[env, -1] -= self.tag_penalty_for_runner
            else:
                reward[env, :-1] -= self.step_cost_for_tagger
                reward[env, -1] += self.step_cost_for_tagger
        terminated = np.repeat(caught[:, None], self.num_agents, 1)
        return reward, terminated, self.clock >= self.episode_length

    def observe(self):
        """What every agent sees, by group."""
        e, n = self.position.shape[:2]
        place = self.position.astype(F) / F(self.grid_length)
        kind = np.repeat((np.arange(n) < n - 1)[None].astype(F), e, 0)
        time = np.repeat((self.clock.astype(F) / F(self.episode_length))[:, None], n, 1)
        if self.use_full_observation:
            common = np.concatenate([place[..., 0], place[..., 1], kind], -1)
            parts = [np.repeat(common[:, None], n, 1), np.repeat(np.eye(n, dtype=F)[None], e, 0), time[..., None]]
            obs = np.concatenate(parts, -1)
        else:
            way = self.position[:, :-1] - self.position[:, -1:]
            near = (way**2).sum(-1).argmin(-1)  # the first of equals
            other = np.repeat(place[:, -1:], n, 1)
            other[:, -1] = place[np.arange(e), near]
            obs = np.concatenate([place, other, kind[..., None], time[..., None]], -1)
        assert obs.dtype == F
        return {"taggers": obs[:, :-1], "runner": obs[:, -1:]}
