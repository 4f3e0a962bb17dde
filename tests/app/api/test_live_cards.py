"""A service beside a driver: cards that change, go and come, without an NVML process for each answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.app.api.test_hardware_events import EVENTS, read_events
from tests.app.serving import Server, running_server, wait_until
from tests.probes.gpu.test_nvml_process import FAKE

ONE, TWO = "GPU-00000000", "GPU-00000001"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What the fake driver says now."""
    path = tmp_path / "state"
    path.write_text("count=2 utilization=5")
    return path


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """Where each NVML process leaves its number."""
    return tmp_path / "pids"


@pytest.fixture
def server(tmp_path: Path, state: Path, pids: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("PYTHONPATH", FAKE)
    monkeypatch.setenv("FAKE_NVML", "healthy")
    monkeypatch.setenv("FAKE_NVML_STATE", str(state))
    monkeypatch.setenv("FAKE_NVML_PID", str(pids))
    with running_server(tmp_path / "data") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        wait_until(lambda: client.get("/readyz").is_success, "readiness")
        yield client


def cards(client: httpx.Client) -> dict[str, dict[str, Any]]:
    return {card["id"]: card for card in client.get("/hardware").json()["accelerators"]}


def test_changes_show_in_the_survey_without_a_process_each(client: httpx.Client, state: Path, pids: Path) -> None:
    wait_until(lambda: cards(client)[ONE]["utilization_percent"] == 5, "a first utilisation")
    wait_until(lambda: "NVIDIA" in str(cards(client)), "a name")
    for percent in (50, 60, 70):
        state.write_text(f"count=2 utilization={percent}")
        wait_until(lambda percent=percent: cards(client)[ONE]["utilization_percent"] == percent, "the new one")  # type: ignore[misc]
    assert {card["name"] for card in cards(client).values()} == {"NVIDIA GeForce RTX 3080 Ti"}
    assert len(pids.read_text().split()) <= 8, "start, the first seconds, the watch; not one a survey"


def test_cards_go_and_come_in_events_survey_and_history(client: httpx.Client, state: Path) -> None:
    before = client.get("/hardware").json()["fingerprint"]
    with client.stream("GET", EVENTS) as stream:
        documents = (json.loads(event["data"]) for event in read_events(stream))
        next(d for d in documents if [card["utilization_percent"] for card in d["accelerators"]] == [5, 5])
        state.write_text("count=1 utilization=5")
        next(d for d in documents if [card["id"] for card in d["accelerators"]] == [ONE])
        wait_until(lambda: set(cards(client)) == {ONE}, "a survey with one card")
        assert client.get("/hardware").json()["fingerprint"] != before
        state.write_text("count=2 utilization=5")
        next(d for d in documents if [card["id"] for card in d["accelerators"]] == [ONE, TWO])
        wait_until(lambda: set(cards(client)) == {ONE, TWO}, "a survey with both")
    assert client.get("/hardware").json()["fingerprint"] == before


def test_an_nvml_that_crashes_takes_nothing_along(client: httpx.Client, state: Path) -> None:
    before = client.get("/hardware").json()["fingerprint"]
    with client.stream("GET", EVENTS) as stream:
        documents = (json.loads(event["data"]) for event in read_events(stream))
        next(d for d in documents if d["accelerators"] and d["accelerators"][0]["utilization_percent"] == 5)
        state.write_text("crash")
        silent = next(d for d in documents if d["reason"])
        assert [card["id"] for card in silent["accelerators"]] == [ONE, TWO]
        assert client.get("/hardware").json()["fingerprint"] == before, "a crash is no removed card"
        state.write_text("count=2 utilization=9")
        next(d for d in documents if d["accelerators"][0]["utilization_percent"] == 9)


def asking(server: Server, pids: Path) -> list[psutil.Process]:
    """The NVML processes that run now."""
    numbers = {int(number) for number in pids.read_text().split()}
    return [child for child in server.children() if child.pid in numbers]


def test_nothing_is_left_of_it_after_the_service(server: Server, client: httpx.Client, pids: Path) -> None:
    with client.stream("GET", EVENTS) as stream:
        documents = (json.loads(event["data"]) for event in read_events(stream))
        next(d for d in documents if d["accelerators"] and d["accelerators"][0]["utilization_percent"] == 5)
        wait_until(lambda: asking(server, pids), "the process that goes on: a survey's may have told this")
        children = asking(server, pids)
        assert server.stop() == 0
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
