"""Jobs for the micro-training (docs/protocol.md), made from what the service knows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.advisor.crowding import BACKGROUND_CORES
from app.advisor.like_cards import devices_to_calibrate
from app.advisor.plans import must_ask_torch
from probes.checked import make_printable
from probes.hardware import Accelerator, Load, Survey
from probes.trace import Trace
from probes.workload.description import ModelDescription, Plan, Workload

GIB, MIB = 2**30, 2**20
FEW_GIB = 10  # below these a tenth tells
# One epoch of an experiment at most (a step of the iris network on a slow, busy core), and the start of its process.
EXPERIMENT_EPOCH_SECONDS = 0.002
EXPERIMENT_START_SECONDS = 20.0


def trace_job(workload: Workload, seconds: float | None = None, *, devices: bool) -> dict[str, Any]:
    """devices: with the step as a device runs it. seconds: after which it is ended; None: as any trace is."""
    return {"kind": "trace", "workload": workload.to_json(), "devices": devices, "seconds": seconds}


def widen_job(model: ModelDescription, factor: float) -> dict[str, Any]:
    return {"kind": "widen", "model": model.to_json(), "factor": factor}


def measure_job(
    survey: Survey,
    workload: Workload,
    plans: Sequence[Plan],
    batch_sizes: Sequence[int],
    seconds: float,
    *,
    enough: float | None = None,
    apart: bool = False,
    expected: Sequence[float | None] = (),
    paces: Mapping[int, float] | None = None,
    trace: Trace | None = None,
) -> dict[str, Any]:
    """Real steps; enough: seconds after which only plans with few samples run; apart: each plan on the CPU in a process
    of its own; expected: seconds of a step under each plan, where it is foretold; paces: this machine's now, by
    threads (lasting_paces); trace: the workload's, where it is known. What is above the memory limit by its weights, a
    batch and what that tells of the rest is refused by the child, before the kernel kills it."""
    return {
        "kind": "measure",
        "workload": workload.to_json(),
        "plans": [plan.to_json() for plan in plans],
        "batch_sizes": list(batch_sizes),
        "seconds": seconds,
        "enough_seconds": enough,
        "memory_limit_bytes": survey.memory.usable_bytes,
        "apart": apart,
        "expected_seconds": list(expected),
        "paces": {str(threads): seconds for threads, seconds in (paces or {}).items()},
        "gradient_bytes": None if trace is None else trace.gradient_bytes,
        "optimizer_bytes": None if trace is None else trace.optimizer_bytes,
    }


def without_own(result: dict[str, Any], own_cores: float) -> dict[str, Any]:
    """Of a `measure` job, whose noise and rows tell of others. own_cores: of what it takes for theirs, that are this
    process's and what else it started: nobody who is here now. Of the rows they are taken off as long as they are too
    few to be in a step's way: a trace for another question holds cores as any program does."""

    def less(document: Mapping[str, Any], own: float) -> dict[str, Any]:
        others = document.get("others_cores")
        if not isinstance(others, int | float):
            return dict(document)
        return {**document, "others_cores": max(0.0, others - own)}

    changed = {**result, "noise": less(result.get("noise") or {}, own_cores)}
    if isinstance(rows := result.get("measurements"), list):
        own = min(own_cores, BACKGROUND_CORES)
        changed["measurements"] = [less(row, own) if isinstance(row, dict) else row for row in rows]
    return changed


def load_meanwhile(survey: Survey, noise: Mapping[str, Any]) -> Load:
    """This machine's load while a `measure` job ran, without the job's own (without_own); the survey's where the job
    did not say."""
    online, others = survey.cpu.logical_cores, noise.get("others_cores")
    if not online or not isinstance(others, int | float):
        return survey.load
    return replace(
        survey.load,
        busy_fraction=min(1.0, max(0.0, others) / online),
        own_busy_fraction=0.0,
        steal_fraction=noise.get("steal_fraction"),
        load_average=noise.get("load_average"),
    )


def calibrate_job(survey: Survey, effort: str, devices: Sequence[str], name: str) -> dict[str, Any]:
    """devices: by name; none: all that torch can use, of cards that are alike one. Where torch's word on a card is not
    known the measuring process finds out which these are. name: of the profile."""
    chosen = [] if must_ask_torch(survey) else devices_to_calibrate(survey)
    return {
        "kind": "calibrate",
        "effort": effort,
        "devices": list(devices) or chosen,
        "usable_cores": survey.cpu.usable_cores,
        "fingerprint": survey.fingerprint,
        "machine": make_printable(describe_machine(survey)),
        "name": name,
    }


def experiment_seconds(epochs: int) -> float:
    """After which an experiment of so many epochs in all gives up."""
    return EXPERIMENT_START_SECONDS + EXPERIMENT_EPOCH_SECONDS * epochs


def experiment_job(name: str, epochs: int, log_every: Sequence[int | None], devices: Sequence[str]) -> dict[str, Any]:
    return {
        "kind": "experiment",
        "name": name,
        "epochs": epochs,
        "log_every": list(log_every),
        "devices": list(devices),
    }


def own_name(survey: Survey) -> str:
    """The name of this machine's profile where none is given."""
    return make_printable(survey.system.hostname or "") or "this-machine"


def describe_machine(survey: Survey) -> str:
    """In words: `AMD EPYC 9R14, 2 cores, 23 GiB, NVIDIA H200`."""
    parts = [survey.cpu.name or "unknown CPU"]
    if survey.cpu.usable_cores is not None:
        parts.append(f"{survey.cpu.usable_cores:g} core{'s' if survey.cpu.usable_cores != 1 else ''}")
    memory = survey.memory.limit_bytes or survey.memory.total_bytes
    if memory:
        parts.append(_say_memory(memory))
    parts += [_name_of(accelerator) for accelerator in survey.accelerators if accelerator.usable]
    return ", ".join(parts)


def _say_memory(size: int) -> str:
    """In whole GiB where there are many of them, as memory is sold; a container may have less than one."""
    if size < GIB:
        return f"{max(1, round(size / MIB))} MiB"
    gib = size / GIB
    return f"{gib:.0f} GiB" if gib >= FEW_GIB else f"{round(gib, 1):g} GiB"


def _name_of(card: Accelerator) -> str:
    """Never its id: a profile travels, and a UUID is one card in the world."""
    return card.name or " ".join(word for word in ("unnamed", card.vendor, "GPU") if word)
