"""What an environment gains one plan: fresh processes that have it and that have not, in turns."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.advisor import Request, recommend
from app.advisor.denormals import DENORMAL_SHARE
from app.advisor.environments import gain_of
from app.advisor.recommendation import MemoryParts
from app.answering import trials
from app.answering.apart import LIBRARIES_BYTES
from app.answering.trial_time import (
    IMPORT_CONFIGS_SECONDS,
    IMPORT_SECONDS,
    LEAST_TURN_SECONDS,
    LEAST_TURNS,
    PROCESSES,
)
from app.answering.trials import Trial, fit_together, trial_of
from app.errors import LabError
from app.lab import Lab
from app.lab.child import Child, OnEvent
from app.settings import Settings
from probes.measurement import Measurement, MemoryPeak
from probes.workload.description import Workload
from tests.app.advisor.build import ONE, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU
from tests.app.answering.trial_runs import (
    COMPILED,
    FLUSHING,
    KEEPING,
    MLP,
    SWIN,
    glibc_only,
    run,
)
from tests.app.lab.programs import serving

NAME = "MALLOC_MMAP_THRESHOLD_"


def answering(faster: float, outcome: str = "ok", lines: Sequence[str] = ()) -> tuple[str, ...]:
    """A program whose steps take a tenth of a second, and that share of it with the environment; lines: it runs, too,
    for each job."""
    row = {**a_measurement(ONE, 4, 0.1).to_json(), "outcome": outcome}
    return serving(
        f"row = json.loads({json.dumps(row)!r})",
        "row['plan'] = job['plans'][0]",
        f"kept = os.environ.get({NAME!r})",
        "assert (kept is None) == (not row['plan']['environment']), kept",
        *lines,
        f"row['step'] = {{name: value if name == 'samples' else value * ({faster} if kept else 1) for name, value in"
        " row['step'].items()}",
        f"row['step']['samples'] = [s * ({faster} if kept else 1) for s in row['step']['samples']]",
        "say(event='result', job=job['job'], result={'measurements': [row], 'noise': {}})",
    )


def compiling(*lines: str) -> tuple[str, ...]:
    """A program that runs these lines for a compiled plan, and steps in half the time then."""
    row = {**a_measurement(ONE, 4, 0.1).to_json(), "startup_seconds": 1.0}
    return serving(
        f"row = json.loads({json.dumps(row)!r})",
        "row['plan'] = job['plans'][0]",
        "compiled = row['plan'].get('compiled', False)",
        "factor = 0.5 if compiled else 1",
        *(f"if compiled: {line}" for line in lines),
        "row['step'] = {name: value if name == 'samples' else value * factor for name, value in row['step'].items()}",
        "row['step']['samples'] = [s * factor for s in row['step']['samples']]",
        "say(event='result', job=job['job'], result={'measurements': [row], 'noise': {}})",
    )


def test_only_the_process_that_compiles_is_given_a_folder_for_it_and_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = compiling(
        "place = os.environ['TORCHINDUCTOR_CACHE_DIR']",
        "assert place == os.environ['TMPDIR'] and place != os.environ.get('HOME')",
        "assert os.environ['TORCHINDUCTOR_COMPILE_THREADS'] == '2'",  # as many as the survey has cores
        "known = os.listdir(place); assert not known or known == ['mine']",
        "open(place + '/mine', 'w').close()",
        "row['startup_seconds'] = 7.0",
    )
    found = run(tmp_path, program, plan=COMPILED)
    assert found is not None
    assert found.startup_seconds == 7.0
    assert gain_of(found) is not None
    assert not list(tmp_path.glob("crosspoint-compile-*"))


def test_a_compiler_that_hangs_is_ended_in_time_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run_job, allowed = Child.run, list[float]()

    async def hurried(
        child: Child, job: dict[str, Any], deadline_seconds: float, on_event: OnEvent | None = None
    ) -> dict[str, Any]:
        allowed.append(deadline_seconds + child.start_seconds)
        return await run_job(child, job, 0.2, on_event)

    monkeypatch.setattr(Child, "run", hurried)
    with pytest.raises(LabError, match="deadline"):
        run(tmp_path, compiling("time.sleep(600)"), plan=COMPILED, seconds=60.0)
    after_it = IMPORT_SECONDS + PROCESSES * LEAST_TURNS * LEAST_TURN_SECONDS
    assert allowed == [pytest.approx(60.0 - after_it)]
    assert not list(tmp_path.glob("crosspoint-compile-*"))


def test_a_plan_that_cannot_be_compiled_concludes_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, compiling("row['outcome'] = 'failed'"), plan=COMPILED) is None


def test_without_a_folder_to_compile_in_the_trial_fails_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(LabError, match="no room"):
        run(tmp_path, compiling(), plan=COMPILED)


def noting(folder: Path) -> str:
    """Writes down which process has a job, and whether it has the environment."""
    return f"print(os.getpid(), bool(kept), file=open({str(folder / 'turns')!r}, 'a'))"


def turns(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "turns").read_text(encoding="utf-8").splitlines()]


def test_each_turn_has_a_process_of_its_own_and_a_sample_is_what_one_took(tmp_path: Path) -> None:
    """What two processes take for the same step differs for as long as they live."""
    found = run(tmp_path, answering(0.5, lines=[noting(tmp_path)]))
    assert found is not None
    assert found.step is not None
    assert found.control is not None
    assert [kept for _, kept in turns(tmp_path)] == ["False", "True"] * trials.MOST_TURNS
    assert len({process for process, _ in turns(tmp_path)}) == 2 * trials.MOST_TURNS
    assert len(found.step.samples) == len(found.control.samples) == found.processes == trials.MOST_TURNS
    assert found.step.median == pytest.approx(0.05)
    assert found.control.median == pytest.approx(0.1)
    gain = gain_of(found)
    assert gain is not None
    assert gain.pays


def test_a_trial_without_time_for_more_processes_takes_its_turns_in_two_and_pools_them(tmp_path: Path) -> None:
    found = run(tmp_path, answering(0.5, lines=[noting(tmp_path)]), seconds=6.0)
    assert found is not None
    assert found.step is not None
    assert found.control is not None
    assert [kept for _, kept in turns(tmp_path)] == ["False", "True"] * trials.MOST_TURNS
    assert len({process for process, _ in turns(tmp_path)}) == 2
    assert found.processes == 1
    assert found.step.median == pytest.approx(0.05)
    assert found.control.median == pytest.approx(0.1)
    assert len(found.step.samples) == len(found.control.samples) == 7 * trials.MOST_TURNS


def test_processes_that_turn_out_to_take_too_long_are_the_last_ones(tmp_path: Path) -> None:
    """There is time for more turns in these, not for two more processes."""
    ticks: Iterator[float] = iter((0.0, 0.0, 0.0, 40.0, 45.0, 45.0, 50.0, 50.0, 55.0, 55.0, 60.0))
    found = run(tmp_path, answering(0.5, lines=[noting(tmp_path)]), seconds=85.0, clock=lambda: next(ticks))
    assert found is not None
    assert len({process for process, _ in turns(tmp_path)}) == 2
    assert found.processes == 1


def test_the_parts_of_a_step_are_those_of_all_turns_together(tmp_path: Path) -> None:
    later = f"row['step']['median'] *= 2 if len(open({str(tmp_path / 'turns')!r}).readlines()) > 2 else 1"
    parts = "row['overheads'] = dict(launch_seconds=row['step']['median'] / 4)"
    lines = [noting(tmp_path), later, parts]
    found = run(tmp_path, answering(1.0, lines=lines))
    assert found is not None
    assert found.step is not None
    assert found.overheads is not None
    assert found.step.median == pytest.approx(0.2)
    assert found.overheads.launch_seconds == pytest.approx(0.05)


def test_each_turn_has_time_for_building_the_model(tmp_path: Path) -> None:
    """Each job builds it anew, and a process's first imports what that takes."""
    asked = tmp_path / "seconds"
    noted = f"print(job['seconds'], file=open({str(asked)!r}, 'a'))"
    for model, imported in ((MLP, IMPORT_SECONDS), (SWIN, IMPORT_SECONDS + IMPORT_CONFIGS_SECONDS)):
        asked.unlink(missing_ok=True)
        facts = {"workload": Workload(model, 4), "begin_seconds": 2.0}
        least = PROCESSES * (imported + LEAST_TURNS * (1.0 + 2.0))
        assert run(tmp_path, answering(0.5, lines=[noted]), seconds=least, **facts) is not None
        one, other, *later = (float(line) for line in asked.read_text(encoding="utf-8").splitlines())
        assert (one, other) == pytest.approx((1.0 + imported + 2.0,) * 2)
        assert min(later) >= 1.0 + 2.0
        assert run(tmp_path, answering(0.5), seconds=least - 0.1, **facts) is None


