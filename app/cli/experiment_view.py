"""The experiment's result for people: a table a device, then what it means."""

from __future__ import annotations

from typing import Any

from app.cli.output import Column, print_heading, print_table, print_text
from app.cli.units import format_count, format_seconds, format_share, format_timing

Document = dict[str, Any]

COLUMNS = (
    Column("loss read"),
    Column("readings", "right"),
    Column("time", "right"),
    Column("one epoch", "right", needed=False),
    Column("launch", "right"),
    Column("transfer", "right", needed=False),
    Column("synchronize", "right"),
    Column("compute", "right"),
    Column("held out", "right", needed=False),
)


def show_experiment(result: Document) -> None:
    """result: the document of probes.microtrain.experiment."""
    for device in result["devices"]:
        if device["outcome"] == "ok":
            _show_device(device, result)
        else:
            print_text(device["reason"])
    for sentence in result["explanation"]:
        print_text(sentence)
        print_text()
    print_heading(describe_accuracy(result))


def _show_device(device: Document, result: Document) -> None:
    print_heading(f"{device_title(device)}: {format_count(result['epochs'])} epochs each")
    print_table(COLUMNS, [_row(variant, result) for variant in device["variants"]])
    print_text(
        f"One reading costs {format_timing(device['reading_seconds'])} right after a step, "
        f"{format_timing(device['ready_reading_seconds'])} on an idle device. Starting up, with the first "
        f"step, took {format_seconds(device['startup_seconds'])}, which is not in the table."
    )
    print_text()


def device_title(device: Document) -> str:
    threads = f", {device['threads']} thread" if device["threads"] else ""
    return f"{device['device']} ({device['name']})" if device["name"] else f"{device['device']}{threads}"


def say_log_every(log_every: int | None) -> str:
    return "never" if log_every is None else "every epoch" if log_every == 1 else f"every {log_every:,} epochs"


def _row(variant: Document, result: Document) -> list[str]:
    shares = variant["shares"]
    return [
        say_log_every(variant["log_every"]),
        f"{variant['readings']:,}",
        format_seconds(variant["total_seconds"]),
        format_timing(variant["epoch_seconds"]),
        *(format_share(shares[part]) for part in ("launch", "transfer", "synchronize", "compute")),
        f"{variant['correct']} of {result['data']['held_out_rows']}",
    ]


def describe_accuracy(result: Document) -> str:
    """How many of the held-out rows are named rightly, per device where they differ."""
    rows = result["data"]["held_out_rows"]
    counts = {
        device["device"]: {variant["correct"] for variant in device["variants"]}
        for device in result["devices"]
        if device["outcome"] == "ok"
    }
    every = set().union(*counts.values())
    if not every:
        return "No device finished the experiment."
    span = str(min(every)) if len(every) == 1 else f"{min(every)} to {max(every)}"
    return f"Accuracy on the {rows} held-out rows: {span} right ({min(every) / rows:.0%})."
