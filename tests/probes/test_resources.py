import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from probes.hardware import Limits
from probes.reading import Root
from probes.resources import explain_resources, parse_limits, parse_tmpfs_size, read_resources
from tests.probes.machines import GIB, write_machine

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max locked memory         8388608              unlimited            bytes
Max open files            1024                 524288               files
"""
MEMINFO = "MemTotal: 16777216 kB\n"


def test_this_process_is_asked_of_the_kernel() -> None:
    limits = read_resources(Root())
    assert limits.open_files == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    shared = os.statvfs("/dev/shm")
    assert limits.shared_memory_total_bytes == shared.f_blocks * shared.f_frsize


def test_a_real_limit_that_was_lowered_is_what_is_read() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (99, 123));"
        "resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536));"
        "from probes.reading import Root; from probes.resources import read_resources; l = read_resources(Root());"
        "print(l.open_files, l.open_files_maximum, l.locked_memory_bytes, l.locked_memory_unlimited)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["99", "123", "65536", "False"]


def test_a_captured_machine_tells_its_limits_in_proc(tmp_path: Path) -> None:
    mounts = "tmpfs /dev/shm tmpfs rw,nosuid,nodev,size=65536k,inode64 0 0\n"
    files = {"proc/self/limits": LIMITS, "proc/mounts": mounts, "proc/meminfo": MEMINFO}
    limits = read_resources(Root(write_machine(tmp_path, files)))
    assert limits == Limits(65536 * 1024, None, 8388608, False, 1024, 524288)
    assert explain_resources(limits) is None


def test_unlimited_is_not_unknown() -> None:
    text = "Max locked memory         unlimited            unlimited            bytes\n"
    assert parse_limits(text) == ((None, True), (None, None), (None, None))


@pytest.mark.parametrize("text", ["", "Max locked memory", "Max locked memory  many  few  bytes", "Max open files -1"])
def test_a_limit_that_cannot_be_read_is_unknown(text: str) -> None:
    assert parse_limits(text) == ((None, None), (None, None), (None, None))


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ("rw,size=65536k", 64 << 20),
        ("rw,size=2g,nr_inodes=100", 2 * GIB),
        ("rw,size=8388608", 8 << 20),
        ("rw,size=25%", 4 * GIB),
        ("rw,relatime", 8 * GIB),
        ("rw,size=lots", None),
    ],
)
def test_a_tmpfs_without_a_size_holds_half_of_the_memory(options: str, size: int | None) -> None:
    assert parse_tmpfs_size(f"tmpfs /dev/shm tmpfs {options} 0 0\n", "/dev/shm", 16 * GIB) == size


def test_mountinfo_keeps_a_tmpfs_size_in_its_last_words() -> None:
    row = "129 118 0:55 / /dev/shm rw,nosuid,nodev - tmpfs shm rw,size=65536k\n"
    assert parse_tmpfs_size(row, "/dev/shm", None) == 64 << 20


def test_what_is_not_there_is_unknown_and_said(tmp_path: Path) -> None:
    limits = read_resources(Root(tmp_path))
    assert limits == Limits()
    assert "/dev/shm" in (explain_resources(limits) or "")
