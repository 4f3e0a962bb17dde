"""One child for all tests that only send it jobs."""

from collections.abc import Iterator

import pytest

from tests.probes.microtrain.pipes import Pipes, started_child


@pytest.fixture(scope="session")
def child() -> Iterator[Pipes]:
    with started_child() as pipes:
        yield pipes
