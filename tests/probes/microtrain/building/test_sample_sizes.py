"""How large a sample of a Hugging Face model is, and how large it may be."""

from typing import Any

import pytest
from torch._subclasses.fake_tensor import FakeTensorMode

from probes.microtrain.building.fake_models import build_fake
from probes.microtrain.models import build_model
from probes.workload.description import InvalidModel
from probes.workload.models import parse_model

WIDTHS = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
PERCEIVER = {
    "model_type": "perceiver", "d_model": 261, "d_latents": 16, "num_latents": 8, "num_blocks": 1,
    "num_self_attends_per_block": 1, "num_self_attention_heads": 2, "num_cross_attention_heads": 1,
}  # fmt: skip


def stepped(config: dict[str, Any], **options: Any) -> tuple[str, tuple[int, ...]]:
    """The class that is built, and the shape of two samples that it takes."""
    mode = FakeTensorMode()
    built = build_fake(parse_model({"huggingface": config, **options}), mode)
    with mode:
        batch = built.make_batch(2, None)
        built.loss(built.forward(built.module, batch), batch)
    return type(built.module).__name__, tuple(next(iter(batch.values())).shape)


@pytest.mark.parametrize("rope", [{}, {"rope_parameters": {**YARN, "rope_theta": 10_000.0}}, {"rope_scaling": YARN}])
def test_a_model_without_a_table_of_positions_takes_more_tokens_than_it_was_trained_for(rope: dict[str, Any]) -> None:
    config = {"model_type": "llama", "max_position_embeddings": 64, **WIDTHS, **rope}
    assert stepped(config, sequence_length=200)[1] == (2, 200)
    assert stepped(config)[1] == (2, 64)  # unless it is asked


SINES = {"model_type": "xglm", "d_model": 32, "num_layers": 1, "attention_heads": 2, "ffn_dim": 32, "vocab_size": 99}
PADDED = {"model_type": "ibert", "vocab_size": 99, **WIDTHS}
TWO_STREAMS = {
    "model_type": "prophetnet", "vocab_size": 99, "hidden_size": 32, "num_encoder_layers": 1, "num_decoder_layers": 1,
    "num_encoder_attention_heads": 2, "num_decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
}  # fmt: skip


def really_stepped(config: dict[str, Any], **options: Any) -> tuple[int, ...]:
    """The shape of a sample with which a real step went well."""
    built = build_model(parse_model({"huggingface": config, **options}))
    built.module.train()
    batch = built.make_batch(2, None)
    built.loss(built.forward(built.module, batch), batch).backward()
    return tuple(batch["input_ids"].shape[1:])


def test_sines_that_are_made_as_tokens_come_are_no_limit() -> None:
    assert really_stepped(SINES | {"max_position_embeddings": 32}, sequence_length=40) == (40,)


@pytest.mark.parametrize(("config", "limit"), [(PADDED, 30), (TWO_STREAMS, 30)], ids=["ibert", "prophetnet"])
def test_positions_that_are_set_aside_are_no_tokens(config: dict[str, Any], limit: int) -> None:
    """Padding's, and of two streams the place that the second looks ahead to."""
    config = config | {"max_position_embeddings": 32}
    assert really_stepped(config) == really_stepped(config, sequence_length=limit) == (limit,)
    with pytest.raises(InvalidModel, match=f"at most {limit}"):
        build_model(parse_model({"huggingface": config, "sequence_length": limit + 1}))


LED = {
    "model_type": "led", "d_model": 32, "num_hidden_layers": 1, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
    "vocab_size": 99, "attention_window": [4], "max_encoder_position_embeddings": 64,
    "max_decoder_position_embeddings": 16,
}  # fmt: skip


@pytest.mark.parametrize(("length", "said"), [(40, 16), (8, 8)])
def test_a_decoder_says_no_more_tokens_than_it_has_positions(length: int, said: int) -> None:
    mode = FakeTensorMode()
    built = build_fake(parse_model({"huggingface": LED, "task": "summarization", "sequence_length": length}), mode)
    with mode:
        batch = built.make_batch(2, None)
    assert (batch["input_ids"].shape, batch["labels"].shape) == ((2, length), (2, said))


