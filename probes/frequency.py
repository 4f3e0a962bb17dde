"""How fast the CPU's clock runs: rated base and maximum, and who chooses between them.

See the kernel's Documentation/admin-guide/pm/cpufreq.rst and Documentation/admin-guide/acpi/cppc_sysfs.rst. Most
virtual machines have none of it; then the name's own clock is all that is known.
"""

import re
from collections.abc import Mapping

from probes.cpusets import iterate_cpus
from probes.reading import Root, clean, parse_int
from probes.topology import CPU_FOLDER, read_present

# A rated clock outside of these is garbled: the slowest CPU that runs Linux and the record of overclocking.
SLOWEST_HERTZ, FASTEST_HERTZ = 10_000_000, 10_000_000_000
_CLOCK_IN_NAME = re.compile(r"(?<![\d.])(\d{1,4}(?:\.\d{1,3})?)\s?([GM])Hz", re.ASCII | re.IGNORECASE)


def read_maximum_frequencies(root: Root, online: int) -> dict[int, int]:
    """Each online CPU's rated maximum in hertz, by its number; empty where the kernel does not tell."""
    present = online & read_present(root)
    first = next(iterate_cpus(present), 0)
    if not root.exists(f"{CPU_FOLDER}/cpufreq") and not root.exists(f"{CPU_FOLDER}/cpu{first}/cpufreq"):
        return {}
    found = {}
    for cpu in iterate_cpus(present):
        kilohertz = root.read_int(f"{CPU_FOLDER}/cpu{cpu}/cpufreq/cpuinfo_max_freq")
        if kilohertz and (hertz := _believable(kilohertz * 1000)):
            found[cpu] = hertz
    return found


def fastest(maximum_hz: Mapping[int, int], cpus: int) -> int | None:
    """The highest maximum among a set of CPUs; None where none of them is known."""
    return max((hertz for cpu, hertz in maximum_hz.items() if cpus >> cpu & 1), default=None)


def read_base_frequency(root: Root, cpu: int, name: str | None) -> int | None:
    """The clock that the vendor guarantees: the kernel's word, else the model name's, else ACPI's highest state.

    intel_pstate's own file counts in kHz, ACPI's in MHz.
    """
    if kilohertz := root.read_int(f"{CPU_FOLDER}/cpu{cpu}/cpufreq/base_frequency"):
        return _believable(kilohertz * 1000)
    if megahertz := root.read_int(f"{CPU_FOLDER}/cpu{cpu}/acpi_cppc/nominal_freq"):
        return _believable(megahertz * 1_000_000)
    return parse_clock(name) or _read_highest_state(root, cpu)


def _read_highest_state(root: Root, cpu: int) -> int | None:
    """Of ACPI's performance states the highest is the base clock; one MHz more stands for whatever turbo gives."""
    folder = f"{CPU_FOLDER}/cpu{cpu}/cpufreq"
    if read_frequency_driver(root, cpu) != "acpi-cpufreq":
        return None
    kilohertz = [parse_int(word) or 0 for word in root.read_words(f"{folder}/scaling_available_frequencies")]
    highest = max(kilohertz, default=0)
    turbo = highest - 1000 in kilohertz
    return _believable((highest - 1000 if turbo else highest) * 1000)


def parse_clock(name: str | None) -> int | None:
    """The base clock that a vendor writes into the name: `Intel(R) Xeon(R) CPU @ 2.20GHz`."""
    match = _CLOCK_IN_NAME.search(name or "")
    return _believable(round(float(match[1]) * (10**9 if match[2] in "Gg" else 10**6))) if match else None


def read_governor(root: Root, cpu: int) -> str | None:
    """The policy that chooses frequencies: performance, powersave, schedutil, …"""
    return clean(root.read(f"{CPU_FOLDER}/cpu{cpu}/cpufreq/scaling_governor"), 64)


def read_frequency_driver(root: Root, cpu: int) -> str | None:
    """What carries the choice out: acpi-cpufreq, intel_pstate, amd-pstate-epp, …"""
    return clean(root.read(f"{CPU_FOLDER}/cpu{cpu}/cpufreq/scaling_driver"), 64)


def _believable(hertz: int) -> int | None:
    return hertz if SLOWEST_HERTZ <= hertz <= FASTEST_HERTZ else None
