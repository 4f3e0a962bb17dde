"""Hugging Face configs: any architecture that transformers knows, as data, never as code."""

from typing import Any

import pytest

from probes.workload import documents
from probes.workload.description import InvalidModel
from probes.workload.models import parse_model


def parse(config: dict[str, Any], **options: Any) -> dict[str, Any]:
    return parse_model({"huggingface": config, **options}).content


def refusal(config: dict[str, Any], **options: Any) -> InvalidModel:
    with pytest.raises(InvalidModel) as caught:
        parse(config, **options)
    return caught.value


@pytest.mark.parametrize(
    "part",
    [
        {"auto_map": {"AutoModel": "modeling.Evil"}},
        {"trust_remote_code": True},
        {"code": "import os"},
        {"quantization_config": {"load_in_4bit": True}},
        {"_name_or_path": "bert-base-uncased"},
        {"backbone": "resnet50"},
        {"use_pretrained_backbone": True},
        {"hidden_act": "https://example.org/x"},
        {"hidden_act": "/etc/passwd"},
        {"hidden_act": "../x"},
        {"hidden_act": "C:\\x"},
        {"tokenizer": "weights.bin"},
        {"text_config": {"auto_map": {"AutoModel": "x.Y"}}},
        {"backbone_config": {"nested": [{"hidden_act": "file:///x"}]}},
        {"__class__": "x"},
        {"time_step_limit": [0.0, {"__float__": "__import__"}]},
        {"time_step_limit": [0.0, {"__float__": "Infinity", "__class__": "x"}]},
    ],
)
def test_code_paths_and_urls_are_refused_at_any_depth(part: dict[str, Any]) -> None:
    message = str(refusal({"model_type": "bert", **part}))
    assert "Remove" in message
    for secret in ("passwd", "example.org", "Evil", "import os"):
        assert secret not in message


@pytest.mark.parametrize("model_type", [{"model_type": "zamba9"}, {}, {"model_type": None}])
def test_a_class_that_transformers_does_not_have_is_named_and_how_to_ask_for_it(model_type: dict[str, Any]) -> None:
    code = {"AutoConfig": "configuration_z.ZConfig", "AutoModelForCausalLM": "modeling_z.ZForCausalLM"}
    message = str(refusal({**model_type, "auto_map": code}))
    assert '"modeling_z.ZForCausalLM"' in message
    assert "module:function" in message
    assert "measured" in message
    for other in ({}, {"AutoModel": 3}, {"AutoModel": None}):
        assert "module:function" in str(refusal({**model_type, "auto_map": other}))


def test_an_empty_name_and_transformers_own_notes_are_left_out() -> None:
    noise = {"_name_or_path": "", "_commit_hash": "abc", "transformers_version": "5.0", "torch_dtype": "float16"}
    assert parse({"model_type": "bert", **noise}) == parse({"model_type": "bert"})


def test_what_is_put_before_a_text_and_tokens_as_tokenizers_write_them_are_no_paths() -> None:
    """As the published configs of OPT have them."""
    plain = {"model_type": "opt"}
    assert parse({**plain, "prefix": "</s>"}) == parse({**plain, "prefix": "summarize / "}) == parse(plain)
    assert parse({**plain, "eos_token": "</s>"})["config"]["eos_token"] == "</s>"
    for path in ("</s>/x", "/s", "<s>/../x", "</>"):
        assert "path" in str(refusal({**plain, "eos_token": path}))


def test_a_norm_that_is_left_out_by_a_key_like_transformers_own_notes_is_left_out() -> None:
    """OPT's."""
    config = {"model_type": "opt", "_remove_final_layer_norm": True}
    assert parse(config)["config"] == config


def test_whose_kernels_run_a_model_is_no_configs_to_say() -> None:
    chosen = {"attn_implementation": "flash_attention_2", "experts_implementation": "grouped_mm"}
    written = {"model_type": "voxtral", "text_config": {"model_type": "llama", **chosen}, **chosen}
    assert parse(written) == parse({"model_type": "voxtral", "text_config": {"model_type": "llama"}})
    assert parse({"model_type": "bert", "attn_implementation": "sdpa"}) == parse({"model_type": "bert"})


def test_attention_step_by_step_is_a_configs_to_say() -> None:
    eager = {"model_type": "llama", "attn_implementation": "eager"}
    assert parse(eager)["config"] == eager
    assert parse_model({"huggingface": eager}).key != parse_model({"huggingface": {"model_type": "llama"}}).key


