"""Memory and limits that a training loop runs into: swap, /dev/shm, locked memory, open files."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnose.codes import make_finding
from probes.diagnose.facts import Facts
from probes.diagnose.wording import in_gb
from probes.hardware import Finding

# Idle pages go to swap on healthy machines; it costs where much went and little is left.
_SWAP_SHARE = 0.05  # of all memory
_SCARCE_SHARE = 0.2  # of all memory still available
_MUCH_SHARE = 0.25  # of all memory: more than idle pages, whatever is free by now
# What DataLoader workers hold there at once: 4 workers, 2 batches ahead each (torch's prefetch_factor), a batch of 64
# images of 3 x 224 x 224 in fp32. Docker's default is 64 MiB.
_BATCH_BYTES = 64 * 3 * 224 * 224 * 4
_SHARED_BYTES = 4 * 2 * _BATCH_BYTES
# The kernel's default was 64 KiB until 5.15 and is 8 MiB since (include/uapi/linux/resource.h).
_LOCKED_BYTES = 1 << 20
# A DataLoader worker holds a file for each tensor it hands over (torch.multiprocessing, strategy file_descriptor).
_OPEN_FILES = 1024


def find_swap_in_use(facts: Facts) -> Iterator[Finding]:
    used, total, left = facts.memory.swap_used_bytes, facts.memory.total_bytes, facts.memory.available_bytes
    if not used or not total or left is None or used < _SWAP_SHARE * total:
        return
    if left > _SCARCE_SHARE * total and used < _MUCH_SHARE * total:
        return
    yield make_finding(
        "swap-in-use",
        "memory",
        f"{in_gb(used)} of this machine's memory is in swap and {in_gb(left)} of {in_gb(total)} are "
        "available: a step that "
        "touches swapped pages waits for the disk.",
        "ps -eo pid,rss,comm --sort=-rss | head shows who holds memory; end what is not needed, then: "
        "sudo swapoff -a && sudo swapon -a",
    )


def find_small_shared_memory(facts: Facts) -> Iterator[Finding]:
    """Where it is a matter of size; what others left there is said too."""
    total, free = facts.limits.shared_memory_total_bytes, facts.limits.shared_memory_free_bytes
    left = free if free is not None else total
    if total is None or left is None or left >= _SHARED_BYTES:
        return
    what = (
        f"/dev/shm is {in_gb(total)} large"
        if total < _SHARED_BYTES
        else f"Only {in_gb(left)} of {in_gb(total)} are free in /dev/shm"
    )
    yield make_finding(
        "small-shared-memory",
        "memory",
        f"{what}; DataLoader workers hand batches over through it, and 4 workers with 64 images a batch need "
        f"{in_gb(_SHARED_BYTES)}: without it they end with a bus error.",
        _grow_shared_memory(facts, total),
    )


def _grow_shared_memory(facts: Facts, total: int) -> str:
    if total >= _SHARED_BYTES:
        return "ls -la /dev/shm shows what fills it; remove what belongs to no running program."
    if facts.container == "kubernetes":
        return "Mount an emptyDir with medium: Memory and sizeLimit: 8Gi at /dev/shm in the pod."
    if facts.container is not None:
        return "Start the container with --shm-size=8g (or --ipc=host)."
    return "sudo mount -o remount,size=8G /dev/shm"


def find_low_locked_memory(facts: Facts) -> Iterator[Finding]:
    """Drivers do not count the buffers that they pin themselves; transfers between machines lock memory and do."""
    limit = facts.limits.locked_memory_bytes
    if limit is None or limit < 0 or facts.limits.locked_memory_unlimited or limit >= _LOCKED_BYTES:
        return
    if not any(card.vendor in ("NVIDIA", "AMD", "Intel") for card in facts.training_cards):
        return
    container = facts.container is not None
    yield make_finding(
        "low-locked-memory",
        "memory",
        f"This process may lock {limit / 1e3:.0f} kB of memory (ulimit -l). Copies to this machine's own "
        "cards need none; "
        "training on several machines does (NCCL or RCCL over InfiniBand), and fails with so little.",
        "Start the container with --ulimit memlock=-1"
        if container
        else 'echo "$USER - memlock unlimited" | sudo tee /etc/security/limits.d/memlock.conf, then log in again',
    )


def find_low_open_files(facts: Facts) -> Iterator[Finding]:
    limit, most = facts.limits.open_files, facts.limits.open_files_maximum
    if limit is None or limit < 0 or limit >= _OPEN_FILES or (facts.system.os or "").startswith(("macOS", "Darwin")):
        return  # macOS hands tensors over by name, not by open file
    reachable = most is None or most < 0 or most >= _OPEN_FILES
    yield make_finding(
        "low-open-files",
        "limits",
        f"This process may open {limit} files; DataLoader workers hold one for each tensor they hand over "
        "and then fail "
        "with “Too many open files”.",
        f"ulimit -n {min(65_536, most) if most is not None and most >= _OPEN_FILES else 65_536}"
        if reachable
        else 'echo "$USER - nofile 65536" | sudo tee /etc/security/limits.d/nofile.conf, then log in again',
    )
