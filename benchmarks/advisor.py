"""How fast and how frugal answers are: `python -m benchmarks.advisor [--output FILE] [--short]`.

Instant answers of a real server (which calibrates itself first) and estimates in this process, from the profile that
the server measured. Rates are given as the time that one takes, so that smaller is better everywhere.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from app.advisor.known import gather
from app.advisor.request import Request
from benchmarks.figures import Figure, describe, report
from benchmarks.service import PATIENCE_SECONDS, Service, running, spread, wait_for_calibration
from probes.measurement import Timing
from probes.profile import Profile
from probes.survey import take_survey
from probes.trace import Trace
from probes.workload.description import DATA, Workload
from probes.workload.models import parse_model

MODELS = ("iris-mlp", "mnist-cnn", "resnet-50", "bert-base")
# Of published sizes, as their config classes have them: model type, task, length; and how long a new one may take.
CONFIGS = (
    ("bert", "text-classification", 128, 3.0),
    ("gpt2", "causal-lm", 128, 3.0),
    ("t5", "seq2seq-lm", 128, 3.0),
    ("vit", "image-classification", None, 3.0),
    ("resnet", "image-classification", None, 3.0),
    ("mobilenet_v2", "image-classification", None, 3.0),
    ("wav2vec2", "audio-classification", None, 3.0),
    ("llama", "causal-lm", 512, 5.0),  # 7 billion parameters
)
CONNECTIONS = 4
LARGEST_BATCH = 65_536
MIB = 2**20


class Asking:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, question: dict[str, Any]) -> float:
        """Seconds to the answer. Raises RuntimeError when it is none."""
        started = time.perf_counter()
        self._connection.request("POST", "/recommend", json.dumps(question), {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"POST /recommend answered {answer.status}: {body[:300]!r}")
        return time.perf_counter() - started


def measure_latency(service: Service, runs: int) -> list[Figure]:
    """One question after another about a model whose trace is known, at batch sizes that change."""
    asking, figures = Asking(service.port), []
    for model in MODELS:
        asking.ask({"model": model, "batch_size": 8})
        times = [asking.ask({"model": model, "batch_size": 1 + number % 64}) for number in range(runs)]
        details = {**spread(times), "p99_seconds": sorted(times)[int(0.99 * (len(times) - 1))]}
        figures.append(
            Figure(f"instant, known trace, {model}, p50", statistics.median(times) * 1e3, "ms", 10.0, details)
        )
    return figures


def measure_throughput(service: Service, seconds: float) -> Figure:
    """The service held to one core, asked over several connections without a pause."""
    process = psutil.Process(service.process.pid)
    cores = process.cpu_affinity()
    _pin(process, cores[-1:])
    until, counts = time.perf_counter() + seconds, [0] * CONNECTIONS

    def keep_asking(place: int) -> None:
        asking, number = Asking(service.port), place
        while time.perf_counter() < until:
            asking.ask({"model": MODELS[number % len(MODELS)], "batch_size": 1 + number % 64})
            number += 1
            counts[place] += 1

    before = sum(process.cpu_times()[:2])
    threads = [threading.Thread(target=keep_asking, args=(place,)) for place in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    used = sum(process.cpu_times()[:2]) - before
    _pin(process, cores)
    answers = sum(counts)
    details = {"answers": answers, "answers_per_second": answers / seconds, "cpu_seconds_an_answer": used / answers}
    return Figure("instant, service on one core, an answer", 1e3 * seconds / answers, "ms", 5.0, details)


def _pin(process: psutil.Process, cores: Sequence[int]) -> None:
    """Every thread of it: an affinity is a thread's own."""
    for thread in process.threads():
        psutil.Process(thread.id).cpu_affinity(list(cores))


