"""What an operation computes is counted as it is computed."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from probes.microtrain.traces.recording import Recorder


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
