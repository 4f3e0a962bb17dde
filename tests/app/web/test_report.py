"""The experiment's report: one file, escaped, without network."""

import json
import re
from typing import Any

from app.web.report import render_report

EVIL = "</script><script>alert('1')</script><img src=x onerror=alert(2)>&\u2028"


def timing(seconds: float) -> dict[str, Any]:
    return {"median": seconds, "low": seconds * 0.9, "high": seconds * 1.2, "samples": [seconds]}


def make_result(text: str = "x") -> dict[str, Any]:
    variant = {
        "total_seconds": 28.6,
        "epoch_seconds": timing(1.43e-3),
        "shares": {"launch": 0.8, "transfer": 0.0, "synchronize": 0.0001, "compute": 0.1999},
        "final_loss": 0.06,
        "correct": 29,
        "accuracy": 29 / 30,
    }
    return {
        "name": text,
        "epochs": 20_000,
        "software": {"torch": text},
        "data": {"training_rows": 120, "held_out_rows": 30},
        "explanation": [text],
        "devices": [
            {
                "device": "cpu",
                "name": text,
                "outcome": "ok",
                "startup_seconds": 0.03,
                "reading_seconds": timing(1e-6),
                "ready_reading_seconds": timing(2e-7),
                "variants": [
                    {**variant, "log_every": 1, "readings": 20_000, "extra_seconds_per_reading": timing(1e-6)},
                    {**variant, "log_every": None, "readings": 0, "extra_seconds_per_reading": None},
                ],
                "loss_curve": [[1, 1.1], [20_000, 0.06]],
            },
            {"device": "cuda:0", "outcome": "failed", "reason": text},
        ],
    }


def test_nothing_in_the_report_comes_from_elsewhere() -> None:
    report = render_report(make_result())
    assert not re.search(r"<(?:link|img|iframe|script[^>]+src)", report)
    assert "url(" not in report
    assert "@import" not in report
    assert "default-src 'none'" in report


def test_text_from_a_result_is_escaped_everywhere() -> None:
    report = render_report(make_result(EVIL))
    assert "<img" not in report
    assert "<script>alert" not in report
    assert report.count("<script") == report.count("</script>") == 2


def test_the_data_inside_is_the_devices_that_ran() -> None:
    report = render_report(make_result(EVIL))
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', report, re.DOTALL)
    assert found
    assert [device["device"] for device in json.loads(found[1])["devices"]] == ["cpu"]
    assert json.loads(found[1])["devices"][0]["name"] == EVIL


def test_the_table_shows_each_way_of_reading_and_what_failed() -> None:
    report = render_report(make_result("why it failed"))
    assert "every epoch" in report
    assert "<td>20,000</td>" in report
    assert "&lt;0.1 %" in report
    assert "<td>0.06</td>" in report
    assert "<td>28.6 s</td>" in report
    assert "<td>1.43 ms (1.29 to 1.72)</td>" in report
    assert "why it failed" in report
    assert "29 of the 30 held-out rows" in report
