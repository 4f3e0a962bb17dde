"""A client that leaves takes along what ran for it alone."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import httpx

from tests.app.api.test_bad_input import assert_problem, read_answer
from tests.app.api.test_jobs import LONG, measuring_processes, start, wait_for
from tests.app.serving import Server, running_server, wait_until

IRIS = {"model": "iris-mlp", "batch_size": 24, "precision": "fp32"}
THOROUGH = {**IRIS, "effort": "thorough"}


def ask(server: Server, question: dict[str, Any]) -> socket.socket:
    """A connection on which POST /recommend was asked, and whose answer nobody has read yet."""
    body = json.dumps(question).encode()
    head = (
        f"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    connection = server.connect()
    connection.sendall(head.encode() + b"\r\n\r\n" + body)
    return connection


def lab(client: httpx.Client) -> dict[str, Any]:
    document: dict[str, Any] = client.get("/healthz").json()["lab"]
    return document


def test_a_measurement_ends_when_the_client_that_waits_for_it_leaves(client: httpx.Client, server: Server) -> None:
    client.post("/recommend", json=IRIS).raise_for_status()
    before = len(measuring_processes(server))
    with ask(server, THOROUGH):
        wait_until(lambda: lab(client)["measuring"], "a measurement")
        wait_until(lambda: len(measuring_processes(server)) > before, "its process")
    wait_until(lambda: not lab(client)["measuring"], "the measurement's end")
    assert len(measuring_processes(server)) <= before
    answer = client.post("/recommend", json=IRIS).json()
    assert "measured" not in {option["basis"] for option in answer["options"]}


def test_who_closes_the_sending_side_ends_a_measurement_and_is_told_so(client: httpx.Client, server: Server) -> None:
    client.post("/recommend", json=IRIS).raise_for_status()
    with ask(server, THOROUGH) as connection:
        wait_until(lambda: lab(client)["measuring"], "a measurement")
        connection.shutdown(socket.SHUT_WR)
        assert "Keep both sides open" in assert_problem(read_answer(connection), 400)["detail"]
    wait_until(lambda: not lab(client)["measuring"], "the measurement's end")


def test_a_client_that_leaves_while_it_waits_for_its_turn_leaves_the_queue(
    client: httpx.Client, server: Server
) -> None:
    address = start(client, LONG)
    try:
        wait_for(client, address, "running")
        with ask(server, THOROUGH):
            wait_until(lambda: lab(client)["waiting"] == 1, "a place in the queue")
        wait_until(lambda: lab(client)["waiting"] == 0, "an empty queue")
        assert client.get(address).json()["state"] == "running"
    finally:
        client.delete(address)


def test_a_trace_goes_on_without_the_client_and_is_kept_for_the_next(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        wait_until(lambda: lab(client)["tracer_is_warm"], "a warm tracer")
        tracer = {process.pid for process in measuring_processes(server)}
        ask(server, IRIS).close()
        client.post("/recommend", json=IRIS).raise_for_status()
        assert tracer <= {process.pid for process in measuring_processes(server)}  # with what it has started itself
        assert "Traceback" not in "".join(server.log)
