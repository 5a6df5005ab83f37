"""The simulator: what it takes, what it refuses, and that a saved one goes on as if nothing had been."""

import subprocess
import sys

import pytest
import torch
import warp as wp

import warpdrive as wd
from sim.environments import Dice, Kinds, Script, ScriptState, see_lone, see_pair


@pytest.fixture(scope="module")
def script() -> wd.Simulator:
    sim = wd.Simulator(Script(), 2, device="cpu")
    sim.reset()
    return sim


@pytest.fixture(scope="module")
def kinds() -> wd.Simulator:
    sim = wd.Simulator(Kinds(), 2, device="cpu")
    sim.reset()
    return sim


# ---------------------------------------------------------------- actions


def test_actions_come_in_several_shapes_and_types(script, kinds):
    """An action of one number may lack its last axis, and any integer or floating point type is taken."""
    for dtype in (torch.int64, torch.int32, torch.uint8):
        script.step({"pairs": torch.tensor([[1, 0], [0, 5]], dtype=dtype)})
        assert script.action["pairs"].tolist() == [[[1], [0]], [[0], [5]]]
    script.step({"pairs": torch.zeros(2, 2, 1, dtype=torch.int64)})
    kinds.step({"boxed": torch.tensor([[[1.0, 0.1]], [[-1.0, 0.3]]], dtype=torch.float64)})
    assert torch.equal(kinds.obs["boxed"][..., 1], torch.tensor([[0.1], [0.3]]))


def test_groups_left_out_take_the_actions_that_stand_in_the_store(script):
    """Without actions for a group what was put into `action` holds, also in later steps."""
    script.reset()
    script.action["pairs"].fill_(1)
    script.action["lone"].zero_()
    script.step()
    script.step({"lone": torch.ones(2, 1, dtype=torch.int32)})
    assert script.state.count.tolist() == [[2, 2, 1]] * 2


@pytest.mark.parametrize(
    "actions,message",
    [
        ({"pair": torch.zeros(2, 2)}, "unknown group 'pair'; did you mean 'pairs'?"),
        (
            {"pairs": torch.zeros(2, 3, dtype=torch.int32)},
            "actions of 'pairs' must have shape (2, 2, 1) (environments, agents, 1), got (2, 3)",
        ),
        ({"pairs": torch.zeros(2, 2)}, "actions of 'pairs' must be integers, got torch.float32"),
        ({"pairs": torch.zeros(2, 2, dtype=torch.bool)}, "actions of 'pairs' must be integers, got torch.bool"),
        (
            {"pairs": torch.tensor([[0, 0], [0, 6]])},
            "action 0 of 'pairs' must lie from 0 to 5, got 6 for agent 1 of environment 1",
        ),
        (
            {"lone": torch.tensor([[-1], [0]])},
            "action 0 of 'lone' must lie from 0 to 5, got -1 for agent 0 of environment 0",
        ),
        (torch.zeros(2, 2), "actions must be a mapping from groups to tensors, got Tensor"),
    ],
)
def test_wrong_actions_are_refused(script, actions, message):
    """Wrong groups, shapes, types and ranges each get one sentence, and no step is made."""
    before = script.state.clock.clone()
    with pytest.raises(ValueError) as caught:
        script.step(actions)
    assert str(caught.value) == message and torch.equal(script.state.clock, before)


