from pathlib import Path

import pytest

from probes.limits import (
    QuotaUse,
    UsableCores,
    combine_limits,
    parse_cpu_max,
    read_portable,
    read_quota_use,
    read_usable_cores,
)
from probes.reading import Root, Unreadable
from tests.probes.machines import Files, with_cgroup_v1, with_cgroup_v2, write_machine


def read(folder: Path, files: Files, online: int = 0xFF) -> UsableCores:
    return read_usable_cores(Root(write_machine(folder, files)), online)


def test_without_limits_all_online_cpus_are_usable(tmp_path: Path) -> None:
    assert read(tmp_path, {}) == UsableCores(8.0, None)


@pytest.mark.parametrize("version", [1, 2])
def test_a_quota_limits_below_the_cores(tmp_path: Path, version: int) -> None:
    if version == 2:
        files = with_cgroup_v2({}, "/job", {"job": {"cpu.max": "150000 100000\n"}})
    else:
        quota = {"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"}
        files = with_cgroup_v1({}, "/job", {"cpu/job": quota})
    assert read(tmp_path, files) == UsableCores(1.5, "cgroup")


@pytest.mark.parametrize("version", [1, 2])
def test_a_tighter_quota_further_up_rules(tmp_path: Path, version: int) -> None:
    if version == 2:
        files = with_cgroup_v2({}, "/a/b", {"a/b": {"cpu.max": "400000 100000"}, "a": {"cpu.max": "200000 100000"}})
    else:
        period = {"cpu.cfs_period_us": "100000"}
        own, above = {"cpu.cfs_quota_us": "400000"} | period, {"cpu.cfs_quota_us": "200000"} | period
        files = with_cgroup_v1({}, "/a/b", {"cpu/a/b": own, "cpu/a": above})
    assert read(tmp_path, files) == UsableCores(2.0, "cgroup")


def test_a_quota_above_the_cores_limits_nothing(tmp_path: Path) -> None:
    files = with_cgroup_v2({}, "/job", {"job": {"cpu.max": "6400000 100000"}})
    assert read(tmp_path, files) == UsableCores(8.0, None)


def test_a_cpuset_limits_and_is_a_cgroups_doing(tmp_path: Path) -> None:
    files = with_cgroup_v2({}, "/job", {"job": {"cpuset.cpus.effective": "0-2\n"}})
    assert read(tmp_path, files) == UsableCores(3.0, "cgroup")


def test_an_unset_cpuset_is_the_one_above(tmp_path: Path) -> None:
    files = with_cgroup_v1({}, "/a/b", {"cpuset/a/b": {"cpuset.cpus": "\n"}, "cpuset/a": {"cpuset.cpus": "0-3\n"}})
    assert read(tmp_path, files) == UsableCores(4.0, "cgroup")


def test_affinity_below_the_cpuset_is_named_as_the_limit(tmp_path: Path) -> None:
    files = with_cgroup_v2({}, "/job", {"job": {"cpuset.cpus.effective": "0-3\n"}})
    assert read(tmp_path, files | {"proc/self/status": "Cpus_allowed_list:\t0-1\n"}) == UsableCores(2.0, "affinity")


def test_offline_cpus_in_a_cpuset_do_not_count(tmp_path: Path) -> None:
    files = with_cgroup_v2({}, "/job", {"job": {"cpuset.cpus.effective": "6-9\n"}})
    assert read(tmp_path, files) == UsableCores(2.0, "cgroup")


def test_a_set_that_leaves_nothing_is_not_believed() -> None:
    assert combine_limits(0b11, 0b100, None, None) == UsableCores(2.0, None)


@pytest.mark.parametrize(
    ("text", "quota"),
    [("max 100000", None), ("50000 100000", 0.5), ("200000", 2.0)],
)
def test_cpu_max_is_quota_over_period(text: str, quota: float | None) -> None:
    assert parse_cpu_max(text) == quota


@pytest.mark.parametrize("text", ["", "-1 100000", "1 0", "garbage", "9" * 5000, "1 2000000000000000000000"])
def test_what_is_no_quota_is_not_taken_for_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unreadable, match=r"cpu\.max is no quota"):
        read(tmp_path, with_cgroup_v2({}, "/job", {"job": {"cpu.max": text}}))


