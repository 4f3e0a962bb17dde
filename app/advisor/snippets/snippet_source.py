"""A workload's model as Python source: how to build it, a random batch, and its loss."""

from __future__ import annotations

from collections.abc import Sequence

from app.advisor.snippets.snippet_huggingface import can_write, source_of_config
from app.advisor.snippets.snippet_layers import UnknownLayer, write_layers
from app.advisor.snippets.source import Source
from probes.workload.description import Plan, Workload

# Of inputs and targets, and of inputs alone.
_PIN = {
    "training": "x, y = x.pin_memory(), y.pin_memory()",
    "inference": "x = x.pin_memory()",
}
_FEED = {
    "training": "x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)",
    "inference": "x = x.to(device, non_blocking=True)",
}


def source_of(workload: Workload, plan: Plan) -> Source:
    """Source that builds this very model; for a summary, of which only totals are known, a small stand-in. plan: that
    it is to run under, which may take other imports."""
    kind = workload.model.kind
    if kind == "layers":
        try:
            return _layers(workload)
        except UnknownLayer:
            return _by_crosspoint(workload, plan)
    if kind == "summary":
        return _stand_in(workload)
    if kind == "huggingface" and can_write(workload):
        return source_of_config(workload)
    return _by_crosspoint(workload, plan)


def _layers(workload: Workload) -> Source:
    content = workload.model.content
    classes, expression = write_layers(content["layers"], 1 + len(content["input_shape"]))
    batch, shape = workload.batch_size, content["input_shape"]
    x = f"torch.randint({content['tokens']}, {_sizes(batch, shape)})" if content.get("tokens") else None
    x = x or f"torch.randn({', '.join(map(str, (batch, *shape)))})"
    forward, loss, y = _loss_of_layers(workload)
    made, mode = _made(workload, x, y), workload.mode
    return Source(f"model = {expression}", made, _PIN[mode], [_FEED[mode]], forward, loss, classes)


def _made(workload: Workload, x: str, y: str) -> str:
    """Targets where a loss is asked for."""
    return f"x = {x}\ny = {y}" if workload.mode == "training" else f"x = {x}"


def _loss_of_layers(workload: Workload) -> tuple[str, list[str], str]:
    """(forward, loss, random targets); classes lie on `class_axis`, where torch wants them on axis 1."""
    content, batch = workload.model.content, workload.batch_size
    output, axis = list(content["output_shape"]), content["class_axis"]
    if content["loss"] == "mse":
        targets = f"torch.randn({', '.join(map(str, (batch, *output)))})"
        return "output = model(x)", ["loss = nn.functional.mse_loss(model(x), y)"], targets
    classes = output.pop(axis - 1)
    moved = "model(x)" if axis == 1 else f"model(x).movedim({axis}, 1)"
    targets = f"torch.randint({classes}, {_sizes(batch, output)})"
    return "output = model(x)", [f"loss = nn.functional.cross_entropy({moved}, y)"], targets


def _sizes(batch: int, shape: Sequence[int]) -> str:
    return repr((batch, *shape))


def _stand_in(workload: Workload) -> Source:
    """Only totals are known: the settings are real, the model is the reader's own."""
    return Source(
        model="# A summary has no layers: your model goes here.\nmodel = nn.Linear(16, 4)",
        batch=_made(workload, f"torch.randn({workload.batch_size}, 16)", f"torch.randint(4, ({workload.batch_size},))"),
        pin=_PIN[workload.mode],
        feed=[_FEED[workload.mode]],
        forward="output = model(x)",
        loss=["loss = nn.functional.cross_entropy(model(x), y)"],
    )


def _by_crosspoint(workload: Workload, plan: Plan) -> Source:
    """Built the way crosspoint measured it, by its own package: for what cannot be written down in a few lines. A step
    of one's own code may alter its batch: what was made is kept, and each step has a copy."""
    document, is_own = workload.model.to_json(), workload.model.kind == "python"
    made = "made" if is_own else "batch"
    return Source(
        imports=[
            f"from probes.microtrain.feeding import {_of_feeding(workload, plan)}  # crosspoint, in this environment",
            "from probes.microtrain.models import build_model",
            "from probes.workload.description import ModelDescription",
        ],
        model=f"built = build_model(ModelDescription.from_json({document!r}))\nmodel = built.module",
        batch=f"{made} = {_made_on_the_cpu(workload)}",
        pin=f"({made},) = pinned([{made}])",
        feed=[f"batch = to_device({made}, device, non_blocking=True)"],
        renew=["batch = map_tensors(made, own_copy)"] if is_own else [],
        place=["made = to_device(made, device)"] if is_own else [],
        forward="output = built.forward(model, batch)",
        loss=["loss = built.loss(built.forward(model, batch), batch)"],
    )


def _of_feeding(workload: Workload, plan: Plan) -> str:
    """Names that its lines need under this plan."""
    if plan.is_cpu or workload.data == "resident":
        return "map_tensors, own_copy, to_device" if workload.model.kind == "python" else "to_device"
    return "pinned, to_device" if workload.data == "pinned" else "to_device"


def _made_on_the_cpu(workload: Workload) -> str:
    """One's own function may make batches anywhere, as where a card is left that it was written for."""
    fed = f'batch_for("{workload.mode}", {workload.batch_size})'
    made = f"built.make_batch({workload.batch_size}, None)" if workload.mode == "training" else f"built.{fed}"
    return f'to_device({made}, torch.device("cpu"))' if workload.model.kind == "python" else made
