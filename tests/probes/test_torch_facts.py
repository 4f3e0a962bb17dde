import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from probes.survey import take_survey, with_findings
from probes.torch_facts import add_to_software, has_gfx_kernels, has_kernels, with_torch_facts

CARD = Accelerator("GPU-1f2e", vendor="NVIDIA", pci_address="0000:01:00.0", compute_capability="8.6")
READY = {
    "torch": "2.13.0+cu130",
    "devices": [{"device": "cuda:1", "uuid": "GPU-1f2e", "pci_address": None, "capability": "8.6",
                 "architectures": ["sm_80", "sm_86"], "why_not": None}],
}  # fmt: skip


@pytest.fixture
def survey(tmp_path: Path) -> Survey:
    return replace(
        take_survey(tmp_path), accelerators=(CARD,), software=Software("3.12", Torch("2.13.0+cu130", "13.0"))
    )


def test_torchs_name_for_a_card_is_found_by_its_uuid(survey: Survey) -> None:
    told = with_torch_facts(survey, READY)
    assert (told.accelerators[0].torch_device, told.accelerators[0].usable) == ("cuda:1", True)
    assert told.software.torch is not None
    assert (told.software.torch.cuda_available, told.software.torch.device_count) == (True, 1)
    assert told.software.torch.architectures == ("sm_80", "sm_86")
    assert told.fingerprint == survey.fingerprint


def test_a_card_without_a_uuid_is_found_by_its_place_on_the_bus(survey: Survey) -> None:
    ready = {"devices": [{"device": "cuda:0", "pci_address": "0000:01:00.0"}]}
    assert with_torch_facts(survey, ready).accelerators[0].torch_device == "cuda:0"


def test_a_mig_instance_is_never_taken_for_its_card(survey: Survey) -> None:
    instance = replace(survey, accelerators=(replace(CARD, id="MIG-aa"),))
    ready = {"devices": [{"device": "cuda:0", "uuid": "MIG-bb", "pci_address": "0000:01:00.0"}]}
    assert with_torch_facts(instance, ready).accelerators[0].torch_device is None


def test_a_card_that_torch_does_not_list_is_not_usable_and_why(survey: Survey) -> None:
    told = with_torch_facts(survey, {"devices": []}).accelerators[0]
    assert told.usable is False
    assert "CUDA_VISIBLE_DEVICES" in (told.why_not or "")


def test_a_card_that_this_build_has_no_kernels_for_is_not_usable(survey: Survey) -> None:
    device = {**READY["devices"][0], "architectures": ["sm_90"]}  # type: ignore[index]
    told = with_torch_facts(survey, {"devices": [device]}).accelerators[0]
    assert told.usable is False
    assert "no kernels for compute capability 8.6" in (told.why_not or "")


def test_intels_and_apples_devices_are_found_without_any_order(survey: Survey) -> None:
    arc = Accelerator("pci-0000:03:00.0", vendor="Intel", pci_address="0000:03:00.0")
    other = replace(arc, id="pci-0000:04:00.0", pci_address="0000:04:00.0")
    apple = Accelerator("apple-gpu", vendor="Apple")
    ready = {
        "xpu_version": "20250301",
        "devices": [
            {"device": "xpu:0", "uuid": "GPU-8680a056-0800-0000-0400-000000000000", "memory_total_bytes": 16},
            {"device": "mps"},
        ],
    }
    told = with_torch_facts(replace(survey, accelerators=(arc, other, apple)), ready)
    assert [card.torch_device for card in told.accelerators] == [None, "xpu:0", "mps"]
    assert [card.usable for card in told.accelerators] == [False, True, True]
    assert "ZE_AFFINITY_MASK" in (told.accelerators[0].why_not or "")
    assert told.accelerators[1].memory_total_bytes == 16, "no kernel driver of Intel's tells it"
    assert told.software.torch is not None
    assert (told.software.torch.xpu_version, told.software.torch.device_count) == ("20250301", 0)


def test_a_mig_instance_does_not_make_its_card_usable(survey: Survey) -> None:
    """torch lists the instance's UUID at the card's address."""
    card = replace(CARD, id="GPU-11111111-2222-3333-4444-555555555555", usable=False, why_not="MIG splits this card")
    device = {"device": "cuda:0", "uuid": "GPU-22222222-2222-3333-4444-555555555555", "pci_address": card.pci_address}
    told = with_torch_facts(replace(survey, accelerators=(card,)), {"devices": [device]}).accelerators[0]
    assert (told.usable, told.torch_device, told.why_not) == (False, None, "MIG splits this card")


