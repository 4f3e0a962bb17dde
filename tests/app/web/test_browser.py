"""The page and the report in a real browser, the page over a real service."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.surveyor import _unanswered
from app.web.report import render_report
from probes.hardware import Outcome
from tests.app.serving import running_server, wait_until
from tests.app.web.browser import Tab, needs_chromium, opened_tab, render
from tests.app.web.test_report import make_result
from tests.probes.machines import write_machine, x86_machine

pytestmark = needs_chromium

SERVE = "import sys; from app.cli.main import main; sys.exit(main(['serve', '--port', '0', '--no-calibrate-on-start']))"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service of our own."""
    environment = {**os.environ, "CROSSPOINT_DATA_DIR": str(tmp_path_factory.mktemp("data"))}
    server = subprocess.Popen((sys.executable, "-c", SERVE), stderr=subprocess.PIPE, text=True, env=environment)
    assert server.stderr is not None
    found = re.search(r"http://\S+", server.stderr.readline())
    assert found
    yield found[0]
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=30)


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
    assert "in line with the readings" in document


def test_two_complaints_are_told_once_each(service: str, tmp_path: Path) -> None:
    document, _ = render(
        f"{service}/?model=iris-mlp&batch_size=99999999&log_every=99999999999&effort=instant", tmp_path
    )
    told = text_of(document, "problem")
    assert (told.count("batch_size"), told.count("log_every")) == (1, 1)


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    with opened_tab(tmp_path / "profile") as tab:
        yield tab


def test_a_link_fills_what_can_be_chosen_and_nothing_else(service: str, tab: Tab) -> None:
    tab.open(f"{service}/?model=iris-mlp&own-model=resnet-50&batch_size=7")
    wait_until(lambda: tab.run("byId('batch-size').value") == "7", "the batch of the address is in the form")
    assert tab.run("byId('own-model').value") == ""


@pytest.mark.parametrize(("fingerprint", "told"), [("", "unknown"), ("f", "none found")])
def test_of_cards_that_nobody_looked_for_none_is_said_to_be_missing(
    service: str, tab: Tab, fingerprint: str, told: str
) -> None:
    survey = {**_unanswered("it took too long", Outcome.TIMEOUT).to_json(), "fingerprint": fingerprint}
    tab.open(service)
    assert dict(tab.run(f"machineFacts({json.dumps(survey)})"))["Accelerator"] == told


def is_pressed(tab: Tab) -> bool:
    return bool(tab.run("document.getElementById('watch').getAttribute('aria-pressed') === 'true'"))


def test_watching_goes_on_after_an_answer_that_was_none_of_the_services(service: str, tab: Tab) -> None:
    """As a proxy gives while the service starts anew."""
    tab.open(service)
    tab.ask("Fetch.enable", patterns=[{"urlPattern": "*/hardware/events"}])
    tab.press("watch")
    for _ in range(2):  # the events, and why there are none
        asked = tab.await_event("Fetch.requestPaused")["requestId"]
        tab.ask("Fetch.fulfillRequest", requestId=asked, responseCode=502)
    tab.await_text("now", "The service answered with status 502.")
    tab.ask("Fetch.disable")
    tab.await_text("now", "of memory usable")
    assert is_pressed(tab)
    tab.press("watch")
    assert (tab.text("now"), is_pressed(tab)) == ("", False)


def test_who_watches_a_captured_machine_is_told_why_there_is_nothing(tab: Tab, tmp_path: Path) -> None:
    root = write_machine(tmp_path / "root", x86_machine())
    with running_server(tmp_path / "data", sysroot=str(root)) as server:
        tab.open(server.url)
        tab.press("watch")
        tab.await_text("now", "A captured machine does not change")
        assert not is_pressed(tab)
