"""The iris network: 4-10-3 with ReLU and cross-entropy, SGD with a learning rate of 0.01, the full batch resident."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from probes.microtrain.feeding import make_feed
from probes.microtrain.iris_experiment.iris import Row
from probes.microtrain.step import Step

HIDDEN = 10
LEARNING_RATE = 0.01  # the experiment as everybody has run it; torch's own default for SGD is 0.001
MODEL_SEED = 0  # every run begins with the same weights, so that their losses agree

Rows = tuple[torch.Tensor, torch.Tensor]


class IrisNetwork:
    """The model as a Step wants it; a batch is features (rows, 4) and labels (rows,)."""

    def __init__(self) -> None:
        torch.manual_seed(MODEL_SEED)
        self.module: nn.Module = nn.Sequential(nn.Linear(4, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 3))

    def forward(self, module: nn.Module, batch: Rows) -> torch.Tensor:
        """Logits (rows, 3)."""
        logits: torch.Tensor = module(batch[0])
        return logits

    def loss(self, output: torch.Tensor, batch: Rows) -> torch.Tensor:
        return nn.functional.cross_entropy(output, batch[1])


def make_learner(device: torch.device, rows: Sequence[Row], log_every: int | None = None) -> Step:
    """A step that trains a network of its own on all the rows: one call is one epoch."""
    network = IrisNetwork()
    module = network.module.to(device).train()
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    feed = make_feed([tensors_of(rows)], device, "resident")
    return Step(network, module, optimizer, feed, device, "fp32", log_every)


def count_correct(learner: Step, rows: Sequence[Row]) -> int:
    """How many rows the network names rightly."""
    features, labels = tensors_of(rows)
    with torch.inference_mode():
        chosen = learner.module(features.to(learner.device)).argmax(dim=1).cpu()
    return int((chosen == labels).sum())


def tensors_of(rows: Sequence[Row]) -> Rows:
    """Features (rows, 4) in fp32 and labels (rows,) in int64, on the CPU."""
    return torch.tensor([row[0] for row in rows], dtype=torch.float32), torch.tensor([row[1] for row in rows])