def test_a_model_that_is_trained_with_one_length_alone_has_samples_of_it() -> None:
    """Of the published Reformers 65,536 and 524,288 tokens."""
    config = {
        "model_type": "reformer", "is_decoder": True, "hidden_size": 32, "axial_pos_embds_dim": [16, 16],
        "axial_pos_shape": [16, 20], "attn_layers": ["local"], "num_attention_heads": 2, "attention_head_size": 16,
    }  # fmt: skip
    assert stepped(config)[1] == (2, 320)
    assert stepped({**config, "axial_pos_embds": False})[1] == (2, 128)


@pytest.mark.parametrize(
    ("kind", "side"),
    [("Learned", 56), ("Fourier", 224), ("ConvProcessing", 224)],
)
def test_the_class_that_a_config_names_is_built_and_has_images_of_its_size(kind: str, side: int) -> None:
    """The published configs of all three say 56, which only one of them reads."""
    name = f"PerceiverForImageClassification{kind}"
    assert stepped({**PERCEIVER, "architectures": [name], "image_size": 56}) == (name, (2, 3, side, side))


TEXT = {"model_type": "qwen3", "vocab_size": 300, "num_key_value_heads": 2, "head_dim": 16, **WIDTHS}
GRANITE = {
    "model_type": "granite_speech", "text_config": {**TEXT, "model_type": "granite"}, "audio_token_index": 5,
    "encoder_config": {"num_layers": 1, "hidden_dim": 32, "num_heads": 2, "dim_head": 16, "output_dim": 20},
    "projector_config": {"model_type": "blip_2_qformer", "encoder_hidden_size": 32, **WIDTHS},
}  # fmt: skip
GRANITE_CTC = {
    "model_type": "granite_speech5_ctc", "vocab_size": 32,
    "encoder_config": {"model_type": "granite_speech5_encoder", "vocab_size": 32, **WIDTHS},
}  # fmt: skip
SEAMLESS = {
    "model_type": "seamless_m4t", "hidden_size": 32, "vocab_size": 300, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
    "speech_encoder_layers": 1, "speech_encoder_attention_heads": 2, "speech_encoder_intermediate_size": 32,
}  # fmt: skip
FUN = {
    "model_type": "fun_asr_nano", "text_config": TEXT, "audio_token_id": 5,
    "audio_config": {"model_type": "fun_asr_nano_encoder", **WIDTHS, "num_hidden_layers": 2,
                     "num_timestamp_prediction_layers": 1},
    "adaptor_config": {**WIDTHS, "intermediate_size": 8},
}  # fmt: skip
PIANO = {"model_type": "pop2piano", "d_model": 512, "d_kv": 16, "d_ff": 32, "num_layers": 1, "num_heads": 2}
# 160,000 samples, as transformers' feature extractors give them to these models.
STACKED: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "two frames": ({"model_type": "wav2vec2-bert", "vocab_size": 32, **WIDTHS}, (500, 160)),
    "two frames, heard to be translated": (SEAMLESS, (500, 160)),
    "two frames, before a text": (GRANITE, (500, 160)),
    "two frames, each with its deltas": (GRANITE_CTC, (500, 320)),
    "seven frames, the last also the next one's first": (FUN, (167, 560)),
    "a frame of 1,024 samples": (PIANO, (156, 512)),
}


@pytest.mark.parametrize("name", STACKED)
def test_where_rows_of_a_spectrogram_are_longer_there_are_as_many_fewer(name: str) -> None:
    config, shape = STACKED[name]
    model = parse_model({"huggingface": config, "task": "speech-recognition", "audio_samples": 160_000})
    built = build_fake(model, mode := FakeTensorMode())
    with mode:
        assert tuple(built.make_batch(2, None)["input_features"].shape) == (2, *shape)
