"""NVIDIA's error codes (Xid) in the kernel's log, by the PCI address of their card.

NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
"""

import os
import re
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from probes.hardware import Xid
from probes.reading import LARGE_FILE_BYTES, Root, parse_int

Xids = dict[str, tuple[Xid, ...]]

_TABLE = Path(__file__).with_name("xids.toml")
_LINE = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})[^)]{0,32}\): (\d{1,4})\b"
)
# What a kernel says first: of a saved log that spans several starts only what is behind the last one is of now.
_START = re.compile(r"(?:^|kernel:|\]) *(?:Linux version \d|Booting Linux on )")
_LIVE_LOG = "/dev/kmsg"
_SAVED_LOGS = ("/var/log/dmesg", "/var/log/kern.log", "/var/log/messages")
_RECORD_BYTES = 8192  # the kernel hands out one record a read, and none is longer (CONSOLE_EXT_LOG_MAX)
_MAX_RECORDS = 100_000  # a log buffer of 8 MiB holds about as many
_MAX_SECONDS = 0.25
_MAX_OF_A_CODE = 16  # of each code: a grave error may be followed by hundreds that it caused, one a program's channel


def read_xids(root: Root) -> Xids | None:
    """Newest first; an empty dict when there are none, None when the log may not be read.

    Of a captured machine, what it saved of its log: how old an error is nobody knows then.
    """
    if root.is_host:
        records = read_kernel_log(_LIVE_LOG)
        return None if records is None else gather_xids(map(parse_record, records), time.monotonic())
    texts = [text for text in (root.read(path, LARGE_FILE_BYTES) for path in _SAVED_LOGS) if text is not None]
    return gather_xids(((None, line) for line in join_logs(texts)), None) if texts else None


def join_logs(texts: Sequence[str]) -> list[str]:
    """The lines with Xids since the machine's last start, oldest first; what several logs tell counts once. texts:
    saved logs. The first may have been written at the start alone, as Debian's dmesg is, or have lost its older lines,
    as what a kernel keeps: what another tells before the first line of both came before."""
    told: list[str] = []
    counts = Counter[str]()
    for text in texts:
        here = Counter[str]()
        before: list[str] = []
        behind: list[str] = []
        meets = False
        for line in _since_start(text.splitlines()):
            error = line[line.index("NVRM: Xid") :].rstrip()
            here[error] += 1
            if here[error] <= counts[error]:
                meets = True
            else:
                (behind if meets else before).append(line)
        told = [*before, *told, *behind] if meets else [*told, *before]
        counts |= here
    return told


def _since_start(lines: Iterable[str]) -> list[str]:
    """Of these lines those that speak of Xids."""
    kept: list[str] = []
    for line in lines:
        if _START.search(line):
            kept.clear()
        elif "NVRM: Xid" in line:
            kept.append(line)
    return kept


def read_kernel_log(path: str) -> list[bytes] | None:
    """Records that speak of Xids, oldest first; never waits for more. None when the log may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):
        return None
    try:
        return [record for record in _read_records(descriptor) if b"NVRM: Xid" in record]
    finally:
        os.close(descriptor)


def _read_records(descriptor: int) -> Iterator[bytes]:
    ends = time.monotonic() + _MAX_SECONDS
    for _ in range(_MAX_RECORDS):
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BrokenPipeError:
            continue  # this record was overwritten while we read; the next read gives the oldest that is left
        except OSError:
            return  # EAGAIN: that was the last one
        if not record or time.monotonic() > ends:
            return
        yield record


def parse_record(record: bytes) -> tuple[float | None, str]:
    """Seconds since start and text of `6,339,5140900,-;NVRM: …`; no text of what a program wrote into the log."""
    prefix, _, text = record.decode("utf-8", "replace").partition(";")
    priority, _, stamp = [*prefix.split(","), "", "", ""][:3]
    number = parse_int(priority)
    if number is None or number >> 3 != 0:  # syslog facility 0 is the kernel
        return None, ""
    microseconds = parse_int(stamp)
    return None if microseconds is None else microseconds / 1e6, text


def gather_xids(lines: Iterable[tuple[float | None, str]], now_seconds: float | None) -> Xids:
    """Of each card the newest errors of each code, newest first. lines: when each was logged, in seconds since start,
    and its text; oldest first."""
    found: dict[str, list[Xid]] = {}
    for logged, line in lines:
        match = _LINE.search(line)
        if match is None:
            continue
        domain, bus, device, code = match.groups()
        age = None if logged is None or now_seconds is None else max(0.0, round(now_seconds - logged, 3))
        xid = Xid(int(code), read_meanings().get(int(code)), age)
        found.setdefault(f"{int(domain, 16):04x}:{bus}:{device}.0".lower(), []).append(xid)
    return {address: tuple(_newest_of_each(xids)) for address, xids in found.items()}


def _newest_of_each(xids: Sequence[Xid]) -> Iterator[Xid]:
    counts = Counter[int]()
    for xid in reversed(xids):
        counts[xid.code] += 1
        if counts[xid.code] <= _MAX_OF_A_CODE:
            yield xid


@cache
def read_meanings() -> dict[int, str]:
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return {int(code): meaning for code, meaning in table["meanings"].items()}
