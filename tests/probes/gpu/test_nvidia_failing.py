"""What a call of NVML's that fails, hangs or answers nonsense costs: its own facts, and no other."""

import json
import queue
import re
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml as real_pynvml
import pytest

from probes.gpu import nvidia
from probes.gpu.nvidia import read_all
from probes.gpu.nvml import watching
from probes.gpu.nvml.asking import LOST, NO_ACCESS, name_error
from probes.gpu.nvml_process import parse_documents
from probes.hardware import Outcome
from tests.probes.gpu.nvml_scenes import play, read

PLENTY = 60.0  # seconds for cards that answer at once
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
    "nvmlDeviceGetComputeMode": {"compute_mode"},
    "nvmlDeviceGetMemoryInfo": {
        "memory_total_bytes", "memory_free_bytes", "unified_memory",
        "memory_bus_bits", "memory_bandwidth_bytes_per_second",  # NOT_SUPPORTED: they are the machine's own memory's
    },
    "nvmlDeviceGetUtilizationRates": {"utilization_percent"},
    "nvmlDeviceGetTemperature": {"temperature_celsius"},
    "nvmlDeviceGetPowerUsage": {"power_watts"},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_watts"},
    "nvmlDeviceGetPowerManagementDefaultLimit": {"power_limit_default_watts"},
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


def test_every_call_that_is_made_is_one_of_the_librarys() -> None:
    assert len(NAMES) > 35
    assert set(dir(real_pynvml)) >= NAMES


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


def test_a_card_that_a_job_was_not_given_is_not_called_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML counts the whole machine's."""
    play(monkeypatch, "refused")
    own, other = read()
    assert own.usable is None
    assert (other.usable, other.why_not) == (False, NO_ACCESS)


@pytest.mark.parametrize(("scene", "looked_for"), [("lost", True), ("refused", False)])
def test_a_lost_card_is_looked_for_again_and_one_of_another_job_is_not(
    monkeypatch: pytest.MonkeyPatch, scene: str, looked_for: bool
) -> None:
    monkeypatch.setattr(watching, "_LOST_SECONDS", -1.0)
    cards = watching.WatchedCards(play(monkeypatch, scene), 2)
    told = cards.ask(PLENTY)
    assert told["nvidia-1"]["usable"] is False
    assert "utilization_percent" in told["GPU-00000000"]
    assert cards.is_outdated is looked_for


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


@pytest.mark.parametrize("error", ERRORS)
def test_each_errors_name_is_nvml_hs(error: str) -> None:
    kind = getattr(real_pynvml, error)
    names = {name for name in dir(real_pynvml) if name.startswith("NVML_ERROR_")}
    assert name_error(kind()) in names


def test_an_error_without_a_name_has_its_number() -> None:
    assert name_error(real_pynvml.NVMLError(12345)) == "NVML_ERROR_12345"
