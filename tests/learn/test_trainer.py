"""The trainer: it learns, resumes bit for bit, maps agents to policies, freezes, and refuses what does not fit."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import warpdrive as wd
from learn.bandit import Bandit
from warpdrive.learn.assignment import segments
from warpdrive.learn.checkpoint import load_checkpoint

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ALGORITHMS = {"ppo": wd.PPO(rollout_steps=16, lr=3e-3, lr_final=1e-4), "a2c": wd.A2C(rollout_steps=16, lr=5e-3)}
STEPS = 32 * 16  # environment steps in one update


def make(algorithm="ppo", device="cpu", seed=0, policies=None, **options):
    """A trainer on 32 bandits."""
    sim = wd.Simulator(Bandit(), num_envs=32, seed=seed, device=device)
    policies = policies or {"left": wd.MLP(16, normalize_obs=True), "right": wd.MLP(16, activation="tanh")}
    settings = ALGORITHMS[algorithm] if isinstance(algorithm, str) else algorithm
    return wd.Trainer(sim, policies, settings, **options)


def same(a, b, path=""):
    """Assert that two nested states hold the same bits."""
    assert type(a) is type(b), path
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            same(a[key], b[key], f"{path}/{key}")
    elif isinstance(a, list):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}/{i}")
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b), path
    else:
        assert a == b, path


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_learns_what_is_best(device, algorithm):
    """Discrete agents come to choose what they see, continuous ones to push to the right side."""
    trainer = make(algorithm, device)
    rows = []
    updates = {"ppo": 60, "a2c": 400}[algorithm]
    trainer.train(updates * STEPS, report=rows.append, report_seconds=0)
    # Left agents begin at half of what can be had, right ones at none of it.
    assert rows[-1]["return/left"] > 1.4 * rows[0]["return/left"]
    assert rows[-1]["return/right"] > 0.5 * rows[-1]["length"]


def test_reports_come_after_the_first_update_and_at_the_end():
    """However long the time between reports, the first update and the last are reported; so is the only one."""
    for updates, expected in ((4, [STEPS, 4 * STEPS]), (1, [STEPS])):
        trainer, rows = make(), []
        trainer.prepare()
        trainer.train(updates * STEPS, report=rows.append, report_seconds=1000)
        assert [row["env_steps"] for row in rows] == expected


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_resuming_in_a_new_process_gives_the_same_bits(tmp_path, device, algorithm):
    """Three updates and then four are the same as three, a checkpoint, a new process, and four."""
    trainer = make(algorithm, device)
    trainer.total_env_steps = 7 * STEPS
    for _ in range(3):
        trainer.step()
    trainer.save(tmp_path / "three.pt")
    for _ in range(4):
        trainer.step()
    trainer.save(tmp_path / "seven.pt")
    script = (
        "from learn.test_trainer import make\n"
        f"trainer = make({algorithm!r}, {device!r}, seed=5)\n"  # whatever it begins with, it is replaced
        f"trainer.load({str(tmp_path / 'three.pt')!r})\n"
        "for _ in range(4): trainer.step()\n"
        f"trainer.save({str(tmp_path / 'resumed.pt')!r})\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parent.parent)
    same(load_checkpoint(tmp_path / "seven.pt")["trainer"], load_checkpoint(tmp_path / "resumed.pt")["trainer"])


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_captured_and_eager_give_the_same_bits(algorithm):
    """Five updates by replayed graphs are the same as five by plain calls."""
    states = []
    for graph in (True, False):
        trainer = make(algorithm, "cuda", graph=graph)
        trainer.total_env_steps = 5 * STEPS
        for _ in range(5):
            trainer.step()
        states.append(trainer.state_dict())
    same(*states)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    """Two runs of one seed end in the same state; a run of another seed does not."""
    states = []
    for seed in (1, 1, 2):
        trainer = make(seed=seed)
        for _ in range(2):
            trainer.step()
        states.append(trainer.state_dict())
    same(states[0], states[1])
    weight = "actor.0.weight"
    assert not torch.equal(states[0]["policies"]["left"][weight], states[2]["policies"]["left"][weight])


def test_policies_are_independent():
    """What one policy learns does not depend on how another learns, only on what it does."""
    free = make()
    alone = make(frozen=["right"])
    free.step()
    alone.step()
    weights = [t.policies["left"].state_dict() for t in (free, alone)]
    same(dict(weights[0]), dict(weights[1]))


def test_a_frozen_policy_acts_but_does_not_change():
    """Weights of a frozen policy stay; the other's move."""
    trainer = make(frozen=["right"])
    before = {n: {k: v.clone() for k, v in m.state_dict().items()} for n, m in trainer.policies.items()}
    trainer.step()
    same(before["right"], dict(trainer.policies["right"].state_dict()))
    assert not torch.equal(before["left"]["actor.0.weight"], trainer.policies["left"].actor[0].weight)


