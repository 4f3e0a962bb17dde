"""A config made wider builds, runs, and has sizes that fit each other."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from probes.microtrain.building.huggingface_models import import_transformers, make_config
from probes.microtrain.building.huggingface_widths import _widened, widen_huggingface, wider_sizes
from probes.microtrain.models import build_model
from probes.microtrain.tracing import trace_workload
from probes.workload.description import InvalidModel, ModelDescription, Workload
from probes.workload.models import parse_model


def a_model(model_type: str, **config: Any) -> ModelDescription:
    return parse_model({"huggingface": {"model_type": model_type, **config}})


def parameters(model: ModelDescription) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build_model(model).module.parameters())


LLAMA = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 2,
         "intermediate_size": 128, "vocab_size": 100}  # fmt: skip
WHOLE = (
    a_model("llama", **LLAMA),
    a_model("gpt2", n_layer=1, n_embd=64, n_head=4, vocab_size=100),
    a_model("t5", num_layers=1, d_model=64, d_kv=16, d_ff=128, num_heads=4, vocab_size=100),
    a_model("albert", num_hidden_layers=1, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=99),
    a_model("swin", depths=[1, 1], num_heads=[2, 4], embed_dim=32, image_size=32, window_size=4),
    a_model("resnet", hidden_sizes=[16, 32], depths=[1, 1], embedding_size=16, image_size=32),
    a_model("regnet", hidden_sizes=[16, 32], depths=[1, 1], groups_width=8, embedding_size=16, image_size=32),
    a_model("wav2vec2", hidden_size=64, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
            conv_dim=[16] * 7),
    a_model("efficientnet", image_size=32),
)  # fmt: skip


@pytest.mark.parametrize("model", WHOLE, ids=lambda model: model.content["config"]["model_type"])
def test_a_wider_model_is_built_with_more_parameters_and_a_narrower_one_with_fewer(model: ModelDescription) -> None:
    counts = [parameters(widen_huggingface(model, factor)) for factor in (0.5, 0.8, 2.0, 3.3)]
    assert counts == sorted(counts)
    own = parameters(model)
    assert counts[0] < own < counts[2]
    assert counts[2] <= 4.2 * own


@pytest.mark.parametrize("factor", [0.3, 2.0])
@pytest.mark.parametrize("model", WHOLE[:2], ids=lambda model: model.content["config"]["model_type"])
def test_a_wider_model_takes_the_same_samples_and_runs(model: ModelDescription, factor: float) -> None:
    narrow, wide = (trace_workload(Workload(each, 2)) for each in (model, widen_huggingface(model, factor)))
    assert wide.input_bytes.at(8) == narrow.input_bytes.at(8)
    assert (wide.flops(4) > narrow.flops(4)) == (factor > 1)


def test_heads_keep_their_size_where_their_number_stays_whole() -> None:
    wider = widen_huggingface(WHOLE[0], 1.5).content["config"]
    assert (wider["hidden_size"], wider["num_attention_heads"], wider["num_key_value_heads"]) == (96, 12, 3)
    assert wider["vocab_size"] == 100
    narrower = widen_huggingface(WHOLE[0], 0.25).content["config"]  # half a head of keys there is not
    assert narrower["hidden_size"] == 16
    assert narrower.get("num_key_value_heads") == 2


def test_what_the_config_leaves_to_its_class_is_written_out() -> None:
    wider = widen_huggingface(a_model("distilbert", n_layers=1), 2.0).content
    assert {name: wider["config"][name] for name in ("dim", "hidden_dim", "n_heads")} == {
        "dim": 1536, "hidden_dim": 6144, "n_heads": 24,
    }  # fmt: skip
    assert wider["task"] == a_model("distilbert").content["task"]


def test_the_parts_of_a_composite_config_are_widened_together() -> None:
    part = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "num_hidden_layers": 1}
    model = a_model("clip", text_config=part, vision_config={**part, "image_size": 32, "patch_size": 16})
    config = widen_huggingface(model, 2.0).content["config"]
    for name in ("text_config", "vision_config"):
        assert config[name]["hidden_size"] == 64
        assert config[name]["num_hidden_layers"] == 1


@example(heads=2, groups=2, head_size=1, factor=1.5)
@given(heads=st.integers(1, 32), groups=st.integers(1, 16), head_size=st.integers(1, 64), factor=st.floats(1 / 64, 64))
def test_sizes_are_always_dealt_out_evenly(heads: int, groups: int, head_size: int, factor: float) -> None:
    values = {
        "hidden_size": math.lcm(heads, groups) * head_size,
        "num_heads": heads,
        "conv_groups": groups,
        "name": "x",
    }
    wider = wider_sizes(values, {}, factor)
    hidden, wider_heads = wider["hidden_size"], wider.get("num_heads", heads)
    assert hidden >= 1
    assert hidden % wider_heads == 0
    assert hidden % groups == 0


def test_each_stage_is_dealt_out_to_its_own_heads() -> None:
    values = {"hidden_sizes": [32, 64, 160, 256], "num_attention_heads": [1, 2, 5, 8], "depths": [2, 2, 2, 2]}
    assert wider_sizes(values, {}, 2.0) == {"hidden_sizes": [64, 128, 320, 512], "num_attention_heads": [2, 4, 10, 16]}
    assert wider_sizes(values, {}, 0.3) == {"hidden_sizes": [10, 20, 50, 80]}


def test_the_classs_own_name_for_a_size_is_taken_from_its_map() -> None:
    values = {"breadth": 64, "eyes": 4, "vocab_size": 1000, "use_cache": True, "hidden_act": "gelu"}
    own = {"hidden_size": "breadth", "num_attention_heads": "eyes"}
    assert wider_sizes(values, own, 2.0) == {"breadth": 128, "eyes": 8}


@pytest.mark.parametrize(
    "model",
    [
        a_model("gpt2", n_layer=1, hidden_size=64, num_attention_heads=4, vocab_size=100),
        a_model("gpt2", n_layer=1, hidden_size=64, n_head=4, vocab_size=100),
        a_model("distilbert", n_layers=1, hidden_size=64, num_attention_heads=4, hidden_dim=128, vocab_size=100),
        a_model("t5", num_layers=1, hidden_size=64, num_attention_heads=4, head_dim=16, d_ff=128, vocab_size=100),
        a_model("bloom", n_layer=1, hidden_size=64, num_attention_heads=4, vocab_size=100),
    ],
    ids=lambda model: model.content["config"]["model_type"],
)
def test_sizes_may_be_written_by_the_names_that_all_classes_share(model: ModelDescription) -> None:
    sizes = [make_config(each.content)[0] for each in (widen_huggingface(model, 0.5), widen_huggingface(model, 2.0))]
    assert [config.hidden_size for config in sizes] == [32, 128]
    assert [config.num_attention_heads for config in sizes] == [2, 8]


def test_a_part_may_be_written_by_the_name_that_all_classes_share() -> None:
    config: Any = import_transformers().PreTrainedConfig

    class Part(config):  # type: ignore[misc]
        model_type = "part"
        hidden_size: int = 8

    class Whole(config):  # type: ignore[misc]
        model_type = "whole"
        attribute_map: ClassVar = {"llm_config": "text_config"}
        text_config: Any = None

    written = {"model_type": "whole", "llm_config": {"hidden_size": 16}}
    widened = _widened(written, Whole(text_config=Part(hidden_size=16)), 2.0)
    assert widened == {"model_type": "whole", "llm_config": {"hidden_size": 32}}


def test_a_size_that_only_a_name_of_old_sets_is_refused_by_its_own() -> None:
    with pytest.raises(InvalidModel, match=r"huggingface\.hidden_size is set by another name"):
        widen_huggingface(a_model("bloom", n_layer=1, n_embed=64, n_head=4, vocab_size=100), 2.0)


@pytest.mark.parametrize("sizes", [{"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}, {}])
def test_a_width_that_rounds_to_the_same_sizes_is_refused_and_says_so(sizes: dict[str, int]) -> None:
    with pytest.raises(InvalidModel, match=r"Width 1\.001 leaves every size .* rounded"):
        widen_huggingface(a_model("bert", **sizes), 1.001)


def test_a_class_whose_layers_have_sizes_of_their_own_is_widened() -> None:
    """transformers gives none of these as an attribute of the whole config, once they differ from its defaults."""
    wider = widen_huggingface(a_model("dots3_note_text"), 2.0).content
    assert make_config(wider)
    assert wider["config"]["num_attention_heads"] == 2 * 128


@pytest.mark.parametrize("model_type", ["swin", "swinv2", "donut-swin"])
def test_a_size_that_only_follows_from_others_is_none_that_a_width_changes(model_type: str) -> None:
    """Swin's hidden_size, of which nothing is built, is in line where embed_dim rounds back to what it was."""
    with pytest.raises(InvalidModel, match=r"Width 1\.1 leaves every size"):
        widen_huggingface(a_model(model_type), 1.1)
    assert widen_huggingface(a_model(model_type), 2.0).content["config"]["embed_dim"] == 192


