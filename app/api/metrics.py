"""GET /metrics: for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

from fastapi import APIRouter, Response

from app.api.context import Context, ContextDep
from app.api.tally import BUCKETS, Tally

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def read_metrics(context: ContextDep) -> Response:
    """Requests, their times, the lab's queue and the process, in Prometheus' text format."""
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(context))
    ProcessCollector(registry=registry)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Collector:
    """Made for one scrape: prometheus_client is imported with the first, not with the start."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        lab = self._context.crosspoint.lab
        yield _requests(self._context.tally)
        yield _request_seconds(self._context.tally)
        yield _gauge("crosspoint_measurements_running", "Measurements that run now.", float(lab.measuring))
        yield _gauge("crosspoint_measurements_waiting", "Measurements that wait.", float(lab.waiting))
        findings = GaugeMetricFamily("crosspoint_findings", "Findings of the last survey.", labels=["severity"])
        reading = self._context.crosspoint.surveyor.latest
        for severity in ("error", "warning", "info"):
            found = reading.survey.findings if reading is not None else ()
            findings.add_metric([severity], sum(finding.severity == severity for finding in found))
        yield findings


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=value)


def _requests(tally: Tally) -> CounterMetricFamily:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily("crosspoint_requests", "Requests answered.", labels=["method", "route", "status"])
    for (method, route, status), count in tally.requests.items():
        family.add_metric([method, route, str(status)], count)
    return family


def _request_seconds(tally: Tally) -> HistogramMetricFamily:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily("crosspoint_request_seconds", "Time to answer, in seconds.", labels=["route"])
    for route, counts in tally.buckets.items():
        bounds = [*(str(bound) for bound in BUCKETS), "+Inf"]
        family.add_metric(
            [route], list(zip(bounds, accumulate(counts), strict=True)), sum_value=float(tally.seconds[route])
        )
    return family