@pytest.mark.parametrize(
    "change",
    [
        {"sys/fs/cgroup/job/cpuset.cpus.effective": "0-18446744073709551615"},
        {"proc/self/cgroup": "0:"},
        {"proc/self/status": "Name: some"},
        {"proc/self/status": "Cpus_allowed_list: garbage"},
    ],
)
def test_a_limit_that_cannot_be_understood_is_not_taken_for_none(tmp_path: Path, change: Files) -> None:
    files = with_cgroup_v2({}, "/job", {"job": {"cpuset.cpus.effective": "0-2\n"}}) | change
    with pytest.raises(Unreadable):
        read(tmp_path, files)


def test_older_kernels_write_the_affinity_as_a_mask_alone(tmp_path: Path) -> None:
    assert read(tmp_path, {"proc/self/status": "Cpus_allowed:\t00000003\n"}) == UsableCores(2.0, "affinity")


def test_other_systems_ask_psutil() -> None:
    assert read_portable(0).cores >= 1


def test_this_process_may_use_something() -> None:
    assert read_usable_cores(Root(), (1 << 512) - 1).cores > 0


@pytest.mark.parametrize("version", [1, 2])
def test_what_all_used_is_told_of_the_cgroup_whose_quota_rules(tmp_path: Path, version: int) -> None:
    """And for how long it stopped them."""
    if version == 2:
        own = {"cpu.max": "400000 100000", "cpu.stat": "usage_usec 1000000\nuser_usec 1\n"}
        stat = "usage_usec 2500000\nuser_usec 1\nnr_periods 9\nnr_throttled 4\nthrottled_usec 250000\n"
        above = {"cpu.max": "150000 100000", "cpu.stat": stat}
        files = with_cgroup_v2({}, "/a/b", {"a/b": own, "a": above})
    else:
        period = {"cpu.cfs_period_us": "100000"}
        own = {"cpu.cfs_quota_us": "400000", "cpuacct.usage": "1000000000\n"} | period
        stat = "nr_periods 9\nnr_throttled 4\nthrottled_time 250000000\n"
        above = {"cpu.cfs_quota_us": "150000", "cpuacct.usage": "2500000000\n", "cpu.stat": stat} | period
        files = with_cgroup_v1({}, "/a/b", {"cpu/a/b": own, "cpu/a": above})
    use = read_quota_use(Root(write_machine(tmp_path, files)))
    assert use == QuotaUse(1.5, pytest.approx(2.5), pytest.approx(0.25))


def test_a_kernel_that_does_not_say_how_long_a_quota_stopped_is_believed_for_the_rest(tmp_path: Path) -> None:
    files = with_cgroup_v2({}, "/job", {"job": {"cpu.max": "150000 100000", "cpu.stat": "usage_usec 1000000\n"}})
    assert read_quota_use(Root(write_machine(tmp_path, files))) == QuotaUse(1.5, pytest.approx(1.0), None)


@pytest.mark.parametrize("stat", [None, "", "usage_usec x\n", "user_usec 1\n"])
def test_without_a_quota_or_a_count_nothing_is_told_of_its_use(tmp_path: Path, stat: str | None) -> None:
    files = {"cpu.max": "150000 100000"} if stat is None else {"cpu.max": "150000 100000", "cpu.stat": stat}
    assert read_quota_use(Root(write_machine(tmp_path / "1", with_cgroup_v2({}, "/job", {"job": files})))) is None
    unlimited = {"cpu.max": "max 100000", "cpu.stat": "usage_usec 1\n"}
    assert read_quota_use(Root(write_machine(tmp_path / "2", with_cgroup_v2({}, "/job", {"job": unlimited})))) is None
    garbled = {"cpu.max": "garbage", "cpu.stat": "usage_usec 1\n"}
    assert read_quota_use(Root(write_machine(tmp_path / "3", with_cgroup_v2({}, "/job", {"job": garbled})))) is None
