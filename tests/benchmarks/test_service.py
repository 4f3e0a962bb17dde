"""The service's benchmark counts what it says it counts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from benchmarks.figures import Figure, describe
from benchmarks.load import run_load, summarize
from benchmarks.machine import read_machine, slug_of
from benchmarks.service import CNN, Service, p99_of, wait_for_progress
from tests.app.serving import PATIENCE_SECONDS, running_server


def test_percentiles_are_of_all_answers() -> None:
    summary = summarize([number / 1000 for number in range(1001)], errors=2, seconds=2.0)
    assert (summary["requests"], summary["errors"], summary["requests_per_second"]) == (1001, 2, 500.5)
    assert round(summary["p50_seconds"], 3) == 0.5
    assert round(summary["p99_seconds"], 3) == 0.99


def test_the_load_generator_gets_answers_from_a_real_server_and_counts_refusals(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        httpx.get(f"{server.url}/hardware", timeout=PATIENCE_SECONDS).raise_for_status()  # the first takes long
        good = asyncio.run(run_load("127.0.0.1", server.port, "/hardware", 4, 2.0))
        bad = asyncio.run(run_load("127.0.0.1", server.port, "/nothing", 2, 1e-6))
        assert httpx.get(f"{server.url}/livez").is_success
    assert good["requests"] > 4
    assert good["errors"] == 0
    assert bad["errors"] == bad["requests"] == 2  # one each, however short the time
    refused = p99_of("p99", bad, 60_000.0)
    assert refused.met is False
    assert describe(refused).endswith(f"NO)  ({bad['errors']} failed)")
    assert p99_of("p99", good, 60_000.0).met is True


def test_a_measurement_that_ends_before_its_first_step_is_not_waited_for(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        service = Service(server.process, server.port)  # type: ignore[arg-type]
        _, job = service.ask("POST", "/measurements", {"model": CNN, "batch_size": 64, "seconds": 60})
        address = f"/measurements/{job['id']}"
        assert httpx.delete(f"{server.url}{address}").is_success
        with pytest.raises(RuntimeError, match="ended before it ran a step: cancelled"):
            wait_for_progress(service, address)


def test_a_machine_is_described_without_its_name() -> None:
    machine = read_machine()
    assert "hostname" not in json.dumps(machine)
    assert machine["slug"]
    assert (
        slug_of("12th Gen Intel(R) Core(TM) i9", 4.0, ["NVIDIA H200"]) == "12th-gen-intel-core-i9-4-cores-nvidia-h200"
    )


def test_a_figure_beyond_its_target_says_no() -> None:
    assert describe(Figure("start", 0.5, "s", 1.0)).endswith("yes)")
    assert describe(Figure("start", 1.5, "s", 1.0)).endswith("NO)")
    assert describe(Figure("start", 1.5, "s")) == "start: 1.5 s"
