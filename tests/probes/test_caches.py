from pathlib import Path

import pytest

from probes.caches import Cache, parse_cache_size, read_caches, sum_caches
from probes.cpuinfo import read_cpuinfo
from probes.hardware import CacheSizes
from probes.reading import Root
from probes.topology import read_topology
from tests.probes.machines import CPU, Files, write_machine, x86_machine


def read(folder: Path, files: Files) -> CacheSizes:
    root = Root(write_machine(folder, files))
    return sum_caches(read_caches(root, read_topology(root, read_cpuinfo(root))))


def test_a_shared_cache_counts_once(tmp_path: Path) -> None:
    assert read(tmp_path, x86_machine()) == CacheSizes(4 * 32 * 1024, None, 4 * 1024 * 1024, 2 * 8 * 1024 * 1024)


def test_an_offline_cpus_cache_does_not_count(tmp_path: Path) -> None:
    files = x86_machine() | {f"{CPU}/online": "0-1\n", "proc/cpuinfo": ""}
    assert read(tmp_path, files).l1d == 2 * 32 * 1024


def test_lists_serve_where_masks_are_missing(tmp_path: Path) -> None:
    files = {f"{CPU}/online": "0-1\n"}
    for cpu in range(2):
        folder = f"{CPU}/cpu{cpu}/cache/index0"
        files |= {f"{folder}/level": "2", f"{folder}/type": "Unified", f"{folder}/size": "512K"}
        files[f"{folder}/shared_cpu_list"] = "0-1"
    assert read(tmp_path, files).l2 == 512 * 1024


def test_a_cache_that_names_no_sharers_is_its_cores(tmp_path: Path) -> None:
    files = {name: text for name, text in x86_machine().items() if "shared_cpu_map" not in name}
    assert read(tmp_path, files).l2 == 4 * 1024 * 1024


def test_one_unknown_size_makes_the_total_unknown() -> None:
    assert sum_caches([Cache("l2", 1024, 1), Cache("l2", None, 2), Cache("l1d", 32, 3)]) == CacheSizes(l1d=32)


def without(files: Files, *parts: str) -> Files:
    return {name: text for name, text in files.items() if not any(part in name for part in parts)}


def test_who_shares_a_third_level_is_not_guessed(tmp_path: Path) -> None:
    assert read(tmp_path, without(x86_machine(), "shared_cpu_map")).l3 is None


def test_a_garbled_copy_of_a_shared_cache_is_outweighed_by_the_others(tmp_path: Path) -> None:
    files = x86_machine() | {f"{CPU}/cpu0/cache/index2/size": "8", f"{CPU}/cpu0/cache/index1/level": "\0"}
    assert read(tmp_path, files) == read(tmp_path, x86_machine())


@pytest.mark.parametrize("name", ["size", "level", "shared_cpu_map"])
def test_a_total_of_which_a_part_is_garbled_is_unknown(tmp_path: Path, name: str) -> None:
    files = x86_machine() | {f"{CPU}/cpu{cpu}/cache/index1/{name}": "garbage" for cpu in (1, 5)}
    found = read(tmp_path, files)
    assert found.l2 is None
    assert found.l3 == 2 * 8 * 1024 * 1024


def test_a_cpu_without_its_caches_makes_what_nobody_shares_with_it_unknown(tmp_path: Path) -> None:
    found = read(tmp_path, without(x86_machine(), "cpu1/cache", "cpu5/cache"))
    assert (found.l1d, found.l2) == (None, None)
    assert found.l3 == 2 * 8 * 1024 * 1024


def test_caches_that_claim_the_same_cpu_have_no_total() -> None:
    assert sum_caches([Cache("l2", 1024, 0b011), Cache("l2", 1024, 0b110)]) == CacheSizes()


def test_sparc_writes_sizes_beside_the_topology(tmp_path: Path) -> None:
    files = {f"{CPU}/online": "0-1\n"} | {f"{CPU}/cpu{cpu}/l1_dcache_size": "8192\n" for cpu in range(2)}
    assert read(tmp_path, files).l1d == 16384


@pytest.mark.parametrize(
    ("text", "size"),
    [("48K", 49152), ("8M\n", 8 << 20), ("512", None), ("0K", None), ("", None), ("9999999999K", None)],
)
def test_sizes_carry_their_unit(text: str, size: int | None) -> None:
    assert parse_cache_size(text) == size
