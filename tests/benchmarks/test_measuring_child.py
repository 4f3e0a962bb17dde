"""A process that does what it is told, dies or hangs: its last event is told, and the next job has one that lives."""

from __future__ import annotations

from benchmarks.measuring_child import Child
from tests.app.lab.programs import ECHO, HANGING, serving

JOB = {"kind": "trace"}
DYING = serving('if job["kind"] == "die": os._exit(9)', 'say(event="result", job=job["job"], result=os.getpid())')


def test_jobs_are_done_by_one_process_whose_first_event_is_kept() -> None:
    child = Child(program=ECHO)
    try:
        first, second = child.run(JOB, 60.0), child.run(JOB, 60.0)
        assert first["result"] == second["result"]
        assert first["result"]["kind"] == "trace"
        assert child.ready["event"] == "ready"
    finally:
        child.end()


def test_a_process_that_dies_fails_its_job_alone() -> None:
    child = Child(program=DYING)
    try:
        before = child.run(JOB, 60.0)["result"]
        failed = child.run({"kind": "die"}, 60.0)
        assert (failed["event"], failed["code"]) == ("failed", "died")
        assert child.run(JOB, 60.0)["result"] != before
    finally:
        child.end()


def test_a_job_that_takes_too_long_is_ended_with_its_process() -> None:
    child = Child(program=HANGING)
    try:
        failed = child.run(JOB, 0.1)
        assert (failed["event"], failed["code"]) == ("failed", "late")
        assert child.run(JOB, 0.1)["code"] == "late"
    finally:
        child.end()


def test_a_process_has_the_memory_that_it_was_given() -> None:
    greedy = serving('try: found = len(bytearray(10**9))', "except MemoryError: found = 0",
                     'say(event="result", job=job["job"], result=found)')  # fmt: skip
    for memory, result in ((5 * 10**8, 0), (None, 10**9)):
        child = Child(memory, program=greedy)
        try:
            assert child.run(JOB, 60.0)["result"] == result
        finally:
            child.end()
