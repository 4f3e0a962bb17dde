"""What the page's form holds, asks and keeps in its address, in a real browser over a real service."""

import json
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from tests.app.api.test_profiles import a_profile_of_a_rig, content_of
from tests.app.serving import wait_until
from tests.app.web.browser import Tab, needs_chromium

pytestmark = needs_chromium

LAYERS = {"layers": [{"type": "linear", "in": 4, "out": 3}], "input_shape": [4]}
READ = "readQuestion(byId('question'))"


def open_form(tab: Tab, service: str, **fields: object) -> None:
    """The page at an address with these fields, which are in its form by then."""
    tab.open(f"{service}/?{urlencode({'batch_size': 7, **fields})}")
    wait_until(lambda: tab.run("byId('batch-size').value") == "7", "the batch of the address is in the form")


def test_a_link_fills_what_can_be_chosen_and_nothing_else(service: str, tab: Tab) -> None:
    open_form(tab, service, **{"model": "iris-mlp", "own-model": "resnet-50"})
    assert tab.run("byId('own-model').value") == ""


def test_everything_that_can_be_asked_can_be_chosen(service: str, tab: Tab) -> None:
    choices = {"model": "iris-mlp", "mode": "inference", "optimizer": "sgd", "precision": "bf16", "data": "pinned"}
    numbers = {"batch_size": 7, "log_every": 10, "time_limit_seconds": 2.5}
    run = {"samples": 1000, "epochs": 3}
    chosen = {**choices, **numbers, "effort": "thorough", "profile": "of nobody"}
    open_form(tab, service, **chosen, **run, devices="cpu, cuda:0,")
    assert tab.run(READ) == {**chosen, "dataset": run, "devices": ["cpu", "cuda:0"]}
    asked = httpx.get(f"{service}/openapi.json").json()["components"]["schemas"]["RecommendBody"]["properties"]
    assert set(tab.run(READ)) == set(asked)
    assert tab.run("document.querySelector('[name=devices]').closest('details').open")


def test_the_profiles_of_other_machines_can_be_chosen(service: str, tab: Tab) -> None:
    headers = {"Content-Type": "application/json"}
    httpx.put(f"{service}/profiles/rig", content=content_of(a_profile_of_a_rig()), headers=headers).raise_for_status()
    tab.open(service)
    tab.await_text("profile", "rig")


def test_the_models_are_asked_for_again_where_the_service_did_not_answer(service: str, tab: Tab) -> None:
    tab.ask("Fetch.enable", patterns=[{"urlPattern": "*/models"}])
    tab.open(service)
    asked = tab.await_event("Fetch.requestPaused")["requestId"]
    tab.ask("Fetch.fulfillRequest", requestId=asked, responseCode=502)
    tab.await_text("model", "The models cannot be listed.")
    tab.ask("Fetch.disable")
    tab.await_text("model", "iris-mlp")


def test_a_model_of_ones_own_counts_while_it_can_be_seen(service: str, tab: Tab) -> None:
    open_form(tab, service, model="iris-mlp")
    tab.run(f"writeOwn({json.dumps(json.dumps(LAYERS))})")
    assert (tab.run(READ)["model"], tab.run("byId('model').disabled")) == (LAYERS, True)
    tab.run("byId('own').open = false")
    wait_until(lambda: not tab.run("byId('model').disabled"), "a name can be chosen")
    assert tab.run(READ)["model"] == "iris-mlp"


def test_what_is_no_json_is_a_name_and_the_service_says_what_is_wrong_with_it(service: str, tab: Tab) -> None:
    open_form(tab, service, model="google/vit-base-patch16-224", effort="instant")
    said = "looks like a path or a name on a hub. Nothing is downloaded"
    tab.await_text("problem", said)
    tab.run("showProblem(''); byId('ask').focus()")
    tab.press("ask")
    tab.await_text("problem", said)
    assert tab.run("document.activeElement.id") == "ask"  # where it was, to ask again
    tab.run("byId('own-model').value = '{'")
    tab.press("ask")
    tab.await_text("problem", "The model's JSON cannot be read")
    for number, said in (("Infinity", "as transformers does now"), ("1e999", 'the number at "limit" is too large')):
        text = f'{{"model_type": "mamba2", "limit": {number}}}'
        tab.run(f"byId('own-model').value = {json.dumps(text)}")
        tab.press("ask")
        tab.await_text("problem", said)
    config = {"model_type": "bert"}
    assert tab.run(f"parseOwn({json.dumps(json.dumps(config))})") == {"huggingface": config}


def test_the_address_holds_a_model_of_ones_own(service: str, tab: Tab) -> None:
    open_form(tab, service, mode="inference", effort="instant")
    assert not tab.text("verdict")  # no model was named
    tab.run(f"writeOwn({json.dumps(json.dumps(LAYERS))}); byId('question').requestSubmit()")
    tab.await_text("workload", "inference, batch 7")
    kept = parse_qs(urlsplit(tab.run("location.href")).query)
    assert json.loads(kept["model"][0]) == LAYERS
    asked = tab.run(READ)
    open_form(tab, service, **{**{name: value for name, (value,) in kept.items()}, "effort": "quick"})
    assert tab.run(READ) == {**asked, "effort": "quick"}


def test_a_model_that_is_too_long_for_the_address_leaves_the_rest_in_it(service: str, tab: Tab) -> None:
    open_form(tab, service, model="iris-mlp")
    long = {**LAYERS, "layers": LAYERS["layers"] * 100}
    tab.run(f"writeOwn({json.dumps(json.dumps(long))})")
    assert tab.run(f"keepInAddress([...new FormData(byId('question'))], {READ})") is False
    assert {"batch_size=7", "mode=training"} <= set(urlsplit(tab.run("location.href")).query.split("&"))
    assert "model=" not in tab.run("location.search")


