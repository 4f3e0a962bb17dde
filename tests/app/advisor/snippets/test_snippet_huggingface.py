"""A config's snippet runs when it is pasted, and feeds its model what crosspoint measured it with."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from app.advisor.snippets.snippet import write_snippet
from probes.microtrain.models import build_model
from probes.workload.architectures import TASKS
from probes.workload.description import Mode, ModelDescription, Plan, Workload
from probes.workload.huggingface import parse_huggingface
from tests.app.advisor.snippets.pasting import on_the_cpu, pins, prepared_on_meta, run_all

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BERT = {"model_type": "bert", "vocab_size": 60, **SMALL}
GPT2 = {"model_type": "gpt2", "vocab_size": 60, "n_embd": 16, "n_layer": 1, "n_head": 2}
VIT = {"model_type": "vit", "image_size": 32, **SMALL}
DECODER = {"vocab_size": 60, "num_key_value_heads": 1, "head_dim": 8, **SMALL}
SEEING = {"image_size": 28, "patch_size": 14, **SMALL}
BART = {
    "model_type": "bart", "vocab_size": 60, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
}  # fmt: skip
PERCEIVER = {
    "model_type": "perceiver", "vocab_size": 60, "d_model": 16, "d_latents": 16, "num_latents": 8, "num_blocks": 1,
    "num_self_attends_per_block": 1, "num_self_attention_heads": 2, "num_cross_attention_heads": 2,
    "max_position_embeddings": 300,
}  # fmt: skip
SPEECH = {
    "model_type": "wav2vec2", "vocab_size": 40, **SMALL, "conv_dim": [16, 16], "conv_stride": [5, 4],
    "conv_kernel": [10, 8], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}  # fmt: skip

# A few lines are enough.
WRITTEN: dict[str, dict[str, Any]] = {
    "encoder": {"huggingface": BERT, "task": "text-classification"},
    "one number": {"huggingface": {**BERT, "num_labels": 1}, "task": "text-classification"},
    "numbers": {
        "huggingface": {**BERT, "num_labels": 3, "problem_type": "regression"},
        "task": "text-classification",
    },
    "several labels": {
        "huggingface": {**BERT, "num_labels": 3, "problem_type": "multi_label_classification"},
        "task": "text-classification",
    },
    "masked": {"huggingface": BERT, "task": "masked-lm"},
    "decoder": {"huggingface": GPT2, "task": "causal-lm"},
    "decoder-classifies": {"huggingface": GPT2, "task": "text-classification"},
    "few positions": {
        "huggingface": {**GPT2, "n_positions": 24},
        "task": "text-classification",
        "sequence_length": 24,
    },
    "text-part-classifies": {
        "huggingface": {"model_type": "gemma3", "text_config": DECODER, "vision_config": SEEING},
        "task": "text-classification",
        "sequence_length": 9,
    },
    "tokens": {
        "huggingface": {"model_type": "distilbert", "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16},
        "task": "token-classification",
        "sequence_length": 9,
    },
    "image": {"huggingface": VIT, "task": "image-classification"},
    "image's number": {"huggingface": {**VIT, "num_labels": 1}, "task": "image-classification"},
    "image-size": {
        "huggingface": {"model_type": "convnext", "hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1]},
        "task": "image-classification",
        "image_size": 64,
    },
    "without-points": {
        "huggingface": {**VIT, "layer_norm_eps": 1, "initializer_range": 1},
        "task": "image-classification",
    },
}

# They are not.
FED_BY_CROSSPOINT: dict[str, dict[str, Any]] = {
    "positions-set-aside": {
        "huggingface": {**BERT, "model_type": "roberta", "max_position_embeddings": 66},
        "task": "text-classification",
    },
    "one-length": {
        "huggingface": {
            "model_type": "reformer", "hidden_size": 16, "axial_pos_embds_dim": [8, 8], "axial_pos_shape": [4, 4],
            "attn_layers": ["local"], "num_attention_heads": 2, "attention_head_size": 8, "local_attn_chunk_length": 4,
        },
        "task": "masked-lm",
    },
    "boxes": {
        "huggingface": {**BERT, "model_type": "bros", "hidden_size": 64},
        "task": "token-classification",
        "sequence_length": 9,
    },
    "languages": {"huggingface": {**BERT, "model_type": "xmod"}, "task": "masked-lm", "sequence_length": 9},
    "characters": {"huggingface": {"model_type": "canine", **SMALL}, "task": "token-classification"},
    "sizes-of-a-part": {
        "huggingface": {"model_type": "clip", "vision_config": SEEING, "text_config": SMALL},
        "task": "image-classification",
    },
    "patches": {
        "huggingface": {"model_type": "siglip2", "vision_config": {**SMALL, "num_patches": 16}, "text_config": SMALL},
        "task": "image-classification",
        "image_size": 64,
    },
    "colours": {
        "huggingface": {**GPT2, "model_type": "imagegpt", "n_positions": 64},
        "task": "image-classification",
    },
    "bytes": {"huggingface": PERCEIVER, "task": "masked-lm"},
    "captions": {
        "huggingface": {**BERT, "model_type": "git", "vision_config": {**SMALL, "image_size": 28, "patch_size": 14}},
        "task": "causal-lm",
        "sequence_length": 9,
    },
    "no-loss-of-its-own": {
        "huggingface": {"model_type": "pp_lcnet"},
        "task": "image-classification",
        "image_size": 64,
    },
    "encoder-decoder": {"huggingface": BART, "task": "seq2seq-lm", "sequence_length": 9},
    "encoder-decoder-classifies": {"huggingface": BART, "task": "text-classification", "sequence_length": 9},
    "answers": {"huggingface": BERT, "task": "question-answering", "sequence_length": 9},
    "segments": {
        "huggingface": {
            "model_type": "segformer", "depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 8, 8],
            "num_attention_heads": [1, 1, 1, 1], "decoder_hidden_size": 8,
        },
        "task": "semantic-segmentation",
        "image_size": 64,
    },
    "sound": {"huggingface": SPEECH, "task": "audio-classification", "audio_samples": 4000},
    "speech": {"huggingface": SPEECH, "task": "speech-recognition", "audio_samples": 16000},
}  # fmt: skip
CONFIGS = {**WRITTEN, **FED_BY_CROSSPOINT}
MODES: tuple[Mode, ...] = ("training", "inference")


def configured(name: str) -> ModelDescription:
    return ModelDescription("huggingface", name, parse_huggingface(CONFIGS[name]))


def snippet_of(name: str, mode: Mode, plan: Plan) -> str:
    return write_snippet(Workload(configured(name), 2, mode=mode, optimizer="sgd"), plan)


def test_the_configs_above_cover_every_task() -> None:
    assert {parse_huggingface(document)["task"] for document in CONFIGS.values()} == {task.name for task in TASKS}


def test_every_config_has_snippets_that_run_when_pasted() -> None:
    snippets = {}
    for name in CONFIGS:
        for mode in MODES:
            snippets[f"{name}, {mode}"] = snippet_of(name, mode, Plan("cpu", "fp32", 1))
            on_a_device = snippet_of(name, mode, Plan("cuda:0"))
            snippets[f"{name}, {mode} on a device"] = on_the_cpu(on_a_device)
    assert run_all(snippets) == {}


@pytest.mark.parametrize("name", CONFIGS)
def test_only_what_a_few_lines_cannot_make_needs_crosspoint(name: str) -> None:
    assert ("probes" in snippet_of(name, "training", Plan("cpu", "fp32", 1))) is (name in FED_BY_CROSSPOINT)


def kinds(batch: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in batch.items()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_device_s_model_is_built_there_and_fed_as_it_was_measured(name: str, mode: Mode) -> None:
    """A host's memory may be smaller than a device's."""
    pasted = prepared_on_meta(snippet_of(name, mode, Plan("cuda:0")))
    assert {parameter.device.type for parameter in pasted["model"].parameters()} == {"meta"}
    measured = kinds(build_model(configured(name)).batch_for(mode, 2))
    by_themselves = CONFIGS[name].get("task") in ("causal-lm", "masked-lm")  # one tensor, which goes there once
    if name in WRITTEN and mode == "training" and by_themselves:
        del measured["labels"]
    assert kinds(pasted["batch"]) == measured


@pytest.mark.parametrize("name", ["encoder", "boxes"])
def test_a_batch_that_was_timed_from_pinned_memory_lies_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = pins(monkeypatch)
    workload = Workload(configured(name), 2, data="pinned")
    pasted = prepared_on_meta(write_snippet(workload, Plan("cuda:0")))
    assert pinned
    assert {id(tensor) for tensor in pinned} == {id(value) for value in pasted["batch"].values()}


@pytest.mark.parametrize("name", WRITTEN)
def test_inference_computes_no_loss_that_its_figures_leave_out(name: str) -> None:
    """Of a language model it takes more memory than all else together."""
    threads = torch.get_num_threads()
    pasted: dict[str, Any] = {}
    try:
        exec(snippet_of(name, "inference", Plan("cpu", "fp32", 1)), pasted)
    finally:
        torch.set_num_threads(threads)
    with torch.inference_mode():
        assert pasted["model"](**pasted["batch"]).loss is None


def test_numbers_of_a_config_are_pasted_as_its_class_takes_them() -> None:
    sizes = {"layer_norm_epsilon": 1, "use_bias": False, "time_step_limit": [0, {"__float__": "Infinity"}]}
    document = {"huggingface": {"model_type": "mamba2", "hidden_size": 16, **sizes}, "task": "causal-lm"}
    model = ModelDescription("huggingface", "mamba2", parse_huggingface(document))
    taken = (
        "{'hidden_size': 16, 'layer_norm_epsilon': 1.0, 'use_bias': False, 'time_step_limit': [0.0, float('Infinity')]}"
    )
    assert f'AutoConfig.for_model("mamba2", **{taken})' in write_snippet(Workload(model, 2), Plan("cpu", "fp32", 1))


def test_a_snippet_is_written_without_asking_the_installed_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The advisor reads no files; the same config has the same snippet wherever it is asked for."""
    workload = Workload(configured("without-points"), 2)
    with_transformers = write_snippet(workload, Plan("cpu", "fp32", 1))
    monkeypatch.setattr("probes.workload.config_classes.stamp_of", lambda package: None)
    assert write_snippet(workload, Plan("cpu", "fp32", 1)) == with_transformers
    assert "'layer_norm_eps': 1.0" in with_transformers


def test_a_language_model_s_tokens_go_to_the_device_once() -> None:
    """A second copy of them, as labels, is one more than each measured step has."""
    written = snippet_of("decoder", "training", Plan("cuda:0"))
    assert 'batch = {"input_ids": tokens}' in written
    assert 'loss = model(**batch, labels=batch["input_ids"]).loss' in written