def test_turns_that_told_count_whatever_a_later_one_did(tmp_path: Path) -> None:
    third = f"len(open({str(tmp_path / 'turns')!r}).readlines()) > 4"
    for number, fate in enumerate(("sys.exit(3)", "row['outcome'] = 'failed'", "row['steps'] = 1")):
        (tmp_path / "turns").unlink(missing_ok=True)
        found = run(tmp_path, answering(0.5, lines=[noting(tmp_path), f"if {third}: {fate}"]))
        assert len(turns(tmp_path)) == 5, number
        assert found is not None
        assert found.step is not None
        assert found.processes == len(found.step.samples) == LEAST_TURNS
        assert found.step.median == pytest.approx(0.05)


def test_a_first_and_a_second_step_alone_tell_nothing(tmp_path: Path) -> None:
    lines = ["row['steps'] = 2", "row['step']['samples'] = row['step']['samples'][:1]"]
    assert run(tmp_path, answering(0.5, lines=lines)) is None


def test_flushing_is_judged_by_whether_the_control_makes_denormals(tmp_path: Path) -> None:
    def flushed(share: float) -> Measurement | None:
        (tmp_path / "turns").unlink(missing_ok=True)
        made = f"row['denormal_share'] = 0.0 if row['plan'].get('flush_denormal') else {share}"
        return run(tmp_path, answering(1.0, lines=[noting(tmp_path), made]), plan=FLUSHING)

    found = flushed(0.3)
    assert found is not None
    assert found.denormal_share == 0.3
    assert flushed(DENORMAL_SHARE / 2) is None
    assert len(turns(tmp_path)) == 1


