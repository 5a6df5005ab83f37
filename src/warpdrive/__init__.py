"""WarpDrive: multi-agent reinforcement learning, end to end on the GPU."""

from warpdrive import space
from warpdrive.check.examine import check
from warpdrive.env.environment import Env, Group, View
from warpdrive.env.functions import atomic_add, atomic_max, atomic_min, put, random
from warpdrive.env.phases import per_agent, per_env
from warpdrive.env.spaces import Box, Discrete, MultiDiscrete
from warpdrive.env.state import Agents, Param, PerAgent, PerEnv, State
from warpdrive.learn.a2c import A2C
from warpdrive.learn.checkpoint import CheckpointError
from warpdrive.learn.matches import matches
from warpdrive.learn.ppo import PPO
from warpdrive.learn.trainer import Trainer
from warpdrive.learn.tune import Tuning, tune
from warpdrive.policy.mlp import MLP
from warpdrive.sim.phase_error import PhaseError
from warpdrive.sim.simulator import Simulator

__all__ = [
    "A2C",
    "MLP",
    "PPO",
    "Agents",
    "Box",
    "CheckpointError",
    "Discrete",
    "Env",
    "Group",
    "MultiDiscrete",
    "Param",
    "PerAgent",
    "PerEnv",
    "PhaseError",
    "Simulator",
    "State",
    "Trainer",
    "Tuning",
    "View",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "check",
    "matches",
    "per_agent",
    "per_env",
    "put",
    "random",
    "space",
    "tune",
]
__version__ = "0.1.0"
