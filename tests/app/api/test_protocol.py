"""Clients that are slow on purpose are not waited for."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn

from app.api.protocol import DeadlineProtocol
from app.main import Server, create_app, listen
from app.settings import Settings
from probes import bounds
from tests.app.advisor.machine import a_profile
from tests.app.api.test_bad_input import POST, assert_problem, read_answer
from tests.app.serving import PATIENCE_SECONDS, wait_until
from tests.probes.machines import write_machine, x86_machine

LIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextlib.contextmanager
def hasty_server(folder: Path) -> Iterator[int]:
    """A server in a thread of this process, whose bounds this test may shorten; its port."""
    with server_in_thread(folder) as (_, port):
        yield port


@contextlib.contextmanager
def server_in_thread(folder: Path, sysroot: Path = Path("/")) -> Iterator[tuple[Server, int]]:
    """And the server itself."""
    settings = Settings(data_dir=folder, port=0, calibrate_on_start=False, sysroot=sysroot)
    listener = listen(settings)
    app = create_app(settings)
    config = uvicorn.Config(app, http=DeadlineProtocol, ws="none", lifespan="on", log_config=None)
    server = Server(config, app)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        wait_until(lambda: server.started, "the start")
        yield server, listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


def test_half_a_request_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hasty_server(tmp_path) as port:
        with connect(port) as second:
            second.sendall(LIVE)
            assert read_answer(second).status_code == 200
            monkeypatch.setattr(bounds, "MAX_HEADER_SECONDS", 1.0)
            monkeypatch.setattr(bounds, "MAX_BODY_SECONDS", 1.0)
            second.sendall(LIVE[:-1])
            assert_problem(read_answer(second), 408)
        with connect(port) as silent, connect(port) as head, connect(port) as body:
            head.sendall(b"GET /livez HTTP/1.1\r\nHost: local")
            body.sendall(POST + b"Content-Length: 100\r\n\r\n{")
            for connection in (silent, head, body):
                assert_problem(read_answer(connection), 408)
                assert connection.recv(1) == b""


def test_a_body_that_follows_its_answer_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_BODY_SECONDS", 0.2)
    with hasty_server(tmp_path) as port, connect(port) as connection:
        connection.sendall(LIVE[:-2] + b"Content-Length: 2\r\n\r\n")
        assert read_answer(connection).status_code == 200
        connection.sendall(b"x")
        assert connection.recv(1) == b""


def test_a_body_that_follows_its_answer_may_be_followed_by_another_request(tmp_path: Path) -> None:
    with hasty_server(tmp_path) as port, connect(port) as connection:
        connection.sendall(LIVE[:-2] + b"Content-Length: 2\r\n\r\n")
        assert read_answer(connection).status_code == 200
        for byte in (b"x", b"y"):
            connection.sendall(byte)
        connection.sendall(LIVE)
        assert read_answer(connection).status_code == 200


def test_who_closes_the_sending_side_after_a_request_is_answered(tmp_path: Path) -> None:
    """Each that was sent by then, and the connection closes after them."""
    body = b'{"model": "no-such-model", "batch_size": 8}'
    request = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with hasty_server(tmp_path) as port:
        for sent, statuses in ((LIVE, [200]), (request, [422]), (request * 3, [422] * 3), (request + LIVE[:9], [422])):
            with connect(port) as connection:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                assert read_statuses(connection) == statuses
        with connect(port) as connection:  # half a request is none
            connection.sendall(request[:-1])
            connection.shutdown(socket.SHUT_WR)
            assert read_statuses(connection) == []


def read_statuses(connection: socket.socket) -> list[int]:
    """Of the answers until the connection closes."""
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    return [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", received)]


def test_an_answer_in_the_making_when_the_service_ends_is_given(tmp_path: Path) -> None:
    """One that still has to ask the store, whose thread is held up until the end has come."""
    profile, held = a_profile(fingerprint="another").to_json(), threading.Event()
    root = write_machine(tmp_path / "machine", x86_machine())
    with server_in_thread(tmp_path / "data", root) as (server, port), connect(port) as connection:
        context = server._app.state.context
        wait_until(lambda: context.upkeep.calibration["state"] == "off", "the upkeep's rest")
        httpx.put(f"http://127.0.0.1:{port}/profiles/rig", json=profile).raise_for_status()
        thread = context.crosspoint.store._thread
        thread.submit(held.wait, PATIENCE_SECONDS)
        connection.sendall(b"GET /profiles/rig HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: thread._work_queue.qsize(), "a question to the store")
        server.should_exit = True
        wait_until(lambda: is_ending(server) or thread._work_queue.qsize() > 1, "the end, or the store's")
        held.set()
        assert read_answer(connection).json()["name"] == "rig"


def is_ending(server: Server) -> bool:
    """It waits for answers that are in the making."""
    cycles = [connection.cycle for connection in [*server.server_state.connections]]
    return any(cycle is not None and not cycle.keep_alive for cycle in cycles)


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with hasty_server(tmp_path) as port:
        with connect(port) as leaving:
            leaving.sendall(POST + b"Content-Length: 100\r\n\r\n{")
        with connect(port) as staying:
            staying.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_answer(staying).status_code == 200
    assert "Exception" not in caplog.text
