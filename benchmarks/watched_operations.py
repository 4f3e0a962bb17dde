"""Which of torch's own operations allocate otherwise while a dispatch mode watches (docs/decisions/0018).

pip install expecttest && python -m benchmarks.watched_operations         all of torch's table of operations: a minute
python -m benchmarks.watched_operations var_mean attention                those whose names have one of these in them

Each sample of torch's own test cases (torch.testing, op_db) runs forward and backward in fp32 on the CPU, plain and
under a mode that does as our recorder does (probes.microtrain.traces.unwatched). Compared is how many bytes were
allocated how often, as torch's profiler sees them; a number that is wrapped as a tensor (8 bytes or less) is not
counted.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import torch
from torch._ops import OpOverload
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from probes.microtrain.traces.operation_costs import tensors_in
from probes.microtrain.traces.unwatched import as_unwatched, unheld

SAMPLES = 8  # of an operation, at most
WRAPPED = 8  # bytes
Sizes = Counter[int]


class Watching(TorchDispatchMode):
    """Runs each operation as if it did not watch."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return as_unwatched(func, args, kwargs or {})(*args, **(kwargs or {}))


def allocations(step: Callable[[], object], watch: AbstractContextManager[object]) -> Sizes:
    """Bytes -> how often that many were allocated."""
    torch.manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched, watch:
        step()
    results: Any = watched.profiler
    events = results.kineto_results.events()
    return Counter(event.nbytes() for event in events if event.name() == "[memory]" and event.nbytes() > WRAPPED)


def step_of(operation: Callable[..., Any], inputs: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[], None]:
    """Forward and, where gradients are asked for, backward."""
    leaves = [each for each in _tensors([*inputs, *kwargs.values()]) if each.requires_grad and each.is_leaf]

    def step() -> None:
        results = operation(*inputs, **kwargs)
        learned = [each for each in _tensors([results]) if each.requires_grad]
        del results
        if learned:
            torch.autograd.grad(learned, leaves, [torch.ones_like(each) for each in learned], allow_unused=True)

    return step


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        yield from tensors_in(value)


def samples_of(operation: Any) -> Iterator[Callable[[], None]]:
    """Steps of an entry of torch's table that run in fp32."""
    if torch.float32 not in operation.dtypes:
        return
    learns = operation.supports_autograd and torch.float32 in operation.backward_dtypes
    for sample in islice(operation.sample_inputs("cpu", torch.float32, requires_grad=learns), SAMPLES):
        step = step_of(operation.op, [sample.input, *sample.args], sample.kwargs)
        try:
            step()
        except (RuntimeError, AssertionError):  # what torch refuses, or only a GPU does
            continue
        yield step


def differences(step: Callable[[], None]) -> dict[int, int]:
    """Bytes -> allocations that only a watched step makes; below zero: that only a plain one makes."""
    plain, watched = allocations(step, nullcontext()), allocations(step, Watching())
    return {size: watched[size] - plain[size] for size in plain | watched if watched[size] != plain[size]}


def main(names: Sequence[str]) -> int:
    """A line an operation that differs, then how many do. Returns the exit code."""
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        sys.stderr.write(f"torch's table of operations needs another package: pip install {error.name}\n")
        return 1
    warnings.simplefilter("ignore")
    unheld()  # before any backward, as it asks
    torch.set_num_threads(1)
    operations, samples, differing = set(), 0, set()
    for entry in op_db:
        name = ".".join(part for part in (entry.name, entry.variant_test_name) if part)
        if names and not any(each in name for each in names):
            continue
        for step in samples_of(entry):
            samples += 1
            operations.add(name)
            found = differences(step)
            if found and name not in differing:
                differing.add(name)
                sys.stdout.write(
                    f"{name}: {', '.join(f'{count:+d} of {size} bytes' for size, count in found.items())}\n"
                )
    sys.stdout.write(f"{len(operations)} operations, {samples} samples; {len(differing)} operations differ.\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
