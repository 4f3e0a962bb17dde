"""What the page says of the machine, and when it reads that again, in a real browser over a real service."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.surveyor import _unanswered
from probes.diagnose import Facts, diagnose
from probes.hardware import Outcome, ProbeReport
from tests.app.serving import running_server, wait_until
from tests.app.web.browser import Tab, needs_chromium
from tests.probes.diagnose.situations import HEALTHY
from tests.probes.machines import write_machine, x86_machine

pytestmark = needs_chromium

NO_SURVEY = _unanswered("it took too long", Outcome.TIMEOUT)
NO_CARD = replace(HEALTHY, accelerators=(), software=replace(HEALTHY.software, drivers=()))


def survey_of(facts: Facts) -> dict[str, Any]:
    """The document of GET /hardware of a machine with these facts and no cards."""
    probes = dict(facts.probes)
    return replace(NO_SURVEY, fingerprint="f", findings=tuple(diagnose(facts)), probes=probes).to_json()


def facts_told(tab: Tab, survey: dict[str, Any]) -> dict[str, str]:
    return dict(tab.run(f"machineFacts({json.dumps(survey)})"))


def test_of_cards_that_nobody_looked_for_none_is_said_to_be_missing(service: str, tab: Tab) -> None:
    silent = ProbeReport(Outcome.TIMEOUT, 1.0, "NVML took too long")
    hanging = replace(NO_CARD, probes={**HEALTHY.probes, "nvidia": silent})
    tab.open(service)
    assert facts_told(tab, survey_of(NO_CARD))["Accelerator"] == "none found"
    told = facts_told(tab, survey_of(hanging))
    assert (told["Accelerator"], told["Not read: nvidia"]) == ("unknown", "timeout, NVML took too long")
    assert facts_told(tab, NO_SURVEY.to_json())["Accelerator"] == "unknown"


def test_a_findings_weight_is_a_word(service: str, tab: Tab) -> None:
    (finding,) = NO_SURVEY.to_json()["findings"]
    tab.open(service)
    told = tab.run(f"findingCard({json.dumps(finding)}).textContent")
    assert told.startswith("error: Nothing is known of this machine")
    assert "[no-survey]" in told


@contextmanager
def answering(tab: Tab, status: int, body: bytes) -> Iterator[None]:
    """The page's next question about the machine, which what is done inside sets off, has this answer."""
    tab.ask("Fetch.enable", patterns=[{"urlPattern": "*/hardware"}])
    yield
    asked = tab.await_event("Fetch.requestPaused")["requestId"]
    tab.ask("Fetch.fulfillRequest", requestId=asked, responseCode=status, body=b64encode(body).decode())
    tab.ask("Fetch.disable")


def test_the_machine_is_read_again_when_it_may_have_changed(service: str, tab: Tab) -> None:
    survey = NO_SURVEY.to_json()
    (finding,) = survey["findings"]
    changes = {
        "a question": "byId('effort').value = 'instant'; byId('question').requestSubmit()",
        "a look": "document.dispatchEvent(new Event('visibilitychange'))",
        "a new card": "compareCards([{id: 'GPU-1'}])",
    }
    tab.open(service)
    tab.await_text("machine", "usable of")
    wait_until(lambda: tab.run("byId('model').value") != "", "the models are there")
    for cause, script in changes.items():
        told = {**survey, "findings": [{**finding, "message": f"After {cause}."}]}
        with answering(tab, 200, json.dumps(told).encode()):
            tab.run(script)
        tab.await_text("findings", f"After {cause}.")


def test_a_service_that_did_not_answer_is_asked_again(service: str, tab: Tab) -> None:
    tab.open(service)
    tab.await_text("machine", "usable of")
    tab.ask("Fetch.enable", patterns=[{"urlPattern": "*/hardware"}])
    tab.run("showMachine(); 0")
    asked = tab.await_event("Fetch.requestPaused")["requestId"]
    tab.ask("Fetch.fulfillRequest", requestId=asked, responseCode=502)
    tab.await_text("findings", "The service answered with status 502.")
    tab.ask("Fetch.disable")
    tab.await_text("machine", "usable of")
    assert "502" not in tab.text("findings")


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
    tab.await_text("watch-status", "The service answered with status 502.")
    tab.ask("Fetch.disable")
    tab.await_text("now", "of memory usable")
    assert tab.text("watch-status") == ""
    assert is_pressed(tab)
    tab.press("watch")
    assert (tab.text("now"), is_pressed(tab)) == ("", False)


def test_who_watches_a_captured_machine_is_told_why_there_is_nothing(tab: Tab, tmp_path: Path) -> None:
    root = write_machine(tmp_path / "root", x86_machine())
    with running_server(tmp_path / "data", sysroot=str(root)) as server:
        tab.open(server.url)
        tab.press("watch")
        tab.await_text("watch-status", "A captured machine does not change")
        assert not is_pressed(tab)
