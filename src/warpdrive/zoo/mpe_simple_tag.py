"""Simple Tag of MPE: slower adversaries chase faster agents around obstacles."""

import warp as wp

import warpdrive as wd
from warpdrive.zoo import particles
from warpdrive.zoo.particles import (
    ParticleState,
    contacts,
    drift,
    head_for,
    landmark_contacts,
    overlap,
    put_vec,
    see_landmarks,
    see_others,
    steer,
)

__all__ = ["SimpleTag", "SimpleTagState"]

ADVERSARY_RADIUS, GOOD_RADIUS, OBSTACLE_RADIUS = wp.constant(0.075), wp.constant(0.05), wp.constant(0.2)
ADVERSARY_ACCELERATION, GOOD_ACCELERATION = wp.constant(3.0), wp.constant(4.0)
ADVERSARY_SPEED, GOOD_SPEED = wp.constant(1.0), wp.constant(1.3)
CATCH = wp.constant(10.0)
# Of the scripted runner: how far it looks ahead of itself, where it begins to turn back, and how the edge itself counts
# beside an adversary at distance 1. These held the return of chased runners best among those tried.
LOOK_AHEAD, TURN_BACK, EDGE_WEIGHT = wp.constant(0.2), wp.constant(0.5), wp.constant(8.0)


class SimpleTagState(ParticleState):
    """Adversaries, the agents that they chase, and obstacles (the landmarks)."""

    adversaries: wd.Agents
    good: wd.Agents
    hits: wd.PerAgent[int]  # of a good agent: number of adversaries that overlap it


@wd.per_agent("adversaries")
def push_adversary(s: SimpleTagState, env: int, i: int):
    """Add up the forces on one adversary."""
    force = steer(s.adversaries.action, env, i, s.continuous) * ADVERSARY_ACCELERATION
    force = force + contacts(s, env, i, 0, s.adversaries.count, 2.0 * ADVERSARY_RADIUS)
    force = force + contacts(s, env, i, s.good.first, s.good.count, ADVERSARY_RADIUS + GOOD_RADIUS)
    s.force[env, i] = force + landmark_contacts(s, env, i, s.num_landmarks, ADVERSARY_RADIUS + OBSTACLE_RADIUS)


@wd.per_agent("good")
def push_good(s: SimpleTagState, env: int, i: int):
    """Add up the forces on one good agent."""
    agent = s.good.first + i
    force = steer(s.good.action, env, i, s.continuous) * GOOD_ACCELERATION
    force = force + contacts(s, env, agent, 0, s.adversaries.count, ADVERSARY_RADIUS + GOOD_RADIUS)
    force = force + contacts(s, env, agent, s.good.first, s.good.count, 2.0 * GOOD_RADIUS)
    s.force[env, agent] = force + landmark_contacts(s, env, agent, s.num_landmarks, GOOD_RADIUS + OBSTACLE_RADIUS)


@wd.per_agent("adversaries")
def move_adversary(s: SimpleTagState, env: int, i: int):
    """Move one adversary."""
    drift(s, env, i, ADVERSARY_SPEED)


@wd.per_agent("good")
def move_good(s: SimpleTagState, env: int, i: int):
    """Move one good agent."""
    drift(s, env, s.good.first + i, GOOD_SPEED)


@wd.per_agent("good")
def judge_good(s: SimpleTagState, env: int, i: int):
    """Count who overlaps one good agent, and let it pay for them and for leaving the square."""
    agent = s.good.first + i
    here = s.position[env, agent]
    hits = int(0)
    for other in range(s.adversaries.count):
        if overlap(here, s.position[env, other], ADVERSARY_RADIUS + GOOD_RADIUS):
            hits += 1
    s.hits[env, agent] = hits
    s.good.reward[env, i] = -CATCH * float(hits) - particles.bound(here)


@wd.per_agent("adversaries")
def judge_adversary(s: SimpleTagState, env: int, i: int):
    """Reward one adversary for all that touch a good agent."""
    hits = int(0)
    for k in range(s.good.count):
        hits += s.hits[env, s.good.first + k]
    s.adversaries.reward[env, i] = CATCH * float(hits)


@wd.per_env
def end(s: SimpleTagState, env: int):
    """End the episode when all good agents are caught at once; in its last step it is cut all the same, as in mpe2."""
    caught = int(0)
    for k in range(s.good.count):
        if s.hits[env, s.good.first + k] > 0:
            caught += 1
    s.ended[env] = caught == s.good.count and s.step[env] != s.episode_length


@wd.per_agent("adversaries")
def look_adversary(s: SimpleTagState, env: int, i: int):
    """Write what one adversary observes."""
    f = put_vec(s.adversaries.obs, env, i, 0, s.velocity[env, i])
    f = put_vec(s.adversaries.obs, env, i, f, s.position[env, i])
    f = see_landmarks(s, s.adversaries.obs, env, i, i, f)
    f = see_others(s, s.adversaries.obs, env, i, i, f)
    for k in range(s.good.count):
        put_vec(s.adversaries.obs, env, i, f + 2 * k, s.velocity[env, s.good.first + k])