def test_without_time_for_two_turns_each_nothing_is_concluded(tmp_path: Path) -> None:
    assert run(tmp_path, answering(0.5), seconds=5.9) is None
    assert run(tmp_path, answering(0.5), seconds=10.0, step_seconds=1.0) is None


def test_time_that_runs_out_after_one_turn_concludes_nothing(tmp_path: Path) -> None:
    ticks: Iterator[float] = iter((0.0, 0.0, 0.0, 0.0, 7.0))
    assert run(tmp_path, answering(0.5), seconds=10.0, clock=lambda: next(ticks)) is None


def test_a_step_that_fails_under_the_environment_concludes_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, answering(0.5, "out-of-memory")) is None


def test_a_process_that_dies_is_a_lab_error(tmp_path: Path) -> None:
    with pytest.raises(LabError):
        run(tmp_path, serving("sys.exit(3)"))


def test_a_process_has_what_a_plan_may_bring_from_its_plan_alone_beside_what_every_one_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who set it as advised would else have the gain in the plain plan, and be told it once more."""
    monkeypatch.setenv(NAME, "1")
    monkeypatch.setenv("CROSSPOINT_TEST", "inherited")
    program = serving("say(event='result', job=job['job'], result=dict(os.environ))")

    async def session() -> list[dict[str, Any]]:
        lab = Lab(Settings(data_dir=tmp_path), program)
        try:
            async with lab.another({NAME: "7"}) as one, lab.another({}) as other:
                return [await child.run({"kind": "measure"}, 60.0) for child in (one, other)]
        finally:
            await lab.close()

    with_it, without = asyncio.run(session())
    assert with_it[NAME] == "7"
    assert NAME not in without
    assert with_it["HF_HUB_OFFLINE"] == without["HF_HUB_OFFLINE"] == "1"
    assert with_it["CROSSPOINT_TEST"] == without["CROSSPOINT_TEST"] == "inherited"


@glibc_only
def test_only_a_measured_plan_of_which_two_fit_is_tried(tmp_path: Path) -> None:
    lab, survey, request = Lab(Settings(data_dir=tmp_path)), a_survey(), Request(a_workload(16))

    def tried(rows: list[Measurement]) -> Trial | None:
        answer = recommend(survey, None, None, rows, request)
        found = (answer, 20.0, lambda fraction, message: None, KEEPING, {1: 2e-4}, 1.5)
        return trial_of(lab, survey, request.workload, *found)

    small, large = (MemoryPeak(process_bytes=share * 10**9) for share in (1, 6))
    trial = tried([a_measurement(ONE, 16, 0.1, memory=small)])
    assert trial is not None
    assert (trial.plan, trial.step_seconds, trial.begin_seconds) == (KEEPING, pytest.approx(0.1), 1.5)
    assert trial._job(KEEPING, 1.0)["paces"] == {"1": 2e-4}
    assert tried([]) is None
    assert tried([a_measurement(ONE, 16, 0.1, memory=large)]) is None


def test_a_device_s_plan_is_compiled_for_it_with_time_to_begin_there(tmp_path: Path) -> None:
    """As each of the two processes does; what is compiled for it, Triton keeps in the folder that goes."""
    asked = tmp_path / "asked"
    noted = f"print(job['seconds'], compiled, file=open({str(asked)!r}, 'a'))"
    checked = (
        "assert os.environ['TRITON_CACHE_DIR'].startswith(os.environ['TMPDIR'])",
        "assert 'TORCH_WARM_POOL' not in os.environ",
    )
    program = tuple(word.replace("factor = 0.5", f"{noted}\n    factor = 0.5") for word in compiling(*checked))
    plan, begun = replace(GPU, compiled=True), 2.5
    found = run(tmp_path, program, plan=plan, device_seconds=begun, seconds=60.0)
    assert found is not None
    assert found.plan == plan
    turns = [line.split() for line in asked.read_text(encoding="utf-8").splitlines()]
    assert [compiled for _, compiled in turns] == ["True", *["False", "True"] * trials.MOST_TURNS]
    compiling_seconds, of_control, of_compiled, *_ = (float(seconds) for seconds, _ in turns)
    assert compiling_seconds == LEAST_TURN_SECONDS
    assert of_control == pytest.approx(of_compiled + IMPORT_SECONDS + begun)  # its process begins with this turn
    least = PROCESSES * (IMPORT_SECONDS + begun + LEAST_TURNS * LEAST_TURN_SECONDS)
    facts = {"plan": replace(GPU, channels_last=True), "device_seconds": begun}
    assert run(tmp_path, program, seconds=least + 0.1, **facts) is not None
    assert run(tmp_path, program, seconds=least - 0.1, **facts) is None


def test_two_processes_on_a_device_have_to_fit_there() -> None:
    """Whatever the host has."""
    survey = a_survey(gpus=[a_gpu()])
    free, on_host = survey.accelerators[0].memory_free_bytes, survey.memory.usable_bytes
    assert free is not None
    assert on_host is not None
    assert on_host < free
    (option, *_) = recommend(survey, None, None, [], Request(a_workload(16), devices=("cuda:0",))).options
    for peak, fit in ((free // PROCESSES, True), (free // PROCESSES + 1, False), (None, True)):
        assert fit_together(survey, replace(option, memory=MemoryParts(peak_bytes=peak))) is fit


def test_two_processes_of_a_device_s_plan_load_their_libraries_on_the_host() -> None:
    survey = a_survey(gpus=[a_gpu()])
    (option, *_) = recommend(survey, None, None, [], Request(a_workload(16), devices=("cuda:0",))).options
    small = replace(survey, memory=replace(survey.memory, usable_bytes=PROCESSES * LIBRARIES_BYTES - 1))
    assert fit_together(survey, option)
    assert not fit_together(small, option)
