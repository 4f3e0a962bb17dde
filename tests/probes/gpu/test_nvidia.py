"""What the NVML program reads of a card, played in this process by the fake library."""

import importlib.util
import json
import queue
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml as real_pynvml
import pytest

from probes.gpu import nvidia
from probes.gpu.nvidia import parse_library_version, read_all
from probes.gpu.nvml.asking import LOST, name_error
from probes.gpu.nvml_process import NvidiaReading, parse_documents
from probes.hardware import Accelerator, GpuProcess, Outcome

FAKE = Path(__file__).parent / "fake_nvml" / "pynvml.py"
ERRORS = sorted({name for name in dir(real_pynvml) if name.startswith("NVMLError_")})
SOURCES = [Path(nvidia.__file__), *Path(nvidia.__file__).with_name("nvml").glob("*.py")]
NAMES = {
    name for path in SOURCES for name in re.findall(r"[\".](nvml(?:Init|Shutdown|System|Device)\w*)", path.read_text())
}
STARTING = {"nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}  # without these: no cards
CALLS = sorted(NAMES - STARTING)
# The facts that hang on one call alone; another call stands in for those that are missing here.
OWN_FACTS = {
    "nvmlDeviceGetName": {"name"},
    "nvmlDeviceGetUUID": {"id"},
    "nvmlDeviceGetPciInfo": {"pci_address", "xids"},
    "nvmlDeviceGetArchitecture": {"architecture"},
    "nvmlDeviceGetPersistenceMode": {"persistence_mode"},
    "nvmlDeviceGetVirtualizationMode": {"virtualization"},
    "nvmlDeviceGetMigMode": {"mig_mode"},
    "nvmlDeviceGetMemoryInfo": {
        "memory_total_bytes", "memory_free_bytes", "unified_memory",
        "memory_bus_bits", "memory_bandwidth_bytes_per_second",  # NOT_SUPPORTED: they are the machine's own memory's
    },
    "nvmlDeviceGetUtilizationRates": {"utilization_percent"},
    "nvmlDeviceGetTemperature": {"temperature_celsius"},
    "nvmlDeviceGetPowerUsage": {"power_watts"},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_watts"},
    "nvmlDeviceGetClockInfo": {"graphics_clock_hz", "memory_clock_hz"},
    "nvmlDeviceGetMaxClockInfo": {
        "graphics_clock_maximum_hz", "memory_clock_maximum_hz", "memory_bandwidth_bytes_per_second"
    },
    "nvmlDeviceGetCurrentClocksEventReasons": {"throttle_reasons", "throttle_codes"},
    "nvmlDeviceGetCudaComputeCapability": {"compute_capability", "multiprocessors"},
    "nvmlDeviceGetNumGpuCores": {"multiprocessors"},
    "nvmlDeviceGetMemoryBusWidth": {"memory_bus_bits", "memory_bandwidth_bytes_per_second"},
    "nvmlDeviceGetCurrPcieLinkGeneration": {"pcie_generation"},
    "nvmlDeviceGetMaxPcieLinkGeneration": {"pcie_generation_maximum"},
    "nvmlDeviceGetCurrPcieLinkWidth": {"pcie_lanes"},
    "nvmlDeviceGetMaxPcieLinkWidth": {"pcie_lanes_maximum"},
    "nvmlDeviceGetNvLinkState": {"nvlinks", "nvlinks_maximum", "nvlink_bytes_per_second"},
    "nvmlDeviceGetFieldValues": {"nvlink_bytes_per_second"},
    "nvmlDeviceGetEccMode": {"ecc_enabled"},
    "nvmlDeviceGetTotalEccErrors": {
        "ecc_corrected_errors", "ecc_uncorrected_errors",
        "ecc_corrected_errors_lifetime", "ecc_uncorrected_errors_lifetime",
    },
    "nvmlDeviceGetRemappedRows": {"ecc_needs_reset", "ecc_repair_failed"},
    "nvmlSystemGetDriverVersion": {"driver_version"},
    # Compute and graphics list the same process, so that neither alone hides it; only who is in one list goes.
    "nvmlDeviceGetComputeRunningProcesses": {"processes"},
}  # fmt: skip


def play(monkeypatch: pytest.MonkeyPatch, scene: str) -> ModuleType:
    monkeypatch.setenv("FAKE_NVML", scene)
    spec = importlib.util.spec_from_file_location("pynvml", FAKE)
    assert spec is not None
    assert spec.loader is not None
    fake = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fake)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def read_reading() -> NvidiaReading:
    documents: list[dict[str, Any]] = []
    documents.append(read_all(documents.append))
    return parse_documents([json.loads(json.dumps(document)) for document in documents], None)


