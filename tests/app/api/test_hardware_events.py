"""GET /hardware/events over a real socket: one complete event a second, for a bounded number of listeners."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

from app.livefeed import MAX_LISTENERS
from tests.app.serving import running_server, wait_until
from tests.probes.machines import write_machine, x86_machine

EVENTS = "/hardware/events"


def read_events(stream: httpx.Response) -> Iterator[dict[str, str]]:
    """Fields of each event, as they come; comments are passed over."""
    event: dict[str, str] = {}
    for line in stream.iter_lines():
        if not line and event:
            yield event
            event = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value


def listen(client: httpx.Client, count: int) -> list[dict[str, str]]:
    with client.stream("GET", EVENTS) as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        return list(islice(read_events(stream), count))


def test_events_are_complete_numbered_and_in_the_words_of_the_survey(client: httpx.Client) -> None:
    events = listen(client, 3)
    assert {event["event"] for event in events} == {"hardware"}
    numbers = [int(event["id"]) for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    assert ["retry" in event for event in events] == [True, False, False]
    documents = [json.loads(event["data"]) for event in events]
    assert len({tuple(document) for document in documents}) == 1, "each event has every field"
    survey = client.get("/hardware").json()
    for name in ("load", "memory"):
        assert documents[-1][name].keys() == survey[name].keys()
    load = documents[-1]["load"]
    assert 0 <= load["busy_fraction"] <= 1
    assert 0.5 < load["interval_seconds"] < 60
    assert documents[-1]["memory"]["total_bytes"] == survey["memory"]["total_bytes"]
    assert len(documents[-1]["accelerators"]) == len(survey["accelerators"])


def test_all_who_listen_hear_the_same(client: httpx.Client) -> None:
    with client.stream("GET", EVENTS) as one, client.stream("GET", EVENTS) as two:
        ones, twos = read_events(one), read_events(two)
        by_one, by_two = next(ones), next(twos)
        while by_one["id"] != by_two["id"]:  # who was held up goes on with a later one
            if int(by_one["id"]) < int(by_two["id"]):
                by_one = next(ones)
            else:
                by_two = next(twos)
    assert by_one["data"] == by_two["data"]


def test_one_too_many_is_told_to_come_back_and_a_place_is_given_on(client: httpx.Client) -> None:
    def refused() -> httpx.Response | None:
        with client.stream("GET", EVENTS) as stream:
            if stream.status_code == 200:
                return None
            stream.read()
            return stream

    wait_until(lambda: refused() is None, "a free place")
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_LISTENERS):
            if stack.enter_context(client.stream("GET", EVENTS)).status_code == 429:
                break  # who left a moment ago may still count
        answer = refused()
        assert answer is not None
        assert (answer.status_code, answer.headers["content-type"]) == (429, "application/problem+json")
        assert int(answer.headers["retry-after"]) > 0
    wait_until(lambda: refused() is None, "a place of somebody who left")


def test_streams_end_with_the_service(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.client() as client, client.stream("GET", EVENTS) as stream:
        events = read_events(stream)
        assert next(events)["event"] == "hardware"
        assert server.stop() == 0
        list(events)
        assert "Traceback" not in "".join(server.log)


def test_a_captured_machine_has_nothing_that_changes(tmp_path: Path) -> None:
    root = write_machine(tmp_path / "machine", x86_machine())
    with running_server(tmp_path / "data", sysroot=str(root)) as server, server.client() as client:
        answer = client.get(EVENTS)
        assert answer.status_code == 409
        assert client.get("/hardware").json()["cpu"]["logical_cores"] == 8


def history_of(client: httpx.Client) -> list[dict[str, Any]]:
    document: list[dict[str, Any]] = client.get("/hardware/history").json()["history"]
    return document


def test_the_first_state_of_a_machine_is_kept_once(tmp_path: Path) -> None:
    for _ in range(2):
        with running_server(tmp_path) as server, server.client() as client:
            wait_until(lambda client=client: history_of(client), "a first state")  # type: ignore[misc]
            (state,) = history_of(client)
            assert state["changes"] == []
            assert state["fingerprint"] == client.get("/hardware").json()["fingerprint"]
