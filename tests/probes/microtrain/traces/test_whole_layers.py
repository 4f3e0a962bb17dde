"""What an encoder layer computes that torch runs as one operation, as it does in inference."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from probes.context import ENCODER_LAYER
from probes.microtrain.traces.recording import Record, Recorder

BATCH, PLACES, WIDTH, FEATURES = 2, 12, 16, 96


def recorded(**masks: torch.Tensor) -> Record:
    layer = nn.TransformerEncoderLayer(WIDTH, 4, FEATURES, batch_first=True).eval()
    with torch.inference_mode(), Recorder() as recorder:
        layer(torch.randn(BATCH, PLACES, WIDTH), **masks)
    (found,) = (record for record in recorder.records if record.name == ENCODER_LAYER)
    return found


def test_a_whole_layer_computes_its_projections_its_pairs_and_two_linear_layers() -> None:
    weights = 4 * WIDTH * WIDTH + 2 * WIDTH * FEATURES
    assert recorded().flops == 2 * BATCH * PLACES * (weights + 2 * PLACES * WIDTH)


@pytest.mark.parametrize(
    "masks",
    [
        {"src_key_padding_mask": torch.zeros(BATCH, PLACES, dtype=torch.bool)},
        {"src_mask": torch.zeros(PLACES, PLACES)},
        {"src_mask": torch.zeros(PLACES, PLACES), "src_key_padding_mask": torch.zeros(BATCH, PLACES)},
    ],
    ids=["padding", "places", "both"],
)
def test_a_mask_changes_nothing_of_what_a_whole_layer_computes(masks: dict[str, torch.Tensor]) -> None:
    assert recorded(**masks).flops == recorded().flops