def test_the_address_tells_what_was_asked_whatever_is_chosen_meanwhile(service: str, tab: Tab) -> None:
    open_form(tab, service, mode="inference", model="iris-mlp", effort="quick")
    tab.run("byId('effort').value = 'instant'; byId('question').requestSubmit(); byId('batch-size').value = '8'")
    tab.await_text("workload", "inference, batch 7")
    wait_until(lambda: "effort=instant" in tab.run("location.search"), "the address is written")
    assert "batch_size=7" in tab.run("location.search")


def test_a_model_counts_in_the_address_as_it_is_escaped_there(service: str, tab: Tab) -> None:
    open_form(tab, service, model="iris-mlp")
    assert tab.run("keepInAddress([], {model: 'a'.repeat(3900)})") is True
    assert tab.run("keepInAddress([], {model: '模'.repeat(1000)})") is False


def test_what_a_browser_refuses_is_unfolded(service: str, tab: Tab) -> None:
    open_form(tab, service, model="iris-mlp", log_every=3)
    tab.run("byId('own').nextElementSibling.open = false; document.querySelector('[name=log_every]').value = 0")
    tab.press("ask")
    wait_until(lambda: tab.run("byId('own').nextElementSibling.open"), "the field can be seen")


def test_the_curves_are_told_in_words_and_as_a_table(service: str, tab: Tab) -> None:
    plan = {"device": "cpu", "precision": "fp32", "threads": 1, "step_seconds": [0.001, 0.5]}
    answer = {
        "curves": {"batch_sizes": [1, 2048], "plans": [plan]},
        "crossovers": [],
        "workload": {"data": "pageable"},
    }
    tab.open(service)
    tab.run(f"showCurves({json.dumps(answer)})")
    told = tab.run("byId('chart').getAttribute('aria-label')")
    assert told == "one step over batch size. cpu fp32, 1 thread: 1 ms at 1, 500 ms at 2048."
    rows = tab.run(
        "[...document.querySelectorAll('#curves tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert rows == [["batch size", "cpu fp32, 1 thread"], ["1", "1 ms"], ["2,048", "500 ms"]]


def test_no_two_lines_look_alike_in_the_chart_or_in_its_legend(service: str, tab: Tab) -> None:
    """The colours began anew with the seventh line, and the legend showed all of them as if they were solid."""
    plans = [
        {"device": "cpu", "precision": "fp32", "threads": count + 1, "step_seconds": [1, 2]} for count in range(14)
    ]
    answer = {
        "curves": {"batch_sizes": [1, 2048], "plans": plans},
        "crossovers": [],
        "workload": {"data": "pageable"},
    }
    tab.open(service)
    tab.run(f"draw = chart.draw; chart.draw = (...what) => (plot = draw(...what)); showCurves({json.dumps(answer)})")
    lines = tab.run("plot.series.slice(1).map((series) => `${series.stroke()} ${series.dash}`)")
    of_mark = "(mark) => { const css = getComputedStyle(mark); return `${css.borderTopColor} ${css.borderTopStyle}`; }"
    marks = tab.run(f"[...document.querySelectorAll('#chart .u-series .u-marker')].slice(1).map({of_mark})")
    assert len(set(lines)) == len(set(marks)) == len(plans)
    assert [mark.split()[-1] for mark in marks] == ["solid"] * 6 + ["dashed"] * 6 + ["dotted"] * 2


def test_no_effort_is_cut_off(service: str, tab: Tab) -> None:
    tab.ask("Emulation.setDeviceMetricsOverride", width=1100, height=800, deviceScaleFactor=1, mobile=False)
    tab.open(service)
    shown = tab.run("byId('effort').offsetWidth")
    assert tab.run("byId('effort').style.width = 'max-content'; byId('effort').offsetWidth") <= shown


def test_the_tick_of_the_batch_asked_for_is_printed_over_no_other(service: str, tab: Tab) -> None:
    tab.open(service)
    sizes = sorted([2**power for power in range(21)] + [120])
    ticks = [[size, f"{size:,}"] for size in sizes]
    tab.run(f"drawn = {json.dumps({'x': sizes, 'xLog': True, 'xTicks': ticks, 'xTold': 120, 'series': []})}; 0")
    shown = tab.run("chart.draw(byId('chart'), {...drawn, yFormat: String}).axes[0].values()")
    assert "120" in shown
    assert "128" not in shown
    assert len(shown) > 2


def test_other_ways_of_feeding_a_device_are_told_beside_the_one_that_was_asked_for(service: str, tab: Tab) -> None:
    """As on the command line."""
    plans = {
        "from": {"device": "cpu", "precision": "fp32", "threads": 2},
        "to": {"device": "cuda:0", "precision": "bf16"},
    }
    told = {**plans, "kind": "at", "batch_size": 3, "low": 2, "high": 4, "looked_at": [1, 64], "basis": "probed"}
    never = {**told, "kind": "never", "batch_size": None, "low": None, "high": None, "data": "resident"}
    rows = [never, {**told, "data": "pageable"}, {**told, "data": "pinned"}]
    tab.open(service)
    assert tab.run(f"describeCrossovers({json.dumps(rows)}, 'pageable')") == [
        "cuda:0 bf16 overtakes cpu fp32, 2 threads at batch 3 (2 to 4) (data pageable, probed)"
        "; not for good with data resident; the same with data pinned."
    ]
