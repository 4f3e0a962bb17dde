"""One child for all tests that only send it jobs; and one thread here, as tests share the machine with others."""

from collections.abc import Iterator

import pytest
import torch

from tests.probes.microtrain.pipes import Pipes, started_child


@pytest.fixture(scope="session")
def child() -> Iterator[Pipes]:
    with started_child() as pipes:
        yield pipes


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Two threads on two busy cores can be a hundred times slower than one: they wait for each other at every turn."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
