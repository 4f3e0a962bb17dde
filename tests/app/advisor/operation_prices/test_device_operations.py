"""What a device runs in place of a CPU's operations."""

from __future__ import annotations

from app.advisor.operation_prices.device_operations import ATTENTION, BACKWARD, RECURRENT, on_device, same_kernel
from probes.context import ContextOperation
from probes.trace import Affine, Kind, Operation, Phase

ROW = Affine(0.0, 400.0)  # bytes


def operation(
    name: str, phase: Phase = "forward", kind: Kind = "elementwise", count: int = 1, moved: Affine = ROW
) -> Operation:
    return Operation(kind, f"aten.{name}", phase, "float32", count, Affine(0.0, 0.0), moved, moved)


def counts(operations: list[Operation]) -> dict[str, int]:
    return {each.name.removeprefix("aten."): each.count for each in operations}


def test_an_optimizer_works_on_lists_of_all_tensors() -> None:
    """Adam's mul_ is run twice a tensor, the others once."""
    per_tensor = [
        operation("mul_", "optimizer", count=2, moved=Affine(100.0, 0.0)),
        operation("mul_", "optimizer", count=6, moved=Affine(40.0, 0.0)),
        operation("sqrt", "optimizer", count=4, moved=Affine(60.0, 0.0)),
        operation("_local_scalar_dense", "optimizer", "view", count=4),
    ]
    found = on_device([operation("relu"), *per_tensor], tensors=4)
    assert counts(found) == {"relu": 1, "_foreach_mul_": 2, "_foreach_sqrt": 1, "_local_scalar_dense": 8}
    listed = next(each for each in found if each.name == "aten._foreach_mul_")
    assert listed.grain == 4
    assert listed.read_bytes.at(7) == (2 * 100.0 + 6 * 40.0) / 2  # all that was moved, in two calls


def test_a_mask_and_what_it_is_for_are_one_kernel() -> None:
    cpu = [
        operation("bernoulli_", kind="random", count=2),
        operation("div_", count=3),
        operation("mul", count=2),
        operation("empty_like", kind="view", count=2),
        operation("mul", "backward", count=2),
        operation("mul", moved=Affine(8.0, 0.0)),  # of another size: no dropout's
    ]
    found = on_device(cpu, tensors=0)
    assert [(each.name, each.count) for each in found if each.phase == "forward"] == [
        ("aten.native_dropout", 2),
        ("aten.div_", 1),
        ("aten.mul", 1),
    ]
    assert [each.count for each in found if each.phase == "backward"] == [2]


def test_recurrent_layers_are_one_call_whose_steps_wait_for_each_other() -> None:
    layer = Operation(
        "recurrent", "aten.mkldnn_rnn_layer", "forward", "float32", 2, Affine(0.0, 1e6), ROW, ROW, ((48, 16, 8),)
    )
    (found,) = on_device([layer], tensors=0)
    assert (found.name, found.kind, found.count, found.grain) == (RECURRENT, "recurrent", 1, 96)
    assert found.flops.at(3) == 2 * 3e6


def test_a_recurrent_layer_that_nobody_knows_keeps_its_name() -> None:
    """As a profile from elsewhere may have one in a trace."""
    layer = Operation("recurrent", "aten.mkldnn_rnn_layer2", "forward", "float32", 1, ROW, ROW, ROW, ((3, 1, 1),))
    (found,) = on_device([layer], tensors=0)
    assert (found.name, found.kind, found.grain) == ("aten.mkldnn_rnn_layer2", "recurrent", 3)


def test_kernels_of_any_library_go_by_one_name() -> None:
    names = {
        "aten._scaled_dot_product_flash_attention_for_cpu": ATTENTION,
        "aten._scaled_dot_product_efficient_attention": ATTENTION,
        "crosspoint.scaled_dot_product_attention_backward": ATTENTION + BACKWARD,
        "aten._scaled_dot_product_cudnn_attention_backward": ATTENTION + BACKWARD,
        "aten.cudnn_batch_norm": "aten.native_batch_norm",
        "crosspoint._cudnn_rnn": RECURRENT,
        "aten.addmm": "aten.addmm",
    }
    made = {name: same_kernel(ContextOperation(name, "matmul", "", "float32", 1.0, 1.0, 1.0, 3.0)) for name in names}
    assert {name: each.name for name, each in made.items()} == names
    assert {each.kind for name, each in made.items() if "attention" in name} == {"attention"}
