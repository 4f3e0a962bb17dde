from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.hardware import Accelerator, Software, Survey, Torch
from probes.survey import take_survey
from probes.torch_facts import add_to_software, has_kernels, with_torch_facts

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
    ],
)
def test_machine_code_runs_on_its_major_version_and_ptx_on_anything_newer(
    capability: str | None, architectures: list[str], runs: bool
) -> None:
    assert has_kernels(capability, architectures) is runs


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner))
DEVICES = st.dictionaries(
    st.sampled_from(["device", "uuid", "pci_address", "capability", "architectures", "why_not"]), JSON
)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["torch", "devices", "cuda_version"]), JSON | st.lists(DEVICES)))
def test_no_event_upsets_it(ready: dict[str, Any]) -> None:
    add_to_software(Software(), ready)
