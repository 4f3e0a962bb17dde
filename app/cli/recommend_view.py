"""A recommendation for people: the verdict first, then what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.cli.output import Column, print_bullets, print_heading, print_pairs, print_table, print_text, print_verbatim
from app.cli.units import format_bytes, format_count, format_share, format_timing

Document = dict[str, Any]

OPTION_COLUMNS = (
    Column("plan"),
    Column("one step", "right"),
    Column("samples/s", "right"),
    Column("basis"),
    Column("memory at peak", "right", needed=False),
    Column("largest batch", "right", needed=False),
)


def show_recommendation(answer: Document) -> None:
    """answer: the document of POST /recommend."""
    print_heading(answer["verdict"])
    print_text(_workload_line(answer))
    print_table(OPTION_COLUMNS, [_option_row(option) for option in answer["options"]])
    _show_notes(answer["options"])
    _show_list("Crossovers", describe_crossovers(answer["crossovers"], answer["workload"]["data"]))
    _show_list("Why", [reason["text"] for reason in answer["reasons"]])
    _show_settings(answer["settings"])
    if answer["snippet"]:
        print_heading("To paste")
        print_verbatim(answer["snippet"])


def plan_label(plan: Document) -> str:
    """`cpu fp32, 2 threads`, as everywhere."""
    from probes.workload.description import Plan

    return Plan.from_json(plan).label


def describe_crossovers(crossovers: Sequence[Document], asked: str) -> list[str]:
    """A sentence a pair of plans, fed as was asked for (where that is not told, as the first), with what other ways of
    feeding the device make of it."""
    pairs: dict[tuple[str, str], list[Document]] = {}
    for crossover in crossovers:
        pairs.setdefault((plan_label(crossover["from"]), plan_label(crossover["to"])), []).append(crossover)
    return [_describe_pair(rows, asked) for rows in pairs.values()]


def _describe_pair(rows: Sequence[Document], asked: str) -> str:
    told = next((row for row in rows if row["data"] == asked), rows[0])
    ways: dict[str, list[str]] = {}
    for row in rows:
        if row is not told:
            ways.setdefault("the same" if _where(row) == _where(told) else _where(row), []).append(row["data"])
    otherwise = "".join(f"; {where} with data {' and '.join(data)}" for where, data in ways.items())
    return f"{describe_crossover(told).removesuffix('.')}{otherwise}."


def _where(crossover: Document) -> str:
    return {
        "at": f"at batch {_around(crossover)}",
        "always": "at every batch looked at",
        "never": "not for good",
        "undecided": "nobody can tell",
    }[crossover["kind"]]


def describe_crossover(crossover: Document) -> str:
    """One sentence a crossover; it never says more than the kind does."""
    start, to = plan_label(crossover["from"]), plan_label(crossover["to"])
    smallest, largest = crossover["looked_at"]
    sentence = {
        "at": f"{to} overtakes {start} at batch {_around(crossover)}",
        "always": f"{to} is faster than {start} at every batch looked at, from {smallest} to {largest}",
        "never": f"{to} does not overtake {start} for good from batch {smallest} to {largest}: it is slower at the "
        "largest",
        "undecided": f"Whether {to} overtakes {start} for good cannot be told: at batch {largest}, the largest looked "
        "at, their times overlap",
    }[crossover["kind"]]
    extras = []
    if (likeliest := crossover.get("medians_cross_at")) and crossover["kind"] == "undecided":
        extras.append(f"likeliest from batch {likeliest} on")
    if (crossover.get("launch_bound_until") or 1) > 1:  # 1: at no batch looked at
        extras.append(f"limited by launching until batch {crossover['launch_bound_until']}")
    if crossover.get("launch_bound_at_largest"):
        extras.append("limited by launching up to the largest batch")
    if crossover.get("break_even_steps"):  # 0: there is nothing to repay
        extras.append(f"start-up repaid after {format_count(crossover['break_even_steps'])} steps")
    inside = ", ".join([f"data {crossover['data']}", str(crossover["basis"]), *extras])
    return f"{sentence} ({inside})."


def _around(crossover: Document) -> str:
    middle, low, high = crossover["batch_size"], crossover["low"], crossover["high"]
    return str(middle) if low is None or high is None or low == high else f"{middle} ({low} to {high})"


def _workload_line(answer: Document) -> str:
    workload = answer["workload"]
    parts = [f"{workload['model']}, {workload['mode']}, batch {workload['batch_size']}"]
    if workload.get("parameters") is not None:
        parts.append(_parameters_text(workload))
    if workload.get("flops_per_step") is not None:
        parts.append(f"{format_count(workload['flops_per_step'])} FLOPs a step")
    if answer["confidence"] is not None:
        parts.append(f"confidence {format_share(answer['confidence'])}")
    return "; ".join(parts) + "."


def _parameters_text(workload: Document) -> str:
    """Of training both counts where they differ: inference trains nothing, and runs them all."""
    trained = workload["parameters"]
    total = workload.get("all_parameters", trained)
    if workload["mode"] == "inference" or trained == total:
        return f"{format_count(total)} parameters"
    return f"{format_count(trained)} of {format_count(total)} parameters trained"


def _option_row(option: Document) -> list[str]:
    rate = option["samples_per_second"]
    return [
        plan_label(option),
        format_timing(option["step_seconds"]),
        format_count(round(rate) if rate is not None and rate >= 10 else rate),
        "does not fit" if option["fits"] is False else option["basis"] or "unknown",
        _memory_cell(option),
        format_count(option["max_batch_size"]),
    ]


def _memory_cell(option: Document) -> str:
    """What torch allocates is known before a calibration has measured what the process takes beside."""
    memory = option["memory"]
    allocated = memory["allocated_peak_bytes"]
    if memory["peak_bytes"] is None and allocated is not None:
        return f"over {format_bytes(allocated)} of {format_bytes(memory['available_bytes'])}"
    return f"{format_bytes(memory['peak_bytes'])} of {format_bytes(memory['available_bytes'])}"


def _show_notes(options: list[Document]) -> None:
    """Why a time is unknown or a plan does not fit: once a sentence, with the plans it holds for."""
    plans: dict[str, list[str]] = {}
    for option in options:
        for sentence in (option["why_not"], option.get("note")):
            if sentence:
                plans.setdefault(sentence, []).append(plan_label(option))
    everywhere = len(options)
    _show_list(
        "Notes",
        [text if len(set(who)) == everywhere > 1 else f"{', '.join(who)}: {text}" for text, who in plans.items()],
    )


def _show_list(title: str, sentences: list[str]) -> None:
    if sentences:
        print_heading(title)
        print_bullets(sentences)
        print_text()


def _show_settings(settings: Document) -> None:
    if not settings:
        return
    print_heading("Settings")
    print_pairs([(name, _setting_text(value)) for name, value in settings.items()])
    print_text()


def _setting_text(value: Any) -> str:
    """A setting is a value, or a value with the reason it stands with."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_setting_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_setting_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