def test_a_cuda_that_does_not_start_is_the_reason_of_every_card_that_it_may_be(survey: Survey) -> None:
    """torch counts its devices then, and cannot tell which is which."""
    why = "CUDA could not be started on this device: The NVIDIA driver on your system is too old"
    started = {"device": "cuda:1", "uuid": "GPU-2", "capability": "8.6"}
    failed = {"device": "cuda:0", "uuid": None, "pci_address": None, "why_not": why}
    lost = replace(CARD, id="GPU-3", usable=False, why_not="it is lost")
    arc = Accelerator("pci-0000:03:00.0", vendor="Intel", pci_address="0000:03:00.0")
    cards = (CARD, replace(CARD, id="GPU-2"), lost, arc)
    told = with_torch_facts(replace(survey, accelerators=cards), {"devices": [failed, started]}).accelerators
    assert [card.why_not for card in told[:3]] == [why, None, "it is lost"]
    assert [card.usable for card in told] == [False, True, False, False]
    assert "ZE_AFFINITY_MASK" in (told[3].why_not or ""), "of another kind torch said nothing"


HELD = "its compute mode is exclusive-process, and python (process 7) computes on it"


@pytest.mark.parametrize(
    ("mode", "why", "usable"),
    [
        ("exclusive-process", HELD, False),
        ("exclusive-process", "torch is not installed", True),  # it was, since
        ("default", "NVML cannot reach this card", True),
        (None, "NVML cannot reach this card", True),
    ],
)
def test_a_card_that_nobody_may_begin_to_use_is_not_usable_for_all_that_torch_sees(
    survey: Survey, mode: str | None, why: str, usable: bool
) -> None:
    """Of all but the compute mode torch's word counts more."""
    held = replace(CARD, usable=False, why_not=why, compute_mode=mode)
    told = with_torch_facts(replace(survey, accelerators=(held,)), READY).accelerators[0]
    assert (told.usable, told.torch_device) == (usable, "cuda:1")
    assert told.why_not == (None if usable else why)


def test_a_rocm_build_without_this_cards_kernels_says_so(survey: Survey) -> None:
    radeon = Accelerator("GPU-1", vendor="AMD", pci_address="0000:03:00.0", gfx_target="gfx1103")
    device = {"device": "cuda:0", "pci_address": "0000:03:00.0", "capability": "11.0", "architectures": ["gfx1100"]}
    told = with_torch_facts(replace(survey, accelerators=(radeon,)), {"devices": [device]}).accelerators[0]
    assert told.usable is False
    assert "no kernels for gfx1103" in (told.why_not or "")


@pytest.mark.parametrize(
    ("target", "architectures", "runs"),
    [
        ("gfx1100", ["gfx90a", "gfx1100"], True),
        ("gfx90a", ["gfx90a:sramecc+:xnack-"], True),
        ("gfx1103", ["gfx1100"], False),
        ("gfx1103", ["gfx11-generic"], True),
        ("gfx1103", ["sm_90"], True),
        ("gfx1103", [], True),
        (None, ["gfx1100"], True),
    ],
)
def test_amds_machine_code_runs_on_its_own_target_alone(
    target: str | None, architectures: list[str], runs: bool
) -> None:
    assert has_gfx_kernels(target, architectures) is runs


@pytest.mark.parametrize(
    ("capability", "architectures", "runs"),
    [
        ("8.9", ["sm_80", "sm_86"], True),
        ("8.0", ["sm_86"], False),
        ("9.0", ["sm_80"], False),
        ("9.0", ["compute_80"], True),
        ("12.0", ["sm_90", "sm_100a", "compute_120"], True),
        ("7.5", [], True),
        (None, ["sm_90"], True),
        ("9.0", ["sm_90a"], True),
        ("10.3", ["sm_100a"], False),
        ("10.3", ["sm_100f"], True),
        ("12.0", ["compute_90a"], False),
        ("12.0", ["compute_100f"], False),
        ("8.7", ["sm_80", "sm_86", "sm_90"], False),  # a Jetson among cards
        ("8.7", ["sm_87"], True),
        ("8.7", ["compute_80"], True),
        ("8.9", ["sm_87"], False),
        ("7.5", ["sm_72"], False),
        ("7.2", ["sm_70", "sm_75"], False),
    ],
)
def test_machine_code_runs_on_its_major_version_and_ptx_on_anything_newer(
    capability: str | None, architectures: list[str], runs: bool
) -> None:
    assert has_kernels(capability, architectures) is runs