@wd.per_agent("good")
def look_good(s: SimpleTagState, env: int, i: int):
    """Write what one good agent observes."""
    agent = s.good.first + i
    f = put_vec(s.good.obs, env, i, 0, s.velocity[env, agent])
    f = put_vec(s.good.obs, env, i, f, s.position[env, agent])
    f = see_landmarks(s, s.good.obs, env, i, agent, f)
    f = see_others(s, s.good.obs, env, i, agent, f)
    slot = int(f)
    for k in range(s.good.count):
        if k != i:
            put_vec(s.good.obs, env, i, slot, s.velocity[env, s.good.first + k])
            slot += 2


# ---------------------------------------------------------------- scripted policies


@wd.per_agent("adversaries")
def chaser(s: SimpleTagState, env: int, i: int):
    """Steer straight at the nearest good agent."""
    here = s.position[env, i]
    way = s.position[env, s.good.first] - here
    for k in range(1, s.good.count):
        other = s.position[env, s.good.first + k] - here
        if wp.length_sq(other) < wp.length_sq(way):
            way = other
    head_for(s.adversaries.action, env, i, way, s.continuous)


@wd.per_agent("good")
def runner(s: SimpleTagState, env: int, i: int):
    """Steer away from adversaries, the nearer the more, and back from the edge of the square."""
    agent = s.good.first + i
    here = s.position[env, agent]
    way = wp.vec2(0.0, 0.0)
    for other in range(s.adversaries.count):
        away = here - s.position[env, other]
        way = way + away / wp.max(wp.length_sq(away), 1.0e-6)
    ahead = here + s.velocity[env, agent] * LOOK_AHEAD
    for k in range(2):
        beyond = wp.max(wp.abs(ahead[k]) - TURN_BACK, 0.0) / (1.0 - TURN_BACK)
        way[k] = way[k] - wp.sign(ahead[k]) * EDGE_WEIGHT * beyond
    head_for(s.good.action, env, i, way, s.continuous)


class SimpleTag(wd.Env):
    """Simple Tag of MPE (mpe2's simple_tag_v3): adversaries chase good agents around obstacles.

    All are discs that push one another: adversaries of radius 0.075, acceleration 3 and greatest speed 1, good agents
    of radius 0.05, acceleration 4 and greatest speed 1.3, obstacles of radius 0.2 that stay where they are. Agents
    begin at random places of the square from -1 to 1, at rest, obstacles from -0.9 to 0.9. In every step each
    adversary gets 10 for each pair of an adversary and a good agent that overlap; a good agent gets -10 for each
    adversary that it overlaps and, for each axis, minus a price of leaving the square: 0 up to 0.9, rising to 1 at 1
    and from there as exp(2 x - 2) to at most 10.

    An action is one of nothing, -x, +x, -y, +y; with `continuous` five numbers from 0 to 1, of which the second is
    taken from the third and the fourth from the fifth. An agent observes its velocity and place, the obstacles and all
    other agents (adversaries first) relative to itself, and the velocities of the other good agents.

    Scripted policies: `chaser` of adversaries, `runner` of good agents.

    Args:
        num_good: number of good agents.
        num_adversaries: number of adversaries.
        num_obstacles: number of obstacles; may be 0.
        episode_length: steps after which the episode is cut (max_cycles in mpe2).
        continuous: whether actions are numbers and not choices (continuous_actions in mpe2).
        terminate_on_success: whether the episode ends when each good agent overlaps some adversary.

    Raises:
        ValueError: an argument out of its range.
    """

    state = SimpleTagState
    reset = (particles.place, particles.place_landmarks)
    step = (push_adversary, push_good, move_adversary, move_good, judge_good, judge_adversary)
    observe = (look_adversary, look_good)
    scripted = (chaser, runner)

    def __init__(
        self,
        *,
        num_good: int = 1,
        num_adversaries: int = 3,
        num_obstacles: int = 2,
        episode_length: int = 25,
        continuous: bool = False,
        terminate_on_success: bool = False,
    ) -> None:
        particles.at_least(1, "num_good", num_good)
        particles.at_least(1, "num_adversaries", num_adversaries)
        particles.at_least(0, "num_obstacles", num_obstacles)
        if terminate_on_success:
            self.step = (*self.step, end)
        places = 4 + 2 * num_obstacles + 2 * (num_adversaries + num_good - 1)
        action = particles.move_space(continuous)
        super().__init__(
            groups={
                "adversaries": wd.Group(num_adversaries, obs=places + 2 * num_good, action=action, float32=True),
                "good": wd.Group(num_good, obs=places + 2 * (num_good - 1), action=action, float32=True),
            },
            params={"num_landmarks": num_obstacles, "span": 0.9, "continuous": continuous},
            sizes={"landmarks": max(1, num_obstacles)},
            episode_length=episode_length,
        )

    def view(self) -> wd.View:
        """Agents as discs."""
        return particles.view(0.06)
