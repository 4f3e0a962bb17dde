"""Measurements as jobs: accepted, watched, cancelled, and failed without harm."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.app.lab.test_child import is_gone
from tests.app.serving import Server, running_server, wait_until
from tests.probes.machines import write_machine, x86_machine

PLAN = {"device": "cpu", "precision": "fp32", "threads": 1}
SHORT = {"model": "iris-mlp", "batch_size": 16, "seconds": 0.5, "plans": [PLAN]}
LONG = {**SHORT, "seconds": 600}


def start(client: httpx.Client, body: dict[str, Any]) -> str:
    """Start a measurement; its address."""
    answer = client.post("/measurements", json=body)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/measurements/{answer.json()['id']}"
    return answer.headers["location"]


def watch(client: httpx.Client, address: str) -> list[tuple[str, dict[str, Any]]]:
    """Every event until the last."""
    events, name = [], ""
    with client.stream("GET", f"{address}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                events.append((name, json.loads(line.removeprefix("data: "))))
    return events


def wait_for(client: httpx.Client, address: str, state: str) -> dict[str, Any]:
    wait_until(lambda: client.get(address).json()["state"] == state, f"{address} {state}")
    document: dict[str, Any] = client.get(address).json()
    return document


@pytest.fixture
def running(client: httpx.Client, server: Server) -> Iterator[str]:
    """A measurement that goes on until it is ended."""
    address = start(client, LONG)
    wait_for(client, address, "running")
    wait_until(lambda: measuring_processes(server), "a process that measures")
    yield address
    client.delete(address)


def measuring_processes(server: Server) -> list[psutil.Process]:
    """Those that measure a model of torch alone, by their command line: not what they have forked, nor what traces."""
    found = []
    for child in psutil.Process(server.process.pid).children():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            words = child.cmdline()
            if "--forks" in words and "--configs" not in words:
                found.append(child)
    return found


def test_a_measurement_runs_is_watched_and_serves_the_next_recommendation(client: httpx.Client) -> None:
    address = start(client, SHORT)
    events = watch(client, address)
    names = [name for name, _ in events]
    assert names[-1] == "finished"
    assert set(names[:-1]) <= {"progress"}
    progress = [document["progress"] for _, document in events]
    assert progress == sorted(progress)
    document = client.get(address).json()
    assert (document["state"], document["saved"], document["reason"]) == ("succeeded", True, None)
    (measurement,) = document["result"]["measurements"]
    assert measurement["plan"] == {**PLAN, "environment": {}}
    assert measurement["step"]["median"] > 0
    listed = client.get("/measurements").json()["measurements"]
    assert document["id"] in {row["id"] for row in listed}
    assert all("result" not in row for row in listed)
    answer = client.post("/recommend", json={"model": "iris-mlp", "batch_size": 16}).json()
    basis = {(row["precision"], row["threads"]): row["basis"] for row in answer["options"]}
    assert basis["fp32", 1] in ("measured", "probed")  # where others held cores meanwhile
    assert answer["saved"] is True


def test_a_measurement_that_is_cancelled_leaves_no_process(client: httpx.Client, server: Server, running: str) -> None:
    (measuring,) = measuring_processes(server)
    numbers = [process.pid for process in (measuring, *measuring.children(recursive=True))]
    document = client.delete(running).json()
    assert document["state"] == "cancelled"
    wait_until(lambda: all(map(is_gone, numbers)), "the end of what measured")
    assert client.delete(running).json() == document
    assert watch(client, running) == [("finished", {k: v for k, v in document.items() if k != "result"})]


def test_a_measuring_process_that_is_killed_fails_its_job_and_nothing_else(
    client: httpx.Client, server: Server, running: str
) -> None:
    (measuring,) = measuring_processes(server)
    measuring.kill()
    document = wait_for(client, running, "failed")
    assert document["code"] == "killed"
    assert "memory" in document["reason"]
    assert client.get("/livez").is_success
    assert client.get("/hardware").is_success


def test_who_comes_when_the_queue_is_full_is_told_when_to_come_back(client: httpx.Client, running: str) -> None:
    waiting = [start(client, SHORT) for _ in range(4)]
    try:
        assert {client.get(address).json()["state"] for address in waiting} == {"queued"}
        answer = client.post("/measurements", json=SHORT)
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
        assert answer.headers["content-type"] == "application/problem+json"
        assert "instant" not in answer.json()["detail"], "who asks for a measurement has no effort to choose"
        quick = client.post("/recommend", json={"model": "iris-mlp", "batch_size": 16, "effort": "quick"})
        assert quick.status_code == 429
        assert "use effort instant" in quick.json()["detail"]
        instant = client.post("/recommend", json={"model": "iris-mlp", "batch_size": 16})
        assert instant.is_success
    finally:
        states = [client.delete(address).json()["state"] for address in waiting]
    assert states == ["cancelled"] * 4


def test_a_device_that_is_not_here_is_refused_before_anything_starts(client: httpx.Client) -> None:
    answer = client.post("/measurements", json={**SHORT, "devices": ["cuda:7"]})
    assert answer.status_code == 422
    assert "cpu" in answer.json()["detail"]


def test_a_measurement_that_needs_more_memory_than_there_is_says_so(client: httpx.Client) -> None:
    layers = {"layers": [{"type": "linear", "in": 60_000, "out": 60_000, "bias": False}] * 4, "input_shape": [60_000]}
    document = watch(client, start(client, {**SHORT, "model": layers, "seconds": 5}))[-1][1]
    assert document["state"] in ("succeeded", "failed")
    outcome = client.get(f"/measurements/{document['id']}").json()
    rows = (outcome["result"] or {}).get("measurements", [])
    assert outcome["code"] == "out-of-memory" or {row["outcome"] for row in rows} == {"out-of-memory"}
    assert client.get("/livez").is_success


def test_a_model_that_is_fine_but_does_not_fit_is_answered(client: httpx.Client) -> None:
    layers = {"layers": [{"type": "linear", "in": 200_000, "out": 200_000}] * 3, "input_shape": [200_000]}
    answer = client.post("/recommend", json={"model": layers, "batch_size": 64, "effort": "quick"})
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert {row["fits"] for row in document["options"]} == {False}
    assert all(row["why_not"] for row in document["options"])
    assert document["recommended"] is None


def test_on_a_captured_machine_nothing_is_taken_to_be_measured(tmp_path: Path) -> None:
    root = write_machine(tmp_path / "machine", x86_machine())
    with running_server(tmp_path / "data", sysroot=str(root)) as server, server.client() as client:
        for path, body in (("/measurements", {"model": "iris-mlp", "batch_size": 8}), ("/calibrations", {})):
            answer = client.post(path, json=body)
            assert (answer.status_code, answer.json()["type"].split("/")[-1]) == (422, "invalid-request")
            assert "captured machine" in answer.json()["detail"]
            assert client.get(path).json() == {path[1:]: []}
