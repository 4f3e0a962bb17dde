"""An experiment's report: one HTML file with its data, charts and styles inside, for a browser without network."""

from __future__ import annotations

import html
import json
from string import Template
from typing import Any

from app.web.page import STATIC
from probes.figures import format_seconds, format_timing

Document = dict[str, Any]

STYLES = ("vendor/uplot/uPlot.min.css", "page.css")
SCRIPTS = ("vendor/uplot/uPlot.iife.min.js", "units.js", "chart.js", "report.js")
PARTS = ("launch", "transfer", "synchronize", "compute")


def render_report(result: Document) -> str:
    """result: the document of probes.microtrain.experiment. Everything from it is escaped."""
    ran = [device for device in result["devices"] if device["outcome"] == "ok"]
    return Template(_read("report.html")).substitute(
        title=_text(result["name"]),
        subtitle=_text(
            f"{result['epochs']:,} epochs on {', '.join(device['device'] for device in ran) or 'no device'}"
        ),
        styles="\n".join(map(_read, STYLES)),
        scripts="\n".join(map(_read, SCRIPTS)),
        explanation="".join(f"<p>{_text(sentence)}</p>" for sentence in result["explanation"]),
        accuracy=_text(_accuracy(ran, result["data"]["held_out_rows"])),
        tables="".join(_section(device) for device in result["devices"]),
        rows=_text(f"{result['data']['training_rows']} rows to train on, {result['data']['held_out_rows']} held out"),
        software=_text(", ".join(f"{name} {version}" for name, version in result["software"].items()) + "."),
        data=_inline_json({"devices": ran}),
    )


def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _text(value: object) -> str:
    return html.escape(str(value))


def _inline_json(document: Document) -> str:
    """JSON that may stand in a script element: no `<` can end it, and the line separators of old are escaped too."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _accuracy(devices: list[Document], rows: int) -> str:
    return " ".join(
        f"{device['device']}: {min(variant['correct'] for variant in device['variants'])} of the {rows} held-out rows "
        "named rightly."
        for device in devices
    )


def _section(device: Document) -> str:
    title = _text(f"{device['device']} {device.get('name') or ''}".strip())
    if device["outcome"] != "ok":
        return f"<section><h2>{title}</h2><p>{_text(device['reason'])}</p></section>"
    head = ("loss read", "readings", "whole run", "one epoch", "a reading adds", *PARTS, "loss at the end")
    cells = "".join(f'<th scope="col">{_text(name)}</th>' for name in head)
    rows = "".join(_row(variant) for variant in device["variants"])
    return (
        f"<section><h2>{title}</h2><p>{_text(_costs(device))}</p>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">'
        f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _costs(device: Document) -> str:
    return (
        f"One reading costs {format_timing(device['reading_seconds'])} right after a step and "
        f"{format_timing(device['ready_reading_seconds'])} on an idle device. Starting up, with the first "
        f"step, took {format_seconds(device['startup_seconds'])}, which is in no row."
    )


def _row(variant: Document) -> str:
    every, extra = variant["log_every"], variant["extra_seconds_per_reading"]
    values = (
        "never" if every is None else "every epoch" if every == 1 else f"every {every:,} epochs",
        f"{variant['readings']:,}",
        format_seconds(variant["total_seconds"]),
        format_timing(variant["epoch_seconds"]),
        "–" if extra is None else format_timing(extra) if extra["low"] > 0 else "within noise",
        *(_share(variant["shares"][part]) for part in PARTS),
        f"{variant['final_loss']:.3g}",
    )
    return f"<tr>{''.join(f'<td>{_text(value)}</td>' for value in values)}</tr>"


def _share(share: float) -> str:
    return "<0.1 %" if 0 < share < 0.001 else f"{share * 100:.1f} %"
