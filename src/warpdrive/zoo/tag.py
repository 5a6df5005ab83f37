"""Continuous Tag: taggers on a square chase runners, who leave the game when they are caught.

The rules are those of Tag in WarpDrive (Lan, Srinivasa, Wang, Zheng, 2021, arXiv:2108.13976), with two differences:
every episode begins at a new random place unless `fixed_start` is set, and no reward is lost when several runners
are tagged in one step.
"""

import math

import warpdrive as wd
from warpdrive.env.environment import positive_int
from warpdrive.zoo.tag_observations import observe_all, observe_nearest
from warpdrive.zoo.tag_rules import TagState, end, move_runner, move_tagger, place, reward_tagger, tag_runner
from warpdrive.zoo.tag_scripts import chaser, runner
from warpdrive.zoo.tag_squares import clear_squares, enter_square, squares_along, tag_runner_nearby

__all__ = ["Tag"]


class Tag(wd.Env):
    """Continuous Tag: taggers on a square chase runners.

    An action is a pair (change of acceleration, turn): 0 is none, then come the levels from the least to the greatest.
    An agent observes the nearest others in the game: seven blocks of relative x, relative y, relative speed, relative
    acceleration, relative heading, tagger or not, in the game or not; then the time. A number of every block belongs
    to one other agent, nearest first; all is zero where there is none, and for an agent that is out of the game.
    Rewards and penalties are added as they are: a penalty is a negative number.

    Scripted policies: `chaser` of taggers, `runner` of runners.

    Args:
        num_taggers: number of taggers.
        num_runners: number of runners.
        grid_length: side of the square.
        episode_length: steps after which the game is over.
        max_speed: the most way an agent of skill level 1 makes in a step.
        num_acceleration_levels: number of changes of acceleration to choose from, besides none.
        num_turn_levels: number of turns to choose from, besides none.
        max_acceleration: greatest change of acceleration in a step.
        min_acceleration: least change of acceleration in a step (negative: slows down).
        max_turn: greatest turn in a step, in radians.
        min_turn: least turn in a step, in radians (negative: the other way round).
        tagging_distance: a runner is tagged by its nearest tagger when that is closer than this, as a share of
            grid_length.
        edge_hit_penalty: for an agent in each step in which it runs against the edge.
        step_penalty_for_tagger: for a tagger in each step.
        step_reward_for_runner: for a runner in each step that it begins in the game.
        tag_reward_for_tagger: for a tagger, for each runner that it tags.
        tag_penalty_for_runner: for a runner that is tagged.
        end_of_game_reward_for_runner: for a runner that is in the game after the last step.
        runner_exits_game_after_tagged: whether a tagged runner leaves the game; if not it can be tagged again.
        num_other_agents_observed: number of nearest other agents that an agent observes.
        use_full_observation: whether an agent observes all others, in index order, in place of the nearest.
        egocentric: whether relative places are given in the frame of the observing agent (x ahead of it, y to its left)
            and not of the square. Without it nothing that an agent observes tells it which way it faces, so it cannot
            learn to steer at another.
        skill_level_tagger: factor on the greatest speed of taggers.
        skill_level_runner: factor on the greatest speed of runners.
        fixed_start: whether all episodes of all environments begin with the same places and headings.
        start_seed: which places and headings those are; it does not depend on the simulator's seed.

    Raises:
        ValueError: an argument out of its range.
    """

    state = TagState
    reset = (place,)
    step = (move_tagger, move_runner, tag_runner, reward_tagger, end)
    scripted = (chaser, runner)

    def __init__(
        self,
        *,
        num_taggers: int = 5,
        num_runners: int = 20,
        grid_length: float = 20.0,
        episode_length: int = 500,
        max_speed: float = 1.0,
        num_acceleration_levels: int = 20,
        num_turn_levels: int = 20,
        max_acceleration: float = 0.1,
        min_acceleration: float = -0.1,
        max_turn: float = 2.356,
        min_turn: float = -2.356,
        tagging_distance: float = 0.02,
        edge_hit_penalty: float = 0.0,
        step_penalty_for_tagger: float = 0.0,
        step_reward_for_runner: float = 0.0,
        tag_reward_for_tagger: float = 10.0,
        tag_penalty_for_runner: float = -10.0,
        end_of_game_reward_for_runner: float = 1.0,
        runner_exits_game_after_tagged: bool = True,
        num_other_agents_observed: int = 10,
        use_full_observation: bool = False,
        egocentric: bool = False,
        skill_level_tagger: float = 1.0,
        skill_level_runner: float = 1.0,
        fixed_start: bool = False,
        start_seed: int = 0,
    ) -> None:
        given = dict(locals())
        for name in ("num_taggers", "num_runners", "num_acceleration_levels", "num_turn_levels"):
            positive_int(name, given[name])
        positive_int("episode_length", episode_length)
        positive_int("num_other_agents_observed", num_other_agents_observed)
        for name in ("grid_length", "max_speed", "tagging_distance", "skill_level_tagger", "skill_level_runner"):
            if not (math.isfinite(given[name]) and given[name] > 0):
                raise ValueError(f"{name} must be a positive number, got {given[name]!r}")
        for name in ("acceleration", "turn"):
            low, high = given[f"min_{name}"], given[f"max_{name}"]
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(f"max_{name} must be greater than min_{name}, got {high!r} and {low!r}")
        if isinstance(start_seed, bool) or not isinstance(start_seed, int) or not 0 <= start_seed < 2**31:
            raise ValueError(f"start_seed must be an integer from 0 to 2**31 - 1, got {start_seed!r}")

        self.grid_length = grid_length
        num_others = num_taggers + num_runners - 1
        slots = num_others if use_full_observation else num_other_agents_observed
        near, agents, corner = wd.space.Search("position"), num_taggers + num_runners, (grid_length, grid_length)
        cells = False if use_full_observation else None
        layout = near.layout(agents, (0.0, 0.0), corner, neighbours=slots, cells=cells)
        listed = bool(layout.shape)
        find = wd.space.Search("position", cells=True).nearest_phases(slots, into="near") if listed else ()
        look = observe_all if use_full_observation else observe_nearest(slots, listed)
        self.observe = (*layout.phases, *find, look)
        squares = squares_along(num_taggers, grid_length, tagging_distance * grid_length)
        if squares:
            self.step = (move_tagger, move_runner, clear_squares, enter_square, tag_runner_nearby, reward_tagger, end)
        action = wd.MultiDiscrete(num_acceleration_levels + 1, num_turn_levels + 1)
        super().__init__(
            groups={
                "taggers": wd.Group(num_taggers, obs=7 * slots + 1, action=action),
                "runners": wd.Group(num_runners, obs=7 * slots + 1, action=action),
            },
            params={
                **layout.params,
                "side": grid_length,
                "per_diagonal": 1.0 / (math.sqrt(2.0) * grid_length),
                "per_speed": 1.0 / max_speed,
                "per_step": 1.0 / episode_length,
                "max_speed_tagger": max_speed * skill_level_tagger,
                "max_speed_runner": max_speed * skill_level_runner,
                "first_change": min_acceleration,
                "change_levels": num_acceleration_levels,
                "change_spacing": (max_acceleration - min_acceleration) / max(1, num_acceleration_levels - 1),
                "first_turn": min_turn,
                "turn_levels": num_turn_levels,
                "turn_spacing": (max_turn - min_turn) / max(1, num_turn_levels - 1),
                "reach": tagging_distance * grid_length,
                "squares": squares,
                "edge_hit_penalty": edge_hit_penalty,
                "step_penalty_for_tagger": step_penalty_for_tagger,
                "step_reward_for_runner": step_reward_for_runner,
                "tag_reward_for_tagger": tag_reward_for_tagger,
                "tag_penalty_for_runner": tag_penalty_for_runner,
                "end_of_game_reward_for_runner": end_of_game_reward_for_runner,
                "runner_exits": runner_exits_game_after_tagged,
                "egocentric": egocentric,
                "fixed_start": fixed_start,
                "start_seed": start_seed,
            },
            sizes={
                **layout.sizes,
                "near_agents": agents if listed else 1,
                "near_slots": slots if listed else 1,
                "square_slots": squares * squares + num_taggers + 1 if squares else 1,
            },
            episode_length=episode_length,
        )

    def view(self) -> wd.View:
        """Agents as discs on the square, with their heading."""
        return wd.View(
            position="position", heading="heading", low=(0.0, 0.0), high=(self.grid_length, self.grid_length)
        )
