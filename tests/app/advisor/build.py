"""Small, plain facts for the advisor's tests: machines, workloads, measurements."""

from __future__ import annotations

from collections.abc import Sequence

from probes.hardware import Accelerator, Cpu, Memory, Software, Survey, System
from probes.measurement import Measurement, Timing
from probes.workload.description import ModelDescription, Plan, Workload

GB = 10**9


def a_gpu(**changes: object) -> Accelerator:
    facts: dict[str, object] = {
        "id": "GPU-1",
        "vendor": "NVIDIA",
        "name": "NVIDIA A10",
        "memory_total_bytes": 24 * GB,
        "memory_free_bytes": 23 * GB,
        "compute_capability": "8.6",
        "torch_device": "cuda:0",
        "usable": True,
    }
    return Accelerator(**{**facts, **changes})  # type: ignore[arg-type]


def a_survey(
    usable_cores: float | None = 2.0,
    physical_cores: int | None = 2,
    gpus: Sequence[Accelerator] = (),
    usable_bytes: int | None = 8 * GB,
) -> Survey:
    return Survey(
        surveyed_at="2026-11-21T09:02:11Z",
        fingerprint="f",
        system=System(),
        cpu=Cpu(name="A CPU", physical_cores=physical_cores, logical_cores=physical_cores, usable_cores=usable_cores),
        memory=Memory(total_bytes=usable_bytes, available_bytes=usable_bytes, usable_bytes=usable_bytes),
        accelerators=tuple(gpus),
        storage=(),
        software=Software(),
        findings=(),
        probes={},
    )


def a_summary(**changes: float) -> ModelDescription:
    totals = {
        "parameters": 25_000_000,
        "flops_per_sample": 4_100_000_000,
        "activation_bytes_per_sample": 90_000_000,
        "operations": 160,
    }
    return ModelDescription("summary", "a summary", {**totals, **changes})


def a_workload(batch_size: int = 16, **changes: object) -> Workload:
    return Workload(a_summary(), batch_size, **changes)  # type: ignore[arg-type]


def a_measurement(plan: Plan, batch_size: int, seconds: float, spread: float = 0.01, **changes: object) -> Measurement:
    """Seven samples, evenly around `seconds`, within the relative spread."""
    samples = [seconds * (1 + spread * step / 3) for step in (0, 3, -3, 1, -1, 2, -2)]
    facts: dict[str, object] = {
        "data": "pageable",
        "outcome": "ok",
        "step": Timing.from_samples(samples),
        "steps": 70,
        "steady": True,
    }
    return Measurement(plan, batch_size, **{**facts, **changes})  # type: ignore[arg-type]


ONE = Plan("cpu", "fp32", 1)
TWO = Plan("cpu", "fp32", 2)
ONE_BF16 = Plan("cpu", "bf16", 1)
TWO_BF16 = Plan("cpu", "bf16", 2)
