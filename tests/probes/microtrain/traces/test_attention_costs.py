"""What a CPU's attention kernel computes, and by how many blocks, against torch's own count and the kernel's ways."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from probes.microtrain.traces.recording import Record, Recorder

FORWARD, BACKWARD = (f"aten._scaled_dot_product_flash_attention_for_cpu{name}" for name in ("", "_backward"))


def recorded(batch: int, heads: int, places: int, width: int, *, is_causal: bool = False) -> dict[str, Record]:
    """What one attention and its backward were, by name."""
    query = torch.randn(batch, heads, places, width, requires_grad=True)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), Recorder() as recorder:
        functional.scaled_dot_product_attention(query, query, query, is_causal=is_causal).sum().backward()
    return {record.name: record for record in recorder.records}


def test_every_pair_is_counted_as_torch_counts_it() -> None:
    shape = (2, 3, 100, 16)
    assert recorded(*shape)[FORWARD].flops == sdpa_flop_count(shape, shape, shape)


@pytest.mark.parametrize("places", [64, 500, 512])
def test_a_mask_of_what_comes_later_saves_a_cpu_nothing_within_a_block_of_keys(places: int) -> None:
    whole, causal = recorded(1, 2, places, 16), recorded(1, 2, places, 16, is_causal=True)
    assert [causal[name].flops for name in (FORWARD, BACKWARD)] == [whole[name].flops for name in (FORWARD, BACKWARD)]


def test_blocks_of_keys_that_come_later_are_not_computed() -> None:
    """1,024 places: the queries of the first half see one block of 512 keys, the others two. Measured: 0.76 of the
    time of all pairs (EPYC, Zen 5, one thread, torch 2.13)."""
    whole, causal = recorded(1, 1, 1024, 16), recorded(1, 1, 1024, 16, is_causal=True)
    for name in (FORWARD, BACKWARD):
        assert causal[name].flops == pytest.approx(0.75 * whole[name].flops)


def test_what_is_left_out_grows_with_the_length() -> None:
    shares = []
    for places in (600, 1500, 4096):
        whole, causal = recorded(1, 1, places, 8), recorded(1, 1, places, 8, is_causal=True)
        shares.append(causal[FORWARD].flops / whole[FORWARD].flops)
    assert 1.0 > shares[0] > shares[1] > shares[2] > 0.5


@pytest.mark.parametrize(("places", "blocks"), [(1, 1), (32, 1), (33, 2), (191, 6), (192, 3), (768, 3)])
def test_a_block_s_arithmetic_does_not_hang_on_the_batch(places: int, blocks: int) -> None:
    one, many = recorded(1, 2, places, 16), recorded(8, 2, places, 16)
    for name in (FORWARD, BACKWARD):
        assert many[name].grain == one[name].grain
        assert one[name].flops / one[name].grain == pytest.approx(2 * blocks)


def test_other_operations_have_no_blocks() -> None:
    with Recorder() as recorder:
        torch.randn(4, 4) @ torch.randn(4, 4)
    assert {record.grain for record in recorder.records} == {0.0}


def test_torch_counts_what_a_mask_leaves_out() -> None:
    """Or the formula here is no longer needed."""
    query = torch.randn(1, 1, 1024, 8, device="meta")
    with FlopCounterMode(display=False) as counter:
        functional.scaled_dot_product_attention(query, query, query, is_causal=True)
    assert counter.get_total_flops() == sdpa_flop_count(query.shape, query.shape, query.shape)
