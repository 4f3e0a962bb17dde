from dataclasses import replace

from probes.diagnose import Facts, diagnose
from probes.hardware import Accelerator, Cpu, Driver, Software, Torch

CARD = Accelerator("GPU-1", vendor="NVIDIA", name="A card", pci_address="0000:01:00.0", driver_version="580.1")
CPU_BUILD = Software("3.12", Torch("2.13.0+cpu", cuda_available=False, device_count=0))
CUDA_BUILD = Software("3.12", Torch("2.13.0+cu130", cuda_version="13.0"))


def codes(facts: Facts) -> list[str]:
    return [finding.code for finding in diagnose(facts)]


def test_a_machine_without_a_gpu_is_told_so() -> None:
    assert codes(Facts()) == ["no-gpu"]
    assert codes(Facts(accelerators=(Accelerator("pci", segment="integrated"),))) == ["no-gpu"]


def test_graphics_in_the_processor_are_named_where_there_is_nothing_else() -> None:
    [finding] = diagnose(Facts(accelerators=(Accelerator("pci", name="Intel Iris Xe Graphics", segment="integrated"),)))
    assert "Intel Iris Xe Graphics" in finding.message


def test_the_driver_of_graphics_in_the_processor_is_no_sign_of_a_lost_card() -> None:
    graphics = Accelerator("pci", vendor="AMD", segment="integrated")
    software = Software(drivers=(Driver("AMD", ("amdgpu",), "6.12.12"),))
    [finding] = diagnose(Facts(accelerators=(graphics,), software=software))
    assert "may have failed" not in finding.message
    [alone] = diagnose(Facts(software=software))
    assert "may have failed" in alone.message


def test_a_jetson_is_not_said_to_have_no_gpu() -> None:
    assert codes(Facts(software=Software(drivers=(Driver("NVIDIA", ("nvgpu",)),)))) == []


def test_none_is_said_to_be_missing_before_a_torch_that_may_show_one_was_asked() -> None:
    """ROCm's under WSL, where no bus and no driver has them."""
    torch = Torch("2.13.0+rocm7.0", hip_version="7.0")
    assert codes(Facts(software=Software("3.12", torch))) == []
    assert codes(Facts(software=Software("3.12", replace(torch, cuda_available=False)))) == ["no-gpu"]


def test_nothing_is_said_of_gpus_when_nobody_could_look() -> None:
    assert codes(Facts(accelerators_known=False)) == []


def test_a_card_beside_a_torch_without_cuda_is_wasted() -> None:
    [finding] = diagnose(Facts(accelerators=(CARD,), software=CPU_BUILD))
    assert (finding.code, finding.subject) == ("torch-without-cuda", "A card")
    assert finding.fix
    assert codes(Facts(accelerators=(CARD,), software=CUDA_BUILD)) == []


def test_a_card_without_a_driver_needs_one() -> None:
    bare = Accelerator("pci-0000:01:00.0", vendor="NVIDIA", pci_address="0000:01:00.0")
    assert codes(Facts(accelerators=(bare,), software=CUDA_BUILD)) == ["gpu-without-driver"]
    assert codes(Facts(accelerators=(bare,), software=Software("3.12", CUDA_BUILD.torch, "580.1"))) == []


def test_a_quota_below_the_cores_is_pointed_out_with_the_number_to_set() -> None:
    cpu = Cpu(physical_cores=8, usable_cores=2.5, usable_cores_limit="cgroup")
    [finding] = diagnose(Facts(accelerators=(CARD,), cpu=cpu))
    assert finding.code == "quota-below-cores"
    assert finding.fix == "export OMP_NUM_THREADS=2"
    assert codes(Facts(accelerators=(CARD,), cpu=Cpu(physical_cores=8, usable_cores=16.0))) == []
    assert codes(Facts(accelerators=(CARD,), cpu=replace(cpu, usable_cores_limit="affinity"))) == []


def test_more_threads_than_usable_cores_is_pointed_out() -> None:
    cpu = Cpu(physical_cores=4, usable_cores=4.0)
    for setting, expected in (
        ("8", ["omp-num-threads-above-usable"]),
        ("4", []),
        ("8,2", ["omp-num-threads-above-usable"]),
    ):
        assert codes(Facts(accelerators=(CARD,), cpu=cpu, environment={"OMP_NUM_THREADS": setting})) == expected
    for rubbish in ("", "many", "-1", "9" * 99):
        assert codes(Facts(accelerators=(CARD,), cpu=cpu, environment={"OMP_NUM_THREADS": rubbish})) == []
