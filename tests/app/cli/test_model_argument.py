"""What MODEL may be on the command line."""

import io
import json
import sys
from pathlib import Path

import pytest

from app.cli.endings import CommandFailed, ExitCode
from app.cli.model_argument import read_model
from probes.workload.catalogue import find_model
from probes.workload.description import InvalidModel

LAYERS = {"layers": [{"type": "linear", "in": 4, "out": 3}], "input_shape": [4]}
CONFIG = {"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2}


def write(folder: Path, content: object) -> str:
    path = folder / "model.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(path)


def test_a_name_is_looked_up_in_the_catalogue() -> None:
    assert read_model("iris-mlp").name == "iris-mlp"


def test_a_file_of_layers_is_read(tmp_path: Path) -> None:
    assert read_model(write(tmp_path, LAYERS)).kind == "layers"


def test_a_bare_config_json_is_a_hugging_face_model(tmp_path: Path) -> None:
    model = read_model(write(tmp_path, CONFIG), task="text-classification", sequence_length=64)
    assert model.kind == "huggingface"
    assert model.content["task"] == "text-classification"
    assert model.content["sequence_length"] == 64


def test_a_folder_that_transformers_saved_a_model_in_is_its_config_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "resnet-18"):
        Path(name).mkdir()
        Path(name, "config.json").write_text(json.dumps(CONFIG))
    for argument in ("mine", "mine/", "./resnet-18", str(tmp_path / "mine")):
        assert read_model(argument, task="text-classification").content["config"]["num_hidden_layers"] == 2
    assert read_model("resnet-18") == find_model("resnet-18")


def test_a_bare_config_of_a_class_of_its_own_is_told_how_to_ask(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="module:function"):
        read_model(write(tmp_path, {"auto_map": {"AutoModel": "modeling_own.Model"}, "hidden_size": 64}))


def test_options_go_before_what_the_file_says(tmp_path: Path) -> None:
    document = {"huggingface": CONFIG, "task": "text-classification", "sequence_length": 128}
    assert read_model(write(tmp_path, document), sequence_length=32).content["sequence_length"] == 32


def test_a_catalogue_name_is_one_beside_a_file_that_is_called_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As weights are, or a log."""
    monkeypatch.chdir(tmp_path)
    for name in ("resnet-18", "mine"):
        Path(name).write_text(json.dumps(LAYERS))
    assert read_model("resnet-18") == find_model("resnet-18")
    assert read_model("./resnet-18").kind == read_model("mine").kind == "layers"


def test_a_file_of_python_is_told_its_modules_name() -> None:
    with pytest.raises(CommandFailed, match="Write train:make_model") as caught:
        read_model("train.py:make_model")
    assert caught.value.code == ExitCode.USAGE


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(LAYERS).encode())))
    assert read_model("-").kind == "layers"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b'{"layers": NaN}',
        b'{"layers": Infinity}',
        b"\xff\xfe\x00",
        b"null",
        b"[" * 100_000 + b"]" * 100_000,
        b"1" * 10_000,
        b'{"model_type": "bert", "auto_map": {"AutoModel": "evil.Model"}}',
        b'{"layers": [{"type": "linear", "in": 4, "out": 1000000000000000000}], "input_shape": [4]}',
    ],
)
def test_rubbish_in_a_file_is_wrong_usage_in_a_sentence(content: bytes, tmp_path: Path) -> None:
    with pytest.raises((CommandFailed, InvalidModel)) as caught:
        read_model(write(tmp_path, content))
    assert getattr(caught.value, "code", ExitCode.USAGE) == ExitCode.USAGE
    assert len(str(caught.value)) < 400


def test_a_config_with_an_infinite_number_is_told_how_to_write_it(tmp_path: Path) -> None:
    """As json.dumps writes it, and transformers did."""
    config = b'{"model_type": "mamba2", "num_hidden_layers": 1, "time_step_limit": [0.0, %s]}'
    advised = b'{"__float__": "Infinity"}'
    with pytest.raises(CommandFailed, match=r"column 75\. In a config\.json leave its key out, or write") as caught:
        read_model(write(tmp_path, config % b"Infinity"))
    assert advised.decode() in str(caught.value)
    assert read_model(write(tmp_path, config % advised)).kind == "huggingface"


def test_a_file_too_large_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(CommandFailed, match="larger than"):
        read_model(str(path))


@pytest.mark.parametrize("argument", ["./nothing.json", "a/b", "\0.json", "/"])
def test_a_file_that_cannot_be_read_is_named(argument: str) -> None:
    with pytest.raises(CommandFailed):
        read_model(argument)


@pytest.mark.parametrize("argument", ["./", "/"])
def test_a_folder_is_named_too(argument: str) -> None:
    with pytest.raises(CommandFailed, match=f"^{argument} cannot be read"):
        read_model(argument)


@pytest.mark.parametrize("argument", ["", " ", "a:b:c", "os.system('x'):y", "ünïcode", "x" * 100_000])
def test_a_strange_name_is_an_unknown_model(argument: str) -> None:
    with pytest.raises((InvalidModel, CommandFailed)):
        read_model(argument)


@pytest.mark.parametrize("before", ["", " ", "\n"])
def test_a_document_may_stand_on_the_command_line_itself(before: str) -> None:
    assert read_model(before + json.dumps(LAYERS)).kind == "layers"
    assert read_model(before + json.dumps(CONFIG), task="text-classification").kind == "huggingface"


@pytest.mark.parametrize("argument", ["{", '{"layers": NaN}', "{'layers': []}", '{"layers": "\udcff"}', "{}"])
def test_rubbish_that_begins_like_a_document_is_wrong_usage_in_a_sentence(argument: str) -> None:
    with pytest.raises((CommandFailed, InvalidModel)) as caught:
        read_model(argument)
    assert getattr(caught.value, "code", ExitCode.USAGE) == ExitCode.USAGE
    assert len(str(caught.value)) < 400


def test_own_code_whose_source_is_not_found_is_another_model_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured of it before may be another's."""
    monkeypatch.setattr("probes.workload.python_sources.hash_source", lambda target: None)
    assert read_model("own.train:make").key != read_model("own.train:make").key
