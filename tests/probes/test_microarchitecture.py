from pathlib import Path

import pytest

from probes.cpu import infer_architecture
from probes.cpuinfo import parse_cpuinfo
from probes.microarchitecture import identify, load_targets, write_out
from tests.probes.test_captured_machines import HOSTS, without_hosts

EPYC_9654 = load_targets()["zen4"].features
SAPPHIRE_RAPIDS = load_targets()["sapphirerapids"].features


def x86(
    vendor: str, family: int, model: int, flags: frozenset[str], stepping: int = 0
) -> tuple[str | None, str | None]:
    text = (
        f"processor : 0\nvendor_id : {vendor}\ncpu family : {family}\nmodel : {model}\nstepping : {stepping}\n"
        f"flags : lm {' '.join(flags)}\n"
    )
    return identify(parse_cpuinfo(text), "x86_64")


def test_flags_and_model_that_agree_name_the_part() -> None:
    assert x86("AuthenticAMD", 25, 17, EPYC_9654) == ("Zen 4", None)


def test_flags_that_a_hypervisor_masks_do_not_hide_the_model() -> None:
    assert x86("AuthenticAMD", 25, 17, EPYC_9654 - {"pku", "flush_l1d", "avx512f"})[0] == "Zen 4"


def test_flags_that_the_model_cannot_have_mean_that_neither_is_believed() -> None:
    """A virtual machine whose family and model say Rocket Lake while the flags say Sapphire Rapids."""
    name, reason = x86("GenuineIntel", 6, 167, SAPPHIRE_RAPIDS)
    assert name is None
    assert reason is not None
    assert "Rocket Lake" in reason
    assert "Sapphire Rapids" in reason


def test_a_model_that_archspec_lacks_is_named_by_its_number() -> None:
    assert x86("GenuineIntel", 6, 140, load_targets()["icelake"].features)[0] == "Tiger Lake"


def test_the_stepping_tells_cascade_lake_from_skylake() -> None:
    flags = load_targets()["skylake_avx512"].features
    assert x86("GenuineIntel", 6, 85, flags, stepping=4)[0] == "Skylake AVX-512"
    assert x86("GenuineIntel", 6, 85, flags, stepping=7)[0] == "Cascade Lake"


def test_an_unknown_model_goes_by_its_flags_and_an_unknown_vendor_has_no_name() -> None:
    assert x86("GenuineIntel", 6, 250, SAPPHIRE_RAPIDS)[0] == "Sapphire Rapids"
    assert x86("NobodyKnows", 6, 250, SAPPHIRE_RAPIDS) == (None, None)
    assert identify(parse_cpuinfo("garbage"), None) == (None, None)


def test_arm_is_named_by_its_part_alone() -> None:
    text = "processor : 0\nFeatures : {}\nCPU implementer : 0x41\nCPU part : {}\n"
    features = " ".join(load_targets()["neoverse_v2"].features)
    assert identify(parse_cpuinfo(text.format(features, "0xd4f")), "aarch64") == ("Neoverse V2", None)
    assert identify(parse_cpuinfo(text.format(features, "0xabc")), "aarch64") == (None, None)


@pytest.mark.parametrize(
    ("name", "written"),
    [("zen4", "Zen 4"), ("power9le", "POWER9"), ("neoverse_n1", "Neoverse N1"), ("m1", "M1"), ("haswell", "Haswell")],
)
def test_names_are_written_as_people_write_them(name: str, written: str) -> None:
    assert write_out(name) == written


@without_hosts
@pytest.mark.parametrize("path", sorted(HOSTS.glob("cpuinfo/linux-*")), ids=lambda path: path.name)
def test_every_captured_cpuinfo_has_the_name_its_file_says(path: Path) -> None:
    info = parse_cpuinfo(path.read_text("utf-8"))
    name, reason = identify(info, infer_architecture(info))
    assert name == write_out(path.name.rsplit("-", 1)[1]), reason
