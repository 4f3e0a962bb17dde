"""A key that nothing reads is refused where it is one letter away from one that is read and not written."""

from typing import Any

import pytest

from probes.microtrain.building.huggingface_models import import_transformers
from probes.microtrain.building.misspelt_keys import check_keys, is_one_letter_off, misspelt_keys
from probes.workload.description import InvalidModel

pytest.importorskip("transformers", minversion="5")


def class_of(model_type: str) -> Any:
    return import_transformers().CONFIG_MAPPING[model_type]


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("num_hidden_layer", "num_hidden_layers"),
        ("hidden_sizes", "hidden_size"),
        ("hiddem_size", "hidden_size"),
        ("nmu_layers", "num_layers"),
        ("numlayers", "num_layers"),
    ],
)
def test_a_slip_is_one_letter_missing_added_changed_or_swapped(key: str, name: str) -> None:
    assert is_one_letter_off(key, name)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("hidden_size", "hidden_size"),
        ("hiden_sizes", "hidden_size"),
        ("eos_token_id", "bos_token_id"),
        ("top_p", "top_k"),
        ("v_channels", "kv_channels"),
        ("block1", "block2"),
        ("", "d"),
    ],
)
def test_what_is_further_away_or_another_thing_is_none(key: str, name: str) -> None:
    assert not is_one_letter_off(key, name)
    assert not is_one_letter_off(name, key)


@pytest.mark.parametrize(
    ("model_type", "config", "said"),
    [
        ("bert", {"hiden_size": 64}, "bert has no hiden_size. Did you mean hidden_size? Write it so, or leave it out."),
        ("gpt2", {"num_hidden_layer": 2}, "gpt2 has no num_hidden_layer. Did you mean num_hidden_layers?"),
        ("llama", {"rope_scalings": None}, "llama has no rope_scalings. Did you mean rope_scaling?"),
        ("bert", {"num_label": 3}, "bert has no num_label. Did you mean num_labels?"),
        (
            "gemma3",
            {"text_config": {"hiden_size": 8}},
            "gemma3 has no text_config.hiden_size. Did you mean hidden_size?",
        ),
        (
            "bert",
            {"hiden_size": 8, "vocab_szie": 9},
            "bert has no hiden_size and no vocab_szie. Did you mean hidden_size",
        ),
    ],
)
def test_a_misspelt_key_is_refused_with_the_one_that_was_meant(
    model_type: str, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidModel) as caught:
        check_keys(model_type, class_of(model_type), config)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("model_type", "written"),
    [
        ("bert", {"hiden_size", "hidden_size"}),  # what is meant is there as well
        ("gpt2", {"n_layers", "num_hidden_layers"}),  # under its other name
        ("bloom", {"n_embed"}),  # no field, but read
        ("bert", {"gradient_checkpointing", "pooler_fc_size", "directionality", "output_past"}),
    ],
)
def test_other_keys_that_a_class_does_not_have_are_left_alone(model_type: str, written: set[str]) -> None:
    assert list(misspelt_keys(class_of(model_type), written)) == []
