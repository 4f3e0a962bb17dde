"""Clients that are slow on purpose are not waited for."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from app.api.protocol import DeadlineProtocol
from app.main import Server, create_app, listen
from app.settings import Settings
from probes import bounds
from tests.app.api.test_bad_input import POST, assert_problem, read_answer
from tests.app.serving import PATIENCE_SECONDS, wait_until


@contextlib.contextmanager
def hasty_server(folder: Path) -> Iterator[int]:
    """A server in a thread of this process, whose bounds this test may shorten; its port."""
    settings = Settings(data_dir=folder, port=0, calibrate_on_start=False)
    listener = listen(settings)
    app = create_app(settings)
    config = uvicorn.Config(app, http=DeadlineProtocol, ws="none", lifespan="on", log_config=None)
    server = Server(config, app)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        wait_until(lambda: server.started, "the start")
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


def test_half_a_request_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_HEADER_SECONDS", 0.2)
    monkeypatch.setattr(bounds, "MAX_BODY_SECONDS", 0.2)
    with hasty_server(tmp_path) as port:
        with connect(port) as silent, connect(port) as head, connect(port) as body:
            head.sendall(b"GET /livez HTTP/1.1\r\nHost: local")
            body.sendall(POST + b"Content-Length: 100\r\n\r\n{")
            for connection in (silent, head, body):
                assert_problem(read_answer(connection), 408)
                assert connection.recv(1) == b""
        with connect(port) as second:
            request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
            second.sendall(request)
            assert read_answer(second).status_code == 200
            second.sendall(request[:-1])
            assert_problem(read_answer(second), 408)


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