def test_continuous_actions_outside_their_bounds_are_refused(kinds):
    """A component beyond its own bound, or no number at all, is named."""
    for value, said in ((0.4, "0.4"), (float("nan"), "nan")):
        action = torch.tensor([[[0.0, 0.2]], [[0.0, value]]])
        with pytest.raises(
            ValueError, match=f"action 1 of 'boxed' must lie from 0.1 to 0.3, got {said} for agent 0 of"
        ):
            kinds.step({"boxed": action})
    with pytest.raises(ValueError, match=r"must be floating point, got torch\.int64"):
        kinds.step({"boxed": torch.zeros(2, 1, 2, dtype=torch.int64)})


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "options,message",
    [
        ({"num_envs": 0}, "num_envs must be a positive integer, got 0"),
        ({"num_envs": -3}, "num_envs must be a positive integer, got -3"),
        ({"num_envs": 2.0}, "num_envs must be a positive integer, got 2.0"),
        ({"num_envs": True}, "num_envs must be a positive integer, got True"),
        ({"seed": -1}, "seed must be an integer from 0 to 2**31 - 1, got -1"),
        ({"seed": 2**31}, "seed must be an integer from 0 to 2**31 - 1, got 2147483648"),
        ({"device": "tpu"}, "device must be 'cpu', 'cuda' or 'cuda:N', got 'tpu'"),
        ({"device": "meta"}, "device must be 'cpu', 'cuda' or 'cuda:N', got 'meta'"),
        ({"obs_dtype": torch.float16}, "obs_dtype must be torch.float32 or torch.bfloat16, got torch.float16"),
        ({"env_offset": -1}, "env_offset must be an integer of at least 0, got -1"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    """Each argument out of its range gets one sentence that names it."""
    with pytest.raises(ValueError) as caught:
        wd.Simulator(Script(), **{"num_envs": 2, "device": "cpu", **options})
    assert str(caught.value) == message


def test_a_class_is_no_environment():
    """The class in place of an instance is refused."""
    with pytest.raises(ValueError, match=r"env must be an instance of a wd\.Env subclass, got <class"):
        wd.Simulator(Script, 2)


def test_a_gpu_that_is_not_there_is_refused():
    """A device beyond those that PyTorch sees is refused with the way out."""
    with pytest.raises(
        ValueError, match=r"device 'cuda:99' is not there: PyTorch sees \d+ CUDA GPUs; use device='cpu'"
    ):
        wd.Simulator(Script(), 2, device="cuda:99")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_cuda_is_refused_and_the_cpu_taken():
    """Where there is no GPU device="cuda" is refused, and no device means the CPU."""
    with pytest.raises(ValueError, match="device 'cuda' is not there: PyTorch sees 0 CUDA GPUs; use device='cpu'"):
        wd.Simulator(Script(), 2, device="cuda")
    assert wd.Simulator(Script(), 2).device == torch.device("cpu")


def test_a_step_needs_a_reset():
    """Before the first reset neither a step nor a masked reset is possible."""
    sim = wd.Simulator(Script(), 2, device="cpu")
    for call in (sim.step, sim.random_step):
        with pytest.raises(RuntimeError, match=r"call reset\(\) before step\(\): no episode has begun yet"):
            call()
    with pytest.raises(RuntimeError, match=r"call reset\(\) without a mask first"):
        sim.reset(torch.tensor([True, False]))


def test_a_wrong_reset_mask_is_refused(script):
    """A mask of another length or type is refused."""
    with pytest.raises(ValueError, match=r"mask must be bool of shape \(2,\), got torch.bool \(3,\)"):
        script.reset(torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"mask must be bool of shape \(2,\), got torch.int64 \(2,\)"):
        script.reset(torch.ones(2, dtype=torch.int64))


def test_unknown_groups_are_refused(script):
    """Methods that take a group say which was meant."""
    for call in (script.randomize_actions, lambda name: script.of_group(script.reward, name)):
        with pytest.raises(ValueError, match=r"unknown group 'lon'; did you mean 'lone'\?"):
            call("lon")


# ---------------------------------------------------------------- saving


def test_a_saved_simulation_goes_on_with_the_same_bits():
    """Five steps, saved, loaded into a simulator of another seed, and eight more, are thirteen steps."""
    one, two = (wd.Simulator(Dice(), 6, seed=seed, device="cpu") for seed in (1, 2))
    one.reset()
    for _ in range(5):
        one.random_step()
    saved = one.state_dict()
    for _ in range(8):
        one.random_step()
    two.load_state_dict(saved)
    for _ in range(8):
        two.random_step()
    end = two.state_dict()
    for name, value in one.state_dict().items():
        assert torch.equal(value, end[name]), name
    assert one.statistics() == two.statistics() and not torch.equal(saved["field/walk"], end["field/walk"])


def test_a_state_of_something_else_is_refused(script, kinds):
    """The state of another environment or size is refused with the first field that differs, and nothing is changed."""
    with pytest.raises(
        ValueError, match=r"the saved simulation is of another environment or version: '.*' is in one only"
    ):
        script.load_state_dict(kinds.state_dict())
    before = script.state_dict()
    wrong = {name: value + 1 if value.dtype != torch.bool else ~value for name, value in before.items()}
    wrong["field/terminated"] = torch.zeros(3, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"'field/terminated' is torch.bool \(3, 3\), here torch.bool \(2, 3\)"):
        script.load_state_dict(wrong)
    assert all(torch.equal(value, before[name]) for name, value in script.state_dict().items())


# ---------------------------------------------------------------- phases that do not compile


@wp.func
def broken_helper(x: float) -> float:
    return x + missing_inside  # noqa: F821


def not_marked(x):
    return x


@wd.per_agent
def undefined_name(s: ScriptState, env: int, agent: int):
    x = float(agent)
    s.reward[env, agent] = x + nowhere  # noqa: F821


@wd.per_agent
def similar_name(s: ScriptState, env: int, agent: int):
    velocity = float(agent)
    s.reward[env, agent] = velocity + velocty  # noqa: F821


@wd.per_agent
def wrong_type(s: ScriptState, env: int, agent: int):
    s.reward[env, agent] = wp.vec2(1.0, 2.0)


@wd.per_agent
def mixed_types(s: ScriptState, env: int, agent: int):
    s.reward[env, agent] = 1.0 + agent


@wd.per_agent
def too_many_indices(s: ScriptState, env: int, agent: int):
    s.reward[env, agent] = s.reward[env, agent, 0]


@wd.per_agent
def too_few_indices(s: ScriptState, env: int, agent: int):
    s.reward[env, agent] = 1.0 + s.reward[env]


@wd.per_agent
def misspelt_field(s: ScriptState, env: int, agent: int):
    if agent > 0:
        s.cuont[env, agent] = 1


@wd.per_agent("pairs")
def misspelt_member(s: ScriptState, env: int, i: int):
    s.pairs.rewards[env, i] = 1.0


@wd.per_agent
def misspelt_function(s: ScriptState, env: int, agent: int):
    s.reward[env, agent] = wp.sqrrt(2.0)


@wd.per_agent
def calls_a_phase(s: ScriptState, env: int, agent: int):
    see_pair(s, env, agent)


@wd.per_agent
def calls_python(s: ScriptState, env: int, agent: int):
    s.reward[env, agent] = not_marked(1.0)


@wd.per_env
def broken_inside(s: ScriptState, env: int):
    s.reward[env, 0] = broken_helper(1.0)


class Broken(Script):
    """Script with a phase that does not compile, in its step."""

    def __init__(self, phase):
        self.step = (phase,)
        super().__init__()


@pytest.mark.parametrize(
    "phase,source,said",
    [
        (undefined_name, "x + nowhere", "referencing undefined symbol: nowhere"),
        (similar_name, "velocity + velocty", "undefined symbol: velocty; did you mean 'velocity'?"),
        (
            wrong_type,
            "wp.vec2(1.0, 2.0)",
            "value argument type (vec2f) must be of the same type as the array (float32)",
        ),
        (mixed_types, "1.0 + agent", "Input types must be the same, got ['float32', 'int32']"),
        (too_many_indices, "s.reward[env, agent, 0]", "got 3 indices for a 2 dimensional array"),
        (too_few_indices, "1.0 + s.reward[env]", "with types: [float32, array(ndim=1, dtype=float32)]"),
        (misspelt_field, "s.cuont[env, agent] = 1", "unknown field 'cuont'; did you mean 'count'?"),
        (misspelt_member, "s.pairs.rewards[env, i]", "unknown field 'rewards'; did you mean 'reward'?"),
        (
            misspelt_function,
            "wp.sqrrt(2.0)",
            "there is no function 'wp.sqrrt' that can be called here; did you mean 'wp.sqrt'?",
        ),
        (calls_a_phase, "see_pair(s, env, agent)", "'see_pair' is a phase, which cannot be called; put what several"),
        (calls_python, "not_marked(1.0)", "functions that phases call are marked with @wp.func"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_phase_that_does_not_compile_is_named_with_its_line(phase, source, said):
    """The sentence names phase, file, line and what is wrong, with the nearest name, and shows nothing generated."""
    with pytest.raises(wd.PhaseError) as caught:
        wd.Simulator(Broken(phase), 2, device="cpu")
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    start = phase.function.__code__.co_firstlineno
    line = next(n for n, text in enumerate(lines, 1) if n > start and source in text)
    message = str(caught.value)
    assert f"phase {phase.name!r} of Broken does not compile ({__file__}:{line}, `" in message
    assert said in message
    assert "\n" not in message and "loop_step" not in message and "call_" not in message and len(message) < 400


def test_a_fault_in_a_function_that_a_phase_calls_is_found_there():
    """Phase and function are named, and the line is the function's; a second try says the same."""
    messages = set()
    for _ in range(2):
        with pytest.raises(wd.PhaseError) as caught:
            wd.Simulator(Broken(broken_inside), 2, device="cpu")
        messages.add(str(caught.value))
    line = broken_helper.func.__code__.co_firstlineno + 2
    (message,) = messages
    assert f"phase 'broken_inside' of Broken does not compile in 'broken_helper' ({__file__}:{line}, `return" in message


def test_a_phase_without_source_is_refused():
    """A phase made by exec, whose text Warp cannot read, is named."""
    scope: dict = {}
    exec("def hidden(s, env, agent):\n    s.reward[env, agent] = 1.0\n", scope)
    with pytest.raises(wd.PhaseError, match=r"phase 'hidden' of Broken \(<string>:1\) cannot be compiled: "):
        wd.Simulator(Broken(wd.per_agent(scope["hidden"])), 2, device="cpu")


# ---------------------------------------------------------------- programs


def test_an_environment_that_differs_in_numbers_is_not_compiled_again(script):
    """Counts, lengths and parameters are read at run time: one program serves them all."""
    other = wd.Simulator(Script(episode_length=9, late=1, pairs=4), 3, device="cpu")
    assert other.launcher.program is script.launcher.program
    other.reset()
    assert other.active.tolist() == [[True] * 4 + [False]] * 3 and script.active.shape == (2, 3)


def test_phases_set_before_the_constructor_hold():
    """Attributes of the instance take the place of the class's, state and phases alike."""

    class Bare(wd.Env):
        def __init__(self):
            self.state = ScriptState
            self.observe = (see_pair, see_lone)
            groups = {
                "pairs": wd.Group(1, obs=3, action=wd.Discrete(2)),
                "lone": wd.Group(1, obs=2, action=wd.Box(0, 1)),
            }
            super().__init__(groups=groups, params={"late": 0}, episode_length=1)

    sim = wd.Simulator(Bare(), 1, device="cpu")
    sim.reset()
    sim.random_step()
    assert sim.over.all() and sim.final_obs["pairs"].tolist() == [[[0.0, 1.0, 0.0]]]


def test_importing_starts_no_backend():
    """After `import warpdrive` Warp has not looked for devices, nor PyTorch for CUDA."""
    code = (
        "import sys, warpdrive, torch, warp\n"
        "assert sys.modules['warp._src.context'].runtime is None\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stdout + done.stderr, done.stderr
