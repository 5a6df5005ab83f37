"""The classic control environments against Gymnasium's own, step by step, and their configurations."""

import json
from dataclasses import dataclass, field

import gymnasium
import numpy as np
import pytest
import scipy.stats
import torch

import warpdrive as wd
from warpdrive.cli.main import main
from warpdrive.zoo.acrobot import Acrobot
from warpdrive.zoo.cartpole import CartPole
from warpdrive.zoo.mountain_car import MountainCar
from warpdrive.zoo.mountain_car_continuous import MountainCarContinuous
from warpdrive.zoo.pendulum import Pendulum

REPLICAS, STEPS = 16, 500
EVERY = 25  # steps after which half of the replicas are put somewhere at random


@dataclass(frozen=True)
class Case:
    """One environment, with options of ours and what they are called in the original."""

    env: type[wd.Env]
    id: str
    spread: dict[str, float | tuple[float, float]]  # state field -> where it is put at random, in the original's order
    together: bool = True  # whether the original goes on from our state in each step, and not from its own
    steps: int = STEPS
    tolerance: float = 1e-5  # of observations and rewards, absolute and relative
    options: dict = field(default_factory=dict)
    attributes: dict = field(default_factory=dict)

    def simulate(self, num_envs: int = REPLICAS) -> wd.Simulator:
        sim = wd.Simulator(self.env(**self.options), num_envs, seed=1, device="cpu")
        sim.reset()
        return sim

    def original(self) -> gymnasium.Env:
        original = gymnasium.make(self.id)
        for name, value in self.attributes.items():
            assert hasattr(original.unwrapped, name)
            setattr(original.unwrapped, name, value)
        original.reset(seed=0)
        return original

    def numbers(self, sim: wd.Simulator) -> np.ndarray:
        """The state of every environment (E, F), float64."""
        return torch.stack([getattr(sim.state, name) for name in self.spread], 1).double().numpy()

    def scatter(self, sim: wd.Simulator, rng: np.random.Generator) -> None:
        """Put every second environment somewhere at random."""
        for name, bounds in self.spread.items():
            low, high = bounds if isinstance(bounds, tuple) else (-bounds, bounds)
            getattr(sim.state, name)[::2] = torch.from_numpy(rng.uniform(low, high, REPLICAS // 2)).float()
        sim.refresh()


CART = dict(position=2.0, velocity=3.0, angle=0.2, turn_rate=3.0)
CAR = dict(position=(-1.2, 0.6), velocity=0.07)
LINKS = dict(angle_1=np.pi, angle_2=np.pi, rate_1=6.0, rate_2=9.0)
ROD = dict(angle=np.pi, turn_rate=8.0)
CASES = {
    "CartPole": Case(CartPole, "CartPole-v1", CART, together=False),
    "MountainCar": Case(MountainCar, "MountainCar-v0", CAR, together=False),
    "MountainCarContinuous": Case(MountainCarContinuous, "MountainCarContinuous-v0", CAR, together=False, steps=1000),
    "Acrobot": Case(Acrobot, "Acrobot-v1", LINKS),
    "Pendulum": Case(Pendulum, "Pendulum-v1", ROD),
}
VARIED = {
    "MountainCar, other numbers": Case(
        MountainCar, "MountainCar-v0", CAR, together=False,
        options=dict(force=0.002, gravity=0.002, goal_position=0.4, goal_velocity=0.02, max_speed=0.05),
        attributes=dict(force=0.002, gravity=0.002, goal_position=0.4, goal_velocity=0.02, max_speed=0.05),
    ),
    "MountainCarContinuous, other numbers": Case(
        MountainCarContinuous, "MountainCarContinuous-v0", CAR, together=False, steps=1000,
        options=dict(force=0.003, goal_position=0.3, goal_velocity=0.01, min_position=-1.0),
        attributes=dict(power=0.003, goal_position=0.3, goal_velocity=0.01, min_position=-1.0),
    ),
    "Acrobot, other numbers": Case(
        Acrobot, "Acrobot-v1", LINKS,
        options=dict(mass_1=2.0, mass_2=1.5, length_1=1.3, centre_1=0.6, centre_2=0.4, inertia=0.7, torque=2.0,
                     seconds=0.1),
        attributes=dict(LINK_MASS_1=2.0, LINK_MASS_2=1.5, LINK_LENGTH_1=1.3, LINK_COM_POS_1=0.6, LINK_COM_POS_2=0.4,
                        LINK_MOI=0.7, AVAIL_TORQUE=[-2.0, 0.0, 2.0], dt=0.1),
    ),
    # At these rates a step of 0.2 s is most of a turn, and magnifies the rounding of float32 a thousandfold.
    "Acrobot, as fast as can be": Case(
        Acrobot, "Acrobot-v1", LINKS | dict(rate_1=4 * np.pi, rate_2=9 * np.pi), tolerance=1e-3
    ),
    "Pendulum, other numbers": Case(
        Pendulum, "Pendulum-v1", ROD,
        options=dict(gravity=9.0, mass=2.0, length=0.7, max_speed=6.0, seconds=0.03),
        attributes=dict(g=9.0, m=2.0, l=0.7, max_speed=6.0, dt=0.03),
    ),
}  # fmt: skip


def random_actions(sim: wd.Simulator, rng: np.random.Generator) -> torch.Tensor:
    """Actions (E, 1, 1), uniform."""
    space = sim.env.groups["agents"].action
    if isinstance(space, wd.Box):
        high = space.high[0]
        return torch.from_numpy(rng.uniform(-high, high, (sim.num_envs, 1, 1))).float()
    return torch.from_numpy(rng.integers(0, space.heads[0], (sim.num_envs, 1, 1)))


@pytest.mark.parametrize("name", [*CASES, *VARIED])
def test_it_agrees_with_gymnasium_at_every_step(name, record_property):
    """From equal states by equal actions, observations, rewards and both kinds of end are Gymnasium's."""
    case, rng = (CASES | VARIED)[name], np.random.default_rng(0)
    sim = case.simulate()
    originals = [case.original() for _ in range(REPLICAS)]
    for original, state in zip(originals, case.numbers(sim), strict=True):
        original.unwrapped.state = state
    ends, cuts, compared, largest = 0, 0, 0, 0.0
    for step in range(case.steps):
        if step % EVERY == 0:
            case.scatter(sim, rng)
            for original, state in zip(originals[::2], case.numbers(sim)[::2], strict=True):
                original.unwrapped.state = state
        actions = random_actions(sim, rng)
        sim.step({"agents": actions})
        seen = torch.where(sim.over[:, None], sim.final_obs["agents"][:, 0], sim.obs["agents"][:, 0])
        states = case.numbers(sim)
        for i, original in enumerate(originals):
            action = actions[i, 0].numpy() if actions.is_floating_point() else int(actions[i, 0, 0])
            obs, reward, terminated, truncated, _ = original.step(action)
            found, wanted = np.array([*seen[i], sim.reward[i, 0]]), np.array([*obs, reward])
            difference = np.abs(found - wanted)
            assert (difference <= case.tolerance * (1 + np.abs(wanted))).all(), (step, i, found, wanted)
            assert (bool(sim.terminated[i, 0]), bool(sim.truncated[i])) == (terminated, truncated), (step, i)
            largest, compared = max(largest, float(difference.max())), compared + 1
            ends, cuts = ends + terminated, cuts + truncated
            if terminated or truncated:
                original.reset()
            if terminated or truncated or case.together:
                original.unwrapped.state = states[i]
    record_property("largest", largest)
    record_property("compared", compared)
    assert compared == REPLICAS * case.steps
    assert ends > REPLICAS or case.env is Pendulum  # which never does
    assert cuts > 0 or case.env is CartPole  # whose pole has fallen long before


@pytest.mark.parametrize("name", CASES)
def test_it_begins_as_gymnasium_does(name):
    """The numbers of the first observation are spread as Gymnasium's (Kolmogorov-Smirnov)."""
    case = CASES[name]
    ours, original = case.simulate(2000).obs["agents"][:, 0].numpy(), case.original()
    theirs = np.stack([original.reset(seed=i)[0] for i in range(500)])
    assert ours.shape[1] == theirs.shape[1]
    for k in range(ours.shape[1]):
        assert scipy.stats.ks_2samp(ours[:, k], theirs[:, k]).pvalue > 1e-3


@pytest.mark.parametrize("name", CASES)
def test_its_spaces_and_length_are_those_of_gymnasium(name):
    """Actions, number of features and episode length."""
    env, original = CASES[name].env(), CASES[name].original()
    group = env.groups["agents"]
    assert env.episode_length == original.spec.max_episode_steps
    assert (group.obs,) == original.observation_space.shape
    if isinstance(group.action, wd.Box):
        assert (group.action.low[0], group.action.high[0]) == (original.action_space.low, original.action_space.high)
    else:
        assert group.action.heads == (original.action_space.n,)


def test_its_length_truncates_a_balanced_pole():
    """A pole that does not fall is truncated, not terminated, after episode_length steps."""
    sim = wd.Simulator(CartPole(gravity=0.0, push=0.0, episode_length=30), 4, device="cpu")
    sim.reset()
    sim.state.velocity.zero_()
    sim.state.turn_rate.zero_()
    for _ in range(30):
        assert not bool(sim.over.any())
        sim.step({"agents": torch.zeros(4, 1, dtype=torch.int64)})
    assert bool(sim.truncated.all())
    assert not bool(sim.terminated.any())
    assert sim.last_return.tolist() == [[30.0]] * 4


def test_an_episode_may_end_both_ways_at_once():
    """A car that arrives in its last step is terminated and truncated, as under Gymnasium's time limit."""
    sim = wd.Simulator(MountainCar(episode_length=1), 1, device="cpu")
    sim.reset()
    sim.state.position.fill_(0.49)
    sim.state.velocity.fill_(0.05)
    sim.step({"agents": torch.full((1, 1), 2)})
    assert bool(sim.terminated.all()) and bool(sim.truncated.all())
    assert sim.last_return.tolist() == [[-1.0]]


@pytest.mark.slow
@pytest.mark.parametrize("name, wanted", [("cartpole", 475)])
def test_its_configuration_reaches(name, wanted, tmp_path):
    """`warpdrive train NAME` ends with a policy whose mean return is at least as wanted."""
    run = tmp_path / "run"
    assert main(["train", name, "--out", str(run)]) == 0
    assert main(["eval", str(run), "--episodes", "100", "--json", str(tmp_path / "eval.json")]) == 0
    outcome = json.loads((tmp_path / "eval.json").read_text())
    assert outcome["all trained"]["agents"]["return"] >= wanted


@pytest.mark.parametrize("env, options, message", [
    (CartPole, dict(cart_mass=0.0), "cart_mass must be positive, got 0"),
    (MountainCar, dict(min_position=-0.5), "min_position must be below -0.6, where cars may begin, got -0.5"),
    (MountainCar, dict(max_speed=0.0), "max_speed must be positive, got 0"),
    (MountainCarContinuous, dict(max_position=-0.5), "max_position must be above -0.4, where cars may begin, got -0.5"),
    (MountainCarContinuous, dict(episode_length=0), "episode_length must be a positive integer, got 0"),
    (Acrobot, dict(inertia=-1.0), "inertia must be positive, got -1"),
    (Acrobot, dict(seconds=float("inf")), "seconds must be positive, got inf"),
    (Pendulum, dict(length=0.0), "length must be positive, got 0"),
    (Pendulum, dict(max_torque=-2.0), "max_torque must be positive, got -2"),
])  # fmt: skip
def test_bad_numbers_are_refused(env, options, message):
    """A number that does not fit is named."""
    with pytest.raises(ValueError, match=message):
        env(**options)
