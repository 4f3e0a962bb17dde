"""The API describes itself: every address, with units and examples that work, and without the network."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from app.advisor.recommendation import Breakdown, MemoryParts, Option
from app.advisor.settings import settings_for
from app.api.openapi import unit_of
from app.api.profile_schema import Profile
from benchmarks.estimates import RESULTS
from probes.hardware import (
    Accelerator,
    CacheSizes,
    CoreCluster,
    Cpu,
    DeviceFile,
    Driver,
    Finding,
    GpuProcess,
    Limits,
    Load,
    Memory,
    ProbeReport,
    Software,
    Storage,
    Survey,
    System,
    Torch,
    Xid,
)
from probes.profile import parse_profile
from probes.workload.description import Plan
from probes.workload.models import parse_model

PAGE = (Path(__file__).parents[3] / "docs" / "http-api.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def description(client: httpx.Client) -> dict[str, Any]:
    document: dict[str, Any] = client.get("/openapi.json").json()
    return document


def test_every_address_of_the_design_is_described(description: dict[str, Any]) -> None:
    expected = {
        "/hardware": {"get"},
        "/hardware/events": {"get"},
        "/hardware/history": {"get"},
        "/recommend": {"post"},
        "/measurements": {"get", "post"},
        "/measurements/{name}": {"get", "delete"},
        "/measurements/{name}/events": {"get"},
        "/calibrations": {"get", "post"},
        "/calibrations/{name}": {"get", "delete"},
        "/calibrations/{name}/events": {"get"},
        "/models": {"get"},
        "/models/{name}": {"get"},
        "/gpus/{name}": {"get"},
        "/livez": {"get"},
        "/readyz": {"get"},
        "/healthz": {"get"},
        "/metrics": {"get"},
    }
    described = {address: set(operations) for address, operations in description["paths"].items()}
    assert described.items() >= expected.items()


def test_every_endpoint_says_how_it_refuses(description: dict[str, Any]) -> None:
    operations = [operation for path in description["paths"].values() for operation in path.values()]
    for operation in operations:
        assert {"4XX", "5XX"} <= operation["responses"].keys()
        assert operation["responses"]["4XX"]["content"].keys() == {"application/problem+json"}
        assert "422" not in operation["responses"]
    assert "503" in description["paths"]["/readyz"]["get"]["responses"]


def test_every_reference_leads_somewhere(description: dict[str, Any]) -> None:
    names = set(re.findall(r"#/components/schemas/([\w-]+)", str(description)))
    assert names
    assert names <= description["components"]["schemas"].keys()


def test_every_number_that_has_a_unit_says_which(description: dict[str, Any]) -> None:
    silent = [
        f"{name}.{field}"
        for name, schema in description["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
        if (unit_of(field) or "") not in described.get("description", "")
    ]
    assert silent == []
    memory = description["components"]["schemas"]["MemoryParts"]["properties"]
    assert memory["peak_bytes"]["description"] == "The sum of the parts: what it takes at most. Bytes."


@pytest.mark.parametrize(
    ("field", "unit"),
    [
        ("memory_bandwidth_bytes_per_second", "Bytes per second."),
        ("step_seconds", "Seconds."),
        ("max_frequency_hz", "Hertz."),
        ("name", None),
        ("host", None),
        ("created_at", "RFC 3339, UTC."),
        ("measured_at", "Seconds since 1970, UTC."),
        ("medians_cross_at", "Samples a step."),
    ],
)
def test_a_fields_name_says_its_unit(field: str, unit: str | None) -> None:
    assert unit_of(field) == unit


def test_the_examples_work(client: httpx.Client, description: dict[str, Any]) -> None:
    content = description["paths"]["/recommend"]["post"]["requestBody"]["content"]["application/json"]
    assert len(content["examples"]) >= 3
    for example in content["examples"].values():
        answer = client.post("/recommend", json=example["value"])
        assert answer.status_code == 200, answer.text
        expected = description["components"]["schemas"]["Recommendation"]["required"]
        assert set(expected) <= answer.json().keys()


def test_an_answers_fields_are_those_described(client: httpx.Client, description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    assert client.get("/hardware").json().keys() == schemas["Survey"]["properties"].keys()
    models = client.get("/models").json()["models"]
    assert models[0].keys() == schemas["ModelRow"]["properties"].keys()
    assert client.get("/healthz").json().keys() <= schemas["Health"]["properties"].keys()


def test_a_profiles_fields_are_those_described(description: dict[str, Any]) -> None:
    kept = RESULTS / "2026-11-28-amd-epyc-zen-4-2-cores" / "estimates_all_sizes_profile_1.json"
    written = json.dumps(parse_profile(kept.read_bytes()).to_json())
    TypeAdapter(Profile).validate_json(written, strict=True)
    document = json.loads(written)
    schemas = description["components"]["schemas"]
    assert document.keys() == schemas["Profile"]["properties"].keys()
    for member in ("points", "networks", "contexts", "steps"):
        name = f"Profile{member.removesuffix('s').capitalize()}"
        assert document[member]
        assert document[member][0].keys() >= set(schemas[name]["required"])
        assert document[member][0].keys() <= schemas[name]["properties"].keys()


def test_settings_are_those_described(description: dict[str, Any]) -> None:
    plan = Plan("cpu", threads=2, channels_last=True, compiled=True, flush_denormal=True)
    option = Option(plan, True, None, "measured", None, None, Breakdown(), MemoryParts(), None)
    described = description["components"]["schemas"]["Settings"]["properties"]
    assert settings_for(option, pins=True).keys() == described.keys()


def test_the_page_of_the_api_loads_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.is_success
    assert not re.findall(r"https?://", page.text)
    for address in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert client.get(address).is_success, address


def test_the_catalogue_is_listed_and_its_models_can_be_asked_about(client: httpx.Client) -> None:
    models = client.get("/models").json()["models"]
    assert models[0]["name"] == "iris-mlp"
    for row in models:
        model = client.get(f"/models/{row['name']}").json()
        assert {name: model[name] for name in row} == row
        assert parse_model(model["model"]).key == parse_model(row["name"]).key
    assert client.get("/models/ResNet_50").json() == client.get("/models/resnet-50").json()


def test_metrics_count_requests_by_route(client: httpx.Client) -> None:
    client.get("/no/such/address")
    client.get("/models")
    text = client.get("/metrics").text
    assert re.search(r'crosspoint_requests_total\{method="GET",route="/models",status="200"\} ', text)
    assert 'route="(none)",status="404"' in text
    assert "/no/such/address" not in text
    assert "process_resident_memory_bytes" in text


def test_the_page_may_run_nothing_but_its_own(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    for address in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert client.get(address).is_success, address


@pytest.mark.parametrize("address", ["/", "/docs", "/docs/oauth2-redirect", "/static/page.html", "/static/report.html"])
def test_no_document_is_shown_in_a_frame_of_somebody_elses(client: httpx.Client, address: str) -> None:
    """Who clicks there would ask us from our own page."""
    page = client.get(address)
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["x-frame-options"] == "DENY"
    policy = page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert ("default-src 'self'" in policy) is not address.startswith("/docs")  # whose scripts stand in it


def test_the_page_about_http_names_every_address(description: dict[str, Any]) -> None:
    addresses = [address.replace("/measurements/{name}", "/measurements/{id}") for address in description["paths"]]
    addresses = [address.replace("/calibrations/{name}", "/calibrations/{id}") for address in addresses]
    requests = [
        f"{method.upper()} {address}"
        for address, path in zip(addresses, description["paths"].values(), strict=True)
        for method in path
    ]
    page = re.sub(r"`, `/", "`, `GET /", PAGE)
    assert [request for request in requests if f"`{request}`" not in page] == []


@pytest.mark.parametrize(
    "kind",
    [
        Survey,
        System,
        Cpu,
        CacheSizes,
        CoreCluster,
        Memory,
        Limits,
        Load,
        Accelerator,
        GpuProcess,
        Xid,
        Storage,
        Software,
        Torch,
        Driver,
        DeviceFile,
        Finding,
        ProbeReport,
    ],
)
def test_the_page_about_http_names_every_fact_of_the_machine(kind: type) -> None:
    assert [item.name for item in fields(kind) if f"`{item.name}`" not in PAGE] == []
