"""The fingerprint follows the machine, not the moment: both directions, field by field."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes import hardware
from probes.fingerprint import (
    IDENTITY,
    Identity,
    compute_fingerprint,
    hash_identity,
    of_another_process,
    read_identity,
    settle_identity,
    silent_parts,
)
from probes.hardware import (
    Accelerator,
    CoreCluster,
    Cpu,
    Driver,
    Load,
    Memory,
    Outcome,
    ProbeReport,
    Software,
    Survey,
    System,
    Torch,
)
from probes.identity_changes import explain_changes

# Facts that pass, or that follow from the identity. Every field of every fact is either here or in IDENTITY.
PASSING: dict[type, str] = {
    System: "hostname os kernel architecture virtualization container page_bytes",
    Cpu: "vendor microarchitecture generation tier suffix suffix_meaning identified_by performance_cores "
    "efficiency_cores low_power_cores threads_per_core offline_logical_cores usable_cores_limit "
    "allowed_logical_cores numa_nodes "
    "numa_nodes_without_cpus cache_bytes base_frequency_hz max_frequency_hz governor frequency_driver",
    Memory: "total_bytes available_bytes usable_bytes swap_total_bytes swap_used_bytes reclaimable_bytes "
    "process_limit_bytes",
    CoreCluster: "kind microarchitecture max_frequency_hz",
    Accelerator: "architecture generation tier suffix tier_meaning segment "
    "memory_free_bytes memory_bandwidth_bytes_per_second unified_memory multiprocessors "
    "usable why_not utilization_percent temperature_celsius power_watts power_limit_watts power_limit_default_watts "
    "compute_mode throttle_reasons throttle_codes graphics_clock_hz graphics_clock_maximum_hz memory_clock_hz "
    "memory_clock_maximum_hz memory_bus_bits persistence_mode virtualization ecc_enabled "
    "ecc_corrected_errors ecc_uncorrected_errors ecc_needs_reset xids nvlinks nvlinks_maximum "
    "nvlink_bytes_per_second processes pcie_generation pcie_lanes pcie_lanes_maximum "
    "ecc_corrected_errors_lifetime ecc_uncorrected_errors_lifetime ecc_repair_failed",
    Driver: "kernel_modules library library_version device_files library_error compute_error compute_devices "
    "fabric_manager",
    Torch: "cudnn_version cuda_available device_count current_device architectures",
    Software: "python cuda_driver_version",
}
# Facts of which nothing is in the identity.
PASSING_WHOLE = {"CacheSizes", "Limits", "Load", "GpuProcess", "Xid", "Storage", "DeviceFile"}
NO_FACTS = {"ProbeReport", "Finding", "Survey"}

CARD = Accelerator("GPU-1", vendor="NVIDIA", name="NVIDIA GeForce RTX 3080 Ti", driver_version="550.54")
OTHER_CARD = Accelerator("GPU-2", vendor="NVIDIA", name="NVIDIA H100", driver_version="550.54")
SURVEY = Survey(
    surveyed_at="2026-11-21T09:02:11Z",
    fingerprint="",
    system=System("somewhere", kernel="6.1.0-18"),
    cpu=Cpu(
        name="AMD EPYC 9R14",
        vendor_id="AuthenticAMD",
        architecture="x86_64",
        sockets=1,
        physical_cores=8,
        logical_cores=16,
        instruction_sets=("avx2", "md_clear"),
        torch_instruction_set="AVX2",
        usable_cores=16.0,
    ),
    memory=Memory(total_bytes=64 << 30, limit_bytes=None),
    accelerators=(CARD, OTHER_CARD),
    storage=(),
    software=Software("3.12", Torch("2.9.0", "12.8"), nvidia_driver="550.54"),
    findings=(),
    probes={name: ProbeReport(Outcome.OK) for name in ("cpu", "limits", "memory", "software", "pci", "nvidia")},
)
FINGERPRINT = compute_fingerprint(SURVEY)


def with_cpu(**changes: Any) -> Survey:
    return replace(SURVEY, cpu=replace(SURVEY.cpu, **changes))


def with_card(**changes: Any) -> Survey:
    return replace(SURVEY, accelerators=(replace(CARD, **changes), OTHER_CARD))


def with_software(**changes: Any) -> Survey:
    return replace(SURVEY, software=replace(SURVEY.software, **changes))


def with_cores(performance: tuple[int, int], efficiency: tuple[int, int]) -> Survey:
    """Of a machine with four of each: how many cores, and CPUs, of each may be used."""
    fast = CoreCluster("performance", None, 4, 8, None, *performance)
    return with_cpu(clusters=(fast, CoreCluster("efficiency", None, 4, 4, None, *efficiency)))


def with_names(first: str | None, second: str | None) -> Survey:
    """torch's names of the two cards."""
    cards = zip(SURVEY.accelerators, (first, second), strict=True)
    return replace(SURVEY, accelerators=tuple(replace(card, torch_device=name) for card, name in cards))


