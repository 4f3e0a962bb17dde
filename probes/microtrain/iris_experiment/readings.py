"""What reading the loss costs, in words: pure arithmetic over measured figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from probes.figures import format_seconds
from probes.measurement import Overheads, Timing

Document = dict[str, Any]


def divide_time(
    epoch_seconds: float, readings_per_epoch: float, overheads: Overheads, reading: Timing
) -> dict[str, float]:
    """Shares of an epoch, adding up to 1. Each cost was measured by itself; `compute` is what remains.

    transfer is 0: the data was put on the device once, before the first epoch. Where the parts measured by
    themselves exceed the whole (the machine was slower when they were measured), they are scaled to it.
    """
    launch, synchronize = overheads.launch_seconds or 0.0, readings_per_epoch * reading.median
    whole = max(epoch_seconds, launch + synchronize)
    if whole == 0:
        return {"launch": 0.0, "transfer": 0.0, "synchronize": 0.0, "compute": 1.0}
    return {
        "launch": launch / whole,
        "transfer": 0.0,
        "synchronize": synchronize / whole,
        "compute": max(0.0, whole - launch - synchronize) / whole,  # rounding may leave a hair below 0
    }


def thin_curve(losses: Sequence[tuple[int, float | None]], points: int = 200) -> list[list[float | None]]:
    """At most `points` of the losses, evenly spread, the first and the last among them."""
    if len(losses) <= points:
        return [[epoch, loss] for epoch, loss in losses]
    step = (len(losses) - 1) / (points - 1)
    return [list(losses[round(index * step)]) for index in range(points)]


def explain_readings(devices: Sequence[Document]) -> list[str]:
    """Sentences that say why the time does not grow in line with the number of readings, from these very figures."""
    ran = [device for device in devices if device["outcome"] == "ok"]
    sentences = [sentence for device in ran for sentence in _explain_device(device)]
    return sentences + _compare_devices(ran)


def _explain_device(device: Document) -> list[str]:
    most = max(device["variants"], key=_readings)
    fewest = min(device["variants"], key=_readings)
    compared = [_say_totals(device, most, fewest), _say_law(device, most)] if most is not fewest else []
    each = [_say_what_a_reading_is(device), _say_where_time_goes(device, fewest), *_say_copying(device)]
    return compared + each


def _readings(variant: Document) -> int:
    return int(variant["readings"])


def _say_totals(device: Document, most: Document, fewest: Document) -> str:
    runs = (
        f"{device['device']}: with {most['readings']:,} readings the run took {format_seconds(most['total_seconds'])}, "
        f"with {fewest['readings'] or 'none'} {format_seconds(fewest['total_seconds'])}"
    )
    if most["extra_seconds_per_reading"] is None:
        return f"{runs}; too few stretches of the run had readings to tell what they add."
    if not _is_separate(most["extra_seconds_per_reading"]):
        return f"{runs}; that difference is within this machine's noise."
    added = (most["total_seconds"] - fewest["total_seconds"]) / most["total_seconds"]
    return f"{runs}; all those readings together are {_percent(added)} of the time."


def _is_separate(extra: Document | None) -> bool:
    """The slices agree that reading costs something."""
    return extra is not None and extra["low"] > 0


def _say_law(device: Document, most: Document) -> str:
    """The law behind the table: time = epochs x epoch + readings x reading."""
    epoch, reading = _epoch_seconds(device), _reading_seconds(device, most)
    shares = [
        f"after every {_ordinal(variant['log_every'])} {_percent(_share(epoch, reading, variant['log_every']))}"
        for variant in sorted(device["variants"], key=_readings, reverse=True)
        if variant["log_every"]
    ]
    return (
        f"Time is epochs x one epoch + readings x one reading, and here an epoch costs {format_seconds(epoch)}, a "
        f"reading {format_seconds(reading)}. So the part of the time that goes into reading is, {', '.join(shares)}. "
        "Fewer readings can save that part and no more, which is why the time does not follow the number of readings."
    )


def _share(epoch: float, reading: float, every: int) -> float:
    return reading / (every * epoch + reading)


def _epoch_seconds(device: Document) -> float:
    """One epoch without a reading: of the variant that reads least."""
    return float(min(device["variants"], key=_readings)["epoch_seconds"]["median"])


def _reading_seconds(device: Document, most: Document) -> float:
    """What a reading added to the run that reads most; where noise hides that, or too few slices tell,
    `.item()` as measured by itself."""
    extra = most["extra_seconds_per_reading"]
    return float(extra["median"] if _is_separate(extra) else device["reading_seconds"]["median"])


def _say_what_a_reading_is(device: Document) -> str:
    in_place, ready = device["reading_seconds"]["median"], device["ready_reading_seconds"]["median"]
    if device["device"] == "cpu":
        return (
            "On a CPU the loss is there when the step returns, and .item() only makes a Python number of it: "
            f"{format_seconds(in_place)} right after a step."
        )
    return (
        f"On {device['device']} the loop runs ahead of the device, and .item() waits until the device has done all "
        f"that it was given: {format_seconds(in_place)} right after a step, {format_seconds(ready)} when nothing is "
        "left to do. Most of that wait is for work that had to be done anyway; what is lost is that the host could "
        "have issued the next operations meanwhile."
    )


def _say_where_time_goes(device: Document, fewest: Document) -> str:
    shares = fewest["shares"]
    small = shares["launch"] > shares["compute"]
    busy = device["overheads"].get("device_busy")
    alone = (
        "" if busy is None or device["device"] == "cpu" else f" The device itself is busy for {_percent(busy)} of it."
    )
    return (
        f"Of such an epoch on {device['device']}, issuing the operations takes {_percent(shares['launch'])}, computing "
        f"{_percent(shares['compute'])}: "
        + ("the network is so small that the time is in issuing work." if small else "the time is in the arithmetic.")
        + alone
    )


def _say_copying(device: Document) -> list[str]:
    """Of a device to which the data had to be copied; nothing of any other."""
    copying = device["overheads"].get("transfer_seconds")
    if copying is None:
        return []
    return [
        f"Copying the data set to {device['device']} takes {format_seconds(copying)}. It was done once, before the "
        "first epoch, so it is in no row of the table; a loop that copied it in each epoch would pay for it each time."
    ]


def _compare_devices(devices: Sequence[Document]) -> list[str]:
    """How the devices stand to each other, by their epochs without a reading."""
    if len(devices) < 2:
        return []
    ordered = sorted(devices, key=_epoch_seconds)
    fastest, slowest = ordered[0], ordered[-1]
    ratio = _epoch_seconds(slowest) / _epoch_seconds(fastest)
    return [
        f"{slowest['device']} needs {ratio:.1f} times as long as {fastest['device']}: {_say_epoch(slowest)} against "
        f"{_say_epoch(fastest)}."
    ]


def _say_epoch(device: Document) -> str:
    issuing = device["overheads"]["launch_seconds"]
    return f"{format_seconds(_epoch_seconds(device))} an epoch ({format_seconds(issuing)} of it issuing operations)"


def _percent(share: float) -> str:
    return f"{share * 100:.2g} %" if share < 0.0995 else f"{share * 100:.0f} %"


def _ordinal(number: int) -> str:
    if number == 1:
        return "epoch"
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
