import pytest

from probes.names.cpu_identity import CpuIdentity
from probes.names.explanation import explain_identification
from probes.names.microarchitecture import identify

BASE = frozenset({"ssse3", "sse4_2", "avx", "f16c", "avx2", "fma", "bmi2", "adx", "clflushopt", "hypervisor"})
AVX512 = frozenset({"avx512f", "avx512cd", "avx512dq", "avx512bw", "avx512vl", "clwb"})


def explain(identity: CpuIdentity) -> str | None:
    return explain_identification(identity, identify(identity))


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        (CpuIdentity(vendor_id="AuthenticAMD", family=25, model=17, stepping=1), "family 25, model 17, stepping 1"),
        (CpuIdentity(cores=((0x41, 0xD4F),)), "implementer 0x41, part 0xd4f"),
        (CpuIdentity(name="Apple M2 Max"), "Apple M2 Max"),
        (CpuIdentity(apple_family=0xDA33D83D), "0xda33d83d"),
        (CpuIdentity(processor="POWER9 (raw)", pvr_version=0x4E), "0x004e"),
        (CpuIdentity(uarch="sifive,u74"), "sifive,u74"),
        (CpuIdentity(riscv_ids=(0x710, 0x8000000058000001)), "mvendorid 0x710"),
        (CpuIdentity(machine_type=3931), "3931"),
    ],
)
def test_the_signal_that_named_a_processor_is_told_with_its_numbers(identity: CpuIdentity, words: str) -> None:
    sentence = explain(identity) or ""
    assert words in sentence
    assert sentence.endswith(".")


def test_what_a_hypervisor_hides_and_what_was_not_believed_is_told_too() -> None:
    hidden = explain(CpuIdentity(vendor_id="GenuineIntel", family=6, model=0x55, stepping=4, flags=BASE)) or ""
    assert "which the hypervisor hides" in hidden
    masked = CpuIdentity(vendor_id="GenuineIntel", family=6, model=0x5E, stepping=3, flags=BASE | AVX512)
    assert "the flags were believed" in (explain(masked) or "")


def test_what_has_no_name_has_no_explanation_here() -> None:
    assert explain(CpuIdentity(name="QEMU Virtual CPU version 2.5+", vendor_id="AuthenticAMD", family=15)) is None