CHANGED_MACHINES = [
    (with_cores((4, 8), (0, 0)), "allowed cores all -> 4 (8 threads) + 0"),
    (with_cores((0, 0), (4, 4)), "allowed cores all -> 0 + 4"),
    (with_names(None, "cuda:0"), "cuda:0 the usual card -> NVIDIA H100"),
    (with_cpu(name="AMD EPYC 9R45"), "CPU AMD EPYC 9R14 -> AMD EPYC 9R45"),
    (with_cpu(sockets=2), "sockets 1 -> 2"),
    (with_cpu(logical_cores=8), "logical cores 16 -> 8"),
    (with_cpu(physical_cores=7), "physical cores 8 -> 7"),
    (with_cpu(usable_cores=2.5), "usable cores 16 -> 2.5"),
    (with_cpu(instruction_sets=("avx2", "avx512f")), "instruction set avx512f new"),
    (with_cpu(instruction_sets=()), "instruction set avx2 gone"),
    (with_cpu(torch_instruction_set="DEFAULT"), "torch's instruction set AVX2 -> DEFAULT"),
    (replace(SURVEY, memory=replace(SURVEY.memory, limit_bytes=8 << 30)), "memory limit none -> 8 GiB"),
    (replace(SURVEY, memory=replace(SURVEY.memory, limit_bytes=1536 << 30)), "memory limit none -> 1536 GiB"),
    (replace(SURVEY, accelerators=(CARD,)), "NVIDIA H100 removed"),
    (replace(SURVEY, accelerators=(CARD, OTHER_CARD, replace(CARD, id="GPU-3"))), "NVIDIA GeForce RTX 3080 Ti added"),
    (with_card(name="NVIDIA H200"), "NVIDIA GeForce RTX 3080 Ti -> NVIDIA H200"),
    (with_card(driver_version="560.28"), "NVIDIA driver 550.54 -> 550.54, 560.28"),
    (
        with_software(nvidia_driver=None, drivers=(Driver("AMD", kernel_module_version="6.8"),)),
        "AMD driver none -> 6.8",
    ),
    (with_software(torch=Torch("2.10.0", "12.8")), "torch 2.9.0 -> 2.10.0"),
    (with_software(torch=Torch("2.9.0", "13.0")), "torch's CUDA 12.8 -> 13.0"),
    (with_software(torch=Torch("2.9.0", "12.8", hip_version="6.4")), "torch's ROCm none -> 6.4"),
    (with_software(torch=None), "torch 2.9.0 -> none"),
]


@pytest.mark.parametrize(("changed", "words"), CHANGED_MACHINES, ids=[words for _, words in CHANGED_MACHINES])
def test_another_machine_has_another_fingerprint_and_what_changed_is_said(changed: Survey, words: str) -> None:
    assert compute_fingerprint(changed) != FINGERPRINT
    assert words in explain_changes(read_identity(SURVEY), read_identity(changed))


def test_a_driver_that_was_replaced_is_one_change() -> None:
    cards = tuple(replace(card, driver_version="560.28") for card in SURVEY.accelerators)
    after = replace(with_software(nvidia_driver="560.28"), accelerators=cards)
    assert explain_changes(read_identity(SURVEY), read_identity(after)) == ("NVIDIA driver 550.54 -> 560.28",)


SAME_MACHINES = {
    "busy": replace(SURVEY, load=Load(12.0, 0.3, 0.9)),
    "later": replace(SURVEY, surveyed_at="2027-01-01T00:00:00Z"),
    "renamed": replace(SURVEY, system=System("elsewhere", kernel="6.1.0-25")),
    "cards listed the other way round": replace(SURVEY, accelerators=(OTHER_CARD, CARD)),
    "hot": with_card(temperature_celsius=90, throttle_reasons=("too hot",), memory_free_bytes=1),
    "hidden from torch": with_card(usable=False, why_not="hidden", torch_device=None),
    "flags of a newer microcode": with_cpu(instruction_sets=("rtm", "smep", "avx2")),
    "after torch was asked": with_software(torch=Torch("2.9.0", "12.8", "9.1", True, 2, 0, ("sm_86",))),
    "all of its cores allowed": with_cores((4, 8), (4, 4)),
    "with cores of which nothing is told": with_cpu(clusters=(CoreCluster(None, None, 8, 16),)),
    "seen by torch": with_names("cuda:0", "cuda:1"),
    "with the last card hidden": with_names("cuda:0", None),
    "at half its power": with_card(power_limit_watts=350.0, power_limit_default_watts=700.0, segment="data-center"),
    "read by another crosspoint": with_cpu(microarchitecture="Zen 4", generation="9004", tier=None),
}


