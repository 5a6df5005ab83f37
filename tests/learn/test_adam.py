"""Adam gives the bits of PyTorch's own."""

import subprocess
import sys

import pytest
import torch

from warpdrive.learn.adam import Adam


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_bits_are_those_of_pytorch(device):
    """Over twenty steps of random gradients, a changing rate, a transposed and a still parameter."""
    generator = torch.Generator().manual_seed(7)
    shapes = [(5, 3), (4,), (), (2, 6)]
    starts = [torch.randn(shape, generator=generator).to(device) for shape in shapes]
    starts[0] = starts[0].t().contiguous().t()
    mine, theirs = ([s.clone().requires_grad_() for s in starts] for _ in range(2))
    rates = [torch.tensor(0.0, device=device) for _ in range(2)]
    one = Adam(mine, rates[0], 1e-5)
    other = torch.optim.Adam(theirs, lr=rates[1], eps=1e-5, fused=True, capturable=device == "cuda")
    for step in range(20):
        for rate in rates:
            rate.fill_(0.1 / (step + 1))
        for i, (p, q) in enumerate(zip(mine, theirs, strict=True)):
            if i < 3:  # the last has no gradient and stays
                # In the parameter's strides, as autograd makes it: CUDA's kernel refuses others.
                p.grad = torch.empty_like(p.detach()).copy_(torch.randn(p.shape, generator=generator))
                q.grad = p.grad.clone()
        one.step()
        other.step()
    for p, q, start, state in zip(mine, theirs, starts, one.state, strict=True):
        assert torch.equal(p, q)
        assert torch.equal(p, start) == (q.grad is None)
        for key, value in other.state[q].items():
            assert torch.equal(state[key], value)


def test_training_does_not_import_the_compiler():
    """An update in a new process leaves out torch._dynamo and its symbols, which take seconds to import."""
    code = (
        "import sys, warpdrive as wd\n"
        "from warpdrive.zoo.cartpole import CartPole\n"
        "trainer = wd.Trainer(wd.Simulator(CartPole(), 8, device='cpu'), {'agents': wd.MLP(8)})\n"
        "trainer.step()\n"
        "trainer.state_dict()\n"
        "sys.exit(str([name for name in ('torch._dynamo', 'sympy') if name in sys.modules]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stderr.splitlines()[-1] == "[]"
