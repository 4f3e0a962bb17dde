"""What the child promises to whoever started it (docs/protocol.md)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from probes.workload.description import Workload
from probes.workload.models import parse_model, python_model
from tests.probes.microtrain.pipes import PROGRAM, Pipes, started_child

IRIS = Workload(parse_model("iris-mlp"), 16).to_json()
ENDLESS: dict[str, Any] = {
    "kind": "experiment",
    "name": "iris",
    "epochs": 1_000_000,
    "log_every": [None],
    "devices": ["cpu"],
}


def test_it_says_first_what_it_is(child: Pipes) -> None:
    assert child.ready["event"] == "ready"
    assert child.ready["torch"]
    assert child.ready["python"]
    assert isinstance(child.ready["devices"], list)


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"kind": "measure", "seconds": NaN}',
        b"[" * 100_000,
        b'"\\ud800"',
        b"[]",
        b"{}",
        b'{"kind": 5}',
        b"\xff\xfe\x00",
        b'{"kind": "unheard-of"}',
        b'{"kind": "measure"}',
        b'{"kind": "measure", "workload": {"model": 5}}',
        b'{"kind": "trace", "workload": []}',
        json.dumps({"kind": "trace", "workload": {**IRIS, "optimizer": "magic"}}).encode(),
        json.dumps({"kind": "trace", "workload": {**IRIS, "log_every": 0}}).encode(),
        b'{"kind": "widen", "factor": 2}',
        json.dumps({"kind": "widen", "model": IRIS["model"], "factor": 2}).encode(),
        b'{"kind": "widen", "factor": "wide", "model": {"kind": "huggingface", "name": "x", "content": {}}}',
        b'{"kind": "widen", "factor": NaN, "model": {"kind": "huggingface", "name": "x", "content": {}}}',
        b'{"kind": "calibrate", "effort": "much"}',
        b'{"kind": "calibrate", "effort": "quick", "usable_cores": "two"}',
        b'{"kind": "calibrate", "effort": "quick", "devices": ["cuda:77"]}',
        b'{"kind": "experiment", "name": "iris", "epochs": "many", "log_every": [1]}',
        b'{"kind": "experiment", "name": "unheard-of", "epochs": 5, "log_every": [1]}',
    ],
)
def test_a_line_that_is_no_job_is_refused_in_words_and_the_next_one_heard(child: Pipes, line: bytes) -> None:
    child.send_line(line)
    event = child.read()
    assert event["event"] == "failed"
    assert event["code"] == "invalid-job"
    assert event["reason"].endswith(".")


@pytest.mark.parametrize(
    "fields",
    [
        {"seconds": 0},
        {"seconds": "5"},
        {"seconds": 1e9},
        {"seconds": 1, "batch_sizes": [0]},
        {"seconds": 1, "batch_sizes": [10**18]},
        {"seconds": 1, "batch_sizes": ["1"]},
        {"seconds": 1, "batch_sizes": 32},
        {"seconds": 1, "batch_sizes": [[1]]},
        {"seconds": 1, "plans": [{"precision": "fp32"}]},
        {"seconds": 1, "plans": [5]},
        {"seconds": 1, "plans": [{"device": "cpu", "threads": "two"}]},
        {"seconds": 1, "plans": [{"device": {"a": 1}}]},
        {"seconds": 1, "memory_limit_bytes": -1},
        {"seconds": 1, "gradient_bytes": 0.5},
    ],
)
def test_a_measurement_out_of_bounds_is_refused(child: Pipes, fields: dict[str, Any]) -> None:
    event = child.run(kind="measure", workload=IRIS, **fields)
    assert (event["event"], event["code"]) == ("failed", "invalid-job")


def test_a_model_that_cannot_be_built_is_the_users_to_mend(child: Pipes) -> None:
    summary = {"kind": "summary", "name": "mine", "content": {"parameters": 5}}
    event = child.run(kind="measure", workload={**IRIS, "model": summary}, seconds=1)
    assert (event["event"], event["code"]) == ("failed", "invalid-model")


def test_an_experiment_and_a_trace_come_back_as_documents(child: Pipes) -> None:
    event = child.run(kind="experiment", name="iris", epochs=20, log_every=[1, None], devices=["cpu"])
    assert event["event"] == "result"
    assert event["result"]["devices"][0]["outcome"] == "ok"
    event = child.run(kind="trace", workload=IRIS)
    assert event["result"]["parameters"] == 83


def test_the_end_of_standard_input_ends_it_in_the_middle_of_a_job() -> None:
    with started_child() as pipes:
        pipes.send(job="long", **ENDLESS)
        assert pipes.read()["event"] == "progress"
        assert pipes.process.stdin is not None
        pipes.process.stdin.close()
        assert pipes.process.wait(timeout=20) == 0


def test_term_ends_it_in_the_middle_of_a_job() -> None:
    with started_child() as pipes:
        pipes.send(job="long", **ENDLESS)
        assert pipes.read()["event"] == "progress"
        pipes.process.send_signal(signal.SIGTERM)
        assert pipes.process.wait(timeout=20) == -signal.SIGTERM


def test_people_can_run_jobs_from_a_file(tmp_path: Path) -> None:
    job = {"job": "mine", "kind": "experiment", "name": "iris", "epochs": 5, "log_every": [None], "devices": ["cpu"]}
    place = tmp_path / "job.json"
    place.write_text(json.dumps(job))  # without a last newline, as editors leave it
    with place.open("rb") as jobs:
        done = subprocess.run(PROGRAM, stdin=jobs, capture_output=True, timeout=120, check=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "ready"
    assert (events[-1]["event"], events[-1]["job"]) == ("result", "mine")


TRAIN = """
import argparse