@pytest.mark.parametrize("same", SAME_MACHINES.values(), ids=SAME_MACHINES)
def test_the_same_machine_keeps_its_fingerprint(same: Survey) -> None:
    assert compute_fingerprint(same) == FINGERPRINT
    assert explain_changes(read_identity(SURVEY), read_identity(same)) == ()


def test_every_field_of_every_fact_is_classified() -> None:
    facts = {item.__name__: item for item in vars(hardware).values() if isinstance(item, type) and is_dataclass(item)}
    classified = {kind.__name__: IDENTITY.get(kind, frozenset()) | set(text.split()) for kind, text in PASSING.items()}
    unknown = {
        f"{name}.{item.name}"
        for name, fact in facts.items()
        if name not in PASSING_WHOLE | NO_FACTS
        for item in fields(fact)
        if item.name not in classified.get(name, frozenset())
    }
    assert unknown == set(), "say in IDENTITY or here whether a change of it makes another machine"
    assert not [kind for kind, names in IDENTITY.items() if names & set(PASSING[kind].split())]


def bent(fact: Any) -> st.SearchStrategy[Any]:
    """The fact with its identity kept and anything in its other fields."""
    kept = IDENTITY.get(type(fact), frozenset())
    return st.builds(
        type(fact),
        **{item.name: st.just(getattr(fact, item.name)) if item.name in kept else ... for item in fields(fact)},
    )


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(st.data())
def test_nothing_that_passes_changes_the_fingerprint(data: st.DataObject) -> None:
    torch = data.draw(bent(SURVEY.software.torch))
    changed = replace(
        SURVEY,
        system=data.draw(bent(SURVEY.system)),
        cpu=data.draw(bent(SURVEY.cpu)),
        memory=data.draw(bent(SURVEY.memory)),
        accelerators=tuple(data.draw(st.permutations([data.draw(bent(card)) for card in SURVEY.accelerators]))),
        software=data.draw(bent(replace(SURVEY.software, torch=torch))),
        limits=data.draw(st.from_type(hardware.Limits)),
        load=data.draw(st.from_type(Load)),
    )
    assert compute_fingerprint(changed) == FINGERPRINT


def hanging(survey: Survey, name: str) -> Survey:
    probes = {**survey.probes, name: ProbeReport(Outcome.TIMEOUT, 5.0, "it hangs")}
    return replace(survey, probes=probes)


BEFORE: Identity = read_identity(SURVEY)


def test_a_driver_that_hangs_is_no_removed_card() -> None:
    silent = hanging(replace(SURVEY, accelerators=()), "nvidia")
    assert silent_parts(silent.probes) == {"accelerators"}
    assert settle_identity(silent, BEFORE) == BEFORE
    assert settle_identity(replace(SURVEY, accelerators=()), BEFORE)["accelerators"]["cards"] == []


def test_an_amdsmi_that_is_late_is_no_other_card_and_no_other_driver() -> None:
    card = Accelerator("GPU-9", vendor="AMD", name="AMD Radeon RX 9070 XT", driver_version="6.12.12")
    before = read_identity(replace(SURVEY, accelerators=(card,)))
    late = hanging(replace(SURVEY, accelerators=(replace(card, name=None, driver_version=None),)), "amd")
    assert settle_identity(late, before) == before


JETSON = Accelerator("GPU-7", vendor="NVIDIA", name="Orin")


@pytest.mark.parametrize("nvidia", [Outcome.ABSENT, Outcome.DENIED, Outcome.UNSUPPORTED])
def test_a_card_that_only_cuda_tells_of_is_not_removed_while_cuda_is_late(nvidia: Outcome) -> None:
    probes = {**SURVEY.probes, "nvidia": ProbeReport(nvidia), "cuda": ProbeReport(Outcome.OK)}
    jetson = replace(SURVEY, accelerators=(JETSON,), probes=probes)
    before = read_identity(jetson)
    assert settle_identity(hanging(replace(jetson, accelerators=()), "cuda"), before) == before
    gone = replace(jetson, accelerators=(), probes={**probes, "cuda": ProbeReport(Outcome.FAILED)})
    assert settle_identity(gone, before)["accelerators"]["cards"] == [], "its errors last, and are answers"


def test_a_cuda_that_is_late_beside_nvml_leaves_nothing_open() -> None:
    assert silent_parts(hanging(SURVEY, "cuda").probes) == frozenset()


