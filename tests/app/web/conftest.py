"""A service with a page, and a browser to look at it with."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.web.browser import Tab, opened_tab

SERVE = "import sys; from app.cli.main import main; sys.exit(main(['serve', '--port', '0', '--no-calibrate-on-start']))"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service of our own."""
    environment = {**os.environ, "CROSSPOINT_DATA_DIR": str(tmp_path_factory.mktemp("data"))}
    server = subprocess.Popen((sys.executable, "-c", SERVE), stderr=subprocess.PIPE, text=True, env=environment)
    assert server.stderr is not None
    found = re.search(r"http://\S+", server.stderr.readline())
    assert found
    yield found[0]
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=30)


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    with opened_tab(tmp_path / "profile") as tab:
        yield tab
