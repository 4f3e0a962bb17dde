"""From facts to findings: what stands between this machine and fast training, and what to do about it.

Each diagnosis is a small pure function over the facts; its code is stable. Add one: a function, a line in DIAGNOSES,
a test.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from probes.hardware import Accelerator, Cpu, Finding, Memory, Severity, Software, System
from probes.reading import parse_int


@dataclass(frozen=True, slots=True)
class Facts:
    """What the probes found; `environment` is this process's, empty for a captured machine."""

    system: System = field(default_factory=System)
    cpu: Cpu = field(default_factory=Cpu)
    memory: Memory = field(default_factory=Memory)
    accelerators: tuple[Accelerator, ...] = ()
    software: Software = field(default_factory=Software)
    environment: Mapping[str, str] = field(default_factory=dict)
    accelerators_known: bool = True  # False: the probes that look for them failed


def find_no_gpu(facts: Facts) -> Iterator[Finding]:
    if facts.accelerators_known and not any(card.segment != "integrated" for card in facts.accelerators):
        yield Finding(
            "no-gpu",
            Severity.INFO,
            "machine",
            "No GPU was found: neither on the PCI bus nor through a driver. Training runs on the CPU.",
            "In a container or virtual machine, check that the GPU is passed through (docker run --gpus all).",
        )


def find_torch_without_cuda(facts: Facts) -> Iterator[Finding]:
    torch = facts.software.torch
    if torch is None or torch.cuda_available is not False or torch.cuda_version is not None:
        return
    for card in facts.accelerators:
        if card.vendor == "NVIDIA":
            yield Finding(
                "torch-without-cuda",
                Severity.WARNING,
                card.name or card.id,
                f"torch {torch.version} is built without CUDA, so this GPU is not used.",
                "Install a CUDA build of torch: choose one at https://pytorch.org/get-started/locally/",
            )


def find_gpu_without_driver(facts: Facts) -> Iterator[Finding]:
    for card in facts.accelerators:
        if card.vendor == "NVIDIA" and card.driver_version is None and facts.software.nvidia_driver is None:
            yield Finding(
                "gpu-without-driver",
                Severity.WARNING,
                card.name or card.id,
                f"There is an NVIDIA card at {card.pci_address}, and no NVIDIA driver answers for it.",
                "Install NVIDIA's driver and restart; then nvidia-smi must list the card.",
            )


def find_quota_below_cores(facts: Facts) -> Iterator[Finding]:
    usable, cores = facts.cpu.usable_cores, facts.cpu.physical_cores
    if usable is None or cores is None or facts.cpu.usable_cores_limit != "cgroup" or usable >= cores:
        return  # affinity is seen by every library that counts; a quota by hardly any
    yield Finding(
        "quota-below-cores",
        Severity.WARNING,
        "cpu",
        f"This process may use {usable:g} of {cores} cores (its cgroup's limit); libraries that "
        "count cores start too many threads.",
        f"export OMP_NUM_THREADS={max(1, int(usable))}",
    )


def find_omp_num_threads_above_usable(facts: Facts) -> Iterator[Finding]:
    """OMP_NUM_THREADS may be a list, one number a nesting level (OpenMP 5.2, section 21.1.2)."""
    threads = parse_int(facts.environment.get("OMP_NUM_THREADS", "").split(",")[0])
    usable = facts.cpu.usable_cores
    if threads is None or usable is None or threads <= max(1.0, usable):
        return
    yield Finding(
        "omp-num-threads-above-usable",
        Severity.WARNING,
        "cpu",
        f"OMP_NUM_THREADS is {threads}, and this process may use {usable:g} cores: threads wait for one another.",
        f"export OMP_NUM_THREADS={max(1, int(usable))}",
    )


DIAGNOSES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    find_no_gpu,
    find_torch_without_cuda,
    find_gpu_without_driver,
    find_quota_below_cores,
    find_omp_num_threads_above_usable,
)


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    return tuple(finding for find in DIAGNOSES for finding in find(facts))
