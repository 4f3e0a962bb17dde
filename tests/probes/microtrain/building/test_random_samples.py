"""What is drawn for a Hugging Face model is what it takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from probes.microtrain.building.random_samples import LONGEST_TRANSCRIPT
from probes.microtrain.building.sample_sizes import convolved_frames
from probes.microtrain.measuring.workbench import Workbench
from probes.microtrain.models import build_model
from probes.workload.description import InvalidModel, Workload
from probes.workload.models import parse_model
from tests.probes.microtrain.tiny import TINY

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


SPEECH = {key: value for key, value in TINY["wav2vec2"]["huggingface"].items() if key != "model_type"}
LABELLED = {"model_type": "wav2vec2", **SPEECH}
ROTARY = {"model_type": "wav2vec2-conformer", **SPEECH, "position_embeddings_type": "rotary"}
BROS = {"model_type": "bros", "vocab_size": 300, **SMALL, "hidden_size": 64}
XMOD = {"model_type": "xmod", "vocab_size": 300, **SMALL}
SEEING = {"model_type": "lxmert", "vocab_size": 300, **SMALL, "l_layers": 1, "x_layers": 1, "r_layers": 1}
SOUND = {"model_type": "voxtral_encoder", **SMALL, "num_mel_bins": 8, "max_source_positions": 40}
WORDS = {"model_type": "llama", "vocab_size": 300, "num_key_value_heads": 2, **SMALL}
HEARING = {"model_type": "voxtral", "audio_token_id": 24, "audio_config": SOUND, "text_config": WORDS}

SPECTROGRAM = {
    "huggingface": {"model_type": "audio-spectrogram-transformer", **SMALL, "max_length": 100, "num_mel_bins": 16},
    "task": "audio-classification",
}
HEARS_ON = {
    "model_type": "speech_to_text", "vocab_size": 300, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
}  # fmt: skip

# Models that are asked what they take, for their configs do not tell.
ASKED: dict[str, dict[str, Any]] = {
    "wav2vec2": TINY["wav2vec2"],
    "wav2vec2-ctc": TINY["wav2vec2-ctc"],
    "whisper": TINY["whisper"],
    "several labels": {
        "huggingface": {**LABELLED, "problem_type": "multi_label_classification", "num_labels": 50},
        "task": "audio-classification",
        "audio_samples": 4000,
    },
    "one label": {
        "huggingface": {**LABELLED, "num_labels": 1},
        "task": "audio-classification",
        "audio_samples": 4000,
    },
    "rotary": {"huggingface": ROTARY, "task": "audio-classification", "audio_samples": 4000},
    "bros": {"huggingface": BROS, "task": "token-classification", "sequence_length": 16},
    "xmod": {"huggingface": XMOD, "task": "text-classification", "sequence_length": 16},
    "seeing": {"huggingface": SEEING, "task": "question-answering", "sequence_length": 16},
    "hearing": {"huggingface": HEARING, "task": "speech-recognition", "sequence_length": 8},
}


def drawn(make_batch: Any) -> dict[str, torch.Tensor]:
    batch: dict[str, torch.Tensor] = make_batch(2, torch.Generator().manual_seed(1))
    return batch


def assert_same(batch: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert batch.keys() == other.keys()
    for name in batch:
        assert torch.equal(batch[name], other[name])


@pytest.mark.parametrize("name", ASKED)
def test_what_a_model_is_fed_does_not_hang_on_where_its_weights_lie(name: str) -> None:
    """torch's device `meta` is not the CPU, as a GPU is not."""
    description = parse_model(ASKED[name])
    here = build_model(description)
    moved = build_model(description)
    moved.module.to("meta")
    with torch.device("meta"):
        built_there = build_model(description)
    batch = drawn(here.make_batch)
    assert_same(drawn(moved.make_batch), batch)
    assert_same(drawn(built_there.make_batch), batch)


def test_a_bench_feeds_a_device_alone_what_it_feeds_the_cpu() -> None:
    """Where a device is alone on it, the model itself is moved there, before anybody asks for a batch."""
    workload = Workload(parse_model(TINY["wav2vec2"]), 2)
    alone, on_the_cpu = (Workbench(workload, frozenset([device])) for device in ("meta", "cpu"))
    assert alone.replica("meta").module is alone.build().module
    assert_same(alone.ring(2)[0], on_the_cpu.ring(2)[0])


@pytest.mark.parametrize("name", ASKED)
def test_a_model_that_was_asked_what_it_takes_takes_a_real_step_with_it(name: str) -> None:
    """Whatever it keeps between its calls, such as a table of positions, it does not keep of being asked."""
    built = build_model(parse_model(ASKED[name]))
    built.module.train()
    batch = drawn(built.make_batch)
    assert built.module.training
    loss = built.loss(built.forward(built.module, batch), batch)
    loss.backward()
    assert torch.isfinite(loss)


@pytest.mark.parametrize("samples", [20, 4000])
def test_sound_that_is_too_short_for_a_model_is_said_to_be(samples: int) -> None:
    built = build_model(parse_model(TINY["wav2vec2"] | {"audio_samples": samples}))
    if samples == 4000:
        assert drawn(built.make_batch)["input_values"].shape == (2, samples)
        return
    with pytest.raises(InvalidModel, match=r"^audio_samples is 20, too few for this model\. It takes 16000\.$"):
        built.make_batch(2, None)


