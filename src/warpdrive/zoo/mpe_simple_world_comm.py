"""Simple World Comm of MPE: adversaries with a leader who speaks chase agents who eat and hide in forests."""

from typing import Any

import warp as wp

import warpdrive as wd
from warpdrive.zoo import particles
from warpdrive.zoo.particles import (
    SpeechState,
    contact,
    distance,
    drift,
    hear,
    overlap,
    put_vec,
    see_landmarks,
    speak,
    steer,
)

__all__ = ["SimpleWorldComm", "SimpleWorldCommState"]

ADVERSARY_RADIUS, GOOD_RADIUS = wp.constant(0.075), wp.constant(0.045)
OBSTACLE_RADIUS, FOOD_RADIUS, FOREST_RADIUS = wp.constant(0.2), wp.constant(0.03), wp.constant(0.3)
ADVERSARY_ACCELERATION, GOOD_ACCELERATION = wp.constant(3.0), wp.constant(4.0)
ADVERSARY_SPEED, GOOD_SPEED = wp.constant(1.0), wp.constant(1.3)
CATCH, FEED, HUNGER, CHASE, EDGE = (wp.constant(x) for x in (5.0, 2.0, 0.05, 0.1, 2.0))
MOST_FORESTS = 31  # one bit each


class SimpleWorldCommState(SpeechState):
    """A leader, more adversaries, good agents, and landmarks: obstacles, then food, then forests."""

    leader: wd.Agents
    adversaries: wd.Agents
    good: wd.Agents
    hits: wd.PerAgent[int]  # of a good agent: number of adversaries that overlap it
    forests: wd.PerAgent[int]  # that the agent is in, one bit each

    num_obstacles: wd.Param[int]
    num_food: wd.Param[int]
    num_forests: wd.Param[int]


@wp.func
def radius(s: Any, agent: int) -> float:
    """Of an agent's disc."""
    return wp.where(agent < s.good.first, ADVERSARY_RADIUS, GOOD_RADIUS)


@wd.per_agent
def push(s: SimpleWorldCommState, env: int, agent: int):
    """Add up the forces on one agent, and let the leader speak."""
    force = wp.vec2(0.0, 0.0)
    if agent == 0:
        force = steer(s.leader.action, env, 0, s.continuous) * ADVERSARY_ACCELERATION
        speak(s, s.leader.action, env, 0, 0, True, s.continuous)
    elif agent < s.good.first:
        force = steer(s.adversaries.action, env, agent - 1, s.continuous) * ADVERSARY_ACCELERATION
    else:
        force = steer(s.good.action, env, agent - s.good.first, s.continuous) * GOOD_ACCELERATION
    here = s.position[env, agent]
    for other in range(s.num_agents):
        if other != agent:
            force = force + contact(here, s.position[env, other], radius(s, agent) + radius(s, other))
    for k in range(s.num_obstacles):
        force = force + contact(here, s.landmark[env, k], radius(s, agent) + OBSTACLE_RADIUS)
    s.force[env, agent] = force


@wd.per_agent
def move(s: SimpleWorldCommState, env: int, agent: int):
    """Move one agent."""
    drift(s, env, agent, wp.where(agent < s.good.first, ADVERSARY_SPEED, GOOD_SPEED))


@wd.per_agent("good")
def judge_good(s: SimpleWorldCommState, env: int, i: int):
    """Let one good agent pay for who overlaps it, for leaving the square and for being far from food, and eat."""
    agent = s.good.first + i
    here = s.position[env, agent]
    hits = int(0)
    for other in range(s.good.first):
        if overlap(here, s.position[env, other], ADVERSARY_RADIUS + GOOD_RADIUS):
            hits += 1
    s.hits[env, agent] = hits
    reward = -CATCH * float(hits) - EDGE * particles.bound(here)
    nearest = float(wp.inf)
    for k in range(s.num_obstacles, s.num_obstacles + s.num_food):
        d = distance(s, env, agent, k)
        nearest = wp.min(nearest, d)
        if d < GOOD_RADIUS + FOOD_RADIUS:
            reward = reward + FEED
    s.good.reward[env, i] = reward - HUNGER * nearest


