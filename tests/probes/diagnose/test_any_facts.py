"""Whatever the facts are, a diagnosis ends, and every finding says something."""

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes.diagnose import WEIGHTS, Facts, State, build_chains, diagnose
from probes.hardware import Accelerator, Driver, Outcome, ProbeReport, Software

VENDORS = st.sampled_from(["NVIDIA", "AMD", "Intel", "Apple", "NEC", None])
CARDS = st.builds(
    Accelerator,
    id=st.sampled_from(["GPU-1", "GPU-2", "pci-0000:01:00.0", "MIG-1", "x"]),
    vendor=VENDORS,
    kernel_driver=st.sampled_from(["nvidia", "nouveau", "vfio-pci", "amdgpu", "xe", None]),
    memory_total_bytes=st.none() | st.integers(-1, 1 << 50),
    memory_free_bytes=st.none() | st.integers(-1, 1 << 50),
    pcie_lanes=st.none() | st.integers(-1, 32),
    pcie_lanes_maximum=st.none() | st.integers(-1, 32),
    pcie_generation=st.none() | st.integers(-1, 7),
    pcie_generation_maximum=st.none() | st.integers(-1, 7),
    utilization_percent=st.none() | st.floats(0, 100),
    parent_id=st.sampled_from([None, "GPU-1"]),
    compute_capability=st.sampled_from(["8.6", "garbled", "", None]),
    driver_version=st.sampled_from(["580.65.06", "x", "", None]),
    torch_device=st.sampled_from(["cuda:0", None]),
    mig_mode=st.none() | st.booleans(),
    usable=st.none() | st.booleans(),
    why_not=st.sampled_from([None, "", "GPU is lost", "CUDA could not be started on this device: x"]),
)
ERRORS = st.sampled_from([None, "", "NVML_ERROR_UNKNOWN", "CUDA_ERROR_NO_DEVICE", "NVML_ERROR_LIB_RM_VERSION_MISMATCH"])
DRIVERS = st.builds(
    Driver,
    vendor=st.sampled_from(["NVIDIA", "AMD", "Intel"]),
    kernel_modules=st.none() | st.just(()) | st.just(("nvidia",)) | st.just(("nouveau", "amdgpu")),
    library_error=ERRORS,
    compute_error=ERRORS,
    compute_devices=st.none() | st.integers(0, 2),
    fabric_manager=st.sampled_from([None, "running", "stopped", "absent", "odd"]),
)
REPORTS: st.SearchStrategy[Mapping[str, Any]] = st.dictionaries(
    st.sampled_from(["nvidia", "cuda", "pci"]), st.builds(ProbeReport, st.sampled_from(Outcome)), max_size=3
)
VARIABLES = st.sampled_from(["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "OMP_NUM_THREADS"])


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    from dataclasses import replace

    drawn = draw(
        st.builds(Facts, accelerators=st.tuples() | st.tuples(CARDS) | st.tuples(CARDS, CARDS), probes=REPORTS)
    )
    software = replace(drawn.software, drivers=tuple(draw(st.lists(DRIVERS, max_size=2))))
    environment = draw(
        st.dictionaries(VARIABLES, st.text(max_size=8) | st.sampled_from(["0", "-1", "0,0"]), max_size=2)
    )
    return replace(drawn, software=software, environment=environment)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(facts())
def test_any_facts_give_findings_that_say_something(drawn: Facts) -> None:
    for finding in diagnose(drawn):
        weight = WEIGHTS[finding.code]
        assert (finding.severity, finding.blocking) == (weight.severity, weight.blocking)
        assert finding.message
        assert finding.fix
        assert finding.subject
    for chain in build_chains(drawn):
        assert all(link.evidence for link in chain.links)
        assert sum(link.state is State.BROKEN for link in chain.links) <= 1
        assert chain.to_json()["broken_at"] == chain.broken_at


def test_a_bus_full_of_cards_is_diagnosed_in_time_that_grows_with_their_number() -> None:
    """2,000 garbled functions once took an hour: each chain ordered all cards anew, comparing each with each."""
    cards = tuple(
        Accelerator(f"pci-{number:04x}:01:00.0", vendor="NVIDIA", pci_address=f"{number:04x}:01:00.0")
        for number in range(2000)
    )
    found = diagnose(Facts(accelerators=cards, software=Software("3.12"), environment={"CUDA_VISIBLE_DEVICES": "0"}))
    assert sum(finding.code == "gpu-without-driver" for finding in found) == 2000