import torch

options = argparse.ArgumentParser()
options.add_argument("--width", type=int, default=4)
WIDTH = options.parse_args().width

def make():
    return torch.nn.Linear(options.parse_args().width, 3)
"""


def test_a_script_that_reads_its_command_line_finds_none_of_this_program_s(tmp_path: Path) -> None:
    """Neither in the process itself nor in a fork, which measures plans."""
    (tmp_path / "train.py").write_text(TRAIN)
    workload = Workload(python_model("train:make"), 4).to_json()
    with started_child("--forks", "--temporary", str(tmp_path), folder=tmp_path) as pipes:
        assert pipes.run(kind="trace", workload=workload)["result"]["parameters"] == 15
        plans = [{"device": "cpu", "precision": "fp32", "threads": 1}]
        result = pipes.run(kind="measure", workload=workload, seconds=1, plans=plans)["result"]
        assert [row["outcome"] for row in result["measurements"]] == ["ok"]


def test_what_libraries_print_goes_to_standard_error() -> None:
    program = (
        "import os; from probes.microtrain.channel import EventWriter; writer = EventWriter();"
        "print('a library speaks', flush=True); os.write(1, b'so does C\\n'); writer.write({'event': 'mine'})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
    assert done.stdout == b'{"event":"mine"}\n'
    assert b"a library speaks" in done.stderr
    assert b"so does C" in done.stderr


def test_jobs_are_read_by_nobody_else() -> None:
    program = (
        "import os, sys; from probes.microtrain.channel import JobReader; jobs = iter(JobReader(0, on_gone=int));"
        "print(repr(sys.stdin.read()), os.read(0, 9), next(jobs))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"a job\n", capture_output=True, timeout=60, check=True
    )
    assert done.stdout == b"'' b'' b'a job'\n"


def test_it_ends_when_nobody_reads_its_events() -> None:
    with started_child() as pipes:
        assert pipes.process.stdout is not None
        pipes.process.stdout.close()
        pipes.send(job="long", **ENDLESS)
        assert pipes.process.wait(timeout=60) == 0
