"""Whether the driver is new enough for torch's CUDA, where more than its table is known."""

from dataclasses import replace

from probes.diagnose import Facts
from tests.probes.diagnose.situations import HEALTHY, codes, only, with_card, with_driver, with_torch


def on_driver(driver: str, cuda: str | None, devices: int | None) -> Facts:
    """A torch for CUDA 13.0 that was not asked yet; cuda: what the CUDA library here says that it is."""
    facts = with_torch(with_driver(with_card(driver_version=driver), compute_devices=devices), cuda_available=None)
    return replace(facts, software=replace(facts.software, cuda_driver_version=cuda))


def test_a_cuda_that_has_started_here_outranks_the_table_of_drivers() -> None:
    """An older driver with NVIDIA's compatibility package."""
    assert codes(on_driver("535.183.01", "13.0", 1)) == []
    assert codes(on_driver("535.183.01", "13.1", 8)) == []


def test_a_cuda_that_is_older_or_has_not_started_outranks_nothing() -> None:
    for facts in (
        on_driver("535.183.01", "12.2", 1),
        on_driver("535.183.01", "13.0", None),
        on_driver("535.183.01", None, 1),
    ):
        assert codes(facts) == ["driver-too-old-for-torch"]


def test_a_jetson_among_torchs_kernels_for_cards_is_told_of_nvidias_own_build() -> None:
    facts = with_torch(with_card(compute_capability="8.7", name="Orin"), architectures=("sm_80", "sm_86", "sm_90"))
    finding = only(facts)
    assert finding.code == "torch-without-kernels"
    assert "Jetson" in (finding.fix or "")
    assert codes(replace(HEALTHY, accelerators=facts.accelerators)) == ["torch-without-kernels"]
