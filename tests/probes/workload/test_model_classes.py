"""What a model type's classes do with positions is read from transformers' source."""

import pytest

from probes.workload.model_classes import are_positions_endless

OPTIONS = ("n_positions", "max_position_embeddings", "max_target_positions")


@pytest.mark.parametrize(
    ("model_type", "endless"),
    [
        *((name, True) for name in ("jamba", "zamba", "nemotron_h")),  # which keep the number at most
        *((name, True) for name in ("xglm", "m2m_100", "nllb-moe", "fsmt", "speech_to_text")),  # whose sines grow
        *((name, False) for name in ("bert", "gpt2", "bart", "marian", "roformer", "gptj", "ibert", "prophetnet")),
        ("trocr", False),  # may have either, and has a table unless it is asked
        *((name, False) for name in ("no such type", "../jamba", "")),
    ],
)
def test_whether_a_model_takes_more_tokens_than_its_config_has_positions(model_type: str, endless: bool) -> None:
    assert are_positions_endless(model_type, OPTIONS) is endless
