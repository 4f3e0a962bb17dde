"""What is drawn for a Hugging Face model is what it takes."""

from __future__ import annotations

from typing import Any

import pytest

from probes.microtrain.models import build_model
from probes.workload.models import parse_model

SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
MARIAN = {
    "model_type": "marian", "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 400,
    "decoder_vocab_size": 90, "share_encoder_decoder_embeddings": False, "pad_token_id": 0, "eos_token_id": 1,
    "decoder_start_token_id": 0,
}  # fmt: skip
TWO_MODELS = {
    "model_type": "encoder-decoder",
    "encoder": {"model_type": "bert", **SMALL, "vocab_size": 400},
    "decoder": {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 90, "is_decoder": True,
                "add_cross_attention": True, "bos_token_id": 1, "eos_token_id": 1},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::FutureWarning")  # transformers', of its own
@pytest.mark.parametrize("config", [MARIAN, TWO_MODELS], ids=lambda config: config["model_type"])
def test_labels_are_words_that_a_decoder_has(config: dict[str, Any]) -> None:
    pytest.importorskip("transformers")
    built = build_model(parse_model({"huggingface": config, "task": "seq2seq-lm", "sequence_length": 16}))
    batch = built.make_batch(16, None)
    assert batch["input_ids"].max() >= 90 > batch["labels"].max()
    built.module.train()
    built.loss(built.forward(built.module, batch), batch).backward()
