from probes.cpu_portable import describe_mac, read_portable_cpu
from probes.hardware import CacheSizes

INTEL_MAC = """\
machdep.cpu.brand_string: Intel(R) Core(TM) i7-4980HQ CPU @ 2.80GHz
machdep.cpu.vendor: GenuineIntel
machdep.cpu.model: 70
machdep.cpu.features: FPU SSE4.2 FMA F16C AVX1.0
machdep.cpu.leaf7_features: AVX2 BMI2
hw.packages: 1
hw.physicalcpu: 4
hw.logicalcpu: 8
hw.l1dcachesize: 32768
hw.l1icachesize: 32768
hw.l2cachesize: 262144
hw.l3cachesize: 6291456
"""
APPLE_MAC = """\
machdep.cpu.brand_string: Apple M1 Pro
hw.cpufamily: 458787763
hw.physicalcpu: 8
hw.logicalcpu: 8
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_BF16: 0
hw.perflevel0.physicalcpu: 6
hw.perflevel0.l1icachesize: 196608
hw.perflevel0.l1dcachesize: 131072
hw.perflevel0.l2cachesize: 12582912
hw.perflevel0.cpusperl2: 3
hw.perflevel1.physicalcpu: 2
hw.perflevel1.l1icachesize: 131072
hw.perflevel1.l1dcachesize: 65536
hw.perflevel1.l2cachesize: 4194304
hw.perflevel1.cpusperl2: 2
"""


def test_other_systems_are_read_by_portable_packages() -> None:
    cpu = read_portable_cpu()
    assert cpu.logical_cores
    assert cpu.architecture


def test_the_slow_package_is_asked_once_a_process() -> None:
    assert read_portable_cpu() is read_portable_cpu()


def test_an_intel_mac_is_placed_like_any_intel() -> None:
    cpu = describe_mac(INTEL_MAC)
    assert (cpu.vendor, cpu.microarchitecture, cpu.generation) == ("Intel", "Haswell", "4th Gen Core")
    assert (cpu.physical_cores, cpu.logical_cores, cpu.threads_per_core) == (4, 8, 2)
    assert cpu.cache_bytes == CacheSizes(l1d=4 * 32768, l1i=4 * 32768, l2=4 * 262144, l3=6291456)
    assert (cpu.torch_instruction_set, cpu.base_frequency_hz) == ("AVX2", 2_800_000_000)


def test_apples_chip_has_two_kinds_of_core_with_caches_of_their_own() -> None:
    cpu = describe_mac(APPLE_MAC)
    assert (cpu.vendor, cpu.microarchitecture, cpu.tier) == ("Apple", "Apple M1", "M1 Pro")
    assert (cpu.performance_cores, cpu.efficiency_cores) == (6, 2)
    assert cpu.cache_bytes.l2 == 2 * 12582912 + 4194304
    assert cpu.instruction_sets == ("asimd", "asimddp")
    assert [cluster.kind for cluster in cpu.clusters] == ["performance", "efficiency"]


def test_what_macos_does_not_tell_is_unknown() -> None:
    cpu = describe_mac("hw.byteorder: 1234\nrubbish\n")
    assert (cpu.name, cpu.physical_cores, cpu.cache_bytes, cpu.clusters) == (None, None, CacheSizes(), ())