PAIRS = """
import json
from torch import cuda
table = getattr(cuda, "DEVICE_REQUIREMENT", {})
print(json.dumps([[card, built, card in table[built]] for built in table for card in table]))
"""


def test_which_cards_run_which_machine_code_is_what_torch_itself_has_it() -> None:
    done = subprocess.run([sys.executable, "-c", PAIRS], capture_output=True, text=True, check=True, timeout=120)
    pairs = json.loads(done.stdout)
    if not pairs:
        pytest.skip("this torch has no such table")
    mine = [[card, built, has_kernels(f"{card // 10}.{card % 10}", [f"sm_{built}"])] for card, built, _ in pairs]
    assert mine == pairs


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner))
DEVICES = st.dictionaries(
    st.sampled_from(
        ["device", "uuid", "pci_address", "capability", "gfx_target", "architectures", "memory_total_bytes", "why_not"]
    ),
    JSON,
)


NOTHING = Survey("now", "0", System(), Cpu(), Memory(), (), (), Software("3.12"), (), {})


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["torch", "devices", "cuda_version"]), JSON | st.lists(DEVICES)))
def test_no_event_upsets_it(ready: dict[str, Any]) -> None:
    add_to_software(Software(), ready)
    with_torch_facts(NOTHING, ready)


RADEON = {
    "device": "cuda:0", "name": "AMD Radeon RX 7900 XTX", "uuid": None, "pci_address": None, "capability": "11.0",
    "gfx_target": "gfx1100", "architectures": ["gfx1100"], "memory_total_bytes": 24 << 30, "why_not": None,
}  # fmt: skip


def test_what_torch_alone_shows_is_a_card_too(survey: Survey) -> None:
    """As ROCm's under WSL, where no bus has it and no driver tells of it."""
    software = Software("3.12", Torch("2.13.0+rocm7.0", hip_version="7.0"))
    bare = replace(survey, accelerators=(), software=software)
    bare = replace(bare, probes={**survey.probes, "pci": ProbeReport(Outcome.OK)})
    assert with_findings(bare, {}).findings == ()
    assert [found.code for found in told_and_judged(bare, {}).findings] == ["no-gpu"]
    told = told_and_judged(bare, {"hip_version": "7.0", "devices": [RADEON]})
    [card] = told.accelerators
    assert (card.id, card.vendor, card.usable, card.torch_device) == ("cuda:0", "AMD", True, "cuda:0")
    assert (card.gfx_target, card.segment, card.memory_total_bytes) == ("gfx1100", "consumer", 24 << 30)
    assert (card.compute_capability, card.memory_free_bytes) == (None, None)
    assert told.findings == ()
    assert told.fingerprint == bare.fingerprint


def test_of_a_card_that_torch_alone_shows_missing_kernels_are_found(survey: Survey) -> None:
    hidden = {**RADEON, "architectures": ["gfx90a"], "pci_address": "0000:03:00.0"}
    told = told_and_judged(replace(survey, accelerators=()), {"hip_version": "7.0", "devices": [hidden]})
    assert (told.accelerators[0].usable, told.accelerators[0].pci_address) == (False, "0000:03:00.0")
    assert [found.code for found in told.findings] == ["torch-without-kernels"]


def test_partitions_of_a_card_are_as_many_as_torch_shows(survey: Survey) -> None:
    """Each has its card's address, and its card's number or none."""
    whole = Accelerator("GPU-1", vendor="AMD", pci_address="0000:03:00.0", memory_total_bytes=192 << 30)
    whole = replace(whole, memory_free_bytes=190 << 30)
    number = "GPU-38386165-3838-6165-3838-616538386165"
    row = {**RADEON, "name": "AMD Instinct MI300X", "pci_address": whole.pci_address}
    rows = [{**row, "device": f"cuda:{n}", "uuid": number if n else None} for n in range(4)]
    cards = with_torch_facts(replace(survey, accelerators=(whole,)), {"devices": rows}).accelerators
    assert [card.torch_device for card in cards] == [f"cuda:{n}" for n in range(4)]
    assert [card.id for card in cards] == ["GPU-1", number, "cuda:2", "cuda:3"]
    assert [card.pci_address for card in cards] == [whole.pci_address, None, None, None]
    assert [card.memory_total_bytes for card in cards] == [24 << 30] * 4
    assert [card.memory_free_bytes for card in cards] == [None] * 4
    alone = with_torch_facts(replace(survey, accelerators=(whole,)), {"devices": rows[:1]}).accelerators[0]
    assert (alone.memory_total_bytes, alone.memory_free_bytes) == (192 << 30, 190 << 30)


