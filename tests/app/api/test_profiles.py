"""/profiles over a real socket: a profile travels, and what is hostile is refused with a problem."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from probes.bounds import MAX_PROFILE_BYTES
from probes.machine_facts import DeviceFacts, MachineFacts
from probes.profile import Profile
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, TWO
from tests.app.advisor.machine import GPU, a_profile
from tests.app.api.test_bad_input import JSON, MARK, assert_problem
from tests.app.serving import Server

SUMMARY = {
    "parameters": 25_000_000,
    "flops_per_sample": 4_100_000_000,
    "activation_bytes_per_sample": 90_000_000,
    "operations": 160,
}
NAME = "rig 1/row 2"


def a_profile_of_a_rig() -> Profile:
    card = DeviceFacts("cuda:0", "NVIDIA A10", 24 * 10**9, "8.6")
    facts = MachineFacts("A CPU", 8, 8.0, 4 * 10**9, (card,))
    return replace(a_profile((ONE, TWO, GPU)), name="rig", fingerprint="another", hardware=facts)


def content_of(profile: Profile) -> str:
    return json.dumps(profile.to_json())


@pytest.fixture
def rig(client: httpx.Client) -> Iterator[Profile]:
    """A stored profile of another machine."""
    profile = replace(a_profile_of_a_rig(), name=NAME)
    answer = client.put(f"/profiles/{NAME}", content=content_of(profile), headers=JSON)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"name": NAME, "this_machine": False}
    yield profile
    assert client.delete(f"/profiles/{NAME}").status_code == 204


def test_what_was_put_is_what_is_got(client: httpx.Client, rig: Profile) -> None:
    assert Profile.from_json(client.get(f"/profiles/{NAME}").json()) == rig
    (row,) = client.get("/profiles").json()["profiles"]
    assert (row["name"], row["this_machine"], row["points"]) == (NAME, False, len(rig.points))
    assert "traces" not in row


def test_a_removed_profile_is_unknown(client: httpx.Client) -> None:
    for method in ("GET", "DELETE"):
        document = assert_problem(client.request(method, f"/profiles/{MARK}"), 404)
        assert document["type"] == "/problems/unknown-profile"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"schema_version": "3"}',
        content_of(a_profile_of_a_rig()).encode()[:-100],
        b'{"schema_version": "2", "name": "zzmarkzz"}',
        b'{"schema_version": "2", "zzmarkzz": NaN}',
        b"[" * 100_000,
        content_of(a_profile_of_a_rig()).replace('"median": ', '"median": -').encode(),
        content_of(a_profile_of_a_rig()).replace('"fp32"', '"zzmarkzz"').encode(),
        content_of(replace(a_profile_of_a_rig(), points=())).encode(),
        content_of(replace(a_profile_of_a_rig(), fingerprint=" ")).encode(),
    ],
)
def test_a_hostile_profile_is_refused_and_the_stored_one_stays(
    client: httpx.Client, rig: Profile, content: bytes
) -> None:
    document = assert_problem(client.put(f"/profiles/{NAME}", content=content, headers=JSON), 422)
    assert document["detail"].startswith("This profile was not taken: ")
    assert document["detail"].endswith("Whatever is stored stays as it was.") or " is empty, " in document["detail"]
    assert Profile.from_json(client.get(f"/profiles/{NAME}").json()) == rig


def test_a_variable_that_no_plan_has_is_refused_and_its_name_shown_to_nobody(client: httpx.Client) -> None:
    document = a_profile_of_a_rig().to_json()
    document["plans"][0]["environment"] = {MARK.upper(): "1"}
    answer = client.put("/profiles/rig", content=json.dumps(document), headers=JSON)
    detail = assert_problem(answer, 422)["detail"]
    assert "plans[0].environment sets …, which no plan does (MALLOC_MMAP_THRESHOLD_" in detail
    assert MARK.upper() not in answer.text


def test_a_profile_beyond_all_bounds_and_one_of_another_type_are_refused(client: httpx.Client) -> None:
    large = b" " * (MAX_PROFILE_BYTES + 1)
    assert_problem(client.put("/profiles/x", content=large, headers=JSON), 413)
    assert_problem(client.put("/profiles/x", content=b"{}", headers={"Content-Type": "text/plain"}), 415)
    assert_problem(client.put(f"/profiles/{'x' * 201}", content=content_of(a_profile_of_a_rig()), headers=JSON), 422)


def test_another_machines_name_is_not_taken_over(client: httpx.Client, rig: Profile) -> None:
    stranger = content_of(replace(rig, fingerprint="third"))
    assert_problem(client.put(f"/profiles/{NAME}", content=stranger, headers=JSON), 409)


def test_an_older_profile_does_not_hide_a_newer_one_unless_that_is_from_the_future(
    client: httpx.Client, rig: Profile
) -> None:
    older = content_of(replace(rig, created_at="2001-01-01T00:00:00Z"))
    for name in (NAME, "another-name"):
        refused = assert_problem(client.put(f"/profiles/{name}", content=older, headers=JSON), 409)
        assert f'named "{NAME}"' in refused["detail"]  # which is to be removed first
    future = content_of(replace(rig, created_at="9999-12-31T23:59:59Z"))
    for content in (future, content_of(rig)):
        assert client.put(f"/profiles/{NAME}", content=content, headers=JSON).is_success


@pytest.mark.parametrize("name", ["a%0Ab", "a%0A", "a%00b", "%20", "a%2F%2E%2E%2Fb"])
def test_a_name_that_no_profile_may_have_is_refused_as_such(client: httpx.Client, name: str) -> None:
    content = content_of(a_profile_of_a_rig())
    assert assert_problem(client.put(f"/profiles/{name}", content=content, headers=JSON), 422)["type"].endswith(
        "refused"
    )
    assert_problem(client.get(f"/profiles/{name}"), 404)


@pytest.mark.parametrize(("name", "status"), [(NAME, 409), ("bell\a", 422), (" ", 422)])
def test_a_calibration_that_could_not_keep_its_name_is_refused_before_it_runs(
    client: httpx.Client, rig: Profile, name: str, status: int
) -> None:
    assert_problem(client.post("/calibrations", json={"name": name}), status)
    assert Profile.from_json(client.get(f"/profiles/{NAME}").json()) == rig


def test_a_profile_answers_for_the_machine_that_it_was_measured_on(client: httpx.Client, rig: Profile) -> None:
    question = {"model": {"summary": SUMMARY}, "batch_size": 16, "profile": NAME}
    answer = client.post("/recommend", json=question).json()
    plans = {Plan(option["device"], option["precision"], option["threads"]).key for option in answer["options"]}
    assert plans == {ONE.key, TWO.key, GPU.key}
    assert all(option["step_seconds"] for option in answer["options"])
    assert answer["recommended"]["device"] == "cuda:0"
    assert {option["memory"]["available_bytes"] for option in answer["options"]} == {4 * 10**9, 24 * 10**9}
    assert all(option["fits"] is not None for option in answer["options"])
    assert NAME in answer["verdict"]
    assert "other-machine" in {reason["code"] for reason in answer["reasons"]}
    assert answer["snippet"]


def test_a_profile_that_has_nothing_for_a_question_is_not_called_by_the_name_that_was_sent(
    client: httpx.Client, rig: Profile
) -> None:
    question = {"model": {"summary": SUMMARY}, "batch_size": 16, "profile": NAME, "devices": ["cuda:7"]}
    detail = assert_problem(client.post("/recommend", json=question), 422)["detail"]
    assert "cuda:0 (fp32)" in detail
    assert NAME not in detail


def test_without_the_machines_facts_whether_it_fits_is_unknown_and_the_answer_says_why(
    client: httpx.Client, rig: Profile, server: Server
) -> None:
    bare = replace(rig, hardware=None, created_at="2027-01-01T00:00:00Z")
    client.put(f"/profiles/{NAME}", content=content_of(bare), headers=JSON)
    question = {"model": {"summary": SUMMARY}, "batch_size": 16, "profile": NAME}
    answer = client.post("/recommend", json=question).json()
    assert {option["fits"] for option in answer["options"]} == {None}
    (reason,) = [reason for reason in answer["reasons"] if reason["code"] == "other-machine"]
    assert "memory" in reason["text"]
