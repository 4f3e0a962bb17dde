"""The kinds of jobs, and what runs each. Modules are imported with the first job that needs them."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import torch

from probes.checked import is_whole
from probes.microtrain.devices import read_devices
from probes.microtrain.failures import Failure
from probes.microtrain.protocol import Desk, Document, RunJob
from probes.workload.description import DATA, MODES, OPTIMIZERS, ModelDescription, Workload
from probes.workload.models import CALLING, parse_model
from probes.workload.widths import MOST_FACTOR


def describe_self() -> Document:
    """The `ready` event."""
    return {
        "event": "ready",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda_version": torch.version.cuda,
        "hip_version": torch.version.hip,
        "xpu_version": torch.version.xpu,
        "cudnn_version": _cudnn_version(),
        "devices": read_devices(),
    }


def _cudnn_version() -> str | None:
    version = torch.backends.cudnn.version()
    return None if version is None else str(version)


# As small as may be: what it needs is loaded, whatever it is made of.
FIRST_CONFIG: Document = {
    "huggingface": {
        "model_type": "bert",
        "vocab_size": 64,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    },
    "task": "text-classification",
    "sequence_length": 8,
}


def run_prepare(_job: Document, _desk: Desk) -> Document:
    """Load what the first trace of a config needs, here and in the process that takes half of each
    (probes.microtrain.traces.autocast_beside): four seconds of work."""
    from probes.microtrain.building.huggingface_models import import_transformers
    from probes.microtrain.processes import fresh_processes
    from probes.microtrain.tracing import trace_workload

    fresh_processes.prepare(for_configs=True)
    try:
        import_transformers()
    except ImportError as error:  # layers can be traced all the same
        raise Failure("unsupported", "transformers cannot be imported here, so that no config can be built.") from error
    return {"prepared": trace_workload(Workload(parse_model(FIRST_CONFIG), 1)).model_key}


def run_trace(job: Document, desk: Desk) -> Document:
    from probes.microtrain.building.own_calls import listened_to
    from probes.microtrain.tracing import Untraceable, trace_workload

    def hear(is_running: bool, /) -> None:
        desk.report(0.0, CALLING if is_running else "tracing")

    try:
        with listened_to(hear):
            return trace_workload(workload_of(job), devices=job.get("devices") is True).to_json()
    except Untraceable as error:
        raise Failure("unsupported", str(error)) from error


def run_widen(job: Document, _desk: Desk) -> Document:
    from probes.microtrain.building.huggingface_widths import widen_huggingface

    try:
        model, factor = ModelDescription.from_json(job["model"]), float(job["factor"])
        if model.kind != "huggingface" or not 0 < factor <= MOST_FACTOR:
            raise ValueError("another kind of model, or no factor")
    except (KeyError, TypeError, ValueError):
        raise Failure("invalid-job", "A widen job has a model made of a config, and a factor above 0.") from None
    return {"model": widen_huggingface(model, factor).to_json()}


def run_measure(job: Document, desk: Desk) -> Document:
    from probes.microtrain.measure import measure_workload
    from probes.microtrain.measuring.measure_job import parse_measure_job
    from probes.microtrain.traces import autocast_beside

    autocast_beside.end()  # its memory is wanted
    return measure_workload(parse_measure_job(job, workload_of(job)), desk.report, desk.finish)


def run_calibrate(job: Document, desk: Desk) -> Document:
    from probes.microtrain.calibrate import calibrate, parse_calibrate_job

    return calibrate(parse_calibrate_job(job), desk.report).to_json()


def run_experiment(job: Document, desk: Desk) -> Document:
    from probes.microtrain import experiment

    name, epochs, log_every = job.get("name"), job.get("epochs"), job.get("log_every")
    devices = job.get("devices") or []
    if not (isinstance(name, str) and isinstance(epochs, int) and _all_of(log_every, _is_whole_or_none)):
        raise Failure("invalid-job", "An experiment has a name, a number of epochs and a list log_every.")
    if not _all_of(devices, lambda device: isinstance(device, str)):
        raise Failure("invalid-job", "devices is a list of names such as cpu and cuda:0.")
    try:
        return experiment.run_experiment(name, epochs, log_every, devices, desk.report)
    except ValueError as error:
        raise Failure("invalid-job", str(error)) from error


def workload_of(job: Document) -> Workload:
    """Raises Failure `invalid-job` when it is not a workload."""
    try:
        workload = Workload.from_json(job["workload"])
        _check_workload(workload)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Failure("invalid-job", "The job's workload is not a document of probes.workload.description.") from None
    return workload


def _check_workload(workload: Workload) -> None:
    """Raises ValueError. Programs write these documents: a wrong one is their mistake, so no word on what is wrong."""
    chosen = ((workload.mode, MODES), (workload.optimizer, OPTIMIZERS), (workload.data, DATA))
    counts = (workload.batch_size, 1 if workload.log_every is None else workload.log_every)
    if any(value not in known for value, known in chosen) or not all(is_whole(n) and n >= 1 for n in counts):
        raise ValueError("a workload out of bounds")


def _is_whole_or_none(value: Any) -> bool:
    return value is None or is_whole(value)


def _all_of(values: Any, is_good: Callable[[Any], bool]) -> TypeGuard[list[Any]]:
    return isinstance(values, list) and all(is_good(value) for value in values)


KINDS: Mapping[str, RunJob] = {
    "prepare": run_prepare,
    "trace": run_trace,
    "widen": run_widen,
    "measure": run_measure,
    "calibrate": run_calibrate,
    "experiment": run_experiment,
}
