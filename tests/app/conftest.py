"""One server for all tests that leave it as it was, and a measurement slot of its own for whoever measures."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.app.serving import Server, running_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement slot that no other process of this machine holds: its lock lies where temporary files do."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def hup_ends() -> Iterator[None]:
    """Whoever runs the tests may have been started by nohup, which every command would inherit."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