def test_how_published_configs_spell_attention_step_by_step_counts_before_the_public_spelling() -> None:
    """As in transformers."""
    plain, eager = {"model_type": "llama"}, {"model_type": "llama", "attn_implementation": "eager"}
    assert parse({**plain, "_attn_implementation": "eager"})["config"] == eager
    assert parse({**plain, "_attn_implementation": "eager", "attn_implementation": "sdpa"})["config"] == eager
    assert parse({**eager, "_attn_implementation": "sdpa"})["config"] == plain


def test_labels_are_counted_and_their_names_forgotten() -> None:
    labels = {str(i): f"and/or {i}" for i in range(21_843)}
    content = parse({"model_type": "vit", "id2label": labels, "label2id": {v: k for k, v in labels.items()}})
    assert content["config"] == {"model_type": "vit", "num_labels": 21_843}


@pytest.mark.parametrize(
    ("model_type", "task"),
    [
        ("bert", "text-classification"),
        ("llama", "causal-lm"),
        ("gpt2", "causal-lm"),
        ("t5", "seq2seq-lm"),
        ("bart", "seq2seq-lm"),
        ("vit", "image-classification"),
        ("whisper", "speech-recognition"),
    ],
)
def test_without_a_task_a_model_does_what_it_was_made_for(model_type: str, task: str) -> None:
    assert parse({"model_type": model_type})["task"] == task


def test_the_architecture_in_the_config_says_the_task() -> None:
    assert parse({"model_type": "bert", "architectures": ["BertForMaskedLM"]})["task"] == "masked-lm"
    assert parse({"model_type": "bert", "architectures": "BertForMaskedLM"})["task"] == "masked-lm"
    assert parse({"model_type": "bert", "architectures": ["Nonsense", 3]})["task"] == "text-classification"


def test_the_architecture_in_the_config_says_the_class_where_there_are_several() -> None:
    usual = parse_model({"huggingface": {"model_type": "perceiver"}, "task": "image-classification"})
    assert "architectures" not in usual.content["config"]
    keys = {usual.key}
    for kind in ("Fourier", "ConvProcessing"):
        named = {"model_type": "perceiver", "architectures": [f"PerceiverForImageClassification{kind}"]}
        model = parse_model({"huggingface": named})
        assert model.content["config"] == named
        assert parse(model.content["config"], task=model.content["task"]) == model.content
        keys.add(model.key)
    assert len(keys) == 3
    learned = {"model_type": "perceiver", "architectures": ["PerceiverForImageClassificationLearned"]}
    assert parse_model({"huggingface": learned}).key == usual.key
    assert parse(named, task="masked-lm")["config"] == {"model_type": "perceiver"}


def test_a_class_that_has_no_loss_is_trained_as_the_plain_one() -> None:
    taught = {"model_type": "deit", "architectures": ["DeiTForImageClassificationWithTeacher"]}
    assert parse_model({"huggingface": taught}) == parse_model({"huggingface": {"model_type": "deit"}})


@pytest.mark.parametrize(
    ("alias", "task"),
    [
        ("text-generation", "causal-lm"),
        ("fill-mask", "masked-lm"),
        ("Fill_Mask", "masked-lm"),
        ("ner", "token-classification"),
    ],
)
def test_pipeline_names_of_tasks_are_understood(alias: str, task: str) -> None:
    assert parse({"model_type": "bert"}, task=alias)["task"] == task


def test_a_task_that_a_model_does_not_have_names_those_it_has() -> None:
    error = refusal({"model_type": "bert"}, task="image-classification")
    assert "text-classification" in str(error)
    assert "masked-lm" in error.suggestions


def test_unknown_names_bring_near_ones() -> None:
    assert "bert" in refusal({"model_type": "brt"}).suggestions
    assert "masked-lm" in refusal({"model_type": "bert"}, task="maskd-lm").suggestions
    assert refusal({"model_type": "bert"}, sequence_lenght=5).suggestions == ("sequence_length",)


def test_a_model_without_a_task_that_is_trained_here_says_so() -> None:
    assert "no task" in str(refusal({"model_type": "clip_text_model"}))


