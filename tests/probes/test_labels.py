"""Node labels: valid for any name there is, right for the machines we know, silent about who the host is."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from probes.gpu.pci import NO_INTEL_GPU
from probes.hardware import (
    Accelerator,
    Cpu,
    Memory,
    Outcome,
    ProbeReport,
    Software,
    Survey,
    System,
    Torch,
)
from probes.labels import make_labels, write_labels

# As Kubernetes checks them (apimachinery's IsQualifiedName and IsValidLabelValue).
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

CARD = Accelerator(
    "GPU-4711",
    vendor="NVIDIA",
    name="NVIDIA GeForce RTX 3080 Ti",
    architecture="Ampere",
    generation="GeForce RTX 30",
    tier="80",
    suffix="Ti",
    segment="consumer",
    memory_total_bytes=12 << 30,
    compute_capability="8.6",
    pci_address="0000:01:00.0",
    driver_version="580.65.06",
)
CPU = Cpu(
    name="12th Gen Intel(R) Core(TM) i9-12900KF",
    vendor="Intel",
    architecture="x86_64",
    microarchitecture="Alder Lake",
    physical_cores=16,
    logical_cores=24,
    instruction_sets=("avx2", "avx_vnni", "md_clear"),
)


def survey_of(*cards: Accelerator, cpu: Cpu = CPU, pci: Outcome = Outcome.OK) -> Survey:
    return Survey(
        surveyed_at="2026-11-21T09:02:11Z",
        fingerprint="f1",
        system=System(hostname="secret-host"),
        cpu=cpu,
        memory=Memory(total_bytes=64 << 30),
        accelerators=cards,
        storage=(),
        software=Software(),
        findings=(),
        probes={"pci": ProbeReport(pci)},
    )


def short_labels(*cards: Accelerator) -> dict[str, str]:
    prefix = "feature.node.kubernetes.io/crosspoint."
    return {key.removeprefix(prefix): value for key, value in make_labels(survey_of(*cards)).items()}


def check(labels: dict[str, str]) -> None:
    for key, value in labels.items():
        namespace, _, name = key.partition("/")
        assert len(namespace) <= 253
        assert DNS_SUBDOMAIN.fullmatch(namespace)
        assert len(name) <= 63
        assert NAME.fullmatch(name), name
        assert len(value) <= 63
        assert NAME.fullmatch(value), value
    for line in write_labels(labels).splitlines():
        assert line.count("=") == 1
        assert not line.startswith("#")


def test_a_machine_is_described_by_what_a_scheduler_asks_for() -> None:
    labels = short_labels(CARD, replace(CARD, id="GPU-4712"))
    assert (
        labels.items()
        >= {
            "cpu.microarchitecture": "Alder-Lake",
            "cpu.physical-cores": "16",
            "cpu.instruction-set.avx2": "true",
            "memory.total-mib": "65536",
            "gpu.count": "2",
            "gpu.model.NVIDIA-GeForce-RTX-3080-Ti": "2",
            "gpu.generation": "GeForce-RTX-30",
            "gpu.tier": "80",
            "gpu.memory-mib": "12288",
            "gpu.compute-capability.major": "8",
            "gpu.compute-capability.minor": "6",
            "gpu.driver": "580.65.06",
        }.items()
    )
    assert "cpu.instruction-set.md_clear" not in labels


def test_unlike_cards_promise_what_each_of_them_keeps() -> None:
    labels = short_labels(CARD, replace(CARD, name="NVIDIA H100", tier=None, memory_total_bytes=80 << 30))
    assert labels["gpu.memory-mib"] == "12288"
    assert "gpu.tier" not in labels
    assert labels["gpu.model.NVIDIA-H100"] == "1"
    assert "gpu.memory-mib" not in short_labels(CARD, replace(CARD, memory_total_bytes=None))


def test_no_card_is_zero_and_an_unknown_number_is_no_label() -> None:
    assert short_labels()["gpu.count"] == "0"
    assert not [key for key in make_labels(survey_of(pci=Outcome.TIMEOUT)) if "gpu" in key]


def test_before_a_torch_that_may_show_cards_was_asked_none_is_not_counted() -> None:
    torch = Torch("2.13.0+rocm7.0", hip_version="7.0")  # under WSL nothing else shows them
    for heard, count in ((None, None), (False, "0")):
        software = Software("3.12", replace(torch, cuda_available=heard))
        labels = make_labels(replace(survey_of(), software=software))
        assert labels.get("feature.node.kubernetes.io/crosspoint.gpu.count") == count


def test_graphics_inside_the_cpu_and_parts_of_a_card_do_not_count() -> None:
    integrated = replace(CARD, segment="integrated", vendor="Intel")
    parts = (replace(CARD, id="MIG-1", parent_id=CARD.id), replace(CARD, id="MIG-2", parent_id=CARD.id))
    labels = short_labels(CARD, integrated, *parts)
    assert (labels["gpu.count"], labels["gpu.mig-instances"], labels["gpu.vendor"]) == ("1", "2", "NVIDIA")


def test_only_what_torch_has_a_backend_for_is_a_gpu_to_schedule_by() -> None:
    others = [Accelerator(f"pci-{vendor}", vendor=vendor) for vendor in ("Amazon", "Habana", "NEC")]
    fpga = Accelerator("pci-0000:5e:00.0", vendor="Intel", usable=False, why_not=NO_INTEL_GPU)
    assert short_labels(*others, fpga)["gpu.count"] == "0"
    labels = short_labels(CARD, *others, fpga)
    assert (labels["gpu.count"], labels["gpu.vendor"]) == ("1", "NVIDIA")


def test_nothing_leads_back_to_the_host() -> None:
    text = write_labels(make_labels(survey_of(CARD)))
    assert not [word for word in ("secret-host", "GPU-4711", "4711", "01:00") if word in text]


ANYTHING = st.none() | st.text(max_size=90)


@given(ANYTHING, ANYTHING, ANYTHING, st.lists(st.text(max_size=70), max_size=3), st.none() | st.integers(-1, 1 << 60))
def test_labels_are_valid_whatever_the_names_are(
    name: str | None, tier: str | None, capability: str | None, flags: list[str], size: int | None
) -> None:
    card = replace(CARD, name=name, tier=tier, generation=name, compute_capability=capability, memory_total_bytes=size)
    cpu = Cpu(name=name, vendor=tier, microarchitecture=name, instruction_sets=tuple(f"avx{flag}" for flag in flags))
    check(make_labels(survey_of(card, replace(card, name=tier), cpu=cpu)))
