"""A repeated operation gives what torch would have given again."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from probes.microtrain.traces.repeats import describe, key_of, make

aten = torch.ops.aten


@pytest.fixture
def fake_mode() -> Iterator[FakeTensorMode]:
    with FakeTensorMode() as mode:
        yield mode


def layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    storage = tensor.untyped_storage()
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device, storage.nbytes()


REPEATED: list[tuple[OpOverload, Callable[[], tuple[Any, ...]]]] = [
    (aten.mm.default, lambda: (torch.empty(3, 4), torch.empty(4, 5))),
    (aten.add_.Tensor, lambda: (torch.empty(3, 4), torch.empty(4))),
    (aten.t.default, lambda: (torch.empty(3, 4),)),
    (aten.slice.Tensor, lambda: (torch.empty(6, 4), 0, 2, 5)),
    (aten._to_copy.default, lambda: (torch.empty(4, 3).t(),)),
    (aten.native_layer_norm.default, lambda: (torch.empty(2, 4), [4], torch.empty(4), torch.empty(4), 1e-5)),
    (aten.cat.default, lambda: ([torch.empty(2, 4), torch.empty(3, 4)],)),
    (aten.unsafe_split.Tensor, lambda: (torch.empty(6, 4), 2, 1)),
    (aten.unbind.int, lambda: (torch.empty(3, 4),)),
    (aten.max_pool2d_with_indices.default, lambda: (torch.empty(1, 2, 8, 8), [2, 2])),
]


@pytest.mark.usefixtures("fake_mode")
@pytest.mark.parametrize(("operation", "arguments"), REPEATED, ids=[str(operation) for operation, _ in REPEATED])
def test_results_are_made_as_torch_made_them(operation: OpOverload, arguments: Callable[[], Any]) -> None:
    first, second = arguments(), arguments()
    assert key_of(operation, first, {}) == key_of(operation, second, {}) is not None
    result = operation(*first)
    made = describe(first, result)
    assert made is not None
    single = isinstance(result, torch.Tensor)
    again = make(made, second, one=single, listed=isinstance(result, list))
    assert type(again) is type(result)
    ours, theirs = ((again,), (result,)) if single else (again, result)
    assert [layout(tensor) for tensor in ours] == [layout(tensor) for tensor in theirs]
    for mine, original in zip(ours, theirs, strict=True):
        shared = [a is original or a.untyped_storage()._cdata == original.untyped_storage()._cdata for a in first[:1]
                  if isinstance(a, torch.Tensor)]  # fmt: skip
        assert shared == [mine.untyped_storage()._cdata == a.untyped_storage()._cdata for a in second[:1]
                          if isinstance(a, torch.Tensor)]  # fmt: skip


@pytest.mark.usefixtures("fake_mode")
def test_other_layouts_types_or_numbers_are_other_operations() -> None:
    keys = {
        key_of(aten.mul.Tensor, (torch.empty(4, 4), torch.empty(4, 4)), {}),
        key_of(aten.mul.Tensor, (torch.empty(4, 4), torch.empty(4, 4).t()), {}),
        key_of(aten.mul.Tensor, (torch.empty(4, 4), torch.empty(4, 4, dtype=torch.int64)), {}),
        key_of(aten.mul.Tensor, (torch.empty(4, 4), 1), {}),
        key_of(aten.mul.Tensor, (torch.empty(4, 4), 1.0), {}),
        key_of(aten.mul.Tensor, (torch.empty(4, 4), True), {}),
    }
    assert len(keys) == 6
    assert None not in keys


@pytest.mark.usefixtures("fake_mode")
def test_whole_numbers_are_never_repeated_since_something_may_be_known_of_them() -> None:
    assert key_of(aten.ne.Scalar, (torch.zeros(4, dtype=torch.int64), -100), {}) is None


def test_real_tensors_are_never_repeated() -> None:
    assert key_of(aten.mm.default, (torch.empty(3, 4), torch.empty(4, 5)), {}) is None


@pytest.mark.usefixtures("fake_mode")
def test_a_view_of_a_weight_under_inference_mode_is_left_to_torch() -> None:
    weight = torch.nn.Parameter(torch.empty(1, 1, 4))
    with torch.inference_mode():
        assert describe((weight,), aten.expand.default(weight, [3, -1, -1])) is None


@pytest.mark.usefixtures("fake_mode")
def test_time_steps_of_a_sequence_are_alike_and_stay_where_they_are() -> None:
    first, *_, last = torch.empty(5, 2, 6).unbind(0)
    assert key_of(aten.slice.Tensor, (first, 1, 2, 4), {}) == key_of(aten.slice.Tensor, (last, 1, 2, 4), {})
    made = describe((first, 1, 2, 4), aten.slice.Tensor(first, 1, 2, 4))
    assert made is not None
    assert layout(make(made, (last, 1, 2, 4), one=True)) == layout(aten.slice.Tensor(last, 1, 2, 4))


@pytest.mark.usefixtures("fake_mode")
def test_what_counts_from_the_begin_of_the_memory_is_left_to_torch() -> None:
    assert key_of(aten.as_strided.default, (torch.empty(5, 2)[1:], [2, 2], [2, 1], 0), {}) is None
