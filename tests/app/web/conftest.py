"""A service with a page, and a browser to look at it with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.serving import running_server
from tests.app.web.browser import Tab, opened_tab


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service of our own."""
    with running_server(tmp_path_factory.mktemp("data")) as server:
        yield server.url


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    with opened_tab(tmp_path / "profile") as tab:
        yield tab
