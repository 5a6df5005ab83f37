"""The environment on a GPU: every way to run it gives the same bits there, and is near the CPU."""

import torch

from warpdrive.check.examination import Examination
from warpdrive.sim.launcher import Schedule
from warpdrive.sim.simulator import Simulator

__all__ = ["compare_devices"]

RELATIVE, ABSOLUTE = 1e-3, 1e-4  # what the devices' functions (sine, root, ...) may differ by after one step
RARE = 0.05  # share of steps of environments in which rounding may decide otherwise
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
NUM_ENVS = 64  # more than one block


def _arrays(sim: Simulator) -> dict[str, torch.Tensor]:
    """All that a step leaves, by name."""
    arrays = dict(sim.store.fields)
    for kind, block in (("obs", sim.obs), ("mask", sim.mask), ("action", sim.action)):
        arrays |= {f"{name}.{kind}": tensor for name, tensor in block.items()}
    return arrays


def compare_devices(x: Examination, device: str = "cuda") -> None:
    """Compare schedules on the GPU, captured and eager, and each step with the same step on the CPU."""
    env = x.env
    x.report.devices.append(device)
    x.report.examined.append("device")
    _schedules(x, device)
    cpu = Simulator(env, NUM_ENVS, seed=x.seed, device="cpu", obs_dtype=torch.float32)
    gpu = Simulator(env, NUM_ENVS, seed=x.seed, device=device, obs_dtype=torch.float32)
    cpu.reset()
    gpu.reset()
    deviating: dict[str, int] = {}
    first: dict[str, tuple[list[int], int, str]] = {}
    for step in range(x.steps + 1):
        if step:
            gpu.load_state_dict(cpu.state_dict())  # so that differences do not grow from step to step
            cpu.randomize_actions()
            gpu.step({name: action.to(gpu.device) for name, action in cpu.action.items()})
            cpu.step()
        theirs = _arrays(gpu)
        for name, mine in _arrays(cpu).items():
            a, b = mine.double(), theirs[name].cpu().double()
            unequal = ~torch.isclose(a, b, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
            if bool(unequal.any()):
                deviating[name] = deviating.get(name, 0) + int(
                    unequal.flatten(1).any(1).sum() if a.dim() > 1 else unequal.sum()
                )
                at = unequal.nonzero()[0].tolist()
                where = tuple(at)
                first.setdefault(name, (at, step, f"{float(a[where]):g} on the CPU and {float(b[where]):g} on the GPU"))
    for name, count in deviating.items():
        if count > RARE * NUM_ENVS * (x.steps + 1):
            at, step, text = first[name]
            x.fault("device", "step", name, at[0], _agent(x, name, at), text, step)


def _agent(x: Examination, name: str, at: list[int]) -> int | None:
    """Index among all agents that an index into an array belongs to."""
    if len(at) < 2 or not x.by_agent(name):
        return None
    return at[1] + (x.env.first_agent[name.split(".")[0]] if "." in name else 0)


def _schedules(x: Examination, device: str) -> None:
    """One course in each schedule, captured, and eagerly: the bits are the same."""
    schedules: list[Schedule] = ["split", "loop"] if device == "cpu" else ["split", "mixed", "fused"]
    sims = [Simulator(x.env, NUM_ENVS, seed=x.seed, device=device, schedule=s) for s in schedules]
    eager = Simulator(x.env, NUM_ENVS, seed=x.seed, device=device, schedule="split")
    for sim in (*sims, eager):
        sim.reset()
    for step in range(x.steps + 1):
        if step:
            for sim in sims:
                sim.random_step()
            eager._enqueue(random=True)
        reference = _arrays(sims[0])
        for label, sim in [*zip(schedules[1:], sims[1:], strict=True), ("eager", eager)]:
            for name, other in _arrays(sim).items():
                bits = BITS[other.dtype.itemsize]
                unequal = reference[name].contiguous().view(bits) != other.contiguous().view(bits)
                if bool(unequal.any()):
                    at = unequal.nonzero()[0].tolist()
                    text = f"{schedules[0]} and {label} differ on {device}"
                    x.fault("schedule", "step", name, at[0], _agent(x, name, at), text, step)
                    return
