"""What kernels ask for while they run: as they do at sizes that were not tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile

from probes.allocations import RESULT
from probes.microtrain.building.fake_models import build_fake
from probes.microtrain.kernel_memory import kernel_allocations as module
from probes.microtrain.kernel_memory import slow_kernels
from probes.microtrain.kernel_memory.kernel_allocations import Places, kernel_allocations
from probes.microtrain.kernel_memory.kernel_calls import call_at, call_of
from probes.microtrain.kernel_memory.kernel_trials import Taken, measure_call
from probes.microtrain.traces.operation_kinds import kind_of
from probes.microtrain.traces.primed_stepper import PrimedStepper, Recording
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.probes.microtrain.kernel_memory.enough_time import give_time

PAIR = (4, 6)
aten = torch.ops.aten
MODELS = {
    "images": (
        [{"type": "conv2d", "out": 16, "kernel": 3, "padding": 1}, "relu", "global_avg_pool", {"type": "linear"}],
        [3, 24, 24],
    ),
    "recurrent": ([{"type": "lstm", "hidden": 40, "output": "last"}, {"type": "linear"}], [20, 12]),
}


def recorded(name: str) -> tuple[Recording, Recording]:
    layers, shape = MODELS[name]
    layers = [{"out": 3, **each} if each == {"type": "linear"} else each for each in layers]  # type: ignore[dict-item]
    workload = Workload(parse_model({"layers": layers, "input_shape": shape}), 4)
    mode = FakeTensorMode()
    with mode:
        stepper = PrimedStepper(workload, build_fake(workload.model, mode))
        return stepper.record(PAIR[0]), stepper.record(PAIR[1])


def found(name: str) -> tuple[Places, Recording, Recording]:
    one, other = recorded(name)
    with FakeTensorMode():
        return kernel_allocations(PAIR, one, other), one, other


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_between_those_that_were_tried(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give_time(monkeypatch.setattr)
    places, one, other = found(name)
    assert places
    for place, kernels in places.items():
        assert 0 <= place <= len(one.log.order)
        calls = [(one.calls[number], other.calls[number]) for number in one.places[place]]
        real = [measure_call(call_at(PAIR, a, b, 24)) for a, b in calls if a and b]
        for kernel, taken in zip(kernels, (each for each in real if each.sizes), strict=True):
            assert kernel.order == taken.order
            assert sorted(each for each in kernel.order if each > 0) == list(range(1, len(kernel.sizes) + 1))
            assert [line.at(24) for line in kernel.sizes] == pytest.approx(taken.sizes, rel=0.1, abs=4096)


def taken_by(operation: OpOverload, *arguments: Any) -> Taken | None:
    """Of one operation on zeros; None where it is not asked for."""
    kind, dtype = kind_of(operation), str(arguments[0].dtype).removeprefix("torch.")
    call = call_of(operation, kind, dtype, arguments, {}, (0, 4096, 4096))
    return None if call is None else measure_call(call)


def test_an_operand_of_another_dtype_is_copied_before_the_result_is_made() -> None:
    narrow, wide = torch.zeros(64, 256, dtype=torch.bfloat16), torch.zeros(64, 256)
    for first, second in ((narrow, wide), (wide, narrow)):
        taken = taken_by(aten.add.Tensor, first, second)
        assert taken is not None
        assert (taken.sizes, taken.order) == ((64 * 256 * 4,), (0, RESULT, 1))
    assert taken_by(aten.add.Tensor, wide, wide) is None
    assert taken_by(aten.mul.Tensor, wide, torch.zeros((), dtype=torch.float64)) is None  # a number is no operand


def test_a_batch_norm_s_backward_makes_its_result_twice() -> None:
    """Under autocast, too: fake tensors have what its forward keeps as narrow as the images, real ones do not."""
    for dtype in (torch.float32, torch.bfloat16):
        images, weights = torch.zeros(4, 16, 8, 8, dtype=dtype), torch.ones(16)
        kept = torch.zeros(16, dtype=dtype)
        operation = aten.native_batch_norm_backward.default
        both = (images, images, weights, weights, weights, kept, kept, True, 1e-5, [True, True, True])
        taken = taken_by(operation, *both)
        assert taken is not None
        assert images.nbytes in taken.sizes


def test_what_does_not_lie_in_order_is_copied() -> None:
    gradient, tokens = torch.zeros(12, 32, 64), torch.zeros(32, 12, dtype=torch.int64)
    operation = aten.embedding_dense_backward.default
    taken = taken_by(operation, gradient.transpose(0, 1), tokens, 100, -1, False)
    assert taken is not None
    assert gradient.nbytes in taken.sizes
    assert taken_by(operation, gradient.transpose(0, 1).contiguous(), tokens, 100, -1, False) is None


def test_without_time_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", -1.0)
    monkeypatch.setattr(slow_kernels, "measure_call", lambda call: pytest.fail("tried"))
    places, _, _ = found("images")
    assert places == {}


def test_steps_that_run_different_operations_tell_nothing() -> None:
    one, other = recorded("images")
    shorter = replace(other, records=other.records[:-1], calls=other.calls[:1])
    assert kernel_allocations(PAIR, one, shorter) == {}


def test_a_kernel_that_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(call: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(slow_kernels, "measure_call", fail)
    places, _, _ = found("recurrent")
    assert places == {}


def test_what_was_there_before_and_goes_meanwhile_is_not_the_call_s() -> None:
    """The free of a size that it has not asked for: garbage, collected while it runs."""
    places, one, other = found("images")
    a, b = next((one.calls[n], other.calls[n]) for n in one.places[next(iter(places))])
    assert a
    assert b
    call = call_at(PAIR, a, b, 24)
    plain = measure_call.__wrapped__(call)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True):
        garbage = [torch.zeros(2**22)]

    class Dropping:
        def __call__(self, *arguments: Any) -> Any:
            garbage.clear()
            return call.operation(*arguments)

    seen = measure_call.__wrapped__(call._replace(operation=Dropping()))  # type: ignore[arg-type]
    assert not garbage
    assert (seen.inside, seen.sizes, seen.order) == (plain.inside, plain.sizes, plain.order)


def test_a_kernel_that_goes_another_way_at_the_smaller_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the larger size took, block by block: not one block of all together, which no process asks for."""
    ways = {
        True: Taken(100, 0, (100,), (0, RESULT, 1), 0.0),
        False: Taken(1200, 0, (800, 400), (0, 0, 1, RESULT, 2), 0.0),
    }
    sizes: list[int] = []

    def measure(call: Any) -> Taken:
        size = call.arguments[0].sizes[0]
        sizes.append(size)
        return ways[size < module.SIZES[-1]]

    monkeypatch.setattr(slow_kernels, "measure_call", measure)
    places, _, _ = found("images")
    kernels = [kernel for each in places.values() for kernel in each]
    assert max(sizes) == module.SIZES[-1]
    assert kernels
    for kernel in kernels:
        assert kernel.order == (0, 0, 1, RESULT, 2)
        assert [round(line.at(module.SIZES[-1])) for line in kernel.sizes] == [800, 400]
        assert 1 < kernel.sizes[0].at(2 * module.SIZES[-1]) / 800 <= 2


@pytest.mark.parametrize(
    ("operation", "rest"),
    [
        (aten.nll_loss_forward.default, (torch.zeros(2**15, dtype=torch.int64), None, 1, -100)),
        (aten.gather.default, (-1, torch.zeros(2**15, 1, dtype=torch.int64))),
        (aten.index_select.default, (0, torch.zeros(1, dtype=torch.int64))),
    ],
)
def test_an_operation_that_reads_little_of_a_large_table_is_bounded_by_the_table(
    operation: OpOverload, rest: tuple[Any, ...]
) -> None:
    """A trial would make it: of a GPT-2's vocabulary and 32 samples of 1,024 tokens 6.6 GB."""
    table = torch.empty(2**15, 50_257, device="meta")
    call = call_of(operation, kind_of(operation), "float32", (table, *rest), {}, (0, 2**18, 2**18))
    assert call is not None
    assert call.bound >= table.numel() * table.itemsize