def read() -> list[Accelerator]:
    reading = read_reading()
    assert reading.outcome is Outcome.OK
    return list(reading.accelerators)


def test_a_healthy_card_is_read_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "healthy")
    [card] = read()
    assert card.memory_bandwidth_bytes_per_second == pytest.approx(912e9, rel=1e-3)  # NVIDIA's data sheet
    assert (card.id, card.name, card.architecture) == ("GPU-00000000", "NVIDIA GeForce RTX 3080 Ti", "Ampere")
    assert (card.compute_capability, card.multiprocessors, card.pci_address) == ("8.6", 80, "0000:01:00.0")
    assert (card.memory_total_bytes, card.memory_free_bytes, card.unified_memory) == (12 << 30, 5 << 30, False)
    assert (card.utilization_percent, card.temperature_celsius, card.power_watts) == (7, 41, pytest.approx(30.1))
    assert (card.power_limit_watts, card.memory_bus_bits) == (350, 384)
    assert (card.graphics_clock_hz, card.graphics_clock_maximum_hz) == (210_000_000, 2_100_000_000)
    assert (card.memory_clock_hz, card.memory_clock_maximum_hz) == (405_000_000, 9_501_000_000)
    assert (card.persistence_mode, card.virtualization, card.mig_mode) == (True, "passthrough", None)
    assert (card.pcie_generation, card.pcie_generation_maximum, card.pcie_lanes) == (1, 4, 16)
    assert card.usable is None  # torch has not been asked


def test_its_memorys_health_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "healthy")
    [card] = read()
    assert (card.ecc_enabled, card.ecc_corrected_errors, card.ecc_uncorrected_errors) == (True, 3, 1)
    assert (card.ecc_corrected_errors_lifetime, card.ecc_uncorrected_errors_lifetime) == (40, 2)
    assert (card.ecc_needs_reset, card.ecc_repair_failed) == (True, False)


def test_a_card_that_retires_pages_tells_whether_some_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.delattr(fake, "nvmlDeviceGetRemappedRows")
    monkeypatch.setattr(fake, "nvmlDeviceGetRetiredPagesPendingStatus", lambda _: 0, raising=False)
    [card] = read()
    assert (card.ecc_needs_reset, card.ecc_repair_failed) == (False, None)


def test_links_between_cards_are_counted_with_their_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four third-generation links of a GeForce, one of them down: 14.0625 GB/s each and direction."""
    play(monkeypatch, "healthy")
    [card] = read()
    assert (card.nvlinks, card.nvlinks_maximum) == (3, 4)
    assert card.nvlink_bytes_per_second == pytest.approx(3 * 14.062e9)


def test_a_card_without_links_has_no_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.delattr(fake, "nvmlDeviceGetNvLinkState")
    assert read()[0].nvlinks is None


def test_an_idle_card_under_a_power_limit_is_held_down_by_the_limit_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "healthy")
    [card] = read()
    assert card.throttle_reasons == ("held down by its power limit",)
    assert card.throttle_codes == ("gpu_idle", "sw_power_cap")


@pytest.mark.parametrize("mask", [0, 1])
def test_a_card_at_full_clocks_or_idle_is_not_held_down(monkeypatch: pytest.MonkeyPatch, mask: int) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.setattr(fake, "nvmlDeviceGetCurrentClocksEventReasons", lambda _: mask)
    assert read()[0].throttle_reasons == ()


def test_an_older_driver_tells_of_throttling_by_the_older_call(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.delattr(fake, "nvmlDeviceGetCurrentClocksEventReasons")
    monkeypatch.setattr(fake, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda _: 0x40, raising=False)
    assert read()[0].throttle_codes == ("hw_thermal_slowdown",)


def test_the_fabrics_state_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "healthy")
    assert read_reading().fabric_state == "in-progress"
    monkeypatch.setattr(fake, "nvmlDeviceGetGpuFabricInfo", _complete_with_error)
    assert read_reading().fabric_state == "failed"


def _complete_with_error(_: Any, pointer: Any) -> int:
    pointer._obj.state, pointer._obj.status = 3, 999
    return 0


def healthy_facts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    play(monkeypatch, "healthy")
    return asdict(read()[0])


@pytest.mark.parametrize("call", CALLS)
def test_any_error_from_any_call_costs_that_field_and_no_other(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    whole = healthy_facts(monkeypatch)
    own = OWN_FACTS.get(call, set())
    for error in ERRORS:
        fake = play(monkeypatch, "healthy")
        monkeypatch.setattr(fake, call, _refusing(type(error, (fake.NVMLError,), {})), raising=False)
        [card] = read()
        differing = {name for name, value in asdict(card).items() if value != whole[name]}
        said = "NVML_ERROR_" + name_error(type(error, (Exception,), {})()).removeprefix("NVML_ERROR_")
        is_lost = said in LOST and call.startswith("nvmlDevice") and call in _asked(monkeypatch)
        assert differing - ({"usable", "why_not"} if is_lost else set()) <= own, (call, error)
        assert (card.usable is False) == is_lost, (call, error)


def _refusing(kind: type[Exception]) -> Callable[..., Any]:
    def refuse(*_: Any) -> None:
        raise kind("refused")

    return refuse


def _asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Calls that a healthy card is asked at all; the rest only stand in for others."""
    fake = play(monkeypatch, "healthy")
    asked = set()
    for name in CALLS:
        function = getattr(fake, name, None)

        def note(*arguments: Any, name: str = name, function: Any = function) -> Any:
            asked.add(name)
            return function(*arguments)

        if function is not None:
            monkeypatch.setattr(fake, name, note)
    read()
    return asked


