"""What a model type's config classes say is read from transformers' source."""

import pytest

from probes.workload.config_classes import is_rotary, read_config_classes, read_imported


@pytest.mark.parametrize(
    ("model_type", "rotary"),
    [
        *((name, True) for name in ("llama", "qwen2", "gpt_neox", "gemma3_text", "modernbert")),
        *((name, False) for name in ("bert", "gpt2", "roberta", "opt", "bart", "clip_text_model")),
        *((name, False) for name in ("gptj", "codegen", "roformer")),  # rotary, by a table of angles
        *((name, False) for name in ("no such type", "../llama", "")),
    ],
)
def test_whether_a_model_has_no_table_of_positions(model_type: str, rotary: bool) -> None:
    assert is_rotary(model_type) is rotary


def test_the_classes_are_those_of_the_model_type() -> None:
    assert "class Gemma3TextConfig" in read_config_classes("gemma3_text")  # in the folder of gemma3
    assert read_config_classes("../bert") == read_config_classes("no such type") == ""


def test_what_the_classes_import_is_read_too() -> None:
    shared = "def dynamic_rope_update("  # of modeling_rope_utils
    assert shared in read_imported(read_config_classes("llama"))
    assert shared not in read_imported(read_config_classes("bert"))
    assert read_imported("from ...no_such_module import Config\nfrom ...utils import logging\n").strip() == ""
