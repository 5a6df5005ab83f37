"""Chunks that are learned side by side give what they give one after another, bit for bit."""

import itertools
import threading

import pytest
import torch

import warpdrive as wd
from learn.bandit import Bandit
from learn.test_trainer import same
from warpdrive.learn import learner as learning
from warpdrive.learn import side_by_side
from warpdrive.learn.side_by_side import bounds
from warpdrive.policy.mlp import ActorCritic
from warpdrive.policy.towers import Passes

POLICIES = {
    "left": wd.MLP(16, normalize_obs=True),
    "right": wd.MLP(16, 16, activation="tanh", separate_value=True),
}


@pytest.fixture
def threads():
    """Sets PyTorch's number of threads, of which tests have one."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def make(policies=None, **options):
    """A trainer on 64 bandits, with some 20 chunks in a minibatch."""
    sim = wd.Simulator(Bandit(), num_envs=64, seed=0, device="cpu")
    return wd.Trainer(sim, policies or POLICIES, wd.PPO(rollout_steps=16, minibatches=2, epochs=2), **options)


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of some 50 samples, so that there are many."""
    monkeypatch.setattr(side_by_side, "LONGEST", 50)


@pytest.mark.parametrize("total", [1, 15, 16, 50, 51, 1000, 1001, 24576])
@pytest.mark.parametrize("size", [16, 50, 2048])
def test_chunks_hold_every_sample_once(total, size):
    """They are of about the size, begin aligned, and are even in number unless there is one or alignment joins some."""
    edges = bounds(total, size)
    assert edges[0] == 0 and edges[-1] == total
    lengths = [b - a for a, b in itertools.pairwise(edges)]
    assert min(lengths) > 0 and max(lengths) <= size + 15
    assert all(edge % 16 == 0 for edge in edges[:-1])
    if size > 32 or len(lengths) == 1:
        assert len(lengths) in (1, *range(2, 10**4, 2))


def gradients(trainer, name):
    """Gradients and metrics of all samples of a policy, by chunks side by side and by PyTorch one after another."""
    learner = trainer.learners[name]
    learner.set_progress(0.5)
    learner.estimate()
    moments = torch.tensor([0.1, 1.3, 1e-3])
    side = learner._side_by_side
    with side.threads.begin():
        metrics = [side.learn(side.gather(None), moments)]
    found = [{n: p.grad.clone() for n, p in learner.module.named_parameters() if p.grad is not None}]
    metrics.append(learner._one_after_another([learning._Batch(s, None) for s in learner.samples], moments))
    found.append({n: p.grad.clone() for n, p in learner.module.named_parameters() if p.grad is not None})
    return found, metrics


@pytest.mark.parametrize("name", POLICIES)
def test_gradients_do_not_depend_on_threads_and_are_those_of_pytorch(threads, small_chunks, name):
    """The same bits from one thread, two and three; near what automatic differentiation gives, log_std included."""
    trainer = make()
    trainer.collect()
    results = []
    for count in (1, 2, 3, 2):
        threads(count)
        results.append(gradients(trainer, name))
    (found, wanted), metrics = results[0]
    assert ("log_std" in found) == (name == "right")
    assert found.keys() == wanted.keys()
    for key, value in found.items():
        assert value.abs().max() > 0, key
        torch.testing.assert_close(value, wanted[key], rtol=1e-4, atol=1e-6, msg=key)
    torch.testing.assert_close(metrics[0], metrics[1], rtol=1e-4, atol=1e-5)
    for (other, _), other_metrics in results[1:]:
        same(found, other)
        same(metrics[0], other_metrics[0])


def test_what_is_frozen_in_a_policy_has_no_gradient(threads, small_chunks):
    """Parameters that want none are passed over, log_std among them, and stay."""
    threads(2)
    trainer = make(frozen=["left"])
    module = trainer.policies["right"]
    module.log_std.requires_grad_(False)
    module.actor[0].weight.requires_grad_(False)
    trainer.collect()
    (found, wanted), _ = gradients(trainer, "right")
    assert found.keys() == wanted.keys()
    assert "log_std" not in found and "actor.0.weight" not in found and "actor.0.bias" in found


