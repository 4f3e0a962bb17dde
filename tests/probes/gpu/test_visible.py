from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.gpu.pci import NEURAL_PROCESSOR, NO_INTEL_GPU
from probes.gpu.visible import Visibility, find_visible
from probes.hardware import Accelerator

A = Accelerator("GPU-8932f937-aa", vendor="NVIDIA", name="A", pci_address="0000:01:00.0")
B = Accelerator("GPU-8932ffff-bb", vendor="NVIDIA", name="A", pci_address="0000:02:00.0")
C = Accelerator("GPU-11112222-cc", vendor="NVIDIA", name="A", pci_address="0000:03:00.0")
CARDS = (C, A, B)  # NVML's order is not to be trusted


def see(value: str, cards: tuple[Accelerator, ...] = CARDS, **more: str) -> Visibility:
    return find_visible({"CUDA_VISIBLE_DEVICES": value, **more}, "NVIDIA", cards)


@pytest.mark.parametrize(
    ("value", "shown", "invalid"),
    [
        ("0", (A,), None),
        ("2,1", (C, B), None),
        (" 0 , 1 ", (A, B), None),
        ("0,2,-1,1", (A, C), "-1"),  # the example of CUDA's own guide
        ("0,7,1", (A,), "7"),
        ("7", (), "7"),
        ("-1", (), "-1"),
        ("", (), None),
        ("NoDevFiles", (), "NoDevFiles"),
        ("all", (), "all"),
        ("1gpu2,2ampere", (B, C), None),
        ("0,0", (), "0"),
        ("GPU-8932f937", (A,), None),
        ("GPU-1111,GPU-8932ff", (C, B), None),
        ("GPU-8932", (), "GPU-8932"),
        ("GPU-1111,GPU-8932", (C,), "GPU-8932"),
        ("GPU-1111,0", (C,), "0"),
        ("0,GPU-1111", (A,), "GPU-1111"),
        ("GPU-1111,GPU-11112222", (), "GPU-11112222"),
        ("GPU-dead", (), "GPU-dead"),
        ("9" * 5000, (), "9" * 80),
    ],
)
def test_cuda_reads_its_variable_so(value: str, shown: tuple[Accelerator, ...], invalid: str | None) -> None:
    seen = see(value)
    assert (seen.cards, seen.count, seen.invalid) == (shown, len(shown), invalid)
    assert (seen.reason is None) == (invalid is None and bool(shown))


@pytest.mark.parametrize("driver", ["vfio-pci", "nouveau"])
def test_a_card_that_another_driver_holds_has_no_number(driver: str) -> None:
    cards = (replace(A, kernel_driver=driver), replace(B, kernel_driver="nvidia"))
    assert see("0", cards).cards == cards[1:]
    assert see("1", cards).count == 0
    radeon = tuple(
        replace(card, vendor="AMD", kernel_driver=one) for card, one in zip((A, B), ("radeon", "amdgpu"), strict=True)
    )
    assert find_visible({"HIP_VISIBLE_DEVICES": "0"}, "AMD", radeon).cards == radeon[1:]


def test_the_first_digits_of_a_uuid_that_several_cards_share_name_none() -> None:
    assert see("GPU-8932").reason == (
        'CUDA_VISIBLE_DEVICES: "GPU-8932" begins the UUID of several cards, so no card is visible'
    )


def test_a_word_for_container_runtimes_is_told_apart() -> None:
    assert "NVIDIA_VISIBLE_DEVICES" in (see("all").reason or "")


def test_unset_is_not_empty() -> None:
    assert find_visible({}, "NVIDIA", CARDS) == Visibility(3, (A, B, C))


def test_numbers_of_unlike_cards_are_counted_and_not_guessed() -> None:
    """CUDA puts the fastest first, and which that is only CUDA knows."""
    unlike = (A, Accelerator("GPU-2", vendor="NVIDIA", name="B", pci_address="0000:04:00.0"))
    seen = see("1", unlike)
    assert (seen.count, seen.cards, seen.hides(A)) == (1, None, None)
    assert see("1", unlike, CUDA_DEVICE_ORDER="PCI_BUS_ID").hides(A) is True
    assert see("GPU-2", unlike).hides(A) is True
    assert see("0,1", unlike).hides(A) is False


def test_a_mig_instance_is_named_by_its_uuid() -> None:
    instances = [
        Accelerator(f"MIG-{n}abc", vendor="NVIDIA", name="A", pci_address=A.pci_address, parent_id=A.id)
        for n in range(2)
    ]
    cards = (A, *instances)
    assert see("MIG-1", cards).cards == (instances[1],)
    assert see("0", cards).cards == (instances[0],)
    assert see("MIG-7", cards).count == 0


AMD = tuple(Accelerator(f"GPU-{n}f00", vendor="AMD", name="M", pci_address=f"0000:0{n}:00.0") for n in range(1, 4))


