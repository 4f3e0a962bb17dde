"""The list of all findings: what each code weighs, so that it weighs the same wherever it is made.

A code is stable: people search for it, and docs/findings/CODE.md is its page. Add one: a line here, a page, a test.
"""

from __future__ import annotations

from dataclasses import dataclass

from probes.hardware import Finding, Severity

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


@dataclass(frozen=True, slots=True)
class Weight:
    """blocking: it stands in the way of training on its subject."""

    severity: Severity
    blocking: bool = False


WEIGHTS: dict[str, Weight] = {
    # The chain from the bus to torch, from the bottom.
    "no-gpu": Weight(_INFO),
    "gpu-lost": Weight(_ERROR, blocking=True),
    "gpu-reserved-for-virtual-machine": Weight(_WARNING, blocking=True),
    "nouveau-instead-of-nvidia": Weight(_ERROR, blocking=True),
    "gpu-without-driver": Weight(_ERROR, blocking=True),
    "container-without-gpu": Weight(_ERROR, blocking=True),
    "gpu-not-in-container": Weight(_INFO),
    "device-files-missing": Weight(_ERROR, blocking=True),
    "no-permission-on-device-files": Weight(_ERROR, blocking=True),
    "gpu-access-lost": Weight(_ERROR, blocking=True),
    "driver-library-missing": Weight(_ERROR, blocking=True),
    "driver-versions-differ": Weight(_ERROR, blocking=True),
    "driver-does-not-answer": Weight(_ERROR, blocking=True),
    "driver-library-fails": Weight(_ERROR, blocking=True),
    "gpu-ignored-by-driver": Weight(_ERROR, blocking=True),
    "fabric-manager-missing": Weight(_ERROR, blocking=True),
    "mig-without-instances": Weight(_ERROR, blocking=True),
    "cuda-does-not-initialise": Weight(_ERROR, blocking=True),
    "torch-not-installed": Weight(_ERROR, blocking=True),
    "torch-does-not-start": Weight(_ERROR, blocking=True),
    "torch-without-cuda": Weight(_WARNING, blocking=True),
    "torch-without-rocm": Weight(_WARNING, blocking=True),
    "torch-without-xpu": Weight(_WARNING, blocking=True),
    "torch-without-mps": Weight(_WARNING, blocking=True),
    "torch-for-another-vendor": Weight(_INFO),
    "driver-too-old-for-torch": Weight(_ERROR, blocking=True),
    "torch-without-kernels": Weight(_ERROR, blocking=True),
    "visible-devices-match-nothing": Weight(_ERROR, blocking=True),
    "hidden-by-environment": Weight(_WARNING, blocking=True),
    "left-out-by-environment": Weight(_INFO),
    "gpu-memory-full": Weight(_ERROR, blocking=True),
    # A card that works, and not as it could.
    "gpu-memory-taken": Weight(_WARNING),
    "gpu-memory-errors": Weight(_WARNING),
    "gpu-driver-errors": Weight(_WARNING),
    "gpu-throttled-by-heat": Weight(_WARNING),
    "gpu-throttled-by-power": Weight(_WARNING),
    "narrow-pcie-link": Weight(_WARNING),
    "slow-pcie-link": Weight(_WARNING),
    "persistence-off": Weight(_INFO),
    # The processor.
    "quota-below-cores": Weight(_WARNING),
    "omp-num-threads-above-usable": Weight(_WARNING),
    "omp-num-threads-below-usable": Weight(_INFO),
    "slow-governor": Weight(_WARNING),
    "masked-instruction-sets": Weight(_WARNING),
    "noisy-neighbours": Weight(_WARNING),
    "crowded-cpu": Weight(_WARNING),
    # Memory and limits.
    "swap-in-use": Weight(_WARNING),
    "small-shared-memory": Weight(_WARNING),
    "low-locked-memory": Weight(_INFO),
    "low-open-files": Weight(_WARNING),
    # Arm and Apple.
    "python-under-rosetta": Weight(_WARNING),
    "mps-fallback-on": Weight(_INFO),
    "allocator-for-other-pages": Weight(_WARNING),
}


def make_finding(code: str, subject: str, message: str, fix: str) -> Finding:
    """message: what was seen, with figures; fix: a command to paste, or the exact step."""
    weight = WEIGHTS[code]
    return Finding(code, weight.severity, subject, message, fix, weight.blocking, f"docs/findings/{code}.md")