@pytest.mark.parametrize(
    "part",
    [
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": -1},
        {"num_hidden_layers": True},
        {"num_hidden_layers": 1e9},
        {"num_hidden_layers": "12"},
        {"hidden_size": 0},
        {"hidden_size": 10**18},
        {"hidden_size": 768.5e9},
        {"hidden_size": 64.5},
        {"hidden_size": None},
        {"hidden_size": [64]},
        {"hidden_size": {"a": 64}},
        {"num_hidden_layers": [12]},
        {"vocab_size": "many"},
        {"hidden_dropout_prob": "x"},
        {"vocab_size": -5},
        {"depths": [2, 10**7]},
        {"depth_coefficient": 1e6},
        {"rope_theta": float("inf")},
        {"rope_theta": float("nan")},
        {"anything": 10**30},
        {"rope_theta": 10**40},
        {"num_layers_val": 10**6},
    ],
)
def test_sizes_beyond_their_bounds_are_refused_before_anything_is_built(part: dict[str, Any]) -> None:
    assert next(iter(part)) in str(refusal({"model_type": "bert", **part}))


def test_real_configs_numbers_pass() -> None:
    parse(
        {
            "model_type": "llama",
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "max_position_embeddings": 10_485_760,
            "eos_token_id": [128001, 128008],
            "mask_value": -3.4028234663852886e38,
            "compress_rope_theta": 5_000_000_000,
            "attention_invalid_logits_value": -1_000_000_000,
            "gradient_clipping": 10_000_000_000,
            "pad_token_id": -1,
            "layer_types": ["full_attention"] * 4,
            "rope_scaling": {"factor": 32.0, "rope_type": "llama3"},
            "shared_expert_intermediate_size": 5632,
            "use_cache": True,
        }
    )


def test_keys_that_are_refused_are_told_at_once() -> None:
    """Published configs have several: each told alone is one more round."""
    keys = {"auto_map": {"AutoModel": "m.M"}, "quantization_config": {"bits": 4}}
    told = str(refusal({"model_type": "gemma3", **keys, "text_config": {"_name_or_path": "g"}}))
    for named in (
        '"auto_map" from huggingface (it',
        '"quantization_config" from',
        '"_name_or_path" from huggingface.text',
    ):
        assert named in told
    parts = {f"part_{number}": keys for number in range(9)}
    assert "and 12 more of such keys. A config here is data" in str(refusal({"model_type": "gemma3", **parts}))
    assert "quantization" not in str(refusal({"model_type": "bert", "auto_map": keys, "quantization_config": None}))


def test_a_sequence_stays_within_the_positions_of_the_config() -> None:
    config = {"model_type": "bert", "max_position_embeddings": 64}
    assert parse(config, sequence_length=64)["sequence_length"] == 64
    assert "64" in str(refusal(config, sequence_length=65))


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({"model_type": "t5", "n_positions": 512, "relative_attention_num_buckets": 32}, None),  # as it is published
        ({"model_type": "deberta-v2", "max_position_embeddings": 512, "position_biased_input": False}, None),
        ({"model_type": "deberta-v2", "max_position_embeddings": 512, "position_biased_input": True}, 512),
        ({"model_type": "gpt2", "n_positions": 512}, 512),
        # As their model cards say for longer texts than they were trained for.
        (
            {
                "model_type": "qwen2",
                "max_position_embeddings": 512,
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
            },
            None,
        ),
        ({"model_type": "llama", "max_position_embeddings": 512}, None),  # as those of 2023: no option says rotary
        ({"model_type": "voxtral", "text_config": {"model_type": "llama", "max_position_embeddings": 512}}, None),
        ({"model_type": "gemma3", "text_config": {"max_position_embeddings": 512}}, None),
        ({"model_type": "gptj", "n_positions": 512}, 512),  # turns by a table of so many angles
        ({"model_type": "esm", "max_position_embeddings": 512, "position_embedding_type": "rotary"}, None),
        ({"model_type": "esm", "max_position_embeddings": 512, "position_embedding_type": "absolute"}, 512),
        (
            {
                "model_type": "encoder-decoder",
                "encoder": {"model_type": "bert", "max_position_embeddings": 512},
                "decoder": {"model_type": "gpt2", "n_positions": 1024},
            },
            512,
        ),
        (  # which is as long as what it reads at most
            {
                "model_type": "encoder-decoder",
                "encoder": {"model_type": "bert", "max_position_embeddings": 512},
                "decoder": {"model_type": "gpt2", "n_positions": 256},
            },
            512,
        ),
        ({"model_type": "led", "max_encoder_position_embeddings": 999, "max_decoder_position_embeddings": 600}, 999),
        *(({"model_type": name, "max_position_embeddings": 512}, None) for name in ("zamba", "jamba", "nemotron_h")),
        *(({"model_type": name, "max_position_embeddings": 512}, None) for name in ("xglm", "m2m_100", "fsmt")),
        ({"model_type": "marian", "max_position_embeddings": 512}, 512),  # whose sines are a table
    ],
)
def test_positions_that_nothing_reads_are_no_limit(config: dict[str, Any], limit: int | None) -> None:
    if limit is None:
        assert parse(config, sequence_length=1024)["sequence_length"] == 1024
    else:
        assert parse(config, sequence_length=limit)["sequence_length"] == limit
        assert str(limit) in str(refusal(config, sequence_length=limit + 1))


