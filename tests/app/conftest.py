"""One server for all tests that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

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