@pytest.mark.parametrize("name", ["whisper", "transformer"])
def test_more_sound_than_a_model_hears_at_once_is_refused(name: str) -> None:
    """A shorter one is padded to its window: 100 frames of 10 ms."""
    asked, window = {"whisper": (TINY["whisper"], (80, 100)), "transformer": (SPECTROGRAM, (100, 16))}[name]
    for samples in (None, 4000, 16000):
        built = build_model(parse_model(asked | {"audio_samples": samples}))
        assert next(iter(drawn(built.make_batch).values())).shape == (2, *window)
    longer = build_model(parse_model(asked | {"audio_samples": 16001}))
    with pytest.raises(InvalidModel, match=r"16001, too many for this model, which hears a window of 16000\."):
        longer.make_batch(2, None)


def test_a_model_that_hears_any_length_is_given_what_was_asked_for() -> None:
    built = build_model(parse_model({"huggingface": HEARS_ON, "task": "speech-recognition", "audio_samples": 32000}))
    assert drawn(built.make_batch)["input_features"].shape == (2, 200, 80)


@pytest.mark.parametrize("labels", [{"problem_type": "multi_label_classification"}, {"problem_type": "regression"}])
def test_several_labels_of_a_sample_are_no_words_that_a_decoder_said(labels: dict[str, str]) -> None:
    bart = TINY["bart-classifies"]
    config = bart["huggingface"] | {"num_labels": 5, **labels}
    built = build_model(parse_model(bart | {"huggingface": config}))
    built.module.eval()
    with torch.inference_mode():
        assert built.forward(built.module, drawn(built.make_batch)).logits.shape == (2, 5)


PATCHED = {"patch_size": 16, "num_patches": 64, **SMALL}


@pytest.mark.parametrize(
    ("size", "rows", "columns"),
    [(None, 8, 8), (64, 4, 4), ([32, 128], 2, 8), ([128, 8], 8, 1)],
)
def test_an_image_in_patches_has_all_that_go_into_it(size: int | list[int] | None, rows: int, columns: int) -> None:
    """Without a size those that the config says, as transformers' image processor makes of any image."""
    config = {"model_type": "siglip2", "vision_config": PATCHED, "text_config": SMALL}
    built = build_model(parse_model({"huggingface": config, "task": "image-classification", "image_size": size}))
    built.module.train()
    batch = drawn(built.make_batch)
    assert batch["pixel_values"].shape == (2, rows * columns, 3 * 16 * 16)
    assert batch["pixel_attention_mask"].shape == (2, rows * columns)
    assert batch["spatial_shapes"].tolist() == [[rows, columns]] * 2
    built.loss(built.forward(built.module, batch), batch).backward()


COLOURS = {"model_type": "imagegpt", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 20, "n_positions": 256}


def test_an_image_that_is_a_row_of_colours_has_a_token_a_pixel() -> None:
    whole = build_model(parse_model({"huggingface": COLOURS}))
    assert drawn(whole.make_batch)["input_ids"].shape == (2, 256)
    small = build_model(parse_model({"huggingface": COLOURS, "image_size": [8, 4]}))
    assert drawn(small.make_batch)["input_ids"].shape == (2, 32)
    small.module.train()
    batch = drawn(small.make_batch)
    small.loss(small.forward(small.module, batch), batch).backward()


def test_an_image_of_more_colours_than_positions_is_refused_with_both() -> None:
    with pytest.raises(InvalidModel, match=r"32 x 32 tokens.*256 positions"):
        build_model(parse_model({"huggingface": COLOURS, "image_size": 32}))


def test_a_transcript_is_no_longer_than_the_frames_that_a_model_makes_of_its_sound() -> None:
    """CTC's loss of a longer one is infinite, and one step leaves no numbers of the weights."""
    document = {"huggingface": {"model_type": "wav2vec2", **SPEECH}, "task": "speech-recognition"}
    built = build_model(parse_model(document))
    config: Any = built.module.config
    frames = convolved_frames(config, 16_000)
    assert frames is not None
    batch = built.make_batch(2)
    logits = built.module(**batch).logits
    assert logits.shape[1] <= frames
    with pytest.raises(InvalidModel, match=f"sequence_length is {frames + 1}.*Take at most {frames}"):
        build_model(parse_model({**document, "sequence_length": frames + 1})).make_batch(2)
    short = convolved_frames(config, 400)
    assert short is not None
    assert short < LONGEST_TRANSCRIPT
    fewer = build_model(parse_model({**document, "audio_samples": 400})).make_batch(2)
    assert fewer["labels"].shape == (2, max(short, 1))


@pytest.mark.parametrize(("name", "left"), [("bert", set()), ("t5", {"labels"})])
def test_inference_is_fed_labels_only_where_a_decoder_is_fed_what_was_said(name: str, left: set[str]) -> None:
    pytest.importorskip("transformers")
    built = build_model(parse_model(TINY[name]))
    trained, inferred = built.batch_for("training", 2), built.batch_for("inference", 2)
    assert set(trained) - set(inferred) == {"labels"} - left
    built.module.eval()
    with torch.inference_mode():
        assert built.forward(built.module, inferred).logits is not None