def test_every_call_that_a_healthy_card_is_asked_has_facts_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {
        "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion",  # of the library, not of a card
        "nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetGraphicsRunningProcesses",
    }  # fmt: skip
    assert _asked(monkeypatch) - without == set(OWN_FACTS)


@pytest.mark.parametrize("answer", [None, "", b"\xff", -1, (), object(), float("nan"), "9" * 99, 2**64 - 1, 2**32 - 1])
def test_no_answer_of_a_wrong_kind_is_a_fact(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    fake = play(monkeypatch, "healthy")
    for call in CALLS:
        monkeypatch.setattr(fake, call, lambda *_: answer, raising=False)
    [card] = read()
    told = {name for name, value in asdict(card).items() if value not in (None, ())}
    assert told <= {"id", "vendor", "name", "driver_version"}


@pytest.mark.parametrize("answer", [2**64 - 1, 2**32 - 1, -1])
def test_a_sentinel_inside_an_answer_is_no_number(monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.setattr(fake, "nvmlDeviceGetMemoryInfo", lambda _: SimpleNamespace(total=answer, free=answer))
    monkeypatch.setattr(fake, "nvmlDeviceGetUtilizationRates", lambda _: SimpleNamespace(gpu=answer))
    monkeypatch.setattr(fake, "nvmlDeviceGetEccMode", lambda _: [answer, 0])
    [card] = read()
    assert (card.memory_total_bytes, card.utilization_percent, card.ecc_enabled) == (None, None, None)


def test_a_laptop_that_answers_no_watts_has_not_measured_any(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.setattr(fake, "nvmlDeviceGetPowerUsage", lambda _: 0)
    assert read()[0].power_watts is None


def test_every_call_that_is_made_is_one_of_the_librarys() -> None:
    assert len(NAMES) > 35
    assert set(dir(real_pynvml)) >= NAMES


def test_the_constants_written_out_are_the_librarys() -> None:
    assert (real_pynvml.NVML_CLOCK_GRAPHICS, real_pynvml.NVML_CLOCK_MEM, real_pynvml.NVML_TEMPERATURE_GPU) == (0, 2, 0)
    assert real_pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON == 90
    assert (real_pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, real_pynvml.NVML_VOLATILE_ECC) == (0, 0)
    assert real_pynvml.NVML_GPU_FABRIC_STATE_COMPLETED == 3
    assert real_pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU == 2
    assert real_pynvml.NVML_NVLINK_MAX_LINKS <= 36


def test_a_missing_call_of_an_older_library_costs_that_field(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "healthy")
    monkeypatch.delattr(fake, "nvmlDeviceGetNumGpuCores")
    assert read()[0].multiprocessors is None


def test_a_lost_card_stays_in_the_list_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "lost")
    healthy, lost = read()
    assert healthy.why_not is None
    assert lost.usable is False
    assert "GPU is lost" in (lost.why_not or "")


def test_a_card_lost_while_it_is_read_keeps_what_it_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = play(monkeypatch, "two")
    for call in CALLS[CALLS.index("nvmlDeviceGetMemoryInfo") :]:
        function = getattr(fake, call, None)
        monkeypatch.setattr(fake, call, _lost_for(fake, 1, function), raising=False)
    healthy, lost = read()
    assert (healthy.usable, healthy.memory_total_bytes) == (None, 12 << 30)
    assert (lost.usable, lost.memory_total_bytes, lost.temperature_celsius) == (False, None, None)
    assert (lost.compute_capability, lost.memory_bus_bits) == ("8.6", 384)


def _lost_for(fake: Any, card: int, function: Any) -> Callable[..., Any]:
    def ask(*arguments: Any) -> Any:
        if arguments and arguments[0] == card:
            raise fake.NVMLError_GpuIsLost("GPU is lost")
        return function(*arguments)

    return ask


@pytest.mark.parametrize("call", sorted(OWN_FACTS))
def test_a_hang_in_any_call_about_one_card_leaves_the_other_whole(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    if call.startswith("nvmlSystem"):
        pytest.skip("not about one card")
    fake, let_go, hanging = play(monkeypatch, "two"), threading.Event(), threading.Event()
    function, told = getattr(fake, call), queue.SimpleQueue[dict[str, Any]]()

    def hang(*arguments: Any) -> Any:
        if arguments[0] == 0:
            hanging.set()
            let_go.wait()
        return function(*arguments)

    monkeypatch.setattr(fake, call, hang)
    reader = threading.Thread(target=lambda: told.put(read_all(told.put)))
    reader.start()
    documents = list(iter(told.get, {"read": "1"}))
    assert hanging.wait(30)
    reading = parse_documents([json.loads(json.dumps(document)) for document in documents], "timeout")
    let_go.set()
    reader.join()
    assert reading.outcome is Outcome.TIMEOUT
    *stuck, whole = reading.accelerators
    assert all(card.id == "GPU-00000000" for card in stuck), "known by name, or from the bus alone"
    assert (whole.id, whole.processes is not None, whole.nvlinks) == ("GPU-00000001", True, 3)


def test_memory_that_is_not_supported_is_the_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "unified")
    [card] = read()
    assert (card.unified_memory, card.memory_total_bytes, card.memory_bandwidth_bytes_per_second) == (True, None, None)
    assert card.name == "NVIDIA GB10"


def test_a_split_card_gives_way_to_its_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "mig")
    card, *instances = read()
    assert (card.usable, card.mig_mode) == (False, True)
    assert [instance.id for instance in instances] == [f"MIG-00000000-0000-0000-0000-00000000000{n}" for n in (0, 1)]
    assert {instance.parent_id for instance in instances} == {card.id}
    assert {instance.multiprocessors for instance in instances} == {28}
    assert {instance.memory_total_bytes for instance in instances} == {6 << 30}
    assert {instance.power_watts for instance in instances} == {None}, "the whole card's, and counted once"
    assert {instance.utilization_percent for instance in instances} == {None}


def test_a_split_card_without_instances_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "empty-mig")
    [card] = read()
    assert card.usable is False
    assert "nvidia-smi -mig 0" in (card.why_not or "")


