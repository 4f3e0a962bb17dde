"""What a client sent is not repeated; what helps stays."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from app.advisor.plans import find_devices
from app.advisor.request import InvalidRequest
from app.api.echo import without_echo
from app.api.problems import _answer
from app.errors import ProfileRefused, UnknownProfile
from probes.workload.architectures import read_architectures
from probes.workload.description import InvalidModel
from probes.workload.models import parse_model
from probes.workload.wording import clean
from tests.app.advisor.build import a_gpu, a_survey


def test_a_name_that_is_not_ours_goes() -> None:
    assert without_echo('The model "mine" is not known.', {"model": "mine"}) == 'The model "…" is not known.'


def test_words_of_ours_stay_though_they_were_sent() -> None:
    message = 'layers[0] (linear): "out" is "zzmany"; a whole number is expected.'
    sent = {"layers": [{"type": "linear", "out": "zzmany", "a": "is"}]}
    assert without_echo(message, sent) == message.replace('"zzmany"', '"…"')


def test_a_shortened_name_goes_too() -> None:
    long = 'zqz0 "' + "0" * 100
    assert without_echo(f'The model "{clean(long)}" is not known.', {"model": long}) == 'The model "…" is not known.'
    assert "aaa" not in without_echo(f'The model "{clean("a" * 100)}" is not known.', {"model": "a" * 100})


def test_a_long_name_goes_where_nobody_shortened_it() -> None:
    """As in what transformers says."""
    long = "zqz" + "a" * 100
    assert without_echo(f"{long} was not understood.", {"problem_type": long}) == "… was not understood."


@pytest.mark.parametrize("count", range(2, 26))
def test_a_key_goes_whole_whatever_blanks_are_in_it(count: int) -> None:
    key = " ".join(["zqz"] * count)
    for config in ({key: 10**30}, {key: "a/b"}, {"zqz": {key: {key: 10**30}}}, {key: {"bad key!": 1}}):
        model = {"huggingface": {"model_type": "bert", **config}}
        with pytest.raises(InvalidModel) as caught:
            parse_model(model)
        assert "zqz" in str(caught.value)
        assert "zqz" not in without_echo(str(caught.value), {"model": model})


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-hf"),
        ("mobilenet", "mobilenet"),
        ({"huggingface": {"model_type": "bert"}, "task": "lm"}, "lm"),
        ({"layers": [{"type": "conv2d", "out": 8, "kernel_size": 3}], "input_shape": [4]}, "…"),
    ],
    ids=str,
)
def test_of_what_helps_nothing_goes_with_what_was_sent(model: Any, sent: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        parse_model(model)
    message = str(caught.value)
    assert without_echo(message, {"model": model}) == message.replace(f'"{sent}"', '"…"')


def detail_of(error: Exception, sent: object) -> str:
    """What a client is told that sent this."""
    request = Request({"type": "http"})
    request.state.sent = sent
    return str(json.loads(bytes(asyncio.run(_answer(request, error)).body))["detail"])


def test_names_of_what_is_here_stay_though_they_were_sent() -> None:
    known = UnknownProfile(("rig-2", "old rig"))
    assert detail_of(known, {"profile": "rig"}) == str(known)
    with pytest.raises(InvalidRequest) as caught:
        find_devices(a_survey(gpus=[a_gpu()]), ["NVIDIA A10"])
    assert "cuda:0 (NVIDIA A10)" in detail_of(caught.value, {"devices": ["NVIDIA A10"]})


def test_of_many_model_types_at_once_no_classes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all of them that takes more than a second."""
    read: list[str] = []
    monkeypatch.setattr("app.api.echo.read_config_classes", lambda model_type: read.append(model_type) or "")
    types = sorted(read_architectures().model_types)
    sent = {"model": {"huggingface": {"model_type": types[0], "zqa": types}}}
    assert without_echo(f"zqa {types[0]}", sent) == f"… {types[0]}"
    assert read == []
    without_echo("zqa", {"model": {"huggingface": {"model_type": types[0], "zqa": 1}}})
    assert read == types[:1]


@pytest.mark.parametrize("message", ['Write {"huggingface": {…}}, or not.', "known are (gelu, relu, …)."])
def test_an_ellipsis_of_ours_takes_nothing_along(message: str) -> None:
    assert without_echo(message, {"model": "zzmine"}) == message


