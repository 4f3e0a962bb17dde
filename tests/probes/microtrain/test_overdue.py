"""A step that outlasts all the time does not keep the answer back."""

import threading

from probes.microtrain.overdue import OverdueGuard


def test_it_speaks_when_the_step_is_overdue() -> None:
    spoken = threading.Event()
    with OverdueGuard(lambda now: True, spoken.set):
        assert spoken.wait(30)


def test_it_is_silent_once_the_work_is_done() -> None:
    spoken = threading.Event()
    guard = OverdueGuard(lambda now: True, spoken.set)
    guard.LOOK_SECONDS = 30.0
    with guard:
        pass
    guard._thread.join(30)
    assert not spoken.is_set()
