"""GET /metrics as the reference parser reads it, and as Prometheus' own linter would judge it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields, replace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from app.api.machine_metrics import collect_machine
from probes.hardware import Accelerator, Finding, Load, Memory, Outcome, ProbeReport, Severity, Survey
from probes.live import Live, LiveAccelerator
from tests.app.serving import wait_until
from tests.probes.test_fingerprint import SURVEY

# Of promtool's `check metrics` (prometheus/client_golang, testutil/promlint): units, types and spelling in names.
OTHER_UNITS = re.compile(
    r"_(milli|micro|nano|kilo|mega|giga|kibi|mebi|gibi)?(seconds|bytes|watts|hertz|meters|grams|celsius)(_|$)"
)
NOT_BASE = re.compile(
    r"_(minutes|hours|days|bits|percent|percentage|fahrenheit|kelvin|ms|us|ns|sec|s|kb|mb|gb|hz|w|c)(_|$)"
)
TYPES = re.compile(r"_(counter|gauge|histogram|summary|untyped)(_|$)")
NAME = re.compile(r"[a-z][a-z0-9_]*")

CARD = replace(
    SURVEY.accelerators[0],
    memory_total_bytes=12 << 30,
    memory_free_bytes=5 << 30,
    utilization_percent=97.0,
    temperature_celsius=71.0,
    power_watts=320.5,
    throttle_reasons=("held down by its power limit",),
    ecc_uncorrected_errors=2,
    torch_device="cuda:0",
    usable=True,
)
MACHINE = replace(
    SURVEY,
    accelerators=(CARD, Accelerator("pci-0000:02:00.0")),
    load=Load(1.0, 0.25, 0.5, 1.0),
    memory=Memory(total_bytes=64 << 30, usable_bytes=32 << 30),
    findings=(Finding("no-gpu", Severity.INFO, "machine", "There is none."),),
    probes={"cpu": ProbeReport(Outcome.OK, 0.002), "nvidia": ProbeReport(Outcome.TIMEOUT, None, "it hangs")},
)


def registry_of(survey: Survey, live: Live | None = None) -> CollectorRegistry:
    class Machine:
        def collect(self) -> Iterable[Metric]:
            return collect_machine(survey, live)

    registry = CollectorRegistry()
    registry.register(Machine())
    return registry


def samples_of(survey: Survey, live: Live | None = None) -> dict[tuple[str, ...], float]:
    """(name, label values …) -> value, by the reference parser."""
    text = generate_latest(registry_of(survey, live)).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def lint(families: Iterable[Metric]) -> list[str]:
    troubles = []
    for family in families:
        name = family.name
        exposed = {sample.name for sample in family.samples}
        rules = {
            "has no help": bool(family.documentation),
            "is not spelled in lower case with underscores": NAME.fullmatch(name) is not None,
            "has a unit with a prefix": not any(found[1] for found in OTHER_UNITS.finditer(name)),
            "has no base unit": NOT_BASE.search(name) is None,
            "has its type in the name": TYPES.search(name) is None,
            "ends in _total and is no counter": family.type == "counter" or not name.endswith("_total"),
            "is a counter without _total": family.type != "counter" or all("_total" in item for item in exposed),
            "is a ratio beyond 0 to 1": not name.endswith("_ratio") or all(0 <= s.value <= 1 for s in family.samples),
        }
        troubles += [f"{name} {trouble}" for trouble, fine in rules.items() if not fine]
    return troubles


def test_a_machine_is_told_in_base_units() -> None:
    samples = samples_of(MACHINE)
    assert samples["crosspoint_cpu_usable_cores",] == 16
    assert samples["crosspoint_cpu_steal_ratio",] == 0.25
    assert samples["crosspoint_memory_total_bytes",] == 64 << 30
    assert samples["crosspoint_accelerator_memory_total_bytes", CARD.id] == 12 << 30
    assert samples["crosspoint_accelerator_utilization_ratio", CARD.id] == 0.97
    assert samples["crosspoint_accelerator_temperature_celsius", CARD.id] == 71
    assert samples["crosspoint_accelerator_power_watts", CARD.id] == 320.5
    assert samples["crosspoint_accelerator_throttled", CARD.id] == 1
    assert samples["crosspoint_accelerator_ecc_errors_total", CARD.id, "uncorrected"] == 2
    assert samples["crosspoint_findings_by_code", "no-gpu", "info"] == 1
    assert samples["crosspoint_probe_outcome", "timeout", "nvidia"] == 1
    assert samples["crosspoint_probe_outcome", "ok", "nvidia"] == 0
    assert samples["crosspoint_probe_duration_seconds", "cpu"] == 0.002


def test_what_is_not_known_is_no_sample() -> None:
    samples = samples_of(MACHINE)
    unknown = [key for key in samples if "pci-0000:02:00.0" in key and key[0] != "crosspoint_accelerator_info"]
    assert unknown == []
    assert ("crosspoint_memory_limit_bytes",) not in samples
    assert ("crosspoint_probe_duration_seconds", "nvidia") not in samples


def test_what_is_newer_than_the_survey_is_told() -> None:
    cooler = LiveAccelerator(CARD.id, utilization_percent=3.0, temperature_celsius=40.0, throttle_reasons=())
    live = Live("2026-11-21T17:00:01Z", Load(busy_fraction=0.125), Memory(usable_bytes=1 << 30), (cooler,))
    samples = samples_of(MACHINE, live)
    assert samples["crosspoint_accelerator_utilization_ratio", CARD.id] == 0.03
    assert samples["crosspoint_accelerator_throttled", CARD.id] == 0
    assert ("crosspoint_accelerator_power_watts", CARD.id) not in samples, "what is old is not now"
    assert samples["crosspoint_memory_usable_bytes",] == 1 << 30
    assert samples["crosspoint_cpu_busy_ratio",] == 0.125
    assert not [key for key in samples if "pci-0000:02:00.0" in key], "it disappeared"


def test_both_formats_pass_the_linter() -> None:
    registry = registry_of(MACHINE)
    assert lint(text_string_to_metric_families(generate_latest(registry).decode())) == []
    assert lint(parse_openmetrics(generate_openmetrics(registry).decode())) == []


ANY_TEXT = st.text(max_size=40)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_any_name_can_be_told(name: str, key: str, driver: str) -> None:
    card = replace(CARD, id=key, name=name, driver_version=driver)
    text = generate_latest(registry_of(replace(MACHINE, accelerators=(card, card)))).decode(errors="replace")
    assert list(text_string_to_metric_families(text))


def test_labels_are_few() -> None:
    """One series a card and fact: nothing that changes all the time is a label."""
    times = {item.name for item in fields(LiveAccelerator)} - {"id", "name", "torch_device"}
    labels = {
        label for family in registry_of(MACHINE).collect() for sample in family.samples for label in sample.labels
    }
    assert labels & times == set()
    assert "hostname" not in labels


@pytest.mark.parametrize(
    ("accept", "parse", "kind"),
    [
        ("", text_string_to_metric_families, "text/plain"),
        ('text/plain; version="0.0.4"', text_string_to_metric_families, "text/plain"),
        ("application/openmetrics-text; version=1.0.0", parse_openmetrics, "application/openmetrics-text"),
    ],
)
def test_the_service_answers_in_the_format_asked_for(client: httpx.Client, accept: str, parse, kind: str) -> None:  # type: ignore[no-untyped-def]
    wait_until(lambda: client.get("/readyz").is_success, "readiness")
    client.get("/hardware")
    answer = client.get("/metrics", headers={"Accept": accept})
    assert answer.headers["content-type"].startswith(kind)
    families = list(parse(answer.text))
    names = {sample.name for family in families for sample in family.samples}
    assert {"crosspoint_cpu_usable_cores", "crosspoint_machine_info", "crosspoint_requests_total"} <= names
    ours = [family for family in families if family.name.startswith("crosspoint")]
    assert lint(ours) == []


def test_scrapes_have_what_changes_read_meanwhile(client: httpx.Client) -> None:
    def is_busy_known() -> bool:
        return "crosspoint_cpu_busy_ratio " in client.get("/metrics").text

    wait_until(is_busy_known, "how busy the CPU is")