@pytest.mark.parametrize("device", DEVICES)
def test_each_agent_may_have_a_policy_of_its_own(device):
    """With a policy an agent, each sees only its agent's samples, and all learn."""
    policies = {"a": wd.MLP(16), "b": wd.MLP(16), "right": wd.MLP(16)}
    trainer = make(device=device, policies=policies, assign={"left": ["a", "b", "a"]})
    pieces = [(s.group, s.first, s.last, s.policy) for s in trainer.segments]
    assert pieces == [("left", 0, 1, "a"), ("left", 1, 2, "b"), ("left", 2, 3, "a"), ("right", 0, 2, "right")]
    rows = []
    trainer.train(50 * STEPS, report=rows.append, report_seconds=0)
    assert rows[-1]["return/left"] > 1.3 * rows[0]["return/left"]


def test_a_rollout_holds_what_happened():
    """Slots of the rollout agree with each other: observations, what was done, what was rewarded, who was there."""
    trainer = make()
    trainer.rollout.run()
    left, right = trainer.rollout.samples
    seen = left.obs[:-1, ..., 0]
    hit = (left.action[..., 0] == seen.int()).float() * left.alive
    assert torch.equal(left.reward, hit)
    side = (2 * right.obs[:-1, ..., 0] - 1) * right.action[..., 0].clamp(-1, 1)
    torch.testing.assert_close(right.reward, side)
    assert bool((~left.alive).any()) and bool(left.terminated.any())
    assert not bool((left.terminated & ~left.alive).any())
    over = trainer.rollout.outputs["over"]
    assert int(over.sum()) == 32  # 16 steps of episodes of 12
    assert torch.equal(over[11], torch.ones(32, dtype=torch.bool))
    # The value of the observation an episode ended on is asked of that observation, not of the next episode's first.
    slot = trainer.rollout.outputs["final_slot"][11]
    assert torch.equal(slot, torch.zeros(32, dtype=torch.int32))


def test_learning_agents_that_left_changes_nothing(monkeypatch):
    """What stands in the observations of agents that had left does not change what is learnt."""
    weights = []
    for poison in (0.0, 1e6):
        trainer = make()
        trainer.rollout.run()
        left = trainer.rollout.samples[0]
        left.obs[:-1] += poison * (~left.alive)[..., None]
        assert bool((~left.alive).any())
        trainer._learn_all()
        weights.append({k: v.clone() for k, v in trainer.policies["left"].state_dict().items()})
    same(*weights)


@pytest.mark.parametrize("over", ["rollout", "minibatch"])
def test_advantages_are_normalised_over_what_was_asked_for(monkeypatch, over):
    """Those of every minibatch have mean 0 and deviation 1, or only those of all of an epoch's together."""
    trainer = make(wd.PPO(rollout_steps=16, minibatches=4, epochs=1, advantage_over=over))
    learner, seen = trainer.learners["left"], []
    side = learner._side_by_side
    learn = side.learn

    def listen(batches, moments):
        for batch in batches:
            seen.append(((batch.advantage - moments[0]) * moments[1])[batch.weight > 0])
        return learn(batches, moments)

    monkeypatch.setattr(side, "learn", listen)
    trainer.rollout.run()
    learner.estimate()
    learner.update()
    assert len(seen) == 4
    parts = {"rollout": [torch.cat(seen)], "minibatch": seen}[over]
    for part in parts:
        torch.testing.assert_close(part.mean(), torch.tensor(0.0), atol=1e-5, rtol=0.0)
        torch.testing.assert_close(part.std(correction=0), torch.tensor(1.0), atol=1e-4, rtol=0.0)
    means = torch.stack([part.mean().abs() for part in seen])
    assert bool((means > 1e-3).any()) == (over == "rollout")