def test_stages_with_heads_of_their_own_become_a_quarter_as_wide() -> None:
    """Swin's first stage has three heads: 24 is what all of its stages' divide."""
    sizes = [widen_huggingface(a_model("swin"), factor).content["config"]["embed_dim"] for factor in (0.25, 0.5)]
    assert sizes == [24, 48]


def test_a_width_that_lands_far_from_what_was_asked_is_refused() -> None:
    ten_heads = a_model("bert", hidden_size=40, num_attention_heads=10, intermediate_size=40)
    with pytest.raises(InvalidModel, match=r"Width 0\.25 cannot be had of this bert config: .* becomes 0\.5 times"):
        widen_huggingface(ten_heads, 0.25)


def test_an_efficientnet_s_head_takes_what_its_last_convolution_gives() -> None:
    model = widen_huggingface(a_model("efficientnet", image_size=32), 0.33)
    assert model.content["config"]["hidden_dim"] % 8 == 0
    assert trace_workload(Workload(model, 2)).operations


def test_a_config_without_a_size_that_is_known_is_refused_by_name() -> None:
    with pytest.raises(InvalidModel, match="swiftformer"):
        widen_huggingface(a_model("swiftformer"), 2.0)


def test_channels_of_stages_are_sizes_and_no_counts() -> None:
    """HGNetV2's last stage has 2048 of them."""
    assert widen_huggingface(a_model("hgnet_v2", image_size=32), 2.0).content["config"]["stage_out_channels"][-1] > 2048


def test_a_config_that_grows_out_of_bounds_is_refused() -> None:
    with pytest.raises(InvalidModel):
        widen_huggingface(WHOLE[0], 1e12)
