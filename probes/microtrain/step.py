"""What a step is: the one definition that every measurement, the tracing and the experiment use.

One step of training: the batch is put on the device (unless the data is resident), forward through the model's call,
loss, `zero_grad(set_to_none=True)`, backward, `optimizer.step()`; every `log_every` steps the loss is read with
`.item()`. Train mode, eager, torch's own defaults for the optimizer. One step of inference: the forward under
`torch.inference_mode()` in eval mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Protocol

import torch
from torch import nn

from probes.microtrain.feeding import Batch, Feed, make_feed
from probes.workload.description import Data, Mode, OptimizerName, Plan, Precision

AUTOCAST_DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}

OPTIMIZER_FACTORIES: dict[OptimizerName, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "sgd-momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}


class UnsupportedWorkload(RuntimeError):
    """This model cannot be stepped like this, on any machine or on this one; the message says why."""


class Built(Protocol):
    """What a step needs of a model (probes.microtrain.models builds it)."""

    module: nn.Module

    def forward(self, module: nn.Module, batch: Batch) -> Any: ...

    def loss(self, output: Any, batch: Batch) -> torch.Tensor: ...


class Step:
    """One step a call. Run it inside `applied(plan)`, which sets what is global in torch: device, threads and tf32.

    batches come round and round; give several different ones: training on one batch for ever drifts into denormals,
    which are slow. `optimizer` None: inference. altered: places of tensors that it was seen to alter in its batches
    (probes.microtrain.measuring.altered_batches).
    """

    def __init__(
        self,
        built: Built,
        module: nn.Module,
        optimizer: torch.optim.Optimizer | None,
        feed: Feed,
        device: torch.device,
        precision: Precision = "fp32",
        log_every: int | None = None,
    ) -> None:
        self.built = built
        self.module = module
        self.optimizer = optimizer
        self.feed = feed
        self.device = device
        self.last_loss: float | None = None  # as last read
        self.altered: frozenset[int] | None = None
        self._log_every = log_every
        self._taken = 0
        self.use_precision(precision)
        scale = optimizer is not None and precision == "fp16" and device.type == "cuda"
        self._scaler = torch.amp.GradScaler(device.type) if scale else None

    def use_precision(self, precision: Precision) -> None:
        """Autocast from the next step on, or no longer."""
        self._dtype = AUTOCAST_DTYPES.get(precision)

    @property
    def holds_state(self) -> bool:
        """Whether the optimizer has all that it keeps: its first step makes it, and the scaler of fp16 may skip several
        before it lets one through."""
        optimizer = self.optimizer
        stateless = isinstance(optimizer, torch.optim.SGD) and not optimizer.defaults["momentum"]
        return optimizer is None or stateless or bool(optimizer.state)

    def __call__(self) -> Any:
        """Take a batch, compute, and read the loss when it is time to. Returns the loss (inference: the output)."""
        result = self.compute(self.feed.next())
        self._taken += 1
        if self._log_every is not None and self.optimizer is not None and self._taken % self._log_every == 0:
            self.last_loss = result.item()
        return result

    def compute(self, batch: Batch) -> Any:
        """The step on a batch that is on the device already; nothing is read back."""
        return self._infer(batch) if self.optimizer is None else self._train(batch, self.optimizer)

    def without_scaler(self) -> Step:
        """The same step, but for the gradient scaler's own operations: it reads a result back in every step."""
        bare = copy(self)
        bare._scaler = None
        return bare

    def _train(self, batch: Batch, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        with self._autocast():
            loss = self.built.loss(self.built.forward(self.module, batch), batch)
        optimizer.zero_grad(set_to_none=True)
        if self._scaler is None:
            loss.backward()
            optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.step(optimizer)
            self._scaler.update()
        return loss

    def _infer(self, batch: Batch) -> Any:
        with torch.inference_mode(), self._autocast():
            return self.built.forward(self.module, batch)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self._dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self._dtype)


def make_step(
    built: Built,
    batches: Sequence[Batch],
    plan: Plan,
    *,
    mode: Mode = "training",
    optimizer: OptimizerName = "adamw",
    data: Data = "pageable",
    log_every: int | None = None,
) -> Step:
    """A step of `built` under a plan, with an optimizer of its own; the module is moved to the plan's device.

    batches: on the CPU, as `built.make_batch` makes them. Raises UnsupportedWorkload, and torch's own errors when
    memory runs out.
    """
    device = torch.device(plan.device)
    module = built.module.to(device)
    module.train(mode == "training")
    stepper = make_optimizer(optimizer, module) if mode == "training" else None
    return Step(built, module, stepper, make_feed(batches, device, data), device, plan.precision, log_every)


def make_optimizer(name: OptimizerName, module: nn.Module) -> torch.optim.Optimizer:
    """With torch's defaults, over everything trainable. Raises UnsupportedWorkload when there is nothing."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise UnsupportedWorkload(
            "The model has no trainable parameters, so there is nothing to train. Ask for inference instead."
        )
    return OPTIMIZER_FACTORIES[name](parameters)


def made_current(device: str) -> contextlib.AbstractContextManager[object]:
    """Inside, it is what `cuda` means: in a model's own code, and where torch asks the current device whether it has
    bf16, or waits for it as a profiler ends. Else that is the first card, which may be full, older or another's."""
    if device.startswith("cuda") and torch.cuda.is_available():
        return torch.cuda.device(device)
    return contextlib.nullcontext()


@contextlib.contextmanager
def applied(plan: Plan) -> Iterator[None]:
    """Set what is global in torch for this plan, and put it back: the current device, CPU threads, and the precision of
    fp32 products.

    `fp32` means IEEE fp32 everywhere, though cuDNN's own default is tf32; `tf32` means tf32 in matrix products,
    convolutions and recurrent layers (torch docs, "CUDA semantics", "TensorFloat-32"). The precisions with autocast
    leave their fp32 remainder as torch has it.
    """
    threads = torch.get_num_threads()
    before = _fp32_precisions()
    try:
        if plan.is_cpu and plan.threads is not None and plan.threads != threads:
            torch.set_num_threads(plan.threads)
        if plan.precision in ("fp32", "tf32") and not plan.is_cpu:
            _set_fp32_precisions([plan.precision.replace("fp32", "ieee")] * len(before))
        with made_current(plan.device):
            yield
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if _fp32_precisions() != before:
            _set_fp32_precisions(before)


@contextlib.contextmanager
def flushing_denormals(flush: bool) -> Iterator[None]:
    """Inside, numbers too small for a full fraction count as 0. Raises UnsupportedWorkload where the CPU cannot.

    It is a state of each thread, and threads that torch starts inherit it (pthread_create): those that ran before are
    as they were, so a process of its own shows what it does.
    """
    if flush and not torch.set_flush_denormal(True):
        raise UnsupportedWorkload("This CPU has no mode that flushes denormals.")
    try:
        yield
    finally:
        if flush:
            torch.set_flush_denormal(False)


def _fp32_switches() -> tuple[Any, ...]:
    return (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)  # type: ignore[attr-defined]


def _fp32_precisions() -> list[str]:
    return [switch.fp32_precision for switch in _fp32_switches()]


def _set_fp32_precisions(values: Sequence[str]) -> None:
    """By the older names first, so that both agree: where they do not, torch 2.13 raises when it is asked by those, as
    transformers' CTC loss asks it."""
    matmul, convolutions, _ = values
    torch.backends.cuda.matmul.allow_tf32 = matmul == "tf32"
    torch.backends.cudnn.allow_tf32 = convolutions == "tf32"
    for switch, value in zip(_fp32_switches(), values, strict=True):
        switch.fp32_precision = value
