"""What several tests here stand on: one child for all that only send it jobs, whose measurements are brief; a clock of
fake steps; and one thread, as tests share the machine with others."""

from collections.abc import Iterator

import pytest
import torch

from tests.probes.microtrain import brief
from tests.probes.microtrain.fake_runs import FakeClock
from tests.probes.microtrain.pipes import Pipes, started_child


@pytest.fixture(scope="session")
def child() -> Iterator[Pipes]:
    with started_child(program=brief.PROGRAM) as pipes:
        yield pipes


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Two threads on two busy cores can be a hundred times slower than one: they wait for each other at every turn."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The one that networks, plans' shares and fake steps go by."""
    clock = FakeClock()
    for module in ("network_times", "plan_shares", "step_clock", "step_timer", "turns"):
        monkeypatch.setattr(f"probes.microtrain.calibration.{module}.time", clock)
    return clock
