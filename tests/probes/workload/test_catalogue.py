"""The catalogue's rows. That their parameters are right is checked in tests/probes/microtrain/test_models.py."""

import pytest

from probes.workload import architectures, catalogue
from probes.workload.architectures import transformers_version
from probes.workload.catalogue import find_model, find_row, list_models
from probes.workload.description import InvalidModel

ROWS = list_models()


def test_it_begins_with_the_network_everybody_has_trained() -> None:
    assert ROWS[0].name == "iris-mlp"
    assert ROWS[0].parameters == 83


def test_it_covers_every_family_from_tens_of_parameters_to_billions() -> None:
    assert {row.family for row in ROWS} == {"tabular", "vision", "text", "audio", "recurrent"}
    assert len(ROWS) >= 20
    assert max(row.parameters for row in ROWS) > 5_000_000_000


def test_every_row_names_its_source_and_says_what_it_is() -> None:
    for row in ROWS:
        assert len(row.source) > 10
        assert len(row.summary) > 10
        assert row.description.name == row.name


def test_names_and_aliases_are_all_different() -> None:
    names = [name for row in ROWS for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("written", ["resnet-50", "ResNet_50", "RESNET 50", "resnet50", " resnet-50 "])
def test_case_and_hyphens_do_not_matter(written: str) -> None:
    assert find_model(written).name == "resnet-50"


@pytest.mark.parametrize(("written", "near"), [("resnet-51", "resnet-50"), ("irismlp", "iris-mlp"), ("gpt-3", "gpt2")])
def test_anything_else_is_unknown_and_brings_near_names(written: str, near: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        find_model(written)
    assert near in caught.value.suggestions


def test_a_known_name_that_holds_what_nobody_sees_is_told_to_hold_it() -> None:
    with pytest.raises(InvalidModel, match='"resnet-50" is not known, as it holds a character that cannot be seen'):
        find_model("resnet\u200b-50")
    with pytest.raises(InvalidModel, match=r'"resnet-51" is not known\. Did you mean'):
        find_model("resnet-51")
    with pytest.raises(InvalidModel, match=r'"resnet-51" is not known\. Did you mean'):
        find_model("resnet-51\u200b")  # which is none without it, either


def test_a_name_on_a_hub_is_told_how_to_be_written() -> None:
    with pytest.raises(InvalidModel, match=r"config\.json"):
        find_model("google-bert/bert-base-uncased")


def test_a_config_among_them_is_another_model_under_another_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may be installed while a service runs."""
    old, layers = find_model("bert-base"), find_model("iris-mlp")
    assert old.version == f"transformers {transformers_version()}"
    stamp = architectures.stamp_of("transformers")
    assert stamp is not None
    for module in (architectures, catalogue):
        monkeypatch.setattr(module, "stamp_of", lambda _: (*stamp[:3], stamp[3] + 1))
    monkeypatch.setattr(architectures, "version", lambda _: "99.0")
    new = find_model("bert-base")
    assert (new.content, new.version) == (old.content, "transformers 99.0")
    assert new.key != old.key
    assert next(row for row in list_models() if row.name == "bert-base") == find_row("bert-base")
    assert find_model("iris-mlp") == layers
    monkeypatch.undo()
    assert find_model("bert-base") == old
