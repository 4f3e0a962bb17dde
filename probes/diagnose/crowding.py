"""Others who take this machine's processors: neighbours on the host, and programs beside ours."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnose.codes import make_finding
from probes.diagnose.facts import Facts
from probes.diagnose.wording import in_percent
from probes.hardware import Finding

# A barrier between threads waits for the slowest: with 2 threads, one of which loses its core, steps took twenty times
# as long (measured on a two-core virtual machine). From 5 % on the spread of our own measurements doubles.
_STEAL_FRACTION = 0.05
# Share of time in which something had to wait for a CPU, over the last ten seconds (the kernel's PSI, `some`).
_PRESSURE_PERCENT = 25.0


def find_noisy_neighbours(facts: Facts) -> Iterator[Finding]:
    stolen = facts.load.steal_fraction
    if stolen is None or stolen < _STEAL_FRACTION:
        return
    yield make_finding(
        "noisy-neighbours",
        "cpu",
        f"The hypervisor gave {in_percent(stolen)} of this machine's CPU time to others"
        + (f" over the last {facts.load.interval_seconds:.1f} s" if facts.load.interval_seconds else "")
        + ": times vary, and several threads wait for one that lost its core.",
        "Measure again at another hour, use fewer threads (crosspoint recommend MODEL compares them), or move to a "
        "machine with cores of its own.",
    )


def find_crowded_cpu(facts: Facts) -> Iterator[Finding]:
    waiting = facts.load.cpu_pressure_percent
    if waiting is None or waiting < _PRESSURE_PERCENT:
        return
    yield make_finding(
        "crowded-cpu",
        "cpu",
        f"In {waiting:.0f} % of the last ten seconds some program here had to wait for a CPU"
        + (f"; the load average is {facts.load.load_average:.1f}" if facts.load.load_average is not None else "")
        + (f" on {facts.cpu.logical_cores} logical cores." if facts.cpu.logical_cores else "."),
        "ps -eo pid,pcpu,comm --sort=-pcpu | head shows who; end or wait for it before you train or measure.",
    )
