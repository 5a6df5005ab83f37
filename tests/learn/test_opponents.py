"""Training against opponents that are scripted or random: they act as they do outside, and nothing learns for them."""

import pytest
import torch
import warp as wp

import warpdrive as wd
from learn.bandit import Bandit, BanditState
from warpdrive.learn.evaluation import Player, load_trained, play
from warpdrive.sim.simulator import Simulator

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
STEPS = 16


@wd.per_agent("right")
def pusher(s: BanditState, env: int, i: int):
    s.right.action[env, i, 0] = 2.0 * float(s.wanted[env, s.right.first + i]) - 1.0


@wd.per_agent("right")
def moody(s: BanditState, env: int, i: int):
    """Depends on everything that changes from step to step: time, a draw, what it observes and last got."""
    rng = wd.random(s, env, s.right.first + i)
    mood = float(s.step[env]) / 24.0 + 0.25 * float(s.right.obs[env, i, 0]) - 0.1 * s.right.reward[env, i]
    s.right.action[env, i, 0] = wp.clamp(mood - 0.5 * wp.randf(rng), -1.0, 1.0)


@wd.per_agent("left")
def first(s: BanditState, env: int, i: int):
    s.left.action[env, i, 0] = 0


class Played(Bandit):
    """Bandit with scripted policies."""

    scripted = (pusher, moody, first)


def make(opponents, device="cpu", seed=0, env=None):
    sim = wd.Simulator(env or Played(), num_envs=32, seed=seed, device=device)
    policies = {name: wd.MLP(16) for name in sim.env.groups if name not in opponents}
    return wd.Trainer(sim, policies, wd.PPO(rollout_steps=STEPS, lr=3e-3), opponents=opponents)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("policy", ["moody", "random"])
def test_a_rollout_with_an_opponent_is_what_stepping_gives(policy, device):
    """Step by step, over the end of an episode, rewards and actions are those of a player that acts in the open."""
    trainer = make({"right": policy}, device)
    trainer.rollout.run()
    sim = Simulator(Played(), 32, seed=0, device=device)
    sim.reset()
    kinds = dict(random=["right"]) if policy == "random" else dict(scripted={"right": policy})
    player = Player(sim, trainer.segments, trainer.policies, **kinds)
    for t in range(STEPS):
        player.step()
        assert torch.equal(trainer.rollout.outputs["reward"][t], sim.reward), t
    assert torch.equal(trainer.sim.action["right"], sim.action["right"])
    assert len(sim.action["right"].unique()) > 60


@pytest.mark.parametrize("device", DEVICES)
def test_training_against_an_opponent(device):
    """The other group learns, the opponent does what it is told all the time, and there is no policy of its name."""
    trainer = make({"right": "pusher"}, device)
    rows = []
    trainer.train(60 * 32 * STEPS, report=rows.append, report_seconds=0)
    assert list(trainer.policies) == list(trainer.learners) == ["left"]
    assert rows[-1]["return/left"] > 1.4 * rows[0]["return/left"]
    assert all(row["return/right"] == 12.0 for row in rows if row["episodes"])


def test_an_opponent_does_not_change_how_others_learn():
    """What left learns where it has nothing to do with right is the same against a policy and a script."""
    alone, both = make({"right": "pusher"}), make({})
    for trainer in (alone, both):
        trainer.step()
    for name, value in alone.policies["left"].state_dict().items():
        assert torch.equal(value, both.policies["left"].state_dict()[name])


def test_a_random_opponent_heeds_the_mask():
    """Over a rollout of an environment with masks nothing forbidden is done."""
    from sim.environments import Kinds

    trainer = make({"masked": "random"}, env=Kinds())
    for _ in range(3):
        trainer.step()
        assert bool((trainer.sim.action["masked"][..., 0] != torch.arange(2)).all())
        assert bool((trainer.sim.action["masked"][..., 1] % 2 == 1).all())


def test_a_checkpoint_remembers_the_opponent(tmp_path):
    """Played from its checkpoint, the opponent acts again, unless the group is to act at random."""
    trainer = make({"right": "pusher"})
    trainer.save(tmp_path / "c.pt")
    trained = load_trained(tmp_path / "c.pt")
    assert trained.opponents == {"right": "pusher"}
    sim = Simulator(trained.env, 50, device="cpu")
    assert bool((play(trained.player(sim), 3).returns["right"] == 12.0).all())
    assert abs(play(trained.player(sim, random=["right"]), 3).mean("right")) < 2.0
    found = wd.matches(tmp_path / "c.pt", episodes=3, device="cpu")
    assert found.players == {"left": ["trained", "first", "random"], "right": ["pusher", "moody", "random"]}


@pytest.mark.parametrize(
    ("opponents", "sentence"),
    [
        ({"rigth": "pusher"}, "unknown group in opponents: 'rigth'; did you mean 'right'?"),
        ({"right": "pushre"}, "unknown scripted policy of 'right' in opponents: 'pushre'; did you mean 'pusher'?"),
        ({"left": "first", "right": "pusher"}, "there is nothing to train"),
    ],
)
def test_what_does_not_fit_is_refused(opponents, sentence):
    """Groups and policies are checked by name, and somebody has to learn."""
    with pytest.raises(ValueError) as error:
        make(opponents)
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_policy_for_a_group_that_is_played_is_refused():
    """A group has a policy or an opponent, not both."""
    sim = wd.Simulator(Played(), num_envs=4, device="cpu")
    policies = {"left": wd.MLP(4), "right": wd.MLP(4)}
    with pytest.raises(ValueError, match="policy 'right' acts for no agent"):
        wd.Trainer(sim, policies, opponents={"right": "pusher"})
    with pytest.raises(ValueError, match="group 'right' is in assign and in opponents"):
        wd.Trainer(sim, policies, assign={"right": "right"}, opponents={"right": "pusher"})
