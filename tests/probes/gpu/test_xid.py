"""NVIDIA's errors in the kernel's log."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.gpu.xid import gather_xids, parse_record, read_kernel_log, read_meanings, read_xids
from probes.hardware import Xid
from probes.reading import Root
from probes.survey import take_survey
from tests.probes.machines import write_machine, x86_machine

FALLEN = "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
FATAL = "NVRM: Xid (PCI:0000:01:00): 48, pid=77, An uncorrectable double bit error"


@pytest.mark.parametrize(
    ("line", "address", "code"),
    [
        (FALLEN, "0000:01:00.0", 79),
        ("NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping", "0000:10:1c.0", 63),
        ("NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000", "0000:01:00.0", 31),
        ("NVRM: Xid (PCI:0008:06:00 GPU-I:05): 43, pid=77, name=python, Ch 00000008", "0008:06:00.0", 43),
        ("[ 12.3] NVRM: Xid (PCI:0000:C1:00): 154, GPU recovery action changed", "0000:c1:00.0", 154),
        ("NVRM: Xid (PCI:00010000:3b:00): 119, Timeout after 6s of waiting for RPC", "10000:3b:00.0", 119),
    ],
)
def test_an_error_is_found_by_its_cards_address(line: str, address: str, code: int) -> None:
    found = gather_xids([(None, line)], None)
    assert {place: [xid.code for xid in xids] for place, xids in found.items()} == {address: [code]}


def test_the_newest_is_first_with_its_age() -> None:
    lines = [(100.0, FALLEN.replace("79", "13")), (160.0, FALLEN)]
    newest, oldest = gather_xids(lines, 200.0)["0000:01:00.0"]
    assert (newest.code, newest.age_seconds) == (79, 40.0)
    assert (oldest.code, oldest.age_seconds) == (13, 100.0)
    assert "fell off the PCIe bus" in (newest.meaning or "")


def test_a_code_that_nobody_explained_has_no_meaning() -> None:
    assert gather_xids([(None, FALLEN.replace("79", "9999"))], None)["0000:01:00.0"] == (Xid(9999, None, None),)


def test_a_flood_of_errors_keeps_the_newest() -> None:
    found = gather_xids([(float(second), FALLEN) for second in range(10_000)], 10_000.0)
    assert len(found["0000:01:00.0"]) == 16
    assert found["0000:01:00.0"][0].age_seconds == 1.0


def test_a_grave_error_outlives_the_flood_of_those_that_it_caused() -> None:
    """After an uncorrectable error the driver writes one Xid 45 for each channel that it takes down."""
    after = FALLEN.replace(" 79,", " 45,")
    found = gather_xids([(1.0, FALLEN), *((2.0, after) for _ in range(400))], 10.0)["0000:01:00.0"]
    assert [xid.code for xid in found] == [45] * 16 + [79]


def test_a_record_has_its_time_and_text() -> None:
    assert parse_record(b"4,1234,5140900,-;NVRM: Xid\n SUBSYSTEM=pci\n")[0] == pytest.approx(5.1409)


def test_what_a_program_wrote_into_the_log_is_no_error() -> None:
    assert parse_record(b"12,1234,5140900,-;" + FALLEN.encode()) == (None, "")


@given(st.binary(max_size=200))
def test_no_record_is_too_odd(record: bytes) -> None:
    gather_xids([parse_record(record)], 1.0)


@given(st.text(max_size=100))
def test_no_line_is_too_odd(text: str) -> None:
    gather_xids([(None, f"NVRM: Xid (PCI:0000:01:00{text}): {text}")], None)


def test_a_log_is_read_record_by_record_without_waiting_for_more() -> None:
    """A pipe in packet mode gives one record a read, and EAGAIN at the end, as /dev/kmsg does."""
    if not hasattr(os, "O_DIRECT"):
        pytest.skip("this system has no pipes in packet mode")
    reading, writing = os.pipe2(os.O_DIRECT)
    try:
        for record in (b"6,1,1,-;usb 1-1: new device", b"4,2,2,-;" + FALLEN.encode(), b"6,3,3,-;eth0: link up"):
            os.write(writing, record)
        assert read_kernel_log(f"/proc/self/fd/{reading}") == [b"4,2,2,-;" + FALLEN.encode()]
    finally:
        os.close(reading)
        os.close(writing)


def test_a_log_that_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    assert read_kernel_log(str(tmp_path / "nothing")) is None
    assert read_xids(Root(tmp_path)) is None


def test_this_machines_log_is_read_or_unknown() -> None:
    assert isinstance(read_xids(Root()), dict | None)


def test_a_captured_machine_tells_what_it_saved(tmp_path: Path) -> None:
    (tmp_path / "var/log").mkdir(parents=True)
    (tmp_path / "var/log/dmesg").write_text(f"[    1.5] kernel: hello\n[   12.3] {FALLEN}\n")
    assert read_xids(Root(tmp_path)) == {"0000:01:00.0": (Xid(79, read_meanings()[79], None),)}


SYSLOG = "Nov  3 10:00:00 host kernel: [    0.000000] Linux version 6.8.0-45-generic (gcc 13.2.0)"


@pytest.mark.parametrize(
    ("logs", "codes"),
    [
        ({"dmesg": "[ 0.0] hello", "kern.log": f"Nov  3 11:00:00 host kernel: [ 9.5] {FALLEN}"}, [79]),
        ({"dmesg": f"[ 9.5] {FALLEN}", "messages": f"Nov  3 11:00:00 host kernel: {FALLEN}"}, [79]),
        (
            {"dmesg": f"[ 900.1] {FATAL}", "kern.log": f"[ 9.5] {FALLEN}\n[ 900.1] {FATAL}\n[ 901.2] {FALLEN}"},
            [79, 48, 79],
        ),
        ({"dmesg": f"[ 9.5] {FATAL}", "kern.log": f"[ 9.5] {FATAL}\n[ 901.2] {FALLEN}"}, [79, 48]),
        ({"kern.log": f"{SYSLOG}\nNov  3 host kernel: {FALLEN}\nNov  3 host kernel: {FALLEN}"}, [79, 79]),
        ({"kern.log": f"Nov  3 host kernel: {FALLEN}\n{SYSLOG}\nNov  3 host kernel: all is well"}, []),
        ({"dmesg": f"[ 0.0] Booting Linux on physical CPU 0x0\n[ 9.5] {FALLEN}", "messages": SYSLOG}, [79]),
    ],
)
def test_saved_logs_tell_together_what_came_since_the_last_start(
    tmp_path: Path, logs: dict[str, str], codes: list[int]
) -> None:
    """Debian writes dmesg once, at the start; kern.log and messages go on over many."""
    (tmp_path / "var/log").mkdir(parents=True)
    for name, text in logs.items():
        (tmp_path / "var/log" / name).write_text(f"{text}\n")
    found = read_xids(Root(tmp_path))
    assert found is not None
    assert [xid.code for xid in found.get("0000:01:00.0", ())] == codes


def test_a_card_that_no_driver_tells_of_has_its_errors_too(tmp_path: Path) -> None:
    place = "sys/bus/pci/devices/0000:01:00.0"
    files = {f"{place}/class": "0x030000", f"{place}/vendor": "0x10de", f"{place}/device": "0x2204"}
    write_machine(tmp_path, {**x86_machine(), **files, "var/log/dmesg": f"[   12.3] {FALLEN}\n"})
    [card] = take_survey(tmp_path, deadline_seconds=60).accelerators
    assert [xid.code for xid in card.xids or ()] == [79]


def test_every_meaning_is_a_sentence_for_people() -> None:
    assert len(read_meanings()) > 60
    assert all(10 < len(meaning) < 120 for meaning in read_meanings().values())
    assert all(0 < code < 200 for code in read_meanings())