@pytest.mark.parametrize(
    "sent", [{"zqa": [{"zqb": "zqc"}, "zqd"], "zqe": 1}, ["zqa", ["zqb", {"zqc": "zqd", "zqe": 0}]]]
)
def test_every_string_is_looked_at(sent: object) -> None:
    assert without_echo("zqa zqb zqc zqd zqe", sent) == "… … … … …"


def test_a_body_however_large_is_searched_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million strings take seconds, in which nobody else would be answered."""
    threads: list[int] = []

    def noted(message: str, sent: object) -> str:
        threads.append(threading.get_ident())
        return without_echo(message, sent)

    async def answer() -> bytes:
        request = Request({"type": "http"})
        request.state.sent = {"model": "zqmine"}
        return bytes((await _answer(request, InvalidModel('The model "zqmine" is not known.'))).body)

    monkeypatch.setattr("app.api.problems.without_echo", noted)
    assert b"zqmine" not in asyncio.run(answer())
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(codec="utf-8")))
def test_no_name_whatever_comes_back(text: str) -> None:
    name = f"zqz{text}"  # no word of ours
    for model in (name, {name: 1}, {"layers": [{"type": name}], "input_shape": [4]}, {"huggingface": {name: []}}):
        try:
            parse_model(model)
        except InvalidModel as error:
            told = without_echo(str(error), {"model": model})
            assert name not in told
            assert "zqz" not in told


def test_a_large_number_that_was_sent_goes_and_bounds_of_ours_stay() -> None:
    message = "num_hidden_layers is 1000000000 or 1,000,000,000; at most 100000 are read, layers[1] too."
    sent = {"num_hidden_layers": 1_000_000_000, "dropout": 1.0, "small": 1}
    assert without_echo(message, sent) == "num_hidden_layers is … or …; at most 100000 are read, layers[1] too."
    assert without_echo("dropout is 17.25.", {"dropout": 17.25}) == "dropout is …."


def test_a_size_that_was_sent_stays() -> None:
    """It tells nothing, and a sentence that names a bound is of no use without it."""
    model = {"huggingface": {"model_type": "canine", "max_position_embeddings": 16_384}, "sequence_length": 20_000}
    with pytest.raises(InvalidModel, match="Take at most 16384") as caught:
        parse_model(model)
    assert without_echo(str(caught.value), {"model": model}) == str(caught.value)


def test_words_of_transformers_stay_in_what_it_says_of_a_config() -> None:
    sent = {"model": {"huggingface": {"model_type": "led", "attention_window": [4], "zqmine": 1}}}
    message = "No led model can be built: len(config.attention_window) is not config.zqmine."
    assert without_echo(message, sent) == message.replace("zqmine", "…")
    elsewhere = {"model": {"huggingface": {"model_type": "bert", "attention_window": [4]}}}
    assert "attention_window" not in without_echo(message, elsewhere)
    assert "attention_window" not in without_echo(message, {"model": "led", "name": "attention_window"})


def test_a_field_of_a_module_that_config_classes_share_stays_and_what_was_written_there_goes() -> None:
    sent = {"model": {"huggingface": {"model_type": "llama", "rope_scaling": {"rope_type": "zqrope", "zqmine": 1}}}}
    message = 'huggingface.rope_scaling.rope_type is "zqrope", and huggingface.rope_scaling.zqmine is none.'
    assert without_echo(message, sent) == message.replace("zqrope", "…").replace("zqmine", "…")


def test_of_a_refused_profile_what_its_writer_wrote_is_not_repeated_and_names_of_ours_are() -> None:
    told = "plans[0].environment sets ZQVARIABLE, which no plan does"
    assert detail_of(ProfileRefused("profile-refused", told, ("ZQVARIABLE",)), None) == told.replace("ZQVARIABLE", "…")
    assert detail_of(ProfileRefused("profile-exists", told), None) == told


@pytest.mark.parametrize("name", ["profile", "samples", "name", "asked", "stored", "cpu", "cuda:0"])
def test_our_own_sentences_stay_whole(name: str) -> None:
    for message in (str(UnknownProfile()), f"Devices here: cpu, cuda:0. {name}"):
        assert without_echo(message, {"profile": name, name: name}) == message


def test_a_number_too_long_to_be_written_costs_nothing() -> None:
    assert without_echo("batch_size is too large.", {"batch_size": 10**5000}) == "batch_size is too large."
