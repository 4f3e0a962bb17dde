"""How fast the service is: `python -m benchmarks.service [--output FILE] [--short]`.

A real server in a process of its own, on loopback; the load comes from another process. Each figure stands beside
the target that the project set itself. On a shared machine other people's work is in the figures, too.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, describe, report

RESULTS = Path(__file__).parent / "results"
COMMAND = Path(sys.executable).with_name("crosspoint")
PATIENCE_SECONDS = 180.0
CNN = {
    "layers": [
        {"type": "conv2d", "in": 1, "out": 16, "kernel": 3, "padding": 1},
        "relu",
        {"type": "max_pool2d", "kernel": 2},
        {"type": "conv2d", "out": 32, "kernel": 3, "padding": 1},
        "relu",
        {"type": "max_pool2d", "kernel": 2},
        "flatten",
        {"type": "linear", "out": 10},
    ],
    "input_shape": [1, 28, 28],
}


@dataclass(frozen=True)
class Service:
    process: subprocess.Popen[bytes]
    port: int

    def ask(self, method: str, address: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Status and document, over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, address, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text)

    def status_field(self, name: str) -> str:
        """A field of /proc/PID/status."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return re.findall(rf"^{name}:\s+(.*)$", text, re.MULTILINE)[0]


@contextlib.contextmanager
def running(folder: str, **settings: str) -> Iterator[Service]:
    """A server that answers /livez. settings: CROSSPOINT_… by their last part."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    chosen = {"data_dir": folder, "port": str(port), **settings}
    environment = {f"CROSSPOINT_{name.upper()}": value for name, value in chosen.items()}
    process = subprocess.Popen([COMMAND, "serve"], env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        wait_for_life(port)
        yield Service(process, port)
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def wait_for_life(port: int) -> None:
    """Ask /livez until it answers."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/livez")
            if connection.getresponse().status == 200:
                connection.close()
                return
        except OSError:
            time.sleep(0.002)
    raise TimeoutError("the service never answered /livez")


def measure_start(runs: int) -> Figure:
    """From starting the process to the first answer of /livez; the slowest of some starts."""
    times = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            with running(folder, calibrate_on_start="false"):
                times.append(time.perf_counter() - started)
    return Figure("start to /livez, slowest", max(times), "s", 1.0, spread(times))


def measure_idle() -> list[Figure]:
    """Memory of the service when its tracing process has gone, and whether torch was ever mapped."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(folder, calibrate_on_start="false", trace_idle_seconds="0.1") as service,
    ):
        service.ask("POST", "/recommend", {"model": "iris-mlp", "batch_size": 8})
        time.sleep(2)
        resident = int(service.status_field("VmRSS").split()[0]) / 1024
        mapped = "torch" in Path(f"/proc/{service.process.pid}/maps").read_text()
    return [Figure("idle memory", resident, "MiB", 100.0), Figure("torch mapped (1: yes)", float(mapped), "", 0.5)]


def run_load(service: Service, address: str, connections: int, seconds: float, pause: float = 0.0) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.load", "127.0.0.1", str(service.port), address]
    ended = subprocess.run(
        [*words, str(connections), str(seconds), str(pause)], capture_output=True, check=True, timeout=PATIENCE_SECONDS
    )
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def measure_load(service: Service, seconds: float) -> list[Figure]:
    """GET /hardware at 32 connections; /livez while a measurement runs."""
    hardware = run_load(service, "/hardware", 32, seconds)
    _, job = service.ask("POST", "/measurements", {"model": CNN, "batch_size": 64, "seconds": seconds + 10})
    address = f"/measurements/{job['id']}"
    wait_for_progress(service, address)
    live = run_load(service, "/livez", 4, seconds, 0.01)
    state = service.ask("GET", address)[1]["state"]
    service.ask("DELETE", address)
    return [
        p99_of("GET /hardware p99 at 32 connections", hardware, 25.0),
        p99_of("/livez p99 while measuring", {**live, "still_measuring": state}, 100.0),
    ]


def wait_for_progress(service: Service, address: str) -> None:
    """Until a measurement runs steps. Raises RuntimeError where it ended before that, and TimeoutError."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (job := service.ask("GET", address)[1])["progress"] <= 0:
        if job["finished_at"] is not None:
            raise RuntimeError(f"The measurement ended before it ran a step: {job['state']}, {job['reason']}")
        if time.monotonic() > end:
            raise TimeoutError("the measurement never ran a step")
        time.sleep(0.1)