def test_a_task_with_one_text_stays_within_both_halves_positions() -> None:
    config = {"model_type": "led", "max_encoder_position_embeddings": 999, "max_decoder_position_embeddings": 600}
    assert "at most 600" in str(refusal(config, task="question-answering", sequence_length=601))


@pytest.mark.parametrize(
    "part",
    [
        {"downsample_in_first_stage": False},
        {"use_weighted_layer_sum": True},
        {"first_layer_is_expansion": True},
        {"enable_moe_block": False},
        {"stage_downsample": [False, True, True]},
        {"num_experts": 16_384},
        {"layer_rope_theta": [10_000, 500_000]},
        {"per_layer_config": {"05": {"hidden_size": 64}}},
        {"time_step_limit": [0.0, {"__float__": "Infinity"}]},
    ],
)
def test_a_word_for_what_is_built_often_makes_no_number_of_a_yes_or_no(part: dict[str, Any]) -> None:
    assert parse({"model_type": "bert", **part})["config"].items() >= part.items()


@pytest.mark.parametrize("model_type", ["llama4", "mllama", "qwen3_5", "qwen3_5_moe"])
def test_a_model_of_which_transformers_builds_the_text_part_alone_is_called_so(model_type: str) -> None:
    asked = {"model_type": model_type, "architectures": ["SomeForConditionalGeneration"]}
    assert parse_model({"huggingface": asked, "task": "causal-lm"}).name == f"{model_type}, causal-lm (text part)"


@pytest.mark.parametrize("model_type", ["bert", "gemma3", "gemma3_text", "llama4_text", "qwen3_5_text", "opt", "git"])
def test_a_model_that_is_built_as_a_whole_is_called_by_its_type(model_type: str) -> None:
    assert (
        parse_model({"huggingface": {"model_type": model_type}, "task": "causal-lm"}).name == f"{model_type}, causal-lm"
    )


def test_a_size_that_makes_no_sense_for_the_task_is_refused() -> None:
    assert "makes no sense" in str(refusal({"model_type": "vit"}, sequence_length=5))
    assert parse({"model_type": "resnet"}, image_size=64)["image_size"] == [64, 64]


def test_a_whole_number_may_be_written_with_a_point() -> None:
    size = parse({"model_type": "bert", "hidden_size": 64.0})["config"]["hidden_size"]
    assert (size, type(size)) == (64, int)
    assert "a whole number is expected" in str(refusal({"model_type": "bert", "hidden_size": None}))


def test_sizes_that_differ_between_stages_may_be_lists_and_some_may_be_null() -> None:
    parse({"model_type": "segformer", "num_attention_heads": [1, 2, 5, 8], "depths": [2, 2, 2, 2]})
    parse({"model_type": "convnext", "hidden_sizes": [8, 16], "image_size": [32, 64]})
    parse({"model_type": "gpt_neo", "intermediate_size": None})
    parse({"model_type": "wav2vec2", "vocab_size": None})


def test_a_model_type_that_is_no_name_is_named_by_its_kind() -> None:
    assert str(refusal({"model_type": []})).startswith("model_type is a list; a name is expected")


def test_another_transformers_makes_another_model_of_a_config(monkeypatch: pytest.MonkeyPatch) -> None:
    one = parse_model({"huggingface": {"model_type": "bert"}})
    monkeypatch.setattr(documents, "transformers_version", lambda: "99.0")
    other = parse_model({"huggingface": {"model_type": "bert"}})
    assert one.content == other.content
    assert one.key != other.key
    assert other.version == "transformers 99.0"
