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


@pytest.mark.parametrize(
    ("kind", "side"),
    [("Learned", 56), ("Fourier", 224), ("ConvProcessing", 224)],
)
def test_the_class_that_a_config_names_is_built_and_has_images_of_its_size(kind: str, side: int) -> None:
    """The published configs of all three say 56, which only one of them reads."""
    name = f"PerceiverForImageClassification{kind}"
    assert stepped({**PERCEIVER, "architectures": [name], "image_size": 56}) == (name, (2, 3, side, side))
