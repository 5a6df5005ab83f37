"""The rules of an episode, as the phases that the simulator puts around an author's."""

from typing import Any

import warp as wp

__all__ = ["begin", "close", "keep", "restart", "settle"]

# Features that are read before the first is written, so that memory is waited for once; Warp unrolls up to 16.
AT_ONCE = 8


@wp.func
def begin(s: Any, env: int, agent: int):
    """Per agent, before the author's step phases: nothing is rewarded and nobody has ended yet."""
    s.reward[env, agent] = 0.0
    s.terminated[env, agent] = False
    s.alive[env, agent] = s.active[env, agent]
    if s.fresh[env] and s.active[env, agent]:  # counted here, because the author's reset phases may keep agents out
        wp.atomic_add(s.num_active, env, 1)
    if agent == 0:
        s.ended[env] = False
        s.step[env] = s.step[env] + 1
        if s.rolling == 0:
            s.final_count[env] = 0


@wp.func
def settle(s: Any, env: int, agent: int):
    """Per agent, after the author's step phases: who has left leaves, who was away gets nothing."""
    if s.alive[env, agent]:
        if s.terminated[env, agent] or not s.active[env, agent]:
            s.terminated[env, agent] = True
            s.active[env, agent] = False
            wp.atomic_sub(s.num_active, env, 1)  # whole numbers: exact in any order
        if s.ended[env]:
            s.terminated[env, agent] = True
        s.episode_return[env, agent] = s.episode_return[env, agent] + s.reward[env, agent]
    else:
        s.reward[env, agent] = 0.0
        s.terminated[env, agent] = False
        if s.active[env, agent]:  # the author has let it in
            wp.atomic_add(s.num_active, env, 1)


@wp.func
def close(s: Any, env: int):
    """Per environment: is the episode over, and where does the observation it ended on go."""
    truncated = s.episode_length > 0 and s.step[env] >= s.episode_length
    over = truncated or s.ended[env] or s.num_active[env] == 0
    slot = int(-1)
    if over and s.final_count[env] < s.num_final:
        slot = s.final_count[env]
        if truncated:
            s.final_count[env] = slot + 1  # one that ended by the rules alone is not bootstrapped from: reuse its slot
    s.truncated[env] = truncated
    s.over[env] = over
    s.final_slot[env] = slot
    s.fresh[env] = False
    s.clock[env] = s.clock[env] + 1


@wp.func
def keep(s: Any, group: Any, env: int, i: int):
    """Per agent of a group in an environment that is over: keep the observation the episode ended on."""
    slot = s.final_slot[env]
    if slot >= 0:
        features = group.obs.shape[2]
        whole = features - features % wp.static(AT_ONCE)
        for first in range(0, whole, wp.static(AT_ONCE)):
            some = wp.vector(group.obs.dtype(0), length=wp.static(AT_ONCE))
            for k in range(wp.static(AT_ONCE)):
                some[k] = group.obs[env, i, first + k]
            for k in range(wp.static(AT_ONCE)):
                group.final_obs[slot, env, i, first + k] = some[k]
        for f in range(whole, features):
            group.final_obs[slot, env, i, f] = group.obs[env, i, f]


@wp.func
def restart(s: Any, env: int, agent: int):
    """Per agent of an environment that is over: book the episode, then be ready for the author's reset phases."""
    if s.counting != 0:
        s.return_sum[env, agent] = s.return_sum[env, agent] + s.episode_return[env, agent]
        s.last_return[env, agent] = s.episode_return[env, agent]
    s.episode_return[env, agent] = 0.0
    s.active[env, agent] = True
    if agent == 0:
        if s.counting != 0:
            s.last_length[env] = s.step[env]
            s.length_sum[env] = s.length_sum[env] + s.step[env]
            s.episodes[env] = s.episodes[env] + 1
        s.step[env] = 0
        s.num_active[env] = 0
        s.fresh[env] = True
