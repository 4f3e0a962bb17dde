import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from probes.cpu import read_cpu, read_sve_bits
from probes.instruction_sets import (
    choose_torch_instruction_set,
    parse_instruction_sets,
    sve_bits_of,
)
from probes.reading import Root

ICE_LAKE = ("avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl")


def test_only_what_torch_chooses_its_code_by_is_listed_in_linuxs_spelling() -> None:
    flags = "fpu smep avx2 avx512_vnni amx_tile avx2 bugs hypervisor avx10 sse4_2"
    assert parse_instruction_sets(flags) == ("amx_tile", "avx10", "avx2", "avx512_vnni", "sse4_2")


def test_arm_says_asimd_for_neon_and_sve_by_generation() -> None:
    flags = "fp asimd evtstrm aes sha1 asimddp sve sve2 svei8mm svebf16 i8mm bf16 paca sme"
    expected = ("asimd", "asimddp", "bf16", "i8mm", "sme", "sve", "sve2", "svebf16", "svei8mm")
    assert parse_instruction_sets(flags) == expected


def test_riscv_writes_its_vectors_as_one_letter_among_others() -> None:
    assert parse_instruction_sets("rv64imafdcv_zba_zvfh_zvl256b") == ("v", "zvfh", "zvl256b")
    assert parse_instruction_sets("rv64imafdc_zba") == ()


@pytest.mark.parametrize(
    ("line", "sets"),
    [
        ("POWER9 (raw), altivec supported", ("altivec", "vsx")),
        ("POWER7+ (architected), altivec supported", ("altivec", "vsx")),
        ("POWER6 (raw), altivec supported", ("altivec",)),
        ("POWER8NVL (raw), altivec supported", ("altivec", "vsx")),
        ("POWER8E (raw), altivec supported", ("altivec", "vsx")),
        ("POWER100, altivec supported", ("altivec",)),
        ("POWER9", ()),
        ("POWER, altivec supported", ("altivec",)),
        ("UltraSparc T1 (Niagara)", ()),
    ],
)
def test_power_tells_its_vectors_in_the_processor_line(line: str, sets: tuple[str, ...]) -> None:
    assert parse_instruction_sets("", line) == sets


@pytest.mark.parametrize("text", ["", "rv", "rv64", "rv32e_", "_", "x" * 100_000, "7" * 10_000, "avx" + "\0" * 9])
def test_rubbish_is_no_instruction_set_and_no_error(text: str) -> None:
    parse_instruction_sets(text, text)
    parse_instruction_sets(text, f"POWER{text}, altivec supported")


@pytest.mark.parametrize(
    ("sets", "chosen"),
    [
        (ICE_LAKE, "AVX512"),
        (("avx512f", "avx512cd", "avx2", "fma"), "AVX2"),  # Knights Landing has only the first part of AVX-512
        (("avx2", "fma"), "AVX2"),
        (("avx2",), "DEFAULT"),
        (("avx", "f16c"), "DEFAULT"),
        ((), "DEFAULT"),
    ],
)
def test_on_x86_torch_takes_the_widest_vectors_it_has_kernels_for(sets: tuple[str, ...], chosen: str) -> None:
    assert choose_torch_instruction_set("x86_64", sets) == chosen


@pytest.mark.parametrize(
    ("wanted", "chosen"), [("avx2", "AVX2"), ("default", "DEFAULT"), ("nonsense", "AVX512"), ("", "AVX512")]
)
def test_the_environment_may_ask_for_less(wanted: str, chosen: str) -> None:
    assert choose_torch_instruction_set("x86_64", ICE_LAKE, None, {"ATEN_CPU_CAPABILITY": wanted}) == chosen


@pytest.mark.parametrize(
    ("sets", "bits", "chosen"),
    [
        (("asimd",), None, "DEFAULT"),
        (("asimd", "sve", "bf16"), 256, "SVE256"),
        (("asimd", "sve", "sve2", "bf16"), 128, "DEFAULT"),
        (("asimd", "sve"), 512, "DEFAULT"),  # A64FX has no bfloat16
        (("asimd", "sve", "bf16"), None, None),
    ],
)
def test_on_arm_torch_takes_sve_of_256_bits_only(sets: tuple[str, ...], bits: int | None, chosen: str | None) -> None:
    assert choose_torch_instruction_set("aarch64", sets, bits) == chosen


def test_other_architectures_have_one_choice_or_none() -> None:
    assert choose_torch_instruction_set("ppc64le", ("altivec", "vsx")) == "VSX"
    assert choose_torch_instruction_set("s390x", ("vx", "vxe")) == "Z VECTOR"
    assert choose_torch_instruction_set("s390x", ("vx",)) == "DEFAULT"
    assert choose_torch_instruction_set("riscv64", ("v",)) is None
    assert choose_torch_instruction_set(None, ()) is None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the overrides asked for are x86's")
@pytest.mark.parametrize("wanted", [None, "avx2", "default"])
def test_the_installed_torch_agrees(wanted: str | None) -> None:
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": wanted} if wanted else dict(os.environ)
    program = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    sets = read_cpu(Root()).cpu.instruction_sets
    assert choose_torch_instruction_set("x86_64", sets, None, environment) == answer.stdout.strip()


def test_every_core_of_a_cluster_uses_the_width_of_sve_that_all_share(tmp_path: Path) -> None:
    root = Root(tmp_path)
    assert read_sve_bits(root, "Cortex-X925 + Cortex-A725") == 128
    assert read_sve_bits(root, "Cortex-X925 + Cortex-A9000") is None


def test_the_width_of_sve_is_known_of_a_design_or_not_at_all() -> None:
    assert (sve_bits_of("Neoverse V1"), sve_bits_of("Neoverse V2"), sve_bits_of(None)) == (256, 128, None)
