"""GET /metrics: for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from app.api.context import Context, ContextDep
from app.api.tally import BUCKETS, Tally

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def read_metrics(request: Request, context: ContextDep) -> Response:
    """The machine, its accelerators, requests and the process, in Prometheus' text format or in OpenMetrics.

    From what is known already: no driver is asked.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    context.crosspoint.live.keep()
    registry = CollectorRegistry()
    registry.register(_Collector(context))
    ProcessCollector(registry=registry)
    try:
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
    except (TypeError, ValueError):  # a version that it cannot compare
        encode, media_type = choose_encoder("")
    return Response(encode(registry), media_type=media_type)


class _Collector:
    """Made for one scrape: prometheus_client is imported with the first, not with the start."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def collect(self) -> Iterable[Metric]:
        lab = self._context.crosspoint.lab
        yield _requests(self._context.tally)
        yield _request_seconds(self._context.tally)
        yield _gauge("crosspoint_measurements_running", "Measurements that run now.", float(lab.measuring))
        yield _gauge("crosspoint_measurements_waiting", "Measurements that wait.", float(lab.waiting))
        reading = self._context.crosspoint.surveyor.latest
        if reading is not None:
            from app.api.machine_metrics import collect_machine

            yield _gauge("crosspoint_survey_age_seconds", "Time since the last survey began.", reading.age_seconds)
            yield from collect_machine(reading.survey, self._context.crosspoint.live.latest)


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
