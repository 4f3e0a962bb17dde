"""The last link of a chain: whether memory is free on the card, and who has taken it."""

from __future__ import annotations

from probes.diagnose.codes import make_finding
from probes.diagnose.links import Case, Checked, State, broken, fine, unknown
from probes.diagnose.wording import in_gb, in_percent, listed
from probes.hardware import Finding, GpuProcess

# CUDA's context with torch's kernels loaded takes about 0.5 GB; a small network some hundred MB more.
_LEAST_BYTES = 1_000_000_000
_SMALL_SHARE = 0.25  # of small cards, which never had a GB to spare
_TAKEN_SHARE = 0.5
_SHOWS_PROCESSES = {"NVIDIA": "nvidia-smi", "AMD": "rocm-smi --showpids", "Intel": "sudo fuser -v /dev/dri/render*"}


def check_memory(case: Case) -> Checked:
    card = case.card
    total, free = card.memory_total_bytes, card.memory_free_bytes
    if card.mig_mode:
        return fine("its instances have memory of their own")
    if card.unified_memory:
        return fine("it shares the machine's memory")
    if not total or free is None:
        return unknown("nothing tells how much of its memory is free")
    evidence = f"{in_gb(free)} of {in_gb(total)} are free"
    if free < min(_LEAST_BYTES, _SMALL_SHARE * total):
        return broken(_describe(case, "gpu-memory-full", total, free))
    if total - free > _TAKEN_SHARE * total:
        return Checked(State.OK, evidence, _describe(case, "gpu-memory-taken", total, free))
    return fine(evidence)


def _describe(case: Case, code: str, total: int, free: int) -> Finding:
    """Names the largest holders first."""
    holders = sorted(case.card.processes or (), key=lambda process: -(process.memory_bytes or 0))
    by = f", by {listed([_name(holder) for holder in holders])}" if holders else "; by whom cannot be seen from here"
    message = (
        f"{in_percent((total - free) / total)} of this card's memory is taken{by}: {in_gb(free)} of "
        f"{in_gb(total)} are left."
    )
    pids = [str(holder.pid) for holder in holders if holder.pid]
    fix = (
        f"If you no longer need it: kill {pids[0]}"
        if pids
        else f"{_SHOWS_PROCESSES.get(case.card.vendor or '', 'nvidia-smi')} on the host shows the processes; end those "
        "that are not needed."
    )
    return make_finding(code, case.subject, message, fix)


def _name(process: GpuProcess) -> str:
    name = process.name.rsplit("/", 1)[-1].split()[0] if process.name and process.name.strip() else "a process"
    size = f" {in_gb(process.memory_bytes)}" if process.memory_bytes else ""
    return f"{name}{f' (PID {process.pid})' if process.pid else ''}{size}"
