"""What a built model is: a module, and how to feed it, call it and judge it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.nn.parameter import is_lazy

from probes.bounds import MAX_MODULES, MAX_PARAMETERS
from probes.workload.description import InvalidModel, Mode

Batch = Any  # a tensor, or tuples and dicts of them
MakeBatch = Callable[[int, torch.Generator | None], Batch]


@dataclass
class BuiltModel:
    """module: on the CPU, or fake where it was built under fake tensors.

    make_batch(batch_size, generator): CPU tensors, random and different each call. forward(module, batch): the
    module's call; takes the module apart from this object, so that a wrapped one can be given. loss(output, batch):
    a scalar to call backward on. inputs_of(batch): what of it the forward takes where no loss is asked for.
    """

    module: nn.Module
    make_batch: MakeBatch
    forward: Callable[[nn.Module, Batch], Any]
    loss: Callable[[Any, Batch], torch.Tensor]
    inputs_of: Callable[[Batch], Batch] = lambda batch: batch
    compiled: bool = False  # by its owner: copies of it may not say so

    def batch_for(self, mode: Mode, batch_size: int, generator: torch.Generator | None = None) -> Batch:
        """What a step is fed: in inference no targets, which would be copied to a device for nothing."""
        made = self.make_batch(batch_size, generator)
        return made if mode == "training" else self.inputs_of(made)


class TooManyBytes(InvalidModel):
    """Of parameters, for what a model is built for."""


class InvalidLoss(InvalidModel):
    """Nothing that a step can go backward from, whether its numbers are real or not."""


@contextmanager
def bounded_building(most_bytes: int | None = None) -> Iterator[None]:
    """While a model is built here: raises InvalidModel at MAX_MODULES modules or MAX_PARAMETERS parameters, and
    TooManyBytes where parameters in memory come to more than most_bytes, before anything is written into the last."""
    counts = {"modules": 0, "parameters": 0, "bytes": 0}
    memories: dict[int, int] = {}  # of parameters, bytes of each: what is shared is there once

    def on_module(_module: nn.Module, _name: str, _child: nn.Module) -> None:
        counts["modules"] += 1
        if counts["modules"] > MAX_MODULES:
            raise InvalidModel(f"The model has more than {MAX_MODULES} modules, which is the most that is built.")

    def on_parameter(_module: nn.Module, _name: str, parameter: nn.Parameter | None) -> None:
        counts["parameters"] += 0 if parameter is None or is_lazy(parameter) else parameter.numel()
        if counts["parameters"] > MAX_PARAMETERS:
            raise InvalidModel(f"The model has more than {MAX_PARAMETERS:.0e} parameters. Make it smaller.")
        if parameter is not None:
            take(parameter)

    def on_copy(parameter: nn.Parameter, memo: dict[int, Any]) -> nn.Parameter:
        its_copy = copy_parameter(parameter, memo)
        take(its_copy)
        return its_copy

    def take(parameter: nn.Parameter) -> None:
        if most_bytes is None or is_lazy(parameter) or parameter.is_meta:
            return
        memory = parameter.untyped_storage()
        counts["bytes"] += memory.nbytes() - memories.get(memory._cdata, 0)
        memories[memory._cdata] = memory.nbytes()
        if counts["bytes"] > most_bytes:
            raise TooManyBytes(f"The model's parameters take more than {most_bytes / 1e9:g} GB.")

    handles = [
        register_module_module_registration_hook(on_module),
        register_module_parameter_registration_hook(on_parameter),
    ]
    copy_parameter = nn.Parameter.__deepcopy__  # layers that are copied register none (nn.TransformerEncoder)
    nn.Parameter.__deepcopy__ = on_copy  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Parameter.__deepcopy__ = copy_parameter  # type: ignore[method-assign]
        for handle in handles:
            handle.remove()
