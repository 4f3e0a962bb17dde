from pathlib import Path

import pytest

from probes.frequency import (
    fastest,
    parse_clock,
    read_base_frequency,
    read_frequency_driver,
    read_governor,
    read_maximum_frequencies,
)
from probes.reading import Root
from tests.probes.machines import CPU, Files, write_machine

FREQUENCIES: Files = {
    f"{CPU}/cpu0/cpufreq/base_frequency": "2100000\n",
    f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq": "5000000\n",
    f"{CPU}/cpu1/cpufreq/cpuinfo_max_freq": "3800000\n",
    f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave\n",
    f"{CPU}/cpu0/cpufreq/scaling_driver": "intel_pstate\n",
}


def test_the_kernel_tells_base_maximum_governor_and_driver(tmp_path: Path) -> None:
    root = Root(write_machine(tmp_path, FREQUENCIES))
    maximum = read_maximum_frequencies(root, 0b11)
    assert maximum == {0: 5_000_000_000, 1: 3_800_000_000}
    assert (fastest(maximum, 0b11), fastest(maximum, 0b10), fastest(maximum, 0b100)) == (
        5_000_000_000,
        3_800_000_000,
        None,
    )
    assert read_base_frequency(root, 0, "CPU @ 9.00GHz") == 2_100_000_000
    assert (read_governor(root, 0), read_frequency_driver(root, 0)) == ("powersave", "intel_pstate")


def test_acpi_tells_the_nominal_clock_in_megahertz(tmp_path: Path) -> None:
    root = Root(write_machine(tmp_path, {f"{CPU}/cpu0/acpi_cppc/nominal_freq": "3400\n"}))
    assert read_base_frequency(root, 0, None) == 3_400_000_000


def test_an_empty_acpi_file_is_no_clock(tmp_path: Path) -> None:
    root = Root(write_machine(tmp_path, {f"{CPU}/cpu0/acpi_cppc/nominal_freq": "0\n"}))
    assert read_base_frequency(root, 0, "Intel(R) Xeon(R) CPU @ 2.20GHz") == 2_200_000_000


@pytest.mark.parametrize(
    ("driver", "states", "hertz"),
    [
        ("acpi-cpufreq", "2300000 1900000 1200000 ", 2_300_000_000),
        ("acpi-cpufreq", "2701000 2700000 1200000 ", 2_700_000_000),
        ("acpi-cpufreq", "", None),
        ("cpufreq-dt", "1700000 200000", None),
    ],
)
def test_acpis_highest_state_is_the_base_clock(tmp_path: Path, driver: str, states: str, hertz: int | None) -> None:
    folder = f"{CPU}/cpu0/cpufreq"
    files = {f"{folder}/scaling_driver": f"{driver}\n", f"{folder}/scaling_available_frequencies": f"{states}\n"}
    assert read_base_frequency(Root(write_machine(tmp_path, files)), 0, "AMD EPYC 7451 24-Core Processor") == hertz


def test_most_virtual_machines_tell_nothing(tmp_path: Path) -> None:
    root = Root(write_machine(tmp_path, {f"{CPU}/cpu0/topology/core_id": "0\n"}))
    assert read_maximum_frequencies(root, 1) == {}
    assert read_base_frequency(root, 0, "AMD EPYC") is None
    assert read_governor(root, 0) is read_frequency_driver(root, 0) is None


@pytest.mark.parametrize(
    ("name", "hertz"),
    [
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", 2_200_000_000),
        ("Intel(R) Core(TM) i7 CPU         920  @ 2.67GHz", 2_670_000_000),
        ("Intel(R) Xeon(TM) CPU 2.60GHz", 2_600_000_000),
        ("Intel(R) Celeron(R) CPU 900MHz", 900_000_000),
        ("AMD Ryzen 9 5950X 16-Core Processor", None),
        ("Something @ 9999GHz", None),
        (None, None),
    ],
)
def test_the_name_may_carry_the_base_clock(name: str | None, hertz: int | None) -> None:
    assert parse_clock(name) == hertz


@pytest.mark.parametrize("text", ["", "0", "-3", "3", "99999999999", "fast"])
def test_a_clock_that_no_cpu_has_is_not_believed(tmp_path: Path, text: str) -> None:
    root = Root(write_machine(tmp_path, {f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq": text}))
    assert read_maximum_frequencies(root, 1) == {}
