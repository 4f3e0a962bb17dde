import threading

from probes.hardware import Outcome
from probes.reading import Unreadable
from probes.running import Told, run_probes


def raise_denied() -> None:
    raise PermissionError("/secret")


def raise_unreadable() -> None:
    raise Unreadable(Outcome.ABSENT, "it is not here")


def raise_anything() -> None:
    raise RecursionError("too\ndeep")


def test_each_probe_has_its_own_outcome() -> None:
    answers = run_probes(
        {
            "fine": lambda: 1,
            "explained": lambda: Told(2, reason="because"),
            "denied": raise_denied,
            "absent": raise_unreadable,
            "failed": raise_anything,
        },
        deadline_seconds=30,
    )
    assert [answer.value for answer in answers.values()] == [1, 2, None, None, None]
    assert [answer.report.outcome for answer in answers.values()] == ["ok", "ok", "denied", "absent", "failed"]
    assert answers["explained"].report.reason == "because"
    assert "RecursionError" in (answers["failed"].report.reason or "")
    assert all(answer.report.duration_seconds is not None for answer in answers.values())


def test_a_hang_costs_only_itself_and_is_not_started_twice() -> None:
    gate, starts = threading.Event(), []

    def hang() -> None:
        starts.append(1)
        gate.wait()

    for _ in range(2):
        answers = run_probes({"hangs": hang, "works": lambda: 1}, deadline_seconds=0.2, subject="test-hang")
        assert answers["hangs"].report.outcome is Outcome.TIMEOUT
        assert answers["works"].value == 1
    assert starts == [1]
    gate.set()


def test_a_hanging_probe_does_not_keep_the_process_from_ending() -> None:
    gate = threading.Event()
    run_probes({"hangs": gate.wait}, deadline_seconds=0.05, subject="test-daemon")
    [thread] = [thread for thread in threading.enumerate() if thread.name == "probe-hangs"]
    assert thread.daemon
    gate.set()