def p99_of(name: str, load: dict[str, Any], target: float) -> Figure:
    """Milliseconds. Answers that were none are quick, and meet nothing."""
    return Figure(name, load["p99_seconds"] * 1000, "ms", target, load, failures=load["errors"])


def measure_quick(service: Service, runs: int) -> list[Figure]:
    """POST /recommend with effort quick, the start of the measuring process included."""
    figures = []
    for name, model, batch_size in (("iris-mlp", "iris-mlp", 120), ("a small CNN", CNN, 64)):
        times = [ask_timed(service, {"model": model, "batch_size": batch_size, "effort": "quick"}) for _ in range(runs)]
        figures.append(Figure(f"quick, {name}, slowest", max(times), "s", 15.0, spread(times)))
    return figures


def measure_instant(service: Service, runs: int) -> list[Figure]:
    """POST /recommend with effort instant: with a known trace, and for configs never seen."""
    figures = []
    for model in ("iris-mlp", "resnet-50"):
        ask_timed(service, {"model": model, "batch_size": 64})
        times = [ask_timed(service, {"model": model, "batch_size": 1 + run}) for run in range(runs)]
        name = f"instant, {model}, known trace, p99"
        figures.append(Figure(name, statistics.quantiles(times, n=100)[98] * 1000, "ms", 50.0, spread(times)))
    times = [ask_timed(service, {"model": new_config(layers), "batch_size": 8}) for layers in (2, 3, 4, 5, 6)]
    figures.append(Figure("instant, new config, slowest", max(times), "s", 4.0, spread(times)))
    return figures


def new_config(layers: int) -> dict[str, Any]:
    config = {"model_type": "bert", "num_hidden_layers": layers}
    return {"huggingface": config, "task": "text-classification", "sequence_length": 128}


def measure_new_config_cold() -> Figure:
    """A new config when no process is warm: torch is imported first."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(folder, calibrate_on_start="false", trace_idle_seconds="0") as service,
    ):
        time.sleep(10)
        seconds = ask_timed(service, {"model": new_config(3), "batch_size": 8})
    return Figure("instant, new config, no warm process", seconds, "s", 4.0)


def measure_commands(runs: int) -> list[Figure]:
    """Commands from a cold start, as a shell runs them."""
    figures = []
    for words, target in ((["--help"], 200.0), (["hardware", "--json"], None)):
        times = []
        for _ in range(runs):
            started = time.perf_counter()
            subprocess.run([COMMAND, *words], stdout=subprocess.DEVNULL, check=True, timeout=PATIENCE_SECONDS)
            times.append(time.perf_counter() - started)
        name = f"crosspoint {' '.join(words)}, median"
        figures.append(Figure(name, statistics.median(times) * 1000, "ms", target, spread(times)))
    return figures


def ask_timed(service: Service, question: dict[str, Any]) -> float:
    """Seconds to an answer. Raises RuntimeError when it is none."""
    started = time.perf_counter()
    status, document = service.ask("POST", "/recommend", question)
    if status != 200:
        raise RuntimeError(f"POST /recommend answered {status}: {document}")
    return time.perf_counter() - started


def wait_for_calibration(service: Service) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while service.ask("GET", "/healthz")[1].get("calibration", {}).get("state") != "done":
        if time.monotonic() > end:
            raise TimeoutError("the calibration never ended")
        time.sleep(0.5)


def spread(times: Sequence[float]) -> dict[str, float]:
    return {"runs": len(times), "median_seconds": statistics.median(times), "low": min(times), "high": max(times)}


def run_all(short: bool, say: Callable[[str], None]) -> list[Figure]:
    """Every figure, one after another."""
    figures: list[Figure] = []

    def add(*found: Figure) -> None:
        figures.extend(found)
        for figure in found:
            say(describe(figure))

    add(measure_start(3 if short else 10), *measure_idle(), *measure_commands(3 if short else 10))
    add(measure_new_config_cold())
    with tempfile.TemporaryDirectory() as folder, running(folder) as service:
        wait_for_calibration(service)
        add(*measure_load(service, 3 if short else 10))
        add(*measure_instant(service, 20 if short else 200))
        add(*measure_quick(service, 1 if short else 3))
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    return report("service", __doc__, run_all, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
