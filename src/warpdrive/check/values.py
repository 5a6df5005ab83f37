"""The examination of what stands in the arrays: values that are not finite, out of bounds, or should not be there."""

import torch

from warpdrive.check.examination import Examination

__all__ = ["examine_values"]


def examine_values(x: Examination, i: int, start: torch.Tensor) -> None:
    """Look at what stands in the arrays after call i."""
    env, store, phase = x.env, x.store, x.phases[i]
    fields = store.fields
    if not x.spread:
        for block in store.blocks.values():
            author = block.name in env.state.fields or block.name == "reward" or block.name.endswith(".obs")
            if not author or not block.view.is_floating_point():
                continue
            strict = block.name not in env.state.fields
            wrong = ~block.view.isfinite() if strict else block.view.isnan()
            if bool(wrong.any()):
                at = wrong.nonzero()[0].tolist()
                agent = at[1] if x.by_agent(block.name) else None
                if agent is not None and "." in block.name:
                    agent += env.first_agent[block.name.split(".")[0]]
                value = float(block.view[tuple(at)])
                x.fault("not-finite", phase.name, block.name, at[0], agent, f"it becomes {value}")
                x.spread = True
                break
    for name, group in env.groups.items():
        if phase not in env.observe:
            break
        first = env.first_agent[name]
        active = x.stage.of_group(fields["active"], name)
        obs = x.stage.obs[name]
        low = obs < group.obs_low if group.obs_low is not None else torch.zeros_like(obs, dtype=torch.bool)
        high = obs > group.obs_high if group.obs_high is not None else torch.zeros_like(low)
        wrong = (low | high) & active[..., None] & x.written(f"{name}.obs", start)
        if bool(wrong.any()):
            e, a, f = wrong.nonzero()[0].tolist()
            x.fault("obs-bounds", phase.name, f"{name}.obs", e, first + a,
                       f"feature {f} is {obs[e, a, f]:g}, beyond [{group.obs_low}, {group.obs_high}]")  # fmt: skip
        if group.mask:
            mask, begin = x.stage.mask[name], 0
            touched = x.written(f"{name}.mask", start)
            for head, choices in enumerate(group.action.heads):  # type: ignore[union-attr]
                own = slice(begin, begin + choices)
                begin += choices
                wrong = (mask[..., own] == 0).all(-1) & active & touched[..., own].any(-1)
                if bool(wrong.any()):
                    e, a = wrong.nonzero()[0].tolist()
                    x.fault("mask", phase.name, f"{name}.mask", e, first + a,
                               f"all {choices} choices of head {head} are forbidden")  # fmt: skip
    if phase in env.step and i < x.first_guarded:
        wrong = ~fields["alive"] & (fields["reward"] != 0) & x.written("reward", start)
        if bool(wrong.any()):
            e, a = wrong.nonzero()[0].tolist()
            reward = float(fields["reward"][e, a])
            x.fault("reward-after-leaving", phase.name, "reward", e, a,
                       f"an agent that has left gets a reward of {reward:g}")  # fmt: skip
    if x.calls[i].guarded and phase in env.reset:
        for name in ("terminated", "ended"):
            wrong = fields[name] & x.written(name, start)
            if bool(wrong.any()):
                at = wrong.nonzero()[0].tolist()
                x.fault("termination", phase.name, name, at[0], at[1] if len(at) > 1 else None,
                           "a reset phase sets it, so that the new episode ends")  # fmt: skip
