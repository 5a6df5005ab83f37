"""Small environments whose best policies are known, for tests of learning."""

import warp as wp

import warpdrive as wd


class BanditState(wd.State):
    """Left and right agents; each is rewarded for what its observation says."""

    left: wd.Agents
    right: wd.Agents
    wanted: wd.PerAgent[int]
    noise: wd.Param[float]


@wd.per_agent
def draw(s: BanditState, env: int, agent: int):
    rng = wd.random(s, env, agent)
    s.wanted[env, agent] = wp.randi(rng, 0, 2)


@wd.per_agent("left")
def judge_left(s: BanditState, env: int, i: int):
    if s.left.active[env, i]:
        s.left.reward[env, i] = float(s.left.action[env, i, 0] == s.wanted[env, i])
        rng = wd.random(s, env, i)
        if wp.randf(rng) < s.noise:
            s.left.terminated[env, i] = True


@wd.per_agent("right")
def judge_right(s: BanditState, env: int, i: int):
    # Best is to push to the end of the bounds that the observation points to.
    side = 2.0 * float(s.wanted[env, s.right.first + i]) - 1.0
    s.right.reward[env, i] = side * s.right.action[env, i, 0]


@wd.per_agent
def redraw(s: BanditState, env: int, agent: int):
    rng = wd.random(s, env, agent)
    s.wanted[env, agent] = wp.randi(rng, 0, 2)


@wd.per_agent("left")
def see_left(s: BanditState, env: int, i: int):
    wd.put(s.left.obs, env, i, 0, float(s.wanted[env, i]))
    wd.put(s.left.obs, env, i, 1, 1.0)


@wd.per_agent("right")
def see_right(s: BanditState, env: int, i: int):
    wd.put(s.right.obs, env, i, 0, float(s.wanted[env, s.right.first + i]))
    wd.put(s.right.obs, env, i, 1, 1.0)


class Bandit(wd.Env):
    """Left agents choose the number they see; right agents push to the side they see. Left ones may leave early."""

    state = BanditState
    reset = (draw,)
    step = (judge_left, judge_right, redraw)
    observe = (see_left, see_right)

    def __init__(self, *, left: int = 3, right: int = 2, noise: float = 0.05, episode_length: int = 12) -> None:
        super().__init__(
            groups={
                "left": wd.Group(left, obs=2, action=wd.Discrete(2)),
                "right": wd.Group(right, obs=2, action=wd.Box(-1.0, 1.0)),
            },
            params={"noise": noise},
            episode_length=episode_length,
        )
