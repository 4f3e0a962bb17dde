"""What we computed ourselves while a process of ours measured, and what that process took for others': real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.advisor.request import Request
from app.answering.own_work import OwnWork
from app.service import Crosspoint
from probes.own_time import read_ticks_of
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, a_measurement
from tests.app.answering.trial_runs import FLUSHING, run
from tests.app.lab.programs import serving
from tests.app.opened import with_crosspoint

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")

SECONDS = 0.3  # of CPU time
SPIN = f"""
import time
input()
while time.process_time() < {SECONDS}: pass
print(time.process_time(), flush=True)
input()
"""


@contextmanager
def spinning() -> Iterator[subprocess.Popen[str]]:
    """Begins when it is sent a line, and says so when it has computed that long."""
    with subprocess.Popen(
        [sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.communicate("\n")


def spin(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def test_what_another_process_of_ours_computed_is_ours_and_what_measured_is_not() -> None:
    with spinning() as measuring, spinning() as tracing:
        work, begun = OwnWork(measuring.pid), time.monotonic()
        seconds = spin(measuring)
        spin(tracing)
        cores = work.cores_beside({"own_cpu_seconds": seconds})
        found = cores * (time.monotonic() - begun)
    assert SECONDS - 0.1 < found < SECONDS + 0.15


def test_it_is_known_where_the_process_that_measured_has_ended() -> None:
    with spinning() as measuring:
        work, begun = OwnWork(measuring.pid), time.monotonic()
        seconds = spin(measuring)
    assert read_ticks_of(measuring.pid) == 0
    assert work.cores_beside({"own_cpu_seconds": seconds}) * (time.monotonic() - begun) < 0.15


def test_where_the_process_does_not_say_what_it_used_nothing_is_ours() -> None:
    work = OwnWork(os.getpid())
    assert (work.cores_beside({}), work.cores_beside({"own_cpu_seconds": None})) == (0.0, 0.0)


IRIS = Workload(parse_model("iris-mlp"), 4)
MET = 3.0  # cores of others', as the process that measures takes it


def among_others(*lines: str, after: Sequence[str] = ()) -> tuple[str, ...]:
    """A program that met so many; lines: it runs for each job, and others after its answer."""
    row = {**a_measurement(ONE, 4, 0.1, others_cores=MET).to_json(), "denormal_share": 1.0}
    return serving(
        f"row = json.loads({json.dumps(row)!r})",
        "row['plan'] = plan = job['plans'][0]",
        *lines,
        "noise = dict(others_cores=row['others_cores'], own_cpu_seconds=sum(os.times()[:4]))",
        "say(event='result', job=job['job'], result=dict(measurements=[row], noise=noise))",
        *after,
    )


def compute(_fraction: float, _message: str) -> None:
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass


@pytest.mark.usefixtures("own_lock")
def test_what_we_compute_while_a_measurement_that_was_asked_for_runs_is_not_kept_as_others(tmp_path: Path) -> None:
    """Else it would be others who have left, in whatever is asked later."""
    program = among_others("say(event='progress', job=job['job'], fraction=0.1, message='')")

    async def use(crosspoint: Crosspoint) -> None:
        asked = Request(IRIS, effort="quick")
        (told,) = await crosspoint.measure(asked, seconds=1.0, plans=[ONE], on_progress=compute)
        assert told.others_cores is not None
        assert told.others_cores < MET
        survey = await crosspoint.survey()
        assert [row.others_cores for row in await crosspoint.measurements(survey, IRIS)] == [told.others_cores]

    with_crosspoint(tmp_path, use, program)


def test_what_the_control_of_a_trial_computes_beside_the_variant_is_not_told_as_others(tmp_path: Path) -> None:
    spin = "while time.process_time() < end: pass"
    longer = "end += 0.0 if plan.get('flush_denormal') else 0.2"
    program = among_others("end = time.process_time() + 0.06", spin, after=(longer, spin))
    found = run(tmp_path, program, plan=FLUSHING)
    assert found is not None
    assert found.others_cores is not None
    assert found.others_cores < MET
