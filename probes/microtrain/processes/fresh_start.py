"""Imported once by the process that forks: what every fork needs, so that none of them waits for it."""

from __future__ import annotations

import torch

from probes.microtrain.calibration import network_times  # noqa: F401 - imports all that measures
from probes.microtrain.step import make_optimizer

torch.set_num_threads(1)  # threads do not survive a fork, and a pool that was begun hangs
make_optimizer("sgd", torch.nn.Linear(1, 1))  # torch imports its compiler with the first one: seconds
