"""How fast a machine is read: `python -m benchmarks.survey [--output FILE] [--short]`.

Our survey in process and as commands, beside the tools that people read machines with. All take turns in one run, so
that another load on the machine strikes each alike; a tool that is not installed is listed as such.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figures import RESULTS
from benchmarks.large_machine import write_large_machine
from benchmarks.machine import read_machine
from benchmarks.output import output_file
from benchmarks.service import COMMAND, PATIENCE_SECONDS, run_load, running, spread
from probes.survey import take_survey

CAPTURE = Path(__file__).resolve().parents[2] / "shared" / "hosts" / "machines" / "x86_64-epyc_7451.tar.gz"
ABSENT = "not installed"
WATCH_SECONDS = 20.0  # over which watching's CPU time is counted, after its start


@dataclass(frozen=True)
class Figure:
    """One number; None where it could not be taken, and `note` says why. failures: of what it was to be taken of;
    with any no target is met."""

    name: str
    value: float | None
    unit: str
    target: float | None = None
    note: str | None = None
    details: dict[str, Any] | None = None
    failures: int = 0

    @property
    def met(self) -> bool | None:
        if self.target is not None and self.failures:
            return False
        return None if self.target is None or self.value is None else self.value < self.target


@dataclass(frozen=True)
class Contender:
    """Something that reads a machine. run: gives its exit code; None when it is not here.

    target: milliseconds that the median should stay below.
    """

    name: str
    run: Callable[[], int] | None
    target: float | None = None
    note: str | None = None


def list_contenders(folder: Path) -> list[Contender]:
    """Ours first, the floor that Python itself sets, then the others."""
    return [
        in_process("survey in process, here", Path("/"), 30.0),
        in_process("survey in process, 96 threads", write_large_machine(folder / "96", 96), 300.0),
        captured("survey in process, the captured 96-thread machine", folder / "captured", 300.0),
        in_process("survey in process, 384 threads", write_large_machine(folder / "384", 384)),
        command("crosspoint hardware", [COMMAND, "hardware"], 250.0),
        command("crosspoint hardware --json", [COMMAND, "hardware", "--json"], 250.0),
        command("python -m probes", [sys.executable, "-m", "probes"]),
        command("python -c pass (the floor)", [sys.executable, "-c", "pass"]),
        installed("lscpu", ["lscpu"]),
        installed("lstopo", ["lstopo-no-graphics"]),
        module("py-cpuinfo", "cpuinfo", []),
        installed("nvitop -1", ["nvitop", "-1"]),
        module("torch.utils.collect_env", "torch", ["torch.utils.collect_env"]),
    ]


def in_process(name: str, root: Path, target: float | None = None) -> Contender:
    def run() -> int:
        take_survey(root, deadline_seconds=PATIENCE_SECONDS)
        return 0

    return Contender(name, run, target)


def captured(name: str, folder: Path, target: float) -> Contender:
    if not CAPTURE.exists():
        return Contender(name, None, target, "the captured machines are not here")
    with tarfile.open(CAPTURE) as machine:
        machine.extractall(folder, filter="fully_trusted")  # its dangling links belong to it
    return in_process(name, folder, target)


def command(name: str, words: Sequence[str | Path], target: float | None = None) -> Contender:
    return Contender(name, partial(run_command, list(words)), target)


def installed(name: str, words: Sequence[str]) -> Contender:
    """A program beside this Python, or on the path."""
    beside = Path(sys.executable).with_name(words[0])
    found = str(beside) if beside.exists() else shutil.which(words[0])
    return command(name, [found, *words[1:]]) if found else Contender(name, None, None, ABSENT)


def module(name: str, package: str, words: Sequence[str]) -> Contender:
    if find_spec(package) is None:
        return Contender(name, None, None, ABSENT)
    return command(name, [sys.executable, "-m", *(words or [package])])


def run_command(words: Sequence[str | Path]) -> int:
    ended = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    return ended.returncode


def take_turns(contenders: Sequence[Contender], rounds: int) -> list[Figure]:
    """Medians in milliseconds. The first round warms the file cache and is not counted, but for how it ended."""
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    codes: dict[str, list[int]] = {contender.name: [] for contender in contenders}
    for number in range(rounds + 1):
        for contender in contenders:
            if contender.run is not None:
                started = time.perf_counter()
                codes[contender.name].append(contender.run())
                if number:
                    times[contender.name].append(time.perf_counter() - started)
    return [to_figure(contender, times[contender.name], codes[contender.name]) for contender in contenders]


def to_figure(contender: Contender, times: Sequence[float], codes: Sequence[int]) -> Figure:
    """codes: that each run ended with. How soon something fails is no time of it."""
    failed = [code for code in codes if code]
    if failed:
        note = f"ended with code {failed[0]} in {len(failed)} of {len(codes)} runs"
        return Figure(contender.name, None, "ms", contender.target, note, failures=len(failed))
    if not times:
        return Figure(contender.name, None, "ms", contender.target, contender.note)
    details = {**spread(times), "seconds": list(times)}
    return Figure(contender.name, statistics.median(times) * 1000, "ms", contender.target, contender.note, details)


def measure_http(seconds: float) -> list[Figure]:
    """GET /hardware of a real server: one reader who asks again at once, and thirty-two."""
    figures = []
    with tempfile.TemporaryDirectory() as folder, running(folder, calibrate_on_start="false") as service:
        run_load(service, "/hardware", 1, 1.0)
        for connections, target in ((1, 2.0), (32, None)):
            load = run_load(service, "/hardware", connections, seconds)
            readers = f"{connections} connection{'s' if connections > 1 else ''}"
            for share, limit in (("p50", target), ("p99", None)):
                figures.append(loaded(f"GET /hardware {share}, {readers}", load, share, limit))
    return figures


def loaded(name: str, load: dict[str, Any], share: str, target: float | None) -> Figure:
    """Milliseconds; load: of benchmarks.load."""
    errors = load["errors"]
    note = f"{errors} of {load['requests']} answers failed" if errors else None
    return Figure(name, load[f"{share}_seconds"] * 1000, "ms", target, note, load, errors)


def measure_watch(seconds: float) -> Figure:
    """Share of one core that `crosspoint watch` takes once it runs, its children included."""
    with watching() as process:
        time.sleep(min(5.0, seconds))
        before, started = cpu_seconds(process), time.perf_counter()
        time.sleep(seconds)
        share = (cpu_seconds(process) - before) / (time.perf_counter() - started)
        if process.status() == psutil.STATUS_ZOMBIE:
            raise RuntimeError("crosspoint watch ended by itself")
    return Figure("crosspoint watch, share of a core", share * 100, "%", 1.0, f"over {seconds:g} s")


@contextmanager
def watching() -> Any:
    words = [COMMAND, "watch", "--json", "--interval", "1"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def cpu_seconds(process: psutil.Process) -> float:
    """Of a process and all below it."""
    family = [process, *process.children(recursive=True)]
    return sum(times.user + times.system for times in (member.cpu_times() for member in family))


def write_table(figures: Sequence[dict[str, Any]]) -> list[str]:
    """Lines of Markdown; what could not be taken stands with its reason."""
    lines = ["| reading a machine | median | lowest to highest | target | met |", "| --- | --- | --- | --- | --- |"]
    for figure in figures:
        met = {None: "", True: "yes", False: "no"}[figure["met"]]
        target = "" if figure["target"] is None else f"below {figure['target']:g} {figure['unit']}"
        lines.append(f"| {figure['name']} | {_describe(figure)} | {_describe_spread(figure)} | {target} | {met} |")
    return lines


def _describe(figure: dict[str, Any]) -> str:
    if figure["value"] is None:
        return str(figure["note"])
    note = f" ({figure['note']})" if figure["note"] else ""
    return f"{figure['value']:.3g} {figure['unit']}{note}"


def _describe_spread(figure: dict[str, Any]) -> str:
    details = figure["details"] or {}
    return f"{details['low'] * 1000:.3g} to {details['high'] * 1000:.3g} ms" if "low" in details else ""


def compile_packages() -> None:
    """As an install leaves them; a source edited since would be compiled at every start of a command."""
    house = Path(__file__).resolve().parents[1]
    words = [sys.executable, "-m", "compileall", "-q", house / "probes", house / "app"]
    subprocess.run(words, check=False, stdout=subprocess.DEVNULL, timeout=PATIENCE_SECONDS)


def run_all(short: bool) -> list[Figure]:
    compile_packages()
    with tempfile.TemporaryDirectory() as folder:
        figures = take_turns(list_contenders(Path(folder)), 2 if short else 20)
    return [*figures, *measure_http(1.0 if short else 10.0), measure_watch(2.0 if short else WATCH_SECONDS)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survey", description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="few runs, only to see that it works")
    parser.add_argument("--output", type=output_file, default=RESULTS / "survey.json")
    chosen = parser.parse_args(arguments)
    figures = [{**asdict(figure), "met": figure.met} for figure in run_all(chosen.short)]
    sys.stdout.write("\n".join(write_table(figures)) + "\n")
    heavy = sorted({"torch", "cpuinfo", "transformers"} & sys.modules.keys())
    document = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **read_machine(),
        "imported_beside_the_survey": heavy,
        "figures": figures,
    }
    chosen.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
