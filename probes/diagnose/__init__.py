"""From facts to findings: what stands between this machine and fast training, and what to do about it.

Each diagnosis is a small pure function over the facts. Add one: a function, a line in DIAGNOSES, its code's weight in
codes.py, a page in docs/findings, a test.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from probes.diagnose.arm_apple import find_allocator_for_other_pages, find_mps_fallback, find_python_under_rosetta
from probes.diagnose.chain import build_chains, find_broken_links
from probes.diagnose.codes import WEIGHTS
from probes.diagnose.crowding import find_crowded_cpu, find_noisy_neighbours
from probes.diagnose.facts import Facts
from probes.diagnose.gpu_health import (
    find_driver_errors,
    find_memory_errors,
    find_narrow_link,
    find_persistence_off,
    find_slow_link,
    find_throttling,
)
from probes.diagnose.links import Chain, Link, State
from probes.diagnose.machine import find_no_gpu, find_torch_does_not_start, find_torch_not_installed
from probes.diagnose.memory_limits import (
    find_low_locked_memory,
    find_low_open_files,
    find_small_shared_memory,
    find_swap_in_use,
)
from probes.diagnose.processor import (
    find_masked_instruction_sets,
    find_omp_num_threads_above_usable,
    find_omp_num_threads_below_usable,
    find_quota_below_cores,
    find_slow_governor,
)
from probes.hardware import Finding

__all__ = ["DIAGNOSES", "WEIGHTS", "Chain", "Facts", "Link", "State", "build_chains", "diagnose"]

DIAGNOSES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    find_no_gpu,
    find_torch_not_installed,
    find_torch_does_not_start,
    find_broken_links,
    find_memory_errors,
    find_driver_errors,
    find_throttling,
    find_narrow_link,
    find_slow_link,
    find_persistence_off,
    find_quota_below_cores,
    find_omp_num_threads_above_usable,
    find_omp_num_threads_below_usable,
    find_slow_governor,
    find_masked_instruction_sets,
    find_noisy_neighbours,
    find_crowded_cpu,
    find_swap_in_use,
    find_small_shared_memory,
    find_low_locked_memory,
    find_low_open_files,
    find_python_under_rosetta,
    find_mps_fallback,
    find_allocator_for_other_pages,
)


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """What was found; the same about several subjects is one finding."""
    found: dict[tuple[str, str, str | None], Finding] = {}
    for finding in (finding for find in DIAGNOSES for finding in find(facts)):
        key = (finding.code, finding.message, finding.fix)
        found[key] = join_subjects(found[key], finding.subject) if key in found else finding
    return tuple(found.values())


def join_subjects(finding: Finding, subject: str) -> Finding:
    known = finding.subject.split(", ")
    return finding if subject in known else replace(finding, subject=", ".join([*known, subject]))
