"""Facts of machines on which everything works, for tests to break one thing at a time."""

from dataclasses import replace
from typing import Any

from probes.diagnose import Facts, State, build_chains, diagnose
from probes.diagnose.links import Chain
from probes.hardware import (
    Accelerator,
    Cpu,
    DeviceFile,
    Driver,
    Finding,
    Limits,
    Memory,
    Outcome,
    ProbeReport,
    Software,
    System,
    Torch,
)

GIB = 1 << 30
CARD = Accelerator(
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    vendor="NVIDIA",
    name="NVIDIA GeForce RTX 3080 Ti",
    segment="consumer",
    memory_total_bytes=12 * GIB,
    memory_free_bytes=11 * GIB,
    compute_capability="8.6",
    pci_address="0000:01:00.0",
    driver_version="580.65.06",
    kernel_driver="nvidia",
)
ON_BUS = Accelerator("pci-0000:01:00.0", vendor="NVIDIA", pci_address="0000:01:00.0")
NVIDIA_FILES = tuple(DeviceFile(f"/dev/{name}", True, True) for name in ("nvidia0", "nvidiactl", "nvidia-uvm"))
NVIDIA = Driver(
    "NVIDIA",
    kernel_modules=("nvidia", "nvidia_uvm"),
    kernel_module_version="580.65.06",
    library="libnvidia-ml.so.1",
    library_version="580.65.06",
    device_files=NVIDIA_FILES,
    compute_devices=1,
)
TORCH = Torch(
    "2.13.0+cu130", cuda_version="13.0", cuda_available=True, device_count=1, architectures=("sm_75", "sm_86", "sm_120")
)
HEALTHY = Facts(
    system=System(os="Debian GNU/Linux 13", architecture="x86_64", virtualization="none"),
    cpu=Cpu(physical_cores=8, logical_cores=16, usable_cores=16.0),
    memory=Memory(64 * GIB, 48 * GIB, None, 48 * GIB, 8 * GIB, 0),
    accelerators=(CARD,),
    software=Software("3.12.4", TORCH, "580.65.06", "13.0", (NVIDIA,)),
    limits=Limits(32 * GIB, 32 * GIB, 8 << 20, False, 1024, 1 << 19),
    probes={"pci": ProbeReport(Outcome.OK), "nvidia": ProbeReport(Outcome.OK)},
)
CONTAINER = System(os="Ubuntu 24.04", architecture="x86_64", virtualization="none", container="docker")


def with_card(facts: Facts = HEALTHY, /, **changes: Any) -> Facts:
    return replace(facts, accelerators=(replace(facts.accelerators[0], **changes),))


def with_driver(facts: Facts = HEALTHY, /, **changes: Any) -> Facts:
    driver = replace(facts.software.drivers[0], **changes)
    return replace(facts, software=replace(facts.software, drivers=(driver,)))


def with_torch(facts: Facts = HEALTHY, /, **changes: Any) -> Facts:
    torch = replace(facts.software.torch or TORCH, **changes)
    return replace(facts, software=replace(facts.software, torch=torch))


def untold(facts: Facts = HEALTHY, outcome: Outcome = Outcome.ABSENT, **driver: Any) -> Facts:
    """The card is seen on the bus only: NVIDIA's library tells nothing of it."""
    facts = with_driver(replace(facts, accelerators=(ON_BUS,)), compute_devices=None, **driver)
    return replace(facts, probes={**facts.probes, "nvidia": ProbeReport(outcome, 0.1, "a reason")})


def codes(facts: Facts) -> list[str]:
    return [finding.code for finding in diagnose(facts)]


def only(facts: Facts) -> Finding:
    """The one finding; it says what was seen and what to do."""
    [finding] = diagnose(facts)
    assert finding.message
    assert finding.fix
    assert finding.documentation == f"docs/findings/{finding.code}.md"
    return finding


def chain_of(facts: Facts) -> Chain:
    [chain] = build_chains(facts)
    return chain


def assert_breaks(facts: Facts, link: str, code: str) -> Finding:
    """The chain breaks at this link, nothing above it is looked at, and that is the only finding."""
    chain = chain_of(facts)
    assert chain.broken_at == link
    states = [item.state for item in chain.links]
    place = states.index(State.BROKEN)
    assert State.BROKEN not in states[:place]
    assert set(states[place + 1 :]) <= {State.NOT_REACHED}
    finding = only(facts)
    assert finding.code == code
    return finding