@wd.per_agent
def judge_adversary(s: SimpleWorldCommState, env: int, agent: int):
    """Reward one adversary for all that touch a good agent, less for being far from the nearest of them."""
    if agent < s.good.first:
        hits = int(0)
        nearest = float(wp.inf)
        for other in range(s.good.first, s.num_agents):
            hits += s.hits[env, other]
            nearest = wp.min(nearest, wp.length(s.position[env, agent] - s.position[env, other]))
        s.reward[env, agent] = CATCH * float(hits) - CHASE * nearest


@wd.per_agent
def enter(s: SimpleWorldCommState, env: int, agent: int):
    """Find out which forests one agent is in."""
    first = s.num_obstacles + s.num_food
    inside = int(0)
    for k in range(s.num_forests):
        if distance(s, env, agent, first + k) < radius(s, agent) + FOREST_RADIUS:
            inside = inside | (1 << k)
    s.forests[env, agent] = inside


@wp.func
def visible(s: Any, env: int, agent: int, other: int) -> bool:
    """Whether an agent sees another: both in one forest, or both in none; the leader sees all."""
    mine = s.forests[env, agent]
    theirs = s.forests[env, other]
    return agent == 0 or (mine & theirs) != 0 or (mine == 0 and theirs == 0)


@wp.func
def see_shown(s: Any, obs: Any, env: int, i: int, agent: int, feature: int) -> int:
    """Write where the other agents are, 0 for hidden ones; returns the index of the next feature."""
    slot = int(feature)
    for other in range(s.num_agents):
        if other != agent:
            way = s.position[env, other] - s.position[env, agent]
            put_vec(obs, env, i, slot, way * wp.where(visible(s, env, agent, other), 1.0, 0.0))
            slot += 2
    return slot


@wp.func
def see_speeds(s: Any, obs: Any, env: int, i: int, agent: int, feature: int) -> int:
    """Write the velocities of the other good agents, 0 for hidden ones; returns the index of the next feature."""
    slot = int(feature)
    for other in range(s.good.first, s.num_agents):
        if other != agent:
            put_vec(obs, env, i, slot, s.velocity[env, other] * wp.where(visible(s, env, agent, other), 1.0, 0.0))
            slot += 2
    return slot


@wp.func
def see_forests(s: Any, obs: Any, env: int, i: int, agent: int, feature: int) -> int:
    """Write 1 for each forest that an agent is in and -1 for others; returns the index of the next feature."""
    for k in range(s.num_forests):
        wd.put(obs, env, i, feature + k, wp.where((s.forests[env, agent] & (1 << k)) != 0, 1.0, -1.0))
    return feature + s.num_forests


@wp.func
def look_as_adversary(s: Any, obs: Any, env: int, i: int, agent: int):
    """Write what the leader or another adversary observes."""
    f = put_vec(obs, env, i, 0, s.velocity[env, agent])
    f = put_vec(obs, env, i, f, s.position[env, agent])
    f = see_landmarks(s, obs, env, i, agent, f)
    f = see_shown(s, obs, env, i, agent, f)
    f = see_speeds(s, obs, env, i, agent, f)
    f = see_forests(s, obs, env, i, agent, f)
    hear(s, obs, env, i, 0, f)


@wd.per_agent("leader")
def look_leader(s: SimpleWorldCommState, env: int, i: int):
    """Write what the leader observes."""
    look_as_adversary(s, s.leader.obs, env, i, 0)


@wd.per_agent("adversaries")
def look_adversary(s: SimpleWorldCommState, env: int, i: int):
    """Write what one other adversary observes."""
    look_as_adversary(s, s.adversaries.obs, env, i, 1 + i)


@wd.per_agent("good")
def look_good(s: SimpleWorldCommState, env: int, i: int):
    """Write what one good agent observes."""
    agent = s.good.first + i
    f = put_vec(s.good.obs, env, i, 0, s.velocity[env, agent])
    f = put_vec(s.good.obs, env, i, f, s.position[env, agent])
    f = see_landmarks(s, s.good.obs, env, i, agent, f)
    f = see_shown(s, s.good.obs, env, i, agent, f)
    f = see_forests(s, s.good.obs, env, i, agent, f)
    see_speeds(s, s.good.obs, env, i, agent, f)