def test_a_module_of_the_users_own_can_be_trained():
    """Any nn.Module that maps observations to parameters and value learns."""
    torch.manual_seed(0)
    own = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    trainer = make(policies={"left": own, "right": wd.MLP(8)})
    rows = []
    trainer.train(50 * STEPS, report=rows.append, report_seconds=0)
    assert rows[-1]["return/left"] > 1.4 * rows[0]["return/left"]


def test_memory_is_flat_over_many_updates():
    """Fifty updates allocate no lasting tensors."""
    import gc

    def count():
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    trainer = make()
    for _ in range(3):
        trainer.step()
    before = count()
    for _ in range(50):
        trainer.step()
    assert count() <= before


@pytest.mark.parametrize("device", DEVICES)
def test_nan_in_a_policy_is_reported_with_its_agent(device):
    """When outputs are not finite the report stops training with a sentence that names policy, agent and step."""
    trainer = make(device=device)
    with torch.no_grad():
        trainer.policies["right"].actor_head.bias.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match=r"policy 'right' gave NaN or infinity for agent \d of group 'right'"):
        trainer.train(STEPS, report=lambda row: None, report_seconds=0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"policies": {"left": wd.MLP(4), "rihgt": wd.MLP(4)}},
            "unknown policy for group 'right': 'right'; did you mean",
        ),
        ({"assign": {"lfet": "left"}}, "unknown group in assign: 'lfet'; did you mean 'left'?"),
        ({"assign": {"left": ["left"]}}, r"must name one policy, or one for each of 3 agents; got 1 names"),
        ({"frozen": ["lft"]}, "unknown policy in frozen: 'lft'; did you mean 'left'?"),
        ({"frozen": ["left", "right"]}, "all policies are frozen"),
        ({"policies": {"one": wd.MLP(4)}}, "different observations or actions"),
        (
            {"policies": {"left": torch.nn.Linear(2, 5), "right": wd.MLP(4)}},
            r"must map observations \(B, 2\) to \(B, 3\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(options, sentence):
    """Wrong names, lists and modules are refused with one sentence before anything runs."""
    with pytest.raises(ValueError, match=sentence) as error:
        make(**options)
    assert "\n" not in str(error.value)


def test_more_minibatches_than_environments_are_refused():
    """A minibatch holds whole environments."""
    sim = wd.Simulator(Bandit(), num_envs=2, device="cpu")
    with pytest.raises(ValueError, match="minibatches must be at most num_envs"):
        wd.Trainer(sim, {"left": wd.MLP(4), "right": wd.MLP(4)})


@pytest.mark.parametrize(
    ("make_settings", "sentence"),
    [
        (lambda: wd.PPO(lr=-1.0), "PPO.lr must be a finite number from 0, got -1.0"),
        (lambda: wd.PPO(gamma=1.5), "PPO.gamma must be between 0 and 1, got 1.5"),
        (lambda: wd.PPO(epochs=0), "PPO.epochs must be a positive integer, got 0"),
        (lambda: wd.A2C(rollout_steps=0), "A2C.rollout_steps must be a positive integer, got 0"),
        (lambda: wd.PPO(clip=0.0), "PPO.clip must be positive, got 0.0"),
    ],
)
def test_settings_out_of_range_are_refused(make_settings, sentence):
    """Each setting is checked, and the sentence names it with its value."""
    with pytest.raises(ValueError) as error:
        make_settings()
    assert str(error.value) == sentence


def test_segments_cover_every_agent_once():
    """Runs of neighbours with one policy are joined, and together they are all agents."""
    env = Bandit(left=4, right=1)
    found = segments(env, ["a", "b", "right"], {"left": ["a", "a", "b", "b"]})
    assert [(s.first, s.last, s.policy) for s in found] == [(0, 2, "a"), (2, 4, "b"), (0, 1, "right")]
