"""A script to paste: the recommended plan, set up and running on random data."""

from __future__ import annotations

from app.advisor.environments import export_lines
from app.advisor.snippets.snippet_source import source_of
from app.advisor.snippets.source import Source
from probes.workload.description import Plan, Workload

OPTIMIZERS = {
    "sgd": "torch.optim.SGD(model.parameters())",
    "sgd-momentum": "torch.optim.SGD(model.parameters(), momentum=0.9)",
    "adam": "torch.optim.Adam(model.parameters())",
    "adamw": "torch.optim.AdamW(model.parameters())",
    "rmsprop": "torch.optim.RMSprop(model.parameters())",
    "adagrad": "torch.optim.Adagrad(model.parameters())",
}
DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}
STEPS = 3


def write_snippet(workload: Workload, plan: Plan) -> str:
    """Python that runs as it stands: a few steps of this workload under this plan.

    The data is random; two comments say where one's own goes.
    """
    training = workload.mode == "training"
    source = source_of(workload, plan)
    blocks = [
        _before_python(plan),
        "\n".join(["import torch", "from torch import nn", *source.imports]),
        f"\n{source.classes}\n" if source.classes else "",
        "\n".join([*_settings(plan), f'device = torch.device("{plan.device}")', *_made_current(plan)]),
        f"{_built(source, workload, plan)}\n{_moved(plan, training)}{_compiled(plan)}",
        _optimizer(workload, plan) if training else "",
        f"# Random stand-ins: your own data goes here.\n{source.batch}{_placed(source, workload, plan)}",
        _training_loop(source, workload, plan) if training else _inference_loop(source, workload, plan),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _built(source: Source, workload: Workload, plan: Plan) -> str:
    """On the device itself where the code is known to take that (transformers builds under one itself):
    the host's memory may be the smaller. One's own Python is run as it is."""
    if plan.is_cpu or workload.model.kind == "python":
        return source.model
    return "with device:  # not in the host's memory first\n" + _indented(source.model)


def _moved(plan: Plan, training: bool) -> str:
    layout = ", memory_format=torch.channels_last" if plan.channels_last else ""
    return f"model = model.to(device{layout}).{'train' if training else 'eval'}()"


def _compiled(plan: Plan) -> str:
    return "\nmodel = torch.compile(model)" if plan.compiled else ""


def _placed(source: Source, workload: Workload, plan: Plan) -> str:
    """Where a device takes it from, before any step: from ordinary memory a copy keeps the host waiting, whatever it is
    told."""
    if plan.is_cpu or workload.data == "pageable":
        return ""
    if workload.data == "pinned":
        return f"\n# As a DataLoader leaves it with pin_memory=True:\n{source.pin}"
    return "\n".join(["", "# All of your data lies on the device:", *(source.place or source.feed)])


def _before_a_step(source: Source, workload: Workload, plan: Plan) -> list[str]:
    """What each batch needs."""
    return source.renew if plan.is_cpu or workload.data == "resident" else source.feed


def _before_python(plan: Plan) -> str:
    """What a process reads when it starts, and Python cannot set for itself any more."""
    if not plan.environment:
        return ""
    return "\n".join(["# In the shell, before Python starts:", *(f"#   {line}" for line in export_lines(plan))])


def _settings(plan: Plan) -> list[str]:
    """What torch has to be told before the first operation."""
    if plan.is_cpu:
        flush = ["torch.set_flush_denormal(True)"] if plan.flush_denormal else []  # before torch starts its threads
        return [*flush, *([] if plan.threads is None else [f"torch.set_num_threads({plan.threads})"])]
    if plan.precision not in ("fp32", "tf32"):
        return []
    # Not by `fp32_precision`: then torch 2.13 raises where it is asked by this older name, as a CTC loss asks it.
    switches = ("torch.backends.cuda.matmul", "torch.backends.cudnn")
    return [f"{switch}.allow_tf32 = {plan.precision == 'tf32'}" for switch in switches]


def _made_current(plan: Plan) -> list[str]:
    """As while it was measured (probes.microtrain.step.made_current): bare `cuda` in a model's own code is the current
    device, and autocast asks that one whether it has bf16. The first card is it unasked."""
    return [] if plan.device in ("cpu", "cuda:0") else ["torch.cuda.set_device(device)"]


def _optimizer(workload: Workload, plan: Plan) -> str:
    lines = [f"optimizer = {OPTIMIZERS[workload.optimizer]}"]
    if _scales(plan):
        lines.append(f'scaler = torch.amp.GradScaler("{_kind(plan)}")')
    return "\n".join(lines)


def _training_loop(source: Source, workload: Workload, plan: Plan) -> str:
    backward = ["loss.backward()", "optimizer.step()"]
    if _scales(plan):
        backward = ["scaler.scale(loss).backward()", "scaler.step(optimizer)", "scaler.update()"]
    body = [
        *_before_a_step(source, workload, plan),
        *_autocast(plan, source.loss),
        "optimizer.zero_grad(set_to_none=True)",
        *backward,
        *_reading(workload),
    ]
    return _loop(body) + ("" if workload.log_every == 1 else "\nprint(loss.item())")


def _inference_loop(source: Source, workload: Workload, plan: Plan) -> str:
    body = [
        *_before_a_step(source, workload, plan),
        *_autocast(plan, [source.forward]),
        "del output  # use it before: kept, it lies beside the next one",
    ]
    return "with torch.inference_mode():\n" + _indented(_loop(body))


def _loop(body: list[str]) -> str:
    return f"for step in range({STEPS}):  # over your batches\n" + _indented("\n".join(body))


def _autocast(plan: Plan, lines: list[str]) -> list[str]:
    if plan.precision not in DTYPES:
        return lines
    opening = f'with torch.autocast("{_kind(plan)}", dtype={DTYPES[plan.precision]}):'
    return [opening, *(_indented(line) for line in lines)]


def _reading(workload: Workload) -> list[str]:
    if workload.log_every is None:
        return []
    if workload.log_every == 1:
        return ["print(loss.item())"]
    return [f"if step % {workload.log_every} == 0:", "    print(loss.item())"]


def _scales(plan: Plan) -> bool:
    return plan.precision == "fp16" and not plan.is_cpu


def _kind(plan: Plan) -> str:
    return plan.device.split(":")[0]


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else line for line in text.split("\n"))