class SimpleWorldComm(wd.Env):
    """Simple World Comm of MPE (mpe2's simple_world_comm_v3): a chase with food, forests and a leader who speaks.

    Agents are discs that push one another and are pushed by obstacles of radius 0.2: adversaries of radius 0.075,
    acceleration 3 and greatest speed 1, good agents of radius 0.045, acceleration 4 and greatest speed 1.3. Agents
    begin at random places of the square from -1 to 1, at rest; obstacles, food (radius 0.03) and forests (radius 0.3)
    from -0.9 to 0.9. Who is in a forest, that is overlaps it, is seen only by those in the same one and by the leader,
    and sees of the others only these.

    In every step each adversary gets 5 for each pair of an adversary and a good agent that overlap, less a tenth of its
    distance from the nearest good agent. A good agent gets -5 for each adversary that it overlaps, 2 for each food that
    it overlaps, minus 0.05 times its distance from the nearest food and, for each axis, minus twice a price of leaving
    the square: 0 up to 0.9, rising to 1 at 1 and from there as exp(2 x - 2) to at most 10.

    An action is one of nothing, -x, +x, -y, +y; with `continuous` five numbers from 0 to 1, of which the second is
    taken from the third and the fourth from the fifth. The leader also says one of four words: its action is numbered
    move + 5 word, or is nine numbers. An agent observes its velocity and place, the obstacles, the food, the forests
    and the other agents relative to itself (zeros for hidden ones); then adversaries the velocities of the good agents,
    in which forests they are (1 or -1 each) and what the leader has said; good agents in which forests they are and
    the velocities of the other good agents.

    Args:
        num_good: number of good agents.
        num_adversaries: number of adversaries with the leader, at least 2.
        num_obstacles: number of obstacles; may be 0.
        num_food: number of pieces of food.
        num_forests: number of forests, at most 31; may be 0.
        episode_length: steps after which the episode is cut (max_cycles in mpe2).
        continuous: whether actions are numbers and not choices (continuous_actions in mpe2).

    Raises:
        ValueError: an argument out of its range.
    """

    state = SimpleWorldCommState
    reset = (particles.place, particles.place_landmarks, particles.silence)
    step = (push, move, judge_good, judge_adversary)
    observe = (enter, look_leader, look_adversary, look_good)

    def __init__(
        self,
        *,
        num_good: int = 2,
        num_adversaries: int = 4,
        num_obstacles: int = 1,
        num_food: int = 2,
        num_forests: int = 2,
        episode_length: int = 25,
        continuous: bool = False,
    ) -> None:
        particles.at_least(1, "num_good", num_good)
        particles.at_least(2, "num_adversaries", num_adversaries)
        particles.at_least(0, "num_obstacles", num_obstacles)
        particles.at_least(1, "num_food", num_food)
        if particles.at_least(0, "num_forests", num_forests) > MOST_FORESTS:
            raise ValueError(f"num_forests must be at most {MOST_FORESTS}, got {num_forests}")
        landmarks = num_obstacles + num_food + num_forests
        places = 4 + 2 * landmarks + 2 * (num_adversaries + num_good - 1) + num_forests
        adversary = places + 2 * num_good + 4
        action = particles.move_space(continuous)
        lead = particles.speech_space(4, True, continuous)
        super().__init__(
            groups={
                "leader": wd.Group(1, obs=adversary, action=lead, float32=True),
                "adversaries": wd.Group(num_adversaries - 1, obs=adversary, action=action, float32=True),
                "good": wd.Group(num_good, obs=places + 2 * (num_good - 1), action=action, float32=True),
            },
            params={
                "num_landmarks": landmarks,
                "span": 0.9,
                "continuous": continuous,
                "num_words": 4,
                "num_obstacles": num_obstacles,
                "num_food": num_food,
                "num_forests": num_forests,
            },
            sizes={"landmarks": landmarks, "words": 4},
            episode_length=episode_length,
        )

    def view(self) -> wd.View:
        """Agents as discs."""
        return particles.view(0.06)