def test_without_the_library_there_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", real_pynvml)
    monkeypatch.setattr(real_pynvml, "nvmlInit", _raise_library_not_found)
    reading = read_reading()
    assert (reading.outcome, reading.library) == (Outcome.ABSENT, None)
    assert reading.library_error == "NVML_ERROR_LIBRARY_NOT_FOUND"


def _raise_library_not_found() -> None:
    raise real_pynvml.NVMLError(real_pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


def test_a_library_that_does_not_fit_the_kernel_module_tells_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "mismatch")
    reading = read_reading()
    assert reading.outcome is Outcome.FAILED
    assert (reading.library, reading.library_version) == ("libnvidia-ml.so.1", "580.65.06")
    assert reading.library_error == "NVML_ERROR_LIB_RM_VERSION_MISMATCH"


@pytest.mark.parametrize("error", ERRORS)
def test_each_errors_name_is_nvml_hs(error: str) -> None:
    kind = getattr(real_pynvml, error)
    names = {name for name in dir(real_pynvml) if name.startswith("NVML_ERROR_")}
    assert name_error(kind()) in names


def test_an_error_without_a_name_has_its_number() -> None:
    assert name_error(real_pynvml.NVMLError(12345)) == "NVML_ERROR_12345"


@pytest.mark.parametrize(
    ("told", "version"),
    [("13.580.65.06", "580.65.06"), ("11.470.57.02", "470.57.02"), ("580.65.06", "580.65.06"), (None, None)],
)
def test_the_librarys_version_is_the_drivers(told: str | None, version: str | None) -> None:
    assert parse_library_version(told) == version


def test_a_process_is_told_once_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, "healthy")
    [card] = read()
    assert card.processes is not None
    mine, hidden = card.processes
    assert mine.memory_bytes == 1 << 30
    assert hidden == GpuProcess(None, None, None), "there is no such process here"
