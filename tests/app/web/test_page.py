"""The page's own files."""

import re

import httpx
import pytest

from app.web.page import STATIC, read_page


def test_the_page_loads_only_files_that_are_there() -> None:
    page = read_page().decode()
    loaded = re.findall(r'(?:src|href)="/static/([^"]+)"', page)
    assert len(loaded) >= 5
    assert all((STATIC / name).is_file() for name in loaded)


def test_the_page_runs_under_a_policy_that_forbids_inline_code() -> None:
    page = read_page().decode()
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"<style|\sstyle=|\son\w+=", page)
    assert "http://" not in page
    assert "https://" not in page


def test_every_field_has_a_label() -> None:
    page = read_page().decode()
    inside_labels = "".join(re.findall(r"<label.*?</label>", page, re.DOTALL))
    fields = re.findall(r"<(?:input|select|textarea)\b", page)
    assert len(re.findall(r"<(?:input|select|textarea)\b", inside_labels)) == len(fields) >= 8


def test_scripts_never_write_html() -> None:
    scripts = list(STATIC.glob("*.js"))
    assert scripts
    for script in scripts:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", script.read_text())


def test_the_vendored_library_stands_with_its_licence_and_version() -> None:
    vendored = STATIC / "vendor" / "uplot"
    assert "(v1.6.32)" in (vendored / "uPlot.iife.min.js").read_text(encoding="utf-8")[:200]
    assert "MIT License" in (vendored / "LICENSE").read_text(encoding="utf-8")


def test_a_browser_asks_whether_a_file_has_changed_before_it_uses_its_own_copy(client: httpx.Client) -> None:
    """An updated page must not run with the scripts of the last version."""
    assert client.get("/").headers["cache-control"] == "no-cache"
    for name in ("page.js", "page.css", "vendor/uplot/uPlot.iife.min.js"):
        first = client.get(f"/static/{name}")
        again = client.get(f"/static/{name}", headers={"If-None-Match": first.headers["etag"]})
        assert [answer.headers["cache-control"] for answer in (first, again)] == ["no-cache", "no-cache"]
        assert (first.status_code, again.status_code) == (200, 304)


@pytest.mark.parametrize("asked", ["bytes=0-9", "bytes=5-1", "bytes=999999999-", "lines=1-2", "rubbish"])
def test_a_file_is_given_whole_whichever_part_of_it_is_asked_for(client: httpx.Client, asked: str) -> None:
    whole = client.get("/static/page.css")
    assert whole.headers["accept-ranges"] == "none"
    for method in ("GET", "HEAD"):
        answer = client.request(method, "/static/page.css", headers={"Range": asked})
        assert (answer.status_code, answer.headers["content-length"]) == (200, whole.headers["content-length"])
