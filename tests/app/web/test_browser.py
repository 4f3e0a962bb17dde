"""The page and the report in a real browser, the page over a real service."""

import re
from pathlib import Path

import pytest

from app.web.report import render_report
from tests.app.web.browser import needs_chromium, render
from tests.app.web.test_report import make_result

pytestmark = needs_chromium


def text_of(document: str, place: str) -> str:
    """The text inside the element with this id, tags left out."""
    found = re.search(rf'id="{place}"[^>]*>(.*?)</(?:p|div|table|section)>', document, re.DOTALL)
    assert found, place
    return re.sub(r"<[^>]+>", " ", found[1]).strip()


def test_a_question_in_the_address_is_answered_on_the_page(service: str, tmp_path: Path) -> None:
    document, console = render(f"{service}/?model=iris-mlp&batch_size=120&effort=instant", tmp_path)
    assert console == []
    assert text_of(document, "verdict")
    assert "cpu fp32" in text_of(document, "options")
    assert "usable" in text_of(document, "machine")
    assert re.search(r'<section id="answer"(?![^>]*hidden)', document)


def test_an_unknown_model_is_a_sentence_with_near_names(service: str, tmp_path: Path) -> None:
    document, _ = render(f"{service}/?model=iris-mlq&effort=instant", tmp_path)
    assert "iris-mlp" in text_of(document, "problem")
    assert re.search(r'<section id="answer"[^>]*hidden', document)


@pytest.mark.parametrize("efforts", ["effort=thorough", "effort=instant&effort=thorough"])
def test_a_link_starts_no_measurement(service: str, tmp_path: Path, efforts: str) -> None:
    document, _ = render(f"{service}/?model=iris-mlp&{efforts}", tmp_path)
    assert re.search(r'<section id="answer"[^>]*hidden', document)
    assert text_of(document, "problem") == ""


def test_the_page_of_the_api_runs_under_its_policy(service: str, tmp_path: Path) -> None:
    document, console = render(f"{service}/docs", tmp_path)
    assert console == []
    assert re.search(r'data-path="/recommend"', document)


def test_the_report_draws_its_charts_without_any_network(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text(render_report(make_result("</script><b>x")), encoding="utf-8")
    document, console = render(report.as_uri(), tmp_path / "profile")
    assert console == []
    assert document.count("<canvas") == 2
    assert re.search(
        r'id="times"[^>]*aria-label="whole run over readings of the loss. cpu: 28.6 s at 0, 28.6 s at 20,000.', document
    )
    assert re.search(r'id="losses"[^>]*aria-label="cross-entropy over epoch. cpu: 1.1 at 1, 0.06 at 20,000."', document)
    assert "in line with the readings" in document


def test_two_complaints_are_told_once_each(service: str, tmp_path: Path) -> None:
    document, _ = render(
        f"{service}/?model=iris-mlp&batch_size=99999999&log_every=99999999999&effort=instant", tmp_path
    )
    told = text_of(document, "problem")
    assert (told.count("batch_size"), told.count("log_every")) == (1, 1)
