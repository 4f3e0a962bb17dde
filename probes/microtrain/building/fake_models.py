"""A model under fake tensors: it has shapes and no memory, so that a 70-billion-parameter one can be stepped."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily

from probes.microtrain.building.built import Batch, MakeBatch
from probes.microtrain.building.module_copies import computed_tensors, keep_hooks, own_tensors
from probes.microtrain.feeding import map_parts
from probes.microtrain.models import BuiltModel, build_model
from probes.workload.description import ModelDescription


def build_fake(description: ModelDescription, mode: FakeTensorMode) -> BuiltModel:
    """Built on the meta device, where values that a constructor asks for (`linspace(…, device="cpu").item()`) are
    still real, then made fake tensors of the CPU. Raises InvalidModel as build_model does; the user's own Python may
    raise anything, as code may that finds no numbers where it looks for them."""
    built = build_meta(description)
    if description.kind == "python":
        return fake_python(built, mode)
    replace_tensors(built.module, lambda tensor: _fake(tensor, mode))
    return built


def build_meta(description: ModelDescription) -> BuiltModel:
    """Built on the meta device; what the user's own Python makes when it is imported is real."""
    _import(description)
    with torch.device("meta"):
        return build_model(description)


def build_within(description: ModelDescription, mode: FakeTensorMode) -> BuiltModel:
    """The user's own Python, built under fake tensors: what it keeps of its parameters, wherever that is, is what is
    stepped. The mode has to allow what was real before."""
    _import(description)
    with mode:
        built = build_model(description)
    return fake_python(built, mode)


def _import(description: ModelDescription) -> None:
    if description.kind == "python":
        from probes.microtrain.building.python_models import import_target

        import_target(description.content["target"])


def fake_python(built: BuiltModel, mode: FakeTensorMode) -> BuiltModel:
    """With fake tensors of the CPU in place of real and meta ones. The user's module may be one that lives on, so it is
    copied; batches are made as the user makes them, of real tensors or numpy arrays, and only their shapes are kept."""
    tensors = [*built.module.parameters(), *built.module.buffers()]
    if all(tensor.is_meta for tensor in tensors):
        replace_tensors(built.module, lambda tensor: _fake(tensor, mode))
    elif any(not _is_fake(tensor, mode) for tensor in tensors):
        # What was computed from parameters and kept has no way back to them: used as it is, it is to fail here.
        computed = {
            id(tensor): tensor if _is_fake(tensor, mode) else torch.empty_like(tensor, device="meta")
            for tensor in computed_tensors(built.module)
        }
        built.module = copy.deepcopy(built.module, computed | _fakes(tensors, mode))
    built.make_batch = _fake_batches(built.make_batch, mode)
    return built


def fake_copy(module: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """A module like this one, with fake tensors of the CPU in place of the parameters, buffers and attributes of this
    one, wherever those lie. It shares what is that already."""
    tensors = [tensor for child in module.modules() for tensor in own_tensors(child)]
    return copy.deepcopy(module, _fakes(tensors, mode))


def _fakes(tensors: Iterable[torch.Tensor], mode: FakeTensorMode) -> dict[int, torch.Tensor]:
    """By identity, for a copy: what is fake already is shared."""
    return {id(tensor): tensor if _is_fake(tensor, mode) else _like(tensor, _fake(tensor, mode)) for tensor in tensors}


def _like(tensor: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    if not isinstance(tensor, nn.Parameter):
        return new
    parameter = nn.Parameter(new, tensor.requires_grad)
    keep_hooks(tensor, parameter)
    return parameter


def _fake_batches(make_batch: MakeBatch, mode: FakeTensorMode) -> MakeBatch:
    def make(batch_size: int, generator: torch.Generator | None = None) -> Batch:
        with unset_fake_temporarily():
            batch = make_batch(batch_size, generator)
        done: dict[int, torch.Tensor] = {}  # labels may be the inputs themselves

        def fake(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return done.setdefault(id(value), _fake(value, mode).requires_grad_(value.requires_grad))
            return map_parts(value, fake)

        return fake(batch)

    return make


def _is_fake(tensor: torch.Tensor, mode: FakeTensorMode) -> bool:
    return isinstance(tensor, FakeTensor) and tensor.fake_mode is mode and tensor.device.type == "cpu"


def _fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """The same shape, strides and dtype, on the CPU."""
    with mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


def replace_tensors(module: nn.Module, replace: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Every parameter and buffer replaced; what was shared (tied embeddings) stays shared."""
    done: dict[int, torch.Tensor] = {}
    kept: list[torch.Tensor] = []  # so that no id is given out twice

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in done:
            new = replace(tensor)
            done[id(tensor)] = _like(tensor, new)
            kept.append(tensor)
        return done[id(tensor)]

    for child in module.modules():
        for tensors in (child._parameters, child._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = once(tensor)  # type: ignore[assignment]
        _refresh_flat_weights(child)


def _refresh_flat_weights(module: nn.Module) -> None:
    """Recurrent layers keep a list of their parameters beside them."""
    if isinstance(module, nn.RNNBase):
        module._flat_weights = [getattr(module, name) for name in module._flat_weights_names]
