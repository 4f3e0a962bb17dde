"""Turns lines into jobs, runs them one after another, and turns every ending into one event (docs/protocol.md)."""

from __future__ import annotations

import gc
import json
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from probes.microtrain.failures import Failure, explain_failure
from probes.microtrain.measuring.device_cache import empty_device_cache

Document = dict[str, Any]
Emit = Callable[[Document], object]
OnProgress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Desk:
    """What a job may say while it runs.

    report: progress (fraction, message). finish: sends this result at once and ends the process; for a job that
    cannot be stopped.
    """

    report: OnProgress
    finish: Callable[[Document], object]


RunJob = Callable[[Document, Desk], Document]  # takes the job, returns the result


def serve_jobs(lines: Iterable[bytes], kinds: Mapping[str, RunJob], emit: Emit) -> None:
    """Run every job to its `result` or `failed`. No job's end is the end of this loop."""
    for line in lines:
        try:
            job = parse_job(line)
        except Failure as failure:
            emit({"event": "failed", "job": None, "code": failure.code, "reason": str(failure)})
            continue
        emit(_run_job(job, kinds, emit))
        _clean_up()  # nobody waits for it but the next job


def parse_job(line: bytes) -> Document:
    """Raises Failure `invalid-job`; the message never repeats the input."""
    try:
        job = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Failure("invalid-job", "The line is not a JSON document. A job is one JSON object a line.") from None
    if not isinstance(job, dict) or not isinstance(job.get("kind"), str):
        raise Failure("invalid-job", 'A job is a JSON object with a "job" and a "kind" (docs/protocol.md).')
    return job


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and infinities are no JSON")


def _run_job(job: Document, kinds: Mapping[str, RunJob], emit: Emit) -> Document:
    name = job.get("job")

    def report(fraction: float, message: str) -> None:
        emit({"event": "progress", "job": name, "fraction": min(1.0, max(0.0, fraction)), "message": message})

    def finish(result: Document) -> None:
        emit({"event": "result", "job": name, "result": result, "last": True})
        os._exit(0)

    try:
        run = kinds.get(job["kind"])
        if run is None:
            raise Failure("invalid-job", f"There is no such kind of job. There are: {', '.join(kinds)}.")
        result = run(job, Desk(report, finish))
        json.dumps(result, allow_nan=False)  # a result that is no JSON is a failure of this job, not of the process
        return {"event": "result", "job": name, "result": result}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever happened in a job is that job's answer
        failure = explain_failure(error)
        if failure is not error:
            traceback.print_exception(error)
        return {"event": "failed", "job": name, "code": failure.code, "reason": str(failure)}


def _clean_up() -> None:
    """Leave nothing of a job on a device for the next: models that lie in cycles, and what torch's allocator keeps. The
    collector takes a fifth of a second to look at all that torch brings: not after every trace."""
    if torch.cuda.is_initialized():
        gc.collect()
        empty_device_cache()