def test_weights_begin_the_same_with_one_thread_and_two(threads):
    """Also those of layers that are large enough for MKL to factorise with several threads."""
    states = []
    for count in (1, 2):
        threads(count)
        states.append(dict(make({"left": wd.MLP(64, 64), "right": wd.MLP(8)}).policies["left"].state_dict()))
    same(*states)


@pytest.mark.parametrize("assign", [None, {"left": ["a", "b", "a"]}])
def test_training_gives_the_same_bits_with_one_thread_and_two(threads, small_chunks, assign):
    """State and metrics after three updates, rollouts included, also where policies share a group."""
    states = []
    for count in (1, 2):
        threads(count)
        policies = POLICIES if assign is None else {"a": wd.MLP(16), "b": wd.MLP(8), "right": wd.MLP(16)}
        trainer = make(policies, assign=assign)
        for _ in range(3):
            trainer.step()
        assert torch.get_num_threads() == count
        metrics = {name: learner.metrics for name, learner in trainer.learners.items()}
        states.append({"state": trainer.state_dict(), "metrics": metrics})
    same(*states)


@pytest.mark.parametrize("minibatches", [1, 3])
def test_few_gradients_at_a_time_give_the_same_bits(threads, small_chunks, monkeypatch, minibatches):
    """However many are kept until they are added up; also where a minibatch is all there is, read in place."""
    threads(2)
    states = []
    for most in (1, 3, 100):
        monkeypatch.setattr(side_by_side, "AT_A_TIME", most)
        sim = wd.Simulator(Bandit(), num_envs=64, seed=0, device="cpu")
        trainer = wd.Trainer(sim, POLICIES, wd.PPO(rollout_steps=16, minibatches=minibatches, epochs=2))
        for _ in range(2):
            trainer.step()
        states.append(trainer.state_dict())
    same(states[0], states[1])
    same(states[0], states[2])


def test_an_exception_in_a_chunk_reaches_the_caller(threads, small_chunks, monkeypatch):
    """PyTorch has as many threads as before, and the next update goes as if nothing had been."""
    threads(2)
    trainer, calls, forward = make(), [], Passes.forward
    trainer.collect()

    def fail(self, obs, out):
        calls.append(threading.current_thread())
        if len(calls) == 5:
            raise ArithmeticError("the fifth chunk")
        forward(self, obs, out)

    monkeypatch.setattr(Passes, "forward", fail)
    with pytest.raises(ArithmeticError, match="the fifth chunk"):
        trainer.learners["left"].update()
    assert threading.main_thread() not in calls
    assert torch.get_num_threads() == 2
    trainer.learners["left"].update()
    assert torch.get_num_threads() == 2


class Subclass(ActorCritic):
    """A user's own, of which nothing is known."""


@pytest.mark.parametrize("kind", ["module", "subclass"])
def test_a_module_of_the_users_own_goes_one_chunk_after_another(threads, monkeypatch, kind):
    """All its passes are made by the calling thread, with as many PyTorch threads as there are."""
    threads(2)
    monkeypatch.setitem(learning.CHUNK, "cpu", 50)
    own = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 3))
    if kind == "subclass":
        generator = torch.Generator().manual_seed(0)
        own = Subclass(wd.MLP(8), 2, Bandit().groups["left"].action, generator)
    trainer, seen = make({"left": own, "right": wd.MLP(8)}), []
    own.register_forward_hook(lambda *_: seen.append((threading.current_thread(), torch.get_num_threads())))
    trainer.collect()
    before = len(seen)
    learner = trainer.learners["left"]
    learner.update()
    samples = 64 * 16 * Bandit().groups["left"].count
    assert len(seen) - before >= learner.epochs * samples / 50
    assert set(seen) == {(threading.main_thread(), 2)}
