"""A workload's model, built: real torch modules with random weights, and random batches that fit them."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from probes.microtrain.building.built import Batch, BuiltModel, bounded_building
from probes.microtrain.building.layer_modules import build_layers
from probes.microtrain.building.remembered_tensors import forget_tensors
from probes.workload.description import InvalidModel, ModelDescription

__all__ = ["BuiltModel", "build_model"]


def build_model(description: ModelDescription, most_bytes: int | None = None) -> BuiltModel:
    """Build for real, or fake where the caller stands under fake tensors. Nothing is downloaded. What functions of
    models remember of tensors is forgotten first: it may be of a model without numbers.

    most_bytes: of parameters; TooManyBytes is raised beyond. Raises InvalidModel, with a sentence for whoever wrote the
    description; torch's own errors when memory runs out.
    """
    forget_tensors()
    with bounded_building(most_bytes):
        match description.kind:
            case "layers":
                return _build_layers(description.content)
            case "huggingface":
                # Imported when needed: transformers costs a second that a layer list does not owe.
                from probes.microtrain.building.huggingface_models import build_huggingface

                return build_huggingface(description.content)
            case "python":
                from probes.microtrain.building.python_models import build_python

                return build_python(description.content["target"])
            case _:
                raise InvalidModel("A summary has no layers that could be built; it can be estimated, not measured.")


def _build_layers(content: dict[str, Any]) -> BuiltModel:
    shape, tokens = tuple(content["input_shape"]), content["tokens"]
    output, axis = tuple(content["output_shape"]), content["class_axis"]
    classify = content["loss"] == "cross-entropy"

    def make_batch(batch_size: int, generator: torch.Generator | None = None) -> Batch:
        inputs = (
            torch.randint(tokens, (batch_size, *shape), generator=generator)
            if tokens
            else torch.randn(batch_size, *shape, generator=generator)
        )
        return {"inputs": inputs, "targets": make_targets(batch_size, generator)}

    def make_targets(batch_size: int, generator: torch.Generator | None) -> torch.Tensor:
        if not classify:
            return torch.randn(batch_size, *output, generator=generator)
        places = (batch_size, *output[: axis - 1], *output[axis:])
        return torch.randint(output[axis - 1], places, generator=generator)

    def loss(result: torch.Tensor, batch: Batch) -> torch.Tensor:
        if not classify:
            return functional.mse_loss(result, batch["targets"])
        logits = result if axis == 1 else result.movedim(axis, 1)
        return functional.cross_entropy(logits, batch["targets"])

    def inputs_of(batch: Batch) -> Batch:
        return {"inputs": batch["inputs"]}

    module = build_layers(content["layers"])
    return BuiltModel(module, make_batch, lambda net, batch: net(batch["inputs"]), loss, inputs_of)
