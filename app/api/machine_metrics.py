"""A survey as Prometheus metrics. Imported with the first scrape: it needs prometheus_client.

Names follow Prometheus' conventions: base units, ratios from 0 to 1, `_total` for counters. A fact that is not known is
no sample. Labels are ids and names of what is in the machine, never what somebody sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from probes.hardware import Accelerator, Outcome, Severity, Survey
from probes.live import LIVE_FIELDS, Live, LiveAccelerator, with_live_facts

# Name after `crosspoint_`, help, value.
MACHINE: tuple[tuple[str, str, Callable[[Survey], float | None]], ...] = (
    ("cpu_physical_cores", "Cores that are online.", lambda survey: survey.cpu.physical_cores),
    ("cpu_logical_cores", "Hardware threads that are online.", lambda survey: survey.cpu.logical_cores),
    (
        "cpu_usable_cores",
        "Cores that affinity and cgroup leave to the service.",
        lambda survey: survey.cpu.usable_cores,
    ),
    ("cpu_busy_ratio", "Share of all CPU time that was used lately.", lambda survey: survey.load.busy_fraction),
    (
        "cpu_steal_ratio",
        "Share of all CPU time that the hypervisor lately gave to others.",
        lambda survey: survey.load.steal_fraction,
    ),
    ("memory_total_bytes", "The machine's memory.", lambda survey: survey.memory.total_bytes),
    ("memory_available_bytes", "Memory that the machine has left.", lambda survey: survey.memory.available_bytes),
    ("memory_usable_bytes", "Memory that a new process could take now.", lambda survey: survey.memory.usable_bytes),
    ("memory_limit_bytes", "The tightest cgroup's limit on memory.", lambda survey: survey.memory.limit_bytes),
    ("swap_used_bytes", "Memory that was swapped out.", lambda survey: survey.memory.swap_used_bytes),
)
ACCELERATOR: tuple[tuple[str, str, Callable[[Accelerator], float | None]], ...] = (
    ("usable", "Whether torch can use it: 1 or 0.", lambda card: card.usable),
    ("utilization_ratio", "Share of time in which it was busy lately.", lambda card: _ratio(card.utilization_percent)),
    ("memory_total_bytes", "Its memory, or the machine's where it shares that.", lambda card: card.memory_total_bytes),
    ("memory_free_bytes", "Memory that nobody holds.", lambda card: card.memory_free_bytes),
    ("temperature_celsius", "Its temperature.", lambda card: card.temperature_celsius),
    ("power_watts", "What it draws.", lambda card: card.power_watts),
    ("power_limit_watts", "What it may draw.", lambda card: card.power_limit_watts),
    ("graphics_clock_hertz", "The clock of its cores.", lambda card: card.graphics_clock_hz),
    ("memory_clock_hertz", "The clock of its memory.", lambda card: card.memory_clock_hz),
    (
        "throttled",
        "Whether something holds its clocks down: 1 or 0.",
        lambda card: None if card.throttle_reasons is None else bool(card.throttle_reasons),
    ),
    (
        "processes",
        "Processes that hold its memory.",
        lambda card: None if card.processes is None else len(card.processes),
    ),
)
INFO_LABELS = (
    "vendor",
    "name",
    "architecture",
    "generation",
    "segment",
    "driver_version",
    "compute_capability",
    "pci_address",
    "torch_device",
)


def collect_machine(survey: Survey, live: Live | None) -> Iterator[Metric]:
    """live: newer than the survey where somebody has it read."""
    changing = survey if live is None else _renew(survey, live)
    yield _machine_info(survey)
    for name, text, read in MACHINE:
        yield from _gauge(f"crosspoint_{name}", text, [((), read(changing))])
    cards = tuple({card.id: card for card in changing.accelerators}.values())  # a sample twice spoils the scrape
    yield _accelerator_info(cards)
    for name, text, measure in ACCELERATOR:
        samples = [((card.id,), measure(card)) for card in cards]
        yield from _gauge(f"crosspoint_accelerator_{name}", text, samples, ("accelerator",))
    yield from _ecc_errors(cards)
    yield from _findings(survey)
    yield from _probes(survey)


def _renew(survey: Survey, live: Live) -> Survey:
    told = {card.id: card for card in live.accelerators}
    cards = tuple(_renew_card(card, told[card.id]) for card in survey.accelerators if card.id in told)
    load = survey.load if live.load.busy_fraction is None else live.load
    return replace(survey, load=load, memory=live.memory, accelerators=cards)


def _renew_card(card: Accelerator, told: LiveAccelerator) -> Accelerator:
    names = (*LIVE_FIELDS, "memory_total_bytes", "usable", "why_not")
    return with_live_facts(card, {name: getattr(told, name) for name in names})


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _gauge(
    name: str, text: str, samples: Iterable[tuple[tuple[str, ...], float | None]], labels: tuple[str, ...] = ()
) -> Iterator[GaugeMetricFamily]:
    """Nothing where no sample has a value."""
    known = [(names, float(value)) for names, value in samples if value is not None]
    if known:
        family = GaugeMetricFamily(name, text, labels=labels)
        for names, value in known:
            family.add_metric(names, value)
        yield family


def _machine_info(survey: Survey) -> InfoMetricFamily:
    facts = {
        "architecture": survey.cpu.architecture,
        "cpu": survey.cpu.name,
        "microarchitecture": survey.cpu.microarchitecture,
        "torch": survey.software.torch.version if survey.software.torch else None,
        "nvidia_driver": survey.software.nvidia_driver,
        "fingerprint": survey.fingerprint,
    }
    known = {name: value for name, value in facts.items() if value}
    return InfoMetricFamily("crosspoint_machine", "What this machine is.", value=known)


def _accelerator_info(cards: Iterable[Accelerator]) -> InfoMetricFamily:
    family = InfoMetricFamily("crosspoint_accelerator", "What an accelerator is.", labels=["accelerator"])
    for card in cards:
        facts = {name: getattr(card, name) for name in INFO_LABELS}
        family.add_metric([card.id], {name: str(value) for name, value in facts.items() if value})
    return family


def _ecc_errors(cards: Iterable[Accelerator]) -> Iterator[CounterMetricFamily]:
    text = "Memory errors since the driver was loaded."
    family = CounterMetricFamily("crosspoint_accelerator_ecc_errors", text, labels=["accelerator", "kind"])
    for card in cards:
        counts = (("corrected", card.ecc_corrected_errors), ("uncorrected", card.ecc_uncorrected_errors))
        for kind, count in counts:
            if count is not None:
                family.add_metric([card.id, kind], count)
    if family.samples:
        yield family


def _findings(survey: Survey) -> Iterator[GaugeMetricFamily]:
    severities = Counter(finding.severity for finding in survey.findings)
    samples = [((str(severity),), float(severities[severity])) for severity in reversed(Severity)]
    yield from _gauge("crosspoint_findings", "Findings of the last survey.", samples, ("severity",))
    codes = Counter((finding.code, str(finding.severity)) for finding in survey.findings)
    text = "Findings of the last survey, by code; docs/findings has a page for each."
    yield from _gauge("crosspoint_findings_by_code", text, [*codes.items()], ("code", "severity"))


def _probes(survey: Survey) -> Iterator[GaugeMetricFamily]:
    reports = survey.probes.items()
    times = [((name,), report.duration_seconds) for name, report in reports]
    yield from _gauge("crosspoint_probe_duration_seconds", "Time that a probe took.", times, ("probe",))
    outcomes = [
        ((name, str(outcome)), float(report.outcome is outcome)) for name, report in reports for outcome in Outcome
    ]
    text = "How a probe ended: 1 for the outcome it had, 0 for the others."
    yield from _gauge("crosspoint_probe_outcome", text, outcomes, ("probe", "outcome"))