ARC = Accelerator("pci-0000:03:00.0", vendor="Intel", name="Intel Arc B580", pci_address="0000:03:00.0")
BUS_RADEON = Accelerator("pci-0000:03:00.0", vendor="AMD", pci_address="0000:03:00.0")
SILENT_UUID = "01020304-0506-0708-090a-0b0c0d0e0f10"


@pytest.mark.parametrize(
    ("card", "device"),
    [
        (ARC, {"device": "xpu:0"}),
        (ARC, {"device": "xpu:0", "uuid": SILENT_UUID}),
        (BUS_RADEON, RADEON),
        (replace(BUS_RADEON, id="GPU-1a2b3c4d5e6f7081"), RADEON),
    ],
)
def test_a_device_that_tells_no_place_is_the_one_card_that_it_can_be(
    survey: Survey, card: Accelerator, device: dict[str, Any]
) -> None:
    ready = {"hip_version": "7.0" if card.vendor == "AMD" else None, "devices": [device]}
    [told] = with_torch_facts(replace(survey, accelerators=(card,)), ready).accelerators
    assert (told.id, told.torch_device, told.usable) == (card.id, device["device"], True)


def test_a_device_is_no_card_that_it_cannot_be(survey: Survey) -> None:
    """Two cards, one that is set aside, one at another place, or one that did not start."""
    other = replace(ARC, id="pci-0000:04:00.0", pci_address="0000:04:00.0")
    aside = replace(ARC, usable=False, why_not="it is set aside for a virtual machine (bound to vfio-pci)")
    elsewhere = {"device": "xpu:0", "pci_address": "0000:09:00.0"}
    for cards, device in (((ARC, other), {"device": "xpu:0"}), ((aside,), {"device": "xpu:0"}), ((ARC,), elsewhere)):
        told = with_torch_facts(replace(survey, accelerators=cards), {"devices": [device]}).accelerators
        assert [card.torch_device for card in told] == [*[None] * len(cards), "xpu:0"]
    failed = {"device": "xpu:0", "why_not": "it could not be started"}
    [told_card] = with_torch_facts(replace(survey, accelerators=(ARC,)), {"devices": [failed]}).accelerators
    assert (told_card.torch_device, told_card.why_not) == (None, "it could not be started")


@pytest.mark.parametrize(
    ("device", "vendor", "capability"),
    [
        ({"device": "cuda:0", "name": "NVIDIA A10", "uuid": "GPU-aa", "capability": "8.6"}, "NVIDIA", "8.6"),
        ({"device": "xpu:0", "name": "Intel(R) Arc(TM) B580 Graphics"}, "Intel", None),
        ({"device": "mps"}, "Apple", None),
    ],
)
def test_whose_a_card_is_that_torch_alone_shows(
    survey: Survey, device: dict[str, Any], vendor: str, capability: str | None
) -> None:
    shared = replace(survey, accelerators=(), memory=Memory(64, 40))
    [card] = with_torch_facts(shared, {"devices": [device]}).accelerators
    assert (card.vendor, card.compute_capability, card.usable) == (vendor, capability, True)
    assert (card.memory_total_bytes, card.memory_free_bytes) == ((64, 40) if vendor == "Apple" else (None, None))


def test_devices_that_do_not_start_and_a_captured_machines_are_not_added(survey: Survey) -> None:
    failed = {**RADEON, "why_not": "CUDA could not be started on this device"}
    none = replace(survey, accelerators=())
    assert with_torch_facts(none, {"devices": [failed, {"device": "tpu:0"}, {}]}).accelerators == ()
    captured = replace(none, software=Software())
    assert with_torch_facts(captured, {"devices": [RADEON]}).accelerators == ()


def told_and_judged(survey: Survey, ready: dict[str, Any]) -> Survey:
    return with_findings(with_torch_facts(survey, ready), {})


def test_torch_tells_the_target_that_the_kernel_does_not(survey: Survey) -> None:
    """Of a card that is several nodes of the kernel's compute topology."""
    split = Accelerator("GPU-1", vendor="AMD", pci_address="0000:03:00.0")
    device = {"device": "cuda:0", "pci_address": "0000:03:00.0", "gfx_target": "gfx942", "architectures": ["gfx942"]}
    told = with_torch_facts(replace(survey, accelerators=(split,)), {"devices": [device]}).accelerators[0]
    assert (told.usable, told.gfx_target) == (True, "gfx942")
