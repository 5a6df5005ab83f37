"""Learning: algorithms, rollouts, returns, the trainer, checkpoints."""
