"""The image's own question whether its service is alive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.serving import PATIENCE_SECONDS, Server, running_server

DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"


def ask(port: int, **variables: str) -> int:
    """The exit code of what the Dockerfile has its engine run, in a container with these variables."""
    _, _, check = DOCKERFILE.read_text(encoding="utf-8").partition("HEALTHCHECK")
    program, *arguments = json.loads(check.partition("CMD ")[2].splitlines()[0])
    assert program == "python3"
    environment = {**os.environ, "CROSSPOINT_HOST": "0.0.0.0", "CROSSPOINT_PORT": str(port), **variables}
    words = (sys.executable, *arguments)
    return subprocess.run(words, env=environment, timeout=PATIENCE_SECONDS, check=False).returncode


def is_alive(port: int, **variables: str) -> bool:
    """Asked as often as an engine asks before it gives a service up."""
    return any(ask(port, **variables) == 0 for _ in range(3))


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "localhost"])
def test_it_asks_where_the_service_listens_and_no_proxy(server: Server, host: str) -> None:
    nobody = "http://127.0.0.1:9"
    assert is_alive(server.port, CROSSPOINT_HOST=host, http_proxy=nobody, HTTP_PROXY=nobody, all_proxy=nobody)


def test_a_service_that_has_ended_is_not_alive(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        assert is_alive(server.port)
        server.stop()
        assert ask(server.port) == 1