def measure_memory(service: Service, requests: int) -> list[Figure]:
    """Growth from a tenth of the requests on to the last. All differ; a fiftieth are layer lists that are traced."""
    process, asking = psutil.Process(service.process.pid), Asking(service.port)
    sizes = []
    for number, question in enumerate(different_questions(requests)):
        asking.ask(question)
        if number in (requests // 10, requests - 1):
            sizes.append(process.memory_info().rss)
    details = {"requests": requests, "after_a_tenth_bytes": sizes[0], "after_all_bytes": sizes[1]}
    grown = Figure(
        "service's memory, growth over different requests", (sizes[1] - sizes[0]) / MIB, "MiB", 10.0, details
    )
    return [grown, Figure("service's memory after them", sizes[1] / MIB, "MiB")]


def different_questions(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        if number % 50 == 49:
            layers = [{"type": "linear", "out": 16 + number}, "relu", {"type": "linear", "out": 2 + number % 7}]
            model: dict[str, Any] = {"layers": layers, "input_shape": [8 + number % 5]}
        else:
            totals = {"flops_per_sample": 10**6 + number, "activation_bytes_per_sample": 10**5, "operations": 50}
            model = {"summary": {"parameters": 10**5 + number, **totals}}
        yield {"model": model, "batch_size": 1 + number % 512}


def measure_new_configs(service: Service, runs: int) -> Iterator[Figure]:
    """Configs that were never asked about, the process that traces being there, as it is from the service's start: the
    same but for how many classes or places they have."""
    for model_type, task, length, limit in CONFIGS:
        times = []
        for number in range(runs):
            own = {"num_labels": 3 + number} if "classification" in task else {"vocab_size": 30_000 + 64 * number}
            model = {"huggingface": {"model_type": model_type, **own}, "task": task}
            if length is not None:
                model["sequence_length"] = length
            times.append(Asking(service.port).ask({"model": model, "batch_size": 1}))
        yield Figure(f"instant, new config, {model_type}, p50", statistics.median(times), "s", limit, spread(times))


def measure_tracing_memory(service: Service) -> Figure:
    """After a config of 7 billion parameters, and the others: the most that one process of the service's ever held."""
    peaks, shares = [], []
    for process in psutil.Process(service.process.pid).children(recursive=True):
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            shares.append(process.memory_full_info().pss)
        except (OSError, psutil.Error):  # it has ended
            continue
        peaks.append(1024 * int(re.findall(r"^VmHWM:\s+(\d+)", status, re.MULTILINE)[0]))
    details = {"peaks_bytes": sorted(peaks), "pss_bytes": sum(shares)}
    return Figure("a process that traces, peak after 7 billion parameters", max(peaks) / 1e9, "GB", 1.0, details)


def calibrate_fully(service: Service) -> None:
    """Beside what the service has of itself by now."""
    _, job = service.ask("POST", "/calibrations", {"effort": "full"})
    end = time.monotonic() + PATIENCE_SECONDS
    while service.ask("GET", f"/calibrations/{job['id']}")[1]["finished_at"] is None:
        if time.monotonic() > end:
            raise TimeoutError("the full calibration never ended")
        time.sleep(0.5)


def measure_profile_size(service: Service) -> tuple[Figure, Profile]:
    (row,) = service.ask("GET", "/profiles")[1]["profiles"]
    document = service.ask("GET", f"/profiles/{row['name']}")[1]
    size = len(json.dumps(document, separators=(",", ":")))
    details = {name: document[name] for name in ("effort", "calibrations")} | {"points": row["points"]}
    return Figure("profile as a file", size / 1e6, "MB", 1.0, details), Profile.from_json(document)


def measure_estimates(profile: Profile, traces: dict[str, Trace], count: int) -> list[Figure]:
    """Plan estimates in this process: a step's time at a batch size that was not asked about before."""
    survey, drawn = take_survey(), random.Random(7)
    first, later = [], []
    for model, trace in traces.items():
        started = time.perf_counter()
        known = gather(survey, profile, trace, (), Request(Workload(parse_model(model), 8)))
        times = list(known.times.values())
        for plan in times:
            plan.at(8, "pageable")
        first.append((time.perf_counter() - started) / len(times))
        wanted = [(drawn.randint(1, LARGEST_BATCH), drawn.choice(DATA)) for _ in range(max(count // len(times), 1))]
        started = time.perf_counter()
        for batch, data in wanted:
            for plan in times:
                plan.at(batch, data)
        later.append((time.perf_counter() - started) / (len(wanted) * len(times)))
    each = statistics.mean(later)
    details = {"estimates_per_second": 1 / each, "models": len(traces)}
    return [
        Figure("a plan's estimate in process, known trace", each * 1e6, "µs", 100.0, details),
        Figure("a plan's first estimate of a new trace, fit included", Timing.from_samples(first).median * 1e3, "ms"),
    ]


def read_traces(folder: Path) -> dict[str, Trace]:
    """The traces that the service's store holds of the models asked about."""
    import sqlite3

    from app.store.store import FILE_NAME

    keys = {parse_model(name).key: name for name in MODELS}
    connection = sqlite3.connect(folder / FILE_NAME)
    rows = connection.execute("SELECT model_key, document FROM traces WHERE mode = 'training'").fetchall()
    connection.close()
    return {keys[key]: Trace.from_json(json.loads(text)) for key, text in rows if key in keys}


def run_all(short: bool, say: Callable[[str], None]) -> list[Figure]:
    """Every figure, one after another."""
    figures: list[Figure] = []

    def add(*found: Figure) -> None:
        figures.extend(found)
        for figure in found:
            say(describe(figure))

    with tempfile.TemporaryDirectory() as folder, running(folder) as service:
        wait_for_calibration(service)
        if not short:
            calibrate_fully(service)
        size, profile = measure_profile_size(service)
        add(size)
        for figure in measure_new_configs(service, 1 if short else 5):
            add(figure)
        add(measure_tracing_memory(service))
        add(*measure_latency(service, 20 if short else 300))
        add(measure_throughput(service, 2 if short else 20))
        add(*measure_estimates(profile, read_traces(Path(folder)), 2_000 if short else 40_000))
        add(*measure_memory(service, 100 if short else 10_000))
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    return report("advisor", __doc__, run_all, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