def test_other_cores_of_the_same_number_are_another_machine() -> None:
    """As `taskset` gives them, or Kubernetes: four cores of one thread each, or two with both of theirs."""
    whole, single = (with_cores((2, 4), (0, 0)), with_cores((4, 4), (0, 0)))
    assert compute_fingerprint(whole) != compute_fingerprint(single)
    assert explain_changes(read_identity(whole), read_identity(single)) == ("allowed cores 2 (4 threads) + 0 -> 4 + 0",)


def test_a_machine_that_was_pinned_before_its_cores_were_told_is_not_said_to_have_had_them_all() -> None:
    pinned = with_cores((2, 4), (0, 0))
    now = read_identity(replace(pinned, cpu=replace(pinned.cpu, usable_cores=4.0)))
    then = {**now, "limits": {name: fact for name, fact in now["limits"].items() if name != "cores"}}
    assert hash_identity(then) != hash_identity(now)
    assert explain_changes(then, now) == explain_changes(now, then) == ()
    freed = read_identity(with_cores((4, 8), (4, 4)))
    assert "allowed cores 2 (4 threads) + 0 -> all" in explain_changes(now, freed)


def test_cores_that_are_all_alike_are_told_by_their_number() -> None:
    """A machine that was always pinned keeps its fingerprint."""
    alike = with_cpu(physical_cores=16, usable_cores=4.0)
    pinned = replace(alike, cpu=replace(alike.cpu, clusters=(CoreCluster(None, None, 16, 16, None, 4, 4),)))
    assert compute_fingerprint(pinned) == compute_fingerprint(alike)


def test_which_cores_are_allowed_stays_known_while_the_processor_is_not_read() -> None:
    before = read_identity(with_cores((4, 8), (0, 0)))
    assert settle_identity(hanging(SURVEY, "cpu"), before) == before
    assert settle_identity(hanging(SURVEY, "cpu"), BEFORE) == BEFORE


HIDING = {"CUDA_VISIBLE_DEVICES": "1"}


def test_a_cuda_that_is_late_leaves_open_what_a_hiding_variable_makes_of_its_names() -> None:
    """Only there: where nothing hides cards the names are as usual."""
    late, hidden = hanging(with_names(None, None), "cuda"), read_identity(with_names(None, "cuda:0"))
    assert settle_identity(late, None) == settle_identity(late, BEFORE) == BEFORE
    assert settle_identity(late, None, HIDING)["devices"] is None
    assert settle_identity(late, hidden, HIDING) == hidden
    assert settle_identity(late, BEFORE, HIDING) == BEFORE
    assert settle_identity(late, of_another_process(BEFORE), HIDING)["devices"] is None
    assert explain_changes(settle_identity(late, None, HIDING), hidden) == ()


def test_what_names_stand_for_stays_known_while_the_driver_hangs() -> None:
    silent, hidden = hanging(replace(SURVEY, accelerators=()), "nvidia"), read_identity(with_names(None, "cuda:0"))
    assert settle_identity(silent, hidden, HIDING) == hidden
    assert settle_identity(silent, of_another_process(hidden), HIDING) == BEFORE


def test_a_processor_without_a_name_keeps_the_fingerprint_that_the_kernels_word_for_it_gave() -> None:
    """Stores from before `unknown` was read as no name know the machine by it."""
    then, now = with_cpu(name="unknown", vendor_id="unknown"), with_cpu(name=None, vendor_id=None)
    assert compute_fingerprint(now) == compute_fingerprint(then)
    arm = {"architecture": "aarch64", "instruction_sets": ("asimd",)}
    assert read_identity(with_cpu(name=None, **arm))["cpu"]["name"] is None


def test_what_other_probes_tell_still_counts_while_one_hangs() -> None:
    silent = hanging(replace(with_software(torch=Torch("2.10.0")), accelerators=()), "nvidia")
    settled = settle_identity(silent, BEFORE)
    assert (settled["torch"]["version"], settled["accelerators"]) == ("2.10.0", BEFORE["accelerators"])


def test_nothing_is_taken_over_from_another_machine() -> None:
    silent = hanging(with_cpu(name="another"), "nvidia")
    assert settle_identity(silent, BEFORE)["accelerators"] is None
    assert settle_identity(silent, None)["accelerators"] is None


def test_refused_and_absent_are_answers() -> None:
    for outcome in (Outcome.DENIED, Outcome.ABSENT, Outcome.UNSUPPORTED):
        assert silent_parts({"nvidia": ProbeReport(outcome)}) == frozenset()


def test_an_identity_leads_to_no_serial_number() -> None:
    assert "GPU-1" not in str(BEFORE)
    assert hash_identity(BEFORE) == FINGERPRINT