@pytest.mark.parametrize(
    ("environment", "shown"),
    [
        ({}, AMD),
        ({"HIP_VISIBLE_DEVICES": "2"}, AMD[2:]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, AMD[2:]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"}, AMD[1:2]),
        ({"ROCR_VISIBLE_DEVICES": "1,2"}, AMD[1:]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-3F00,GPU-1f"}, (AMD[2], AMD[0])),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "0"}, AMD[1:2]),
        ({"ROCR_VISIBLE_DEVICES": "2", "HIP_VISIBLE_DEVICES": "1"}, ()),
        ({"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}, ()),
    ],
)
def test_hip_counts_among_what_the_rocm_runtime_left(
    environment: dict[str, str], shown: tuple[Accelerator, ...]
) -> None:
    assert find_visible(environment, "AMD", (*CARDS, *AMD)).cards == shown


INTEL = tuple(Accelerator(f"pci-{n}", vendor="Intel", pci_address=f"0000:0{n}:00.0") for n in range(1, 4))


@pytest.mark.parametrize(
    ("mask", "shown"),
    [
        ("2,0", (INTEL[0], INTEL[2])),
        ("1.0", INTEL[1:2]),
        ("7", ()),
        ("x,1", INTEL[1:2]),
        ("", INTEL),
        ("default", INTEL),
    ],
)
def test_level_zeros_mask_hides_and_does_not_reorder(mask: str, shown: tuple[Accelerator, ...]) -> None:
    seen = find_visible({"ZE_AFFINITY_MASK": mask}, "Intel", INTEL)
    assert (seen.cards, seen.reason is None) == (shown, bool(shown))


GRAPHICS = Accelerator("pci-g", vendor="Intel", pci_address="0000:00:02.0", segment="integrated", kernel_driver="i915")
NEURAL = Accelerator(
    "pci-n", vendor="Intel", pci_address="0000:00:0b.0", segment="integrated", why_not=NEURAL_PROCESSOR
)
ARC = Accelerator("pci-a", vendor="Intel", pci_address="0000:03:00.0", segment="consumer", kernel_driver="xe")


def see_intel(mask: str, cards: tuple[Accelerator, ...], **more: str) -> Visibility:
    return find_visible({"ZE_AFFINITY_MASK": mask, **more}, "Intel", cards)


FPGA = Accelerator("pci-f", vendor="Intel", pci_address="0000:02:00.0", why_not=NO_INTEL_GPU)


@pytest.mark.parametrize("other", [NEURAL, replace(NEURAL, kernel_driver="intel_vpu"), FPGA])
def test_what_is_no_gpu_is_no_device_of_the_mask(other: Accelerator) -> None:
    assert see_intel("0", (other, ARC)).cards == (ARC,)
    assert see_intel("1", (other, ARC)).cards == ()
    assert find_visible({}, "Intel", (other, ARC)).count == 1


def test_a_card_of_a_virtual_machine_is_no_device_of_the_mask() -> None:
    taken = replace(ARC, id="pci-v", pci_address="0000:02:00.0", kernel_driver="vfio-pci")
    assert see_intel("0", (taken, ARC)).cards == (ARC,)


def test_which_of_graphics_and_card_the_mask_counts_first_is_not_guessed() -> None:
    """Older drivers and newer ones differ in it."""
    for mask in ("0", "1"):
        seen = see_intel(mask, (GRAPHICS, NEURAL, ARC))
        assert (seen.count, seen.cards, seen.hides(ARC)) == (1, None, None)
    assert see_intel("0,1", (GRAPHICS, NEURAL, ARC)).hides(ARC) is False
    assert see_intel("2", (GRAPHICS, NEURAL, ARC)).hides(ARC) is True
    by_bus = see_intel("1", (ARC, NEURAL, GRAPHICS), ZE_ENABLE_PCI_ID_DEVICE_ORDER="1")
    assert by_bus.cards == (ARC,)


MAX = tuple(
    replace(card, name="Intel(R) Data Center GPU Max 1550", architecture="Xe-HPC", kernel_driver="i915")
    for card in INTEL[:2]
)


def test_where_tiles_are_devices_the_masks_numbers_are_no_cards() -> None:
    """Launchers give each rank a tile: 1 is the second one of the only card."""
    one = MAX[:1]
    for mask in ("0", "1"):
        seen = see_intel(mask, one)
        assert (seen.count, seen.cards, seen.hides(one[0])) == (1, None, None)
        assert "tiles" in (seen.reason or "")
    assert see_intel("0,1,2,3", MAX).count == 2
    assert see_intel("x", one).count == 0
    assert see_intel("1", one, ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE").count == 0
    assert see_intel("1", MAX, ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE").cards == MAX[1:]
    assert see_intel("1", (replace(one[0], name="Intel(R) Data Center GPU Max 1100"),)).count == 0, "it has one tile"


def test_what_sycls_own_selector_leaves_is_not_guessed() -> None:
    selector = {"ONEAPI_DEVICE_SELECTOR": "level_zero:1"}
    seen = find_visible(selector, "Intel", INTEL)
    assert (seen.variable, seen.cards, seen.hides(INTEL[1])) == ("ONEAPI_DEVICE_SELECTOR", None, None)
    assert see_intel("7", INTEL, **selector).count == 0, "what Level Zero hides, SYCL cannot show"
    assert find_visible(selector, "Intel", ()).variable is None


@settings(max_examples=200)
@given(
    st.text(max_size=30) | st.lists(st.sampled_from(["0", "1", "9", "GPU-8", "GPU-1", "MIG-", "", "x"])).map(",".join)
)
def test_no_value_upsets_it(value: str) -> None:
    for vendor in ("NVIDIA", "AMD", "Intel"):
        names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
        seen = find_visible(dict.fromkeys(names, value), vendor, (*CARDS, *AMD, *INTEL))
        assert 0 <= seen.count <= 3
        assert seen.cards is None or len(seen.cards) == seen.count
