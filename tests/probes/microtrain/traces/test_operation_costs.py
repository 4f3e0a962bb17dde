"""What an operation computes is counted as it is computed."""

from __future__ import annotations

import pytest
import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import flop_registry

from probes.microtrain.traces.operation_costs import OWN_FORMULAS, flops_of
from probes.microtrain.traces.operation_kinds import kind_of
from probes.microtrain.traces.recording import Recorder, is_composite


def flops(dtype: torch.dtype) -> list[int]:
    """Of products of matrices one by one, with a sum, and in a batch."""
    with FakeTensorMode(), Recorder() as recorder:
        left, right = torch.empty(6, 3, 4, dtype=dtype), torch.empty(6, 4, 5, dtype=dtype)
        left[0] @ right[0]
        torch.addmm(left[0, 0, :1], left[0], right[0])
        left @ right
    return [record.flops for record in recorder.records if record.flops]


@pytest.mark.parametrize(("whole", "half"), [(torch.complex64, torch.float32), (torch.complex128, torch.float64)])
def test_a_product_of_complex_numbers_is_four_of_real_ones(whole: torch.dtype, half: torch.dtype) -> None:
    one = 2 * 3 * 4 * 5
    assert flops(half) == [one, one, 6 * one]
    assert flops(whole) == [4 * one, 4 * one, 4 * 6 * one]


def test_products_with_a_vector_are_counted_wherever_their_result_goes() -> None:
    matrix, narrow, wide, square = torch.ones(3, 4), torch.ones(3), torch.ones(4), torch.zeros(3, 5)
    batch = torch.ones(6, 3, 4), torch.ones(6, 4, 5)
    with Recorder() as recorder:
        matrix @ wide
        torch.addmv(narrow, matrix, wide)
        narrow.addmv_(matrix, wide)
        wide @ wide
        torch.vdot(wide, wide)
        torch.addr(matrix, narrow, wide)
        torch.addbmm(square, *batch)
        square.addmm_(matrix, batch[1][0])
    of_matrix, of_vectors, of_matrices = 2 * 3 * 4, 2 * 4, 2 * 3 * 4 * 5
    assert [(record.name, record.flops) for record in recorder.records if record.kind == "matmul"] == [
        ("aten.mv", of_matrix),
        ("aten.addmv", of_matrix),
        ("aten.addmv_", of_matrix),
        ("aten.dot", of_vectors),
        ("aten.vdot", of_vectors),
        ("aten.addr", of_matrix),
        ("aten.addbmm", 6 * of_matrices),
        ("aten.addmm_", of_matrices),
    ]
    whole = torch.ones(3, 4, dtype=torch.int8), torch.ones(4, 5, dtype=torch.int8)
    assert flops_of(torch.ops.aten._int_mm.default, whole, {}, None) == of_matrices


# Only Triton has it, which no step of torch's own calls.
UNCALLED = {"aten._triton_multi_head_attention"}


def products() -> list[OpOverload]:
    """Torch's that a step does not take apart; who gives them a place for their result runs the same."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, plain = name.partition("::")
        packet, _, overload = plain.partition(".")
        if namespace == "aten" and not overload.endswith("out"):
            operation = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
            found += [] if operation is None else [operation]
    return [each for each in found if kind_of(each) == "matmul" and not is_composite(each)]


def test_no_product_counts_nothing() -> None:
    counted = {*OWN_FORMULAS, *map(str, flop_registry)}
    names = {str(operation._overloadpacket).rstrip("_") for operation in products()}
    assert {"aten.mv", "aten.addmm", "aten._int_mm"} <= names
    assert names - counted == UNCALLED
