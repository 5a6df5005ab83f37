"""Settings of all tests."""

import os

import torch

# What the tests compute is small: one thread is fastest, and does not suffer from what else the machine does.
os.environ["OMP_NUM_THREADS"] = "1"  # of processes that tests start
torch.set_num_threads(1)

# Triton's kernels run in its interpreter where there is no GPU; it must know before it is imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
