"""The experiment everybody has run: the iris network, trained with the loss read more or less often.

Every device trains the same network once for each way of reading the loss. The ways take turns in short slices, each
with a model of its own, so that a machine that grows slower or faster meanwhile favours none of them.

`run_experiment` answers with the result of a job of kind `experiment` (docs/protocol.md):

    {"schema_version", "name", "epochs", "software", "data": {…},
     "devices": [{"device", "name", "threads", "outcome", "reason",
        "startup_seconds",            until the very first step is done: context, copies, libraries; not in the totals
        "step_seconds": Timing,       of one epoch without a reading, measured between the runs' turns
        "overheads": Overheads,       of such an epoch, each measured directly; transfer: the data set, once
        "reading_seconds": Timing,    `.item()` right after a step, as the loop does it
        "ready_reading_seconds": Timing,  `.item()` when the device is already idle
        "variants": [{"log_every", "readings", "total_seconds", "epoch_seconds": Timing,
            "extra_seconds_per_reading": Timing or null,  against the variant with fewest readings, slice by slice;
                                                          null where too few slices tell
            "shares": {"launch", "transfer", "synchronize", "compute"}, "final_loss", "correct", "accuracy"}],
        "loss_curve": [[epoch, loss], …]}],
     "explanation": [sentence, …]}
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from probes.bounds import MAX_EXPERIMENT_EPOCHS, MAX_LOG_EVERY
from probes.microtrain.iris_experiment.epoch_costs import CostMeter, EpochCosts
from probes.microtrain.iris_experiment.iris import IrisSplit, read_iris, split_iris
from probes.microtrain.iris_experiment.iris_network import count_correct, make_learner
from probes.microtrain.iris_experiment.readings import divide_time, explain_readings, thin_curve
from probes.microtrain.iris_experiment.variants import Variant, extra_per_reading, take_turns
from probes.microtrain.step import applied
from probes.workload.description import Plan

SCHEMA_VERSION = "1"
EXPERIMENTS = ("iris",)

OnProgress = Callable[[float, str], None]


def run_experiment(
    name: str, epochs: int, log_every: Sequence[int | None], devices: Sequence[str], on_progress: OnProgress
) -> dict[str, Any]:
    """Train on every device (empty: all that are here) with every way of reading the loss (None: never).

    A number of epochs that no run has is never, too. Raises ValueError for a name, a number or a device that cannot be
    used.
    """
    chosen = tuple(devices) or devices_here()
    _check(name, epochs, log_every, chosen)
    ways = [every if every is None or every <= epochs else None for every in log_every]
    split = split_iris(read_iris())
    results = []
    for index, device in enumerate(chosen):
        report = _part_of(on_progress, index, len(chosen))
        results.append(_run_on_device(device, split, epochs, ways, report))
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "epochs": epochs,
        "software": {"torch": torch.__version__, "python": platform.python_version()},
        "data": {"training_rows": len(split.training), "held_out_rows": len(split.held_out)},
        "devices": results,
        "explanation": explain_readings(results),
    }


def devices_here() -> tuple[str, ...]:
    """The CPU, and every CUDA device that torch sees."""
    return ("cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count())))


def _check(name: str, epochs: int, log_every: Sequence[int | None], devices: Sequence[str]) -> None:
    if name not in EXPERIMENTS:
        raise ValueError(f"There is no such experiment. There is: {', '.join(EXPERIMENTS)}.")
    if not 1 <= epochs <= MAX_EXPERIMENT_EPOCHS:
        raise ValueError(f"epochs has to be between 1 and {MAX_EXPERIMENT_EPOCHS}.")
    if not log_every or any(every is not None and not 1 <= every <= MAX_LOG_EVERY for every in log_every):
        raise ValueError("log_every is a list of numbers of epochs from 1 up, or null for never.")
    if not set(devices) <= set(devices_here()):
        raise ValueError(f"A device was asked for that is not here. Devices here: {', '.join(devices_here())}.")


def _part_of(on_progress: OnProgress, index: int, count: int) -> OnProgress:
    """Progress of one device out of several, as progress of the whole."""
    return lambda fraction, message: on_progress((index + fraction) / count, message)


def _run_on_device(
    device: str, split: IrisSplit, epochs: int, log_every: Sequence[int | None], report: OnProgress
) -> dict[str, Any]:
    """One device's part of the result. A device that fails costs only its own part."""
    # One thread on a CPU: 120 rows of 4 numbers leave nothing to share out.
    plan = Plan(device, "fp32", 1 if device == "cpu" else None)
    try:
        with applied(plan):
            return _train_variants(torch.device(device), split, epochs, log_every, report)
    except RuntimeError as error:  # what torch raises when a driver fails or memory runs out
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        return {"device": device, "outcome": "failed", "reason": f"{device} failed in the experiment: {first_line}"}


def _train_variants(
    device: torch.device, split: IrisSplit, epochs: int, log_every: Sequence[int | None], report: OnProgress
) -> dict[str, Any]:
    report(0.0, f"{device}: first step")
    meter = CostMeter(device, split.training)
    variants = [Variant(every, make_learner(device, split.training, every)) for every in dict.fromkeys(log_every)]
    make_learner(device, split.training, 1)()  # the first step after networks are made took 14 ms for 0.4, read or not

    def on_turn(part: float) -> None:
        meter.take_samples()
        report(part, f"{device}: {round(part * epochs):,} of {epochs:,} epochs")

    take_turns(variants, epochs, device, on_turn)
    costs = meter.costs()
    return {
        "device": str(device),
        "name": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "threads": 1 if device.type == "cpu" else None,
        "outcome": "ok",
        "reason": None,
        "startup_seconds": meter.startup_seconds,
        "step_seconds": asdict(costs.step),
        "overheads": asdict(costs.overheads),
        "reading_seconds": asdict(costs.reading),
        "ready_reading_seconds": asdict(costs.ready_reading),
        "variants": [_variant_result(variant, variants, split, costs) for variant in variants],
        "loss_curve": thin_curve(max((variant.loss_curve() for variant in variants), key=len)),
    }


def _variant_result(
    variant: Variant, variants: Sequence[Variant], split: IrisSplit, costs: EpochCosts
) -> dict[str, Any]:
    extra = extra_per_reading(variant, min(variants, key=lambda other: other.readings))
    epoch = variant.epoch_timing()
    correct = count_correct(variant.learner, split.held_out)
    return {
        "log_every": variant.log_every,
        "readings": variant.readings,
        "total_seconds": variant.total_seconds,
        "epoch_seconds": asdict(epoch),
        "extra_seconds_per_reading": None if extra is None else asdict(extra),
        "shares": divide_time(epoch.median, variant.readings / variant.epochs, costs.overheads, costs.reading),
        "final_loss": variant.final_loss,
        "correct": correct,
        "accuracy": correct / len(split.held_out),
    }
