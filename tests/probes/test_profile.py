"""A profile from elsewhere is either one that a calibration could have measured, or refused with a sentence."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.advisor.environments import KEEP_BYTES, KEEP_MEMORY
from probes import bounds
from probes.profile import SCHEMA_VERSION, InvalidProfile, Profile, parse_profile
from probes.trace import SCHEMA_VERSION as TRACE_SCHEMA

REAL = Path(__file__).parents[1] / "app" / "advisor" / "data" / "real_profile.json"
Document = dict[str, Any]


@pytest.fixture(scope="module")
def real() -> Document:
    document: Document = json.loads(REAL.read_text(encoding="utf-8"))
    return document


def test_a_real_profile_survives_a_journey(real: Document) -> None:
    profile = Profile.from_json(real)
    sent = json.dumps(profile.to_json()).encode()
    assert parse_profile(sent) == profile
    assert parse_profile(b"\xef\xbb\xbf" + sent + b"\r\n") == profile  # as editors on Windows leave it
    assert len(sent) < 1_000_000


def test_a_profile_of_before_methods_were_counted_is_of_the_first(real: Document) -> None:
    assert Profile.from_json({**real, "method": 1}).method == 1
    assert Profile.from_json({name: value for name, value in real.items() if name != "method"}).method == 0


def test_how_quick_the_cores_are_travels_too(real: Document) -> None:
    assert Profile.from_json({**real, "paces": {"1": 2e-4, "16": 3e-4}}).paces == {1: 2e-4, 16: 3e-4}
    profile = replace(Profile.from_json(real), paces={2: 2.5e-4})
    assert parse_profile(json.dumps(profile.to_json()).encode()) == profile
    assert Profile.from_json({name: value for name, value in real.items() if name != "paces"}).paces == {}


def test_which_cards_are_told_as_another_travels_too(real: Document) -> None:
    profile = replace(Profile.from_json(real), like={"cuda:1": "cuda:0"})
    assert parse_profile(json.dumps(profile.to_json()).encode()) == profile
    for like in ({"cuda:1": 7}, {"cuda:1": "../cuda"}, {"a card": "cuda:0"}, [["cuda:1", "cuda:0"]]):
        with pytest.raises(InvalidProfile):
            Profile.from_json({**real, "like": like})


def test_which_steps_are_reckoned_travels_too(real: Document) -> None:
    profile = Profile.from_json(real)
    first, *others = profile.networks
    profile = replace(profile, networks=(replace(first, reckoned=True), *others))
    document = json.loads(json.dumps(profile.to_json()))
    assert sum("reckoned" in row for row in document["networks"]) == 1
    assert Profile.from_json(document) == profile


def with_traces_in_rows(real: Document) -> Document:
    """As somebody may write it who joins profiles."""
    rows = [{**row, "trace": copy.deepcopy(real["traces"][row["trace"]])} for row in real["networks"]]
    return {**real, "networks": rows, "traces": []}


def test_traces_that_stand_in_rows_are_written_once_and_read_again(
    real: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = len({row["trace"] for row in real["networks"]})
    assert traces < len(real["networks"])
    monkeypatch.setattr(bounds, "MAX_PROFILE_TRACES", traces)
    profile = Profile.from_json(with_traces_in_rows(real))
    assert profile == Profile.from_json(real)
    assert len(profile.to_json()["traces"]) == traces
    assert Profile.from_json(profile.to_json()) == profile


def test_traces_that_stand_in_rows_count_with_the_listed(real: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = len({row["trace"] for row in real["networks"]})
    monkeypatch.setattr(bounds, "MAX_PROFILE_TRACES", traces)
    with pytest.raises(InvalidProfile, match=f"more than {traces} traces together"):
        Profile.from_json({**with_traces_in_rows(real), "traces": real["traces"][:1]})


def test_each_plan_is_written_once(real: Document) -> None:
    profile = Profile.from_json(real)
    document = profile.to_json()
    assert len(document["plans"]) == len({point.plan.key for point in profile.points})
    assert {row["plan"] for name in ("points", "networks", "contexts") for row in document[name]} == set(
        range(len(document["plans"]))
    )


def test_what_a_newer_crosspoint_added_is_passed_over(real: Document) -> None:
    added = {**real, "novelty": {"deep": [1]}, "points": [{**real["points"][0], "constant": "new-constant", "more": 1}]}
    assert Profile.from_json(added).points[0].constant == "new-constant"


def test_a_schema_of_another_version_is_named(real: Document) -> None:
    for version in (str(int(SCHEMA_VERSION) + 1), 4, 3, 1, None, "", [SCHEMA_VERSION]):
        with pytest.raises(
            InvalidProfile, match=rf"schema version {SCHEMA_VERSION}|schema_version is none of .*\"{SCHEMA_VERSION}\""
        ):
            Profile.from_json({**real, "schema_version": version})


def test_a_profile_of_a_newer_crosspoint_says_so_and_what_to_do(real: Document) -> None:
    with pytest.raises(InvalidProfile, match=r"a newer crosspoint made it.*update this one"):
        Profile.from_json({**real, "schema_version": str(int(SCHEMA_VERSION) + 1)})
    trace = {**real["traces"][0], "schema_version": str(int(TRACE_SCHEMA) + 1), "more": 1}
    with pytest.raises(InvalidProfile, match=r"a newer crosspoint made it.*reads traces.*update this one"):
        Profile.from_json({**real, "traces": [trace, *real["traces"][1:]]})
    for version in ("3.1", "²", "9" * 5000):
        with pytest.raises(InvalidProfile, match="this is not a crosspoint profile"):
            Profile.from_json({**real, "schema_version": version})


def point(change: Callable[[Document], object]) -> Callable[[Document], None]:
    def apply(document: Document) -> None:
        change(document["points"][3])

    return apply


def network(change: Callable[[Document], object]) -> Callable[[Document], None]:
    def apply(document: Document) -> None:
        change(document["networks"][2])

    return apply


def operation(change: Callable[[Document], object]) -> Callable[[Document], None]:
    def apply(document: Document) -> None:
        change(document["traces"][0]["operations"][1])

    return apply


def clocked(batch_sizes: Sequence[int], costs: int) -> Callable[[Document], None]:
    """Steps of one network whose operations were clocked, so many costs each."""

    def change(document: Document) -> None:
        context = {"network": "one", "mode": "training", "plan": document["points"][0]["plan"]}
        context["costs"] = [[0, 1, 1e-6, 0.0]] * costs
        document["operations"] = [["mm", "matmul", "", "float32", 1.0, 1.0, 1.0]]
        document["contexts"] = [{**context, "batch_size": size} for size in batch_sizes]

    return change


def clocked_on_hosts(document: Document) -> None:
    """Within the bounds of each plan, but not all plans of one card together."""
    clocked([1], costs=6_000)(document)
    plans = [{"device": "cuda:0", "precision": precision} for precision in ("fp32", "tf32", "bf16", "fp16")]
    document["contexts"] = [{**document["contexts"][0], "plan": plan} for plan in plans]


def large_traces(document: Document) -> None:
    trace = document["traces"][0]
    trace["operations"] = trace["operations"][:1] * 5_000
    document["networks"] = [{**document["networks"][0], "trace": 0, "batch_size": size} for size in range(1, 300)]


def more_threads_than_cores(document: Document) -> None:
    document["hardware"] = {"usable_cores": 1.5}
    document["points"][3]["plan"]["threads"] = 3


HOSTILE: dict[str, Callable[[Document], object]] = {
    "paces that are a list": lambda document: document.update(paces=[1.0]),
    "a pace of no number of threads": lambda document: document.update(paces={"two": 1e-4}),
    "a pace of threads in other digits": lambda document: document.update(paces={"\u0662": 1e-4}),
    "a pace of very many threads": lambda document: document.update(paces={"9" * 5000: 1e-4}),
    "a pace of no threads": lambda document: document.update(paces={"0": 1e-4}),
    "a pace of no time": lambda document: document.update(paces={"1": 0.0}),
    "a negative time": point(lambda row: row["seconds"].update(low=-1e-6)),
    "a time of zero": point(lambda row: row["seconds"].update(low=0, median=0)),
    "a spread below zero": point(lambda row: row["seconds"].update(low=2.0, median=1.0, high=1.5)),
    "not a number": point(lambda row: row["seconds"].update(median=float("nan"))),
    "infinity": point(lambda row: row["seconds"].update(high=float("inf"))),
    "a time of a billion years": point(lambda row: row["seconds"].update(high=1e30)),
    "a sample below zero": point(lambda row: row["seconds"].update(samples=[1e-6, -1e-6])),
    "a million samples": point(lambda row: row["seconds"].update(samples=[1e-6] * 1_000_000)),
    "negative bytes": point(lambda row: row.update(bytes=-1.0)),
    "a fraction of a flop": point(lambda row: row.update(flops=1e-300)),
    "a number of five thousand digits": point(lambda row: row.update(flops=10**5000)),
    "true for a number": point(lambda row: row.update(flops=True)),
    "a list for parameters": point(lambda row: row.update(parameters=[1])),
    "a thousand parameters": point(lambda row: row.update(parameters={str(n): 1 for n in range(1000)})),
    "an unknown precision": point(lambda row: row["plan"].update(precision="fp64")),
    "threads on a card": point(lambda row: row["plan"].update(device="cuda:0", threads=1)),
    "a processor without threads": point(lambda row: row["plan"].update(device="cpu", threads=None)),
    "tf32 on a processor": point(lambda row: row["plan"].update(device="cpu", precision="tf32")),
    "more threads than cores": more_threads_than_cores,
    "a processor that is told as a card": lambda document: document.update(like={"cpu": "cuda:0"}),
    "a card that is told as the processor": lambda document: document.update(like={"cuda:0": "cpu"}),
    "a point that computes more than anything can": point(lambda row: row.update(flops=1e15)),
    "a point that moves more than anything can": point(lambda row: row.update(bytes=1e15)),
    "a million threads": point(lambda row: row["plan"].update(threads=10**6)),
    "no threads": point(lambda row: row["plan"].update(threads=0)),
    "half a thread": point(lambda row: row["plan"].update(threads=0.5)),
    "a device that is a path": point(lambda row: row["plan"].update(device="../etc")),
    "a variable that loads code": point(lambda row: row["plan"].update(environment={"LD_PRELOAD": "evil.so"})),
    "a library in a variable": point(lambda row: row["plan"].update(environment={"OMP_TOOL_LIBRARIES": "evil.so"})),
    "code in a variable": point(lambda row: row["plan"].update(environment={"CUDA_INJECTION64_PATH": "evil.so"})),
    "a command in a variable": point(lambda row: row["plan"].update(environment={"OMP_NUM_THREADS": "$(reboot)"})),
    "a variable that lets pickles run code": point(
        lambda row: row["plan"].update(environment={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"})
    ),
    "a variable that hides cards": point(lambda row: row["plan"].update(environment={"CUDA_VISIBLE_DEVICES": ""})),
    "a variable that is no name": point(lambda row: row["plan"].update(environment={"\x1b[0m": ""})),
    "a threshold that is a command": point(
        lambda row: row["plan"].update(environment={"MALLOC_TRIM_THRESHOLD_": "$(reboot)"})
    ),
    "a threshold in other digits": point(
        lambda row: row["plan"].update(environment={"MALLOC_TRIM_THRESHOLD_": "\u0662"})
    ),
    "a threshold that is a number": point(
        lambda row: row["plan"].update(environment={"MALLOC_MMAP_THRESHOLD_": 2**36})
    ),
    "a plan that is missing": point(lambda row: row.pop("plan")),
    "a plan that is not there": point(lambda row: row.update(plan=99)),
    "a plan from the end": point(lambda row: row.update(plan=-1)),
    "a plan that is text": network(lambda row: row.update(plan="0")),
    "true for a plan": network(lambda row: row.update(plan=True)),
    "a list of plans that holds none": lambda document: document.update(plans=[{"threads": 1}]),
    "a thousand plans": lambda document: document.update(plans=[{"device": "cpu"}] * 1000),
    "points that are no list": lambda document: document.update(points={}),
    "too many points": lambda document: document.update(points=[document["points"][0]] * 20_001),
    "a point that is null": lambda document: document.update(points=[None]),
    "a name of a megabyte": lambda document: document.update(name="x" * 2**20),
    "an escape sequence for a name": lambda document: document.update(name="\x1b]0;owned\x07"),
    "a lone surrogate": lambda document: document.update(machine="\ud800"),
    "text that turns round": lambda document: document.update(machine="CPU \u202egnp.exe"),
    "a day without a time": lambda document: document.update(created_at="2026-11-30"),
    "a week": lambda document: document.update(created_at="2026-W48-1"),
    "a clocked step that is not there": lambda document: document.update(
        contexts=[{"step": 0, "plan": document["points"][0]["plan"]}], steps=[]
    ),
    "a day that is none": lambda document: document.update(created_at="yesterday"),
    "a noise that is text": lambda document: document.update(noise={"load_average": "low"}),
    "a base of less than nothing": lambda document: document.update(process_base_bytes=-1),
    "a context of a fraction": lambda document: document.update(context_bytes={"cuda:0": 0.5}),
    "a start before it was asked for": lambda document: document.update(start_seconds={"cuda:0": -1.0}),
    "a start of a device that is none": lambda document: document.update(start_seconds={"the card": 1.0}),
    "hardware that is a list": lambda document: document.update(hardware=[1]),
    "a card that is unified by a word": lambda document: document.update(
        hardware={"accelerators": [{"device": "cuda:0", "unified_memory": "yes"}]}
    ),
    "a plan that was compiled": point(lambda row: row["plan"].update(compiled=True)),
    "a plan that is channels-last by a number": point(lambda row: row["plan"].update(channels_last=1)),
    "no cores": lambda document: document.update(hardware={"usable_cores": 0}),
    "a batch of none": network(lambda row: row.update(batch_size=0)),
    "a trace that is not there": network(lambda row: row.update(trace=99)),
    "a trace from the end": network(lambda row: row.update(trace=-1)),
    "a trace of another schema": network(lambda row: row.update(trace={"schema_version": "x"})),
    "a kind that is unknown": operation(lambda row: row.update(kind="magic")),
    "negative work": operation(lambda row: row.update(written_bytes=[1.0, -1.0])),
    "a count below zero": operation(lambda row: row.update(count=-5)),
    "an affine of three": operation(lambda row: row.update(flops=[1, 2, 3])),
    "an affine of letters": operation(lambda row: row.update(flops="ab")),
    "three hundred plans": lambda document: document.update(
        points=[
            {**document["points"][0], "plan": {**document["points"][0]["plan"], "threads": threads}}
            for threads in range(1, 301)
        ]
    ),
    "a step that is reckoned by a number": network(lambda row: row.update(reckoned=1)),
    "a step that stands twice": lambda document: document["networks"].append(document["networks"][0]),
    "a clocked step that stands twice": clocked([1, 1], costs=1),
    "a thousand networks for one plan": lambda document: document.update(
        networks=[{**document["networks"][0], "batch_size": size} for size in range(1, 1001)]
    ),
    "twenty thousand costs for one plan": clocked([1, 2], costs=10_001),
    "twenty thousand costs for one host": clocked_on_hosts,
    "three thousand points for one plan": lambda document: document.update(points=[document["points"][0]] * 3_000),
    "a large trace in every network": large_traces,
    "operations without end": lambda document: document["traces"][0].update(operations=[{}] * 20_001),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_no_calibration_measured_is_refused_with_a_sentence(real: Document, what: str) -> None:
    document = copy.deepcopy(real)
    HOSTILE[what](document)
    with pytest.raises(InvalidProfile) as caught:
        Profile.from_json(document)
    assert 20 < len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("value", [KEEP_BYTES, "0"])
def test_a_plan_may_have_the_variables_that_crosspoint_tries_and_no_other(real: Document, value: str) -> None:
    document = copy.deepcopy(real)
    tried = dict.fromkeys(KEEP_MEMORY, value)
    document["points"][3]["plan"] = {"device": "cpu", "threads": 1, "environment": tried}
    assert Profile.from_json(document).points[3].plan.environment == tried
    document["points"][3]["plan"]["environment"] = {**tried, "LD_PRELOAD": "libtcmalloc.so.4"}
    with pytest.raises(InvalidProfile, match=r"points\[3\]\.plan\.environment sets LD_PRELOAD") as caught:
        Profile.from_json(document)
    assert caught.value.theirs == ("LD_PRELOAD",)


def test_what_points_at_one_of_none_says_so(real: Document) -> None:
    document = copy.deepcopy(real)
    HOSTILE["a clocked step that is not there"](document)
    with pytest.raises(InvalidProfile, match=r"contexts\[0\]\.step points at a step that is not there"):
        Profile.from_json(document)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "ends in the middle"),
        (b'{"schema_version": "2", "poi', "middle"),
        (b'{"schema_version": "4", "a": 0.', "middle"),
        (b'{"schema_version": "4", "a": nul', "middle.*export it again"),
        (b'{"schema_version": "4", "a": nul}', "Expecting value in line 1"),
        (b'{"schema_version": "4"}.', "Extra data in line 1"),
        (gzip.compress(b"{}"), "compressed: unpack it first"),
        (b"\xff\xfe", "UTF-8"),
        (b"[" * 100_000, "nested"),
        (b'{"schema_version": "2", "a": NaN}', "finite"),
        (b'{"schema_version": "2", "a": 1e999}', "finite"),
        (b'{"schema_version": "2", "a": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"schema_version": "2", "schema_version": "2"}', "twice"),
        (b"[]", "not a crosspoint profile"),
        (b"null", "not a crosspoint profile"),
        (b" " * (bounds.MAX_PROFILE_BYTES + 1), "larger than"),
    ],
)
def test_a_file_that_is_no_profile_says_why(content: bytes, words: str) -> None:
    with pytest.raises(InvalidProfile, match=words):
        parse_profile(content)


def test_a_profile_cut_off_anywhere_is_told_as_one_that_ends_in_the_middle(real: Document) -> None:
    content = json.dumps(real).encode()
    for end in range(0, len(content), len(content) // 37):
        with pytest.raises(InvalidProfile, match="it ends in the middle"):
            parse_profile(content[:end])
    short = json.dumps({"a": [-0.5, 1e-12, None, True, False], "machine": "\u00e9"}).encode()
    for end in range(len(short)):
        with pytest.raises(InvalidProfile, match="it ends in the middle"):
            parse_profile(short[:end])


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("a step that stands twice", "networks has one step of a plan twice"),
        ("a clocked step that stands twice", "contexts has one step of a plan twice"),
        ("a thousand networks for one plan", "networks has more than"),
        ("twenty thousand costs for one plan", "contexts has more than 20,000 costs for one plan"),
        ("twenty thousand costs for one host", "contexts has more than 20,000 costs of one device's host"),
        ("three thousand points for one plan", "points has more than"),
        ("a large trace in every network", "traces of networks have more than"),
    ],
)
def test_how_much_a_plan_has_is_bounded_and_each_step_stands_once(real: Document, what: str, why: str) -> None:
    document = copy.deepcopy(real)
    HOSTILE[what](document)
    with pytest.raises(InvalidProfile, match=why):
        Profile.from_json(document)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_how_quick_a_plan_is_is_bounded_by_what_its_threads_or_its_card_can(real: Document, on_cpu: bool) -> None:
    plan = {"device": "cpu", "threads": 2} if on_cpu else {"device": "cuda:0"}
    most = 2 * bounds.MAX_THREAD_FLOPS if on_cpu else bounds.MAX_DEVICE_FLOPS

    def with_one(seconds: float) -> Document:
        timing = dict.fromkeys(("low", "median", "high"), seconds)
        one = {"constant": "matmul", "parameters": {}, "plan": plan, "flops": 1e12, "bytes": 0.0, "seconds": timing}
        return {**real, "points": [one]}

    assert Profile.from_json(with_one(1.01e12 / most)).points
    with pytest.raises(InvalidProfile, match=r"points\[0\] computes more in a second than .* can"):
        Profile.from_json(with_one(0.99e12 / most))
