"""What the host pays for issuing: an operation with nothing to compute, an optimizer's step of a parameter tensor."""

from __future__ import annotations

import torch
from torch import nn

from probes.microtrain.constants.bench import Action, Bench, Effort
from probes.microtrain.measuring.counting import count_dispatches
from probes.workload.description import Plan

CHAIN = 16  # operations in a row: one is too short for the clock
TENSORS = 24  # parameter tensors that the optimizer steps, of a few numbers each
TENSOR_SIZE = 16


def dispatch(plan: Plan, effort: Effort) -> list[Bench]:
    """Seconds an operation on four numbers: in a forward without autograd, and in forward and backward with it.

    On a device this is the time in which the host issues it, as the queue never fills.
    """
    return [_chain(plan, autograd=False), _chain(plan, autograd=True)]


def _chain(plan: Plan, *, autograd: bool) -> Bench:
    operations = count_dispatches(_make_chain(torch.device("cpu"), autograd))
    return Bench(
        "dispatch",
        plan,
        {"autograd": float(autograd)},
        lambda: _make_chain(torch.device(plan.device), autograd),
        executions=operations,
    )


def _make_chain(device: torch.device, autograd: bool) -> Action:
    start = torch.full((4,), 0.5, device=device, requires_grad=autograd)
    gradient = torch.ones_like(start, requires_grad=False)

    def run() -> None:
        value = start
        for _ in range(CHAIN // 2):
            value = torch.tanh(value) + start
        if autograd:
            torch.autograd.grad(value, start, grad_outputs=gradient)

    return run


def optimizer(plan: Plan, effort: Effort) -> list[Bench]:
    """Seconds a parameter tensor of 16 numbers: torch's AdamW and SGD as they are by default."""
    return [_optimizer_bench(plan, "adamw"), _optimizer_bench(plan, "sgd")]


def _optimizer_bench(plan: Plan, name: str) -> Bench:
    def make() -> Action:
        device = torch.device(plan.device)
        parameters = [nn.Parameter(torch.randn(TENSOR_SIZE, device=device)) for _ in range(TENSORS)]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        chosen = torch.optim.AdamW(parameters) if name == "adamw" else torch.optim.SGD(parameters)
        return chosen.step

    return Bench("optimizer", plan, {name: 1.0, "elements": TENSOR_SIZE}, make, executions=TENSORS)
