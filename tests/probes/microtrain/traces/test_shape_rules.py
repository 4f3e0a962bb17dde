"""What a rule gives has the layout that the kernel gives, where the rule gives anything."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._ops import OpOverload

from probes.microtrain.traces.shape_rules import RULES

aten = torch.ops.aten

LAST = torch.channels_last
IMAGES: dict[str, Callable[[torch.dtype], torch.Tensor]] = {
    "rows": lambda dtype: torch.zeros(4, 6, dtype=dtype),
    "sequences": lambda dtype: torch.zeros(4, 6, 9, dtype=dtype),
    "images": lambda dtype: torch.zeros(4, 6, 8, 8, dtype=dtype),
    "channels last": lambda dtype: torch.zeros(4, 6, 8, 8, dtype=dtype).contiguous(memory_format=LAST),
    "volumes": lambda dtype: torch.zeros(2, 6, 3, 4, 4, dtype=dtype),
    "a part": lambda dtype: torch.zeros(4, 12, 8, 8, dtype=dtype)[:, ::2],
    "turned": lambda dtype: torch.zeros(8, 8, 6, 4, dtype=dtype).permute(3, 2, 0, 1),
}
TYPES = [(torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.bfloat16, torch.bfloat16)]
ELEMENTWISE: dict[OpOverload, tuple[Any, ...]] = {
    aten.gelu_backward.default: (),
    aten.hardsigmoid_backward.default: (),
    aten.hardswish_backward.default: (),
    aten.hardtanh_backward.default: (-1.0, 1.0),
    aten.sigmoid_backward.default: (),
    aten.silu_backward.default: (),
    aten.tanh_backward.default: (),
    aten.threshold_backward.default: (0.0,),
}
KNOWN = ("rows", "sequences", "images", "channels last", "volumes")


def layouts(results: Any) -> list[Any]:
    several = results if isinstance(results, tuple) else (results,)
    return [None if each is None else (each.shape, each.stride(), each.dtype) for each in several]


def check(operation: OpOverload, arguments: tuple[Any, ...]) -> bool:
    """Whether the rule knows."""
    made = RULES[operation](*arguments)
    if made is None:
        return False
    assert layouts(made) == layouts(operation(*arguments))
    return True


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("name", IMAGES)
def test_batch_norm(name: str, types: tuple[torch.dtype, torch.dtype], training: bool) -> None:
    images, numbers = IMAGES[name](types[0]), torch.ones(6, dtype=types[1])
    known = check(aten.native_batch_norm.default, (images, numbers, numbers, numbers, numbers, training, 0.1, 1e-5))
    assert known is (name in KNOWN)
    kept = aten.native_batch_norm.default(images, numbers, numbers, numbers, numbers, training, 0.1, 1e-5)[1:]
    rest = (numbers, numbers, numbers, *kept, training, 1e-5)
    assert known is check(aten.native_batch_norm_backward.default, (images, images, *rest, [True, True, True]))
    # A frozen one: rare, and torch's own stand-in answers.
    assert not check(aten.native_batch_norm_backward.default, (images, images, *rest, [True, False, False]))


def test_batch_norm_without_parameters_or_statistics() -> None:
    images = IMAGES["images"](torch.float32)
    assert check(aten.native_batch_norm.default, (images, None, None, None, None, True, 0.1, 1e-5))
    kept = aten.native_batch_norm.default(images, None, None, None, None, True, 0.1, 1e-5)[1:]
    wanted = (True, 1e-5, [True, False, False])
    assert not check(aten.native_batch_norm_backward.default, (images, images, None, None, None, *kept, *wanted))


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("name", IMAGES)
def test_group_norm(name: str, types: tuple[torch.dtype, torch.dtype]) -> None:
    images, numbers = IMAGES[name](types[0]), torch.ones(6, dtype=types[1])
    sizes = (images.shape[0], 6, images.numel() // images.shape[0] // 6, 3)
    forward, backward = aten.native_group_norm.default, aten.native_group_norm_backward.default
    assert not check(forward, (images, None, None, *sizes, 1e-5))
    if name not in KNOWN:  # nor does the kernel take them
        assert not check(forward, (images, numbers, numbers, *sizes, 1e-5))
        return
    assert check(forward, (images, numbers, numbers, *sizes, 1e-5))
    kept = forward(images, numbers, numbers, *sizes, 1e-5)[1:]
    assert check(backward, (images, images, *kept, numbers, *sizes, [True, True, True]))
    assert not check(backward, (images, images, *kept, numbers, *sizes, [True, False, False]))


@pytest.mark.parametrize(
    "shape", [(-1,), (24, -1), (4, 2, 3, -1), (1, 4, -1, 1), (4, 6, 64), (1536,), (4, -1, 8, 2, 4)]
)
@pytest.mark.parametrize("operation", [aten.view.default, aten._unsafe_view.default], ids=str)
def test_views(operation: OpOverload, shape: tuple[int, ...]) -> None:
    images = IMAGES["images"](torch.float32)
    assert check(operation, (images, shape))
    assert check(operation, (images[1:2], (6, -1, 2)))
    for seen in (images, images[1:2]):
        made = RULES[operation](seen, (2, -1))
        assert (made.data_ptr(), made.untyped_storage().data_ptr()) == (seen.data_ptr(), images.data_ptr())
    for unknown in ("a part", "turned", "channels last"):
        assert RULES[operation](IMAGES[unknown](torch.float32), (-1,)) is None


def test_views_of_single_numbers_and_of_none() -> None:
    assert check(aten.view.default, (torch.zeros(()), (1, 1)))
    assert check(aten.view.default, (torch.zeros(1, 1), ()))
    assert not check(aten.view.default, (torch.zeros(0, 3), (3, 0)))
    for shape in ((4, -1), (2,), (1, 3), (0, -1), (12,)):  # torch says why
        assert RULES[aten.view.default](torch.zeros(6), shape) is None


@pytest.mark.parametrize("over", [1, 2])
@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("name", IMAGES)
def test_layer_norm(name: str, types: tuple[torch.dtype, torch.dtype], over: int) -> None:
    forward, backward = aten.native_layer_norm.default, aten.native_layer_norm_backward.default
    of = IMAGES[name](types[0])
    if of.dim() <= over:
        return
    shape = list(of.shape[-over:])
    numbers = torch.ones(shape, dtype=types[1])
    assert check(forward, (of, shape, numbers, numbers, 1e-5)) is of.is_contiguous()
    assert not check(forward, (of, shape, None, None, 1e-5))
    kept = forward(of, shape, numbers, numbers, 1e-5)[1:]
    every = [True, True, True]
    assert check(backward, (of, of, shape, *kept, numbers, numbers, every)) is of.is_contiguous()
    assert not check(backward, (of, of, shape, *kept, numbers, numbers, [True, False, False]))
    assert not check(backward, (of[:1].expand(of.shape), of, shape, *kept, numbers, numbers, every))


def numbers(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


REFUSED: list[tuple[OpOverload, tuple[Any, ...]]] = [
    (aten.native_layer_norm.default, (numbers(4, 6), [3], numbers(3), numbers(3), 1e-5)),
    (aten.native_layer_norm.default, (numbers(4, 6), [6], numbers(3), numbers(3), 1e-5)),
    (aten.native_layer_norm.default, (numbers(4, 6), [6], numbers(6), numbers(3), 1e-5)),
    (aten.native_layer_norm.default, (numbers(4, 6), [2, 4, 6], numbers(2, 4, 6), numbers(2, 4, 6), 1e-5)),
    (aten.native_layer_norm.default, (numbers(), [], numbers(), numbers(), 1e-5)),
    (aten.addmm.default, (numbers(5), numbers(4, 6), numbers(7, 5))),
    (aten.addmm.default, (numbers(3), numbers(4, 6), numbers(6, 5))),
    (aten.addmm.default, (numbers(5), numbers(4, 6, 2), numbers(6, 5))),
    (aten.addmm.default, (numbers(5), numbers(6), numbers(6, 5))),
    (aten.hardtanh.default, (numbers(4, 6).bool(),)),
    (aten.hardtanh.default, (numbers(4, 6).byte(),)),
    (aten.view.default, (numbers(4, 6), (5, -1))),
]


@pytest.mark.parametrize(("operation", "arguments"), REFUSED)
def test_of_what_a_kernel_refuses_no_rule_knows_anything(operation: OpOverload, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(RuntimeError):
        operation(*arguments)
    assert RULES[operation](*arguments) is None


def test_products_with_a_bias() -> None:
    assert check(aten.addmm.default, (numbers(5), numbers(4, 6), numbers(6, 5)))
    assert check(aten.addmm.default, (numbers(5), numbers(4, 6), numbers(5, 6).t()))
    assert not check(aten.addmm.default, (numbers(4, 5), numbers(4, 6), numbers(6, 5)))
    assert RULES[aten.addmm.default](numbers(5).bfloat16(), numbers(4, 6), numbers(6, 5)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("operation", ELEMENTWISE, ids=str)
def test_gradients_of_elementwise_operations(operation: OpOverload, name: str, dtype: torch.dtype) -> None:
    of = IMAGES[name](dtype)
    assert check(operation, (torch.ones_like(of), of, *ELEMENTWISE[operation])) is (name in KNOWN)
    # A gradient that is one number everywhere, as the mean's: the kernel decides by both.
    assert not check(operation, (torch.ones(1, dtype=dtype).expand(of.shape), of, *ELEMENTWISE[operation]))


def test_every_rule_is_tested() -> None:
    norms = {
        aten.native_batch_norm.default,
        aten.native_batch_norm_backward.default,
        aten.native_group_norm.default,
        aten.native_group_norm_backward.default,
        aten.native_layer_norm.default,
        aten.native_layer_norm_backward.default,
    }
    others = {aten.view.default, aten._unsafe_view.default, aten.addmm.default, aten.hardtanh.default}
    assert set(RULES) == {*norms, *ELEMENTWISE, *others}
