import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from probes.hardware import Outcome
from probes.reading import Root, Unreadable, clean, parse_int


def test_a_file_below_the_root_is_read_by_its_path_on_the_machine(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("hello\n")
    assert Root(tmp_path).read("/proc/cpuinfo") == "hello\n"
    assert Root(tmp_path).list("/proc") == ["cpuinfo"]


@pytest.mark.parametrize(
    ("platform", "is_linux"), [("linux", True), ("android", True), ("darwin", False), ("win32", False)]
)
def test_files_are_read_on_linux_android_and_of_every_captured_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, is_linux: bool
) -> None:
    host, captured = Root(), Root(tmp_path)
    monkeypatch.setattr(sys, "platform", platform)
    assert host.is_linux is is_linux
    assert captured.is_linux


def test_what_is_missing_is_none_and_an_absence_when_required(tmp_path: Path) -> None:
    assert Root(tmp_path).read("/proc/cpuinfo") is None
    with pytest.raises(Unreadable) as caught:
        Root(tmp_path).require("/proc/cpuinfo")
    assert caught.value.outcome is Outcome.ABSENT


def test_a_link_out_of_a_captured_machine_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("this host's")
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine/absolute").symlink_to(tmp_path / "outside")
    (tmp_path / "machine/relative").symlink_to("../outside")
    root = Root(tmp_path / "machine")
    assert root.read("/absolute") is None
    assert root.read("/relative") is None
    assert root.read("/../outside") is None


def test_a_link_within_a_captured_machine_is_followed(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices/class").write_text("0x030000")
    (tmp_path / "bus").symlink_to("devices")
    assert Root(tmp_path).read("/bus/class") == "0x030000"


def test_a_loop_of_links_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert Root(tmp_path).read("/a") is None
    assert Root(tmp_path).list("/a") == []


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 1001)
    root = Root(tmp_path)
    assert root.read("/large", 1001) is not None
    assert root.read("/large", 1000) is None
    with pytest.raises(Unreadable, match="longer than 1000 bytes"):
        root.require("/large", 1000)


def test_pipes_devices_and_folders_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert Root(tmp_path).read("/pipe") is None
    assert Root(tmp_path).read("/") is None
    assert Root().read("/dev/zero") is None


def test_bytes_that_are_no_text_and_nulls_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "garbled").write_bytes(b"a\x00\xff\xfeb")
    assert Root(tmp_path).read("/garbled") == "a \ufffd\ufffdb"
    (tmp_path / "number").write_bytes(b"1\x002")
    assert Root(tmp_path).read_int("/number") is None


def test_a_socket_is_not_read_and_does_not_hold_anybody_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        assert Root(tmp_path).read("/socket") is None


def test_a_captured_pipe_is_not_even_opened(tmp_path: Path) -> None:
    """Whoever waits for a reader to write to it goes on waiting."""
    os.mkfifo(tmp_path / "pipe")
    opened = threading.Event()
    writer = threading.Thread(target=lambda: ((tmp_path / "pipe").open("w").close(), opened.set()), daemon=True)
    writer.start()
    for _ in range(100):
        assert Root(tmp_path).read("/pipe") is None
    assert not opened.is_set()
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writer.join()
    os.close(reader)


def test_a_folder_behind_a_link_out_of_the_machine_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("this host's")
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine/folder").symlink_to("../outside")
    root = Root(tmp_path / "machine")
    assert root.read("/folder/file") is None
    assert root.list("/folder") == []
    assert not root.exists("/folder/file")


def test_a_path_that_is_no_path_of_the_machine_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1")
    assert Root(tmp_path).read("file") is None
    assert Root().read("file") is None


def test_reading_ends_when_its_time_is_up(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1")
    assert Root(tmp_path, deadline_seconds=3600).read("/file") == "1"
    with pytest.raises(Unreadable) as caught:
        Root(tmp_path, deadline_seconds=-1).read("/file")
    assert caught.value.outcome is Outcome.TIMEOUT


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_refused_file_is_denied(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0)
    with pytest.raises(Unreadable) as caught:
        Root(tmp_path).require("/secret")
    assert caught.value.outcome is Outcome.DENIED


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_a_root_that_is_no_folder_is_said_to_be_none(tmp_path: Path, kind: str) -> None:
    if kind == "file":
        (tmp_path / kind).touch()
    with pytest.raises(Unreadable, match="the sysroot"):
        Root(tmp_path / kind).check()


def test_a_root_that_leads_back_to_this_host_is_this_host(tmp_path: Path) -> None:
    (tmp_path / "root").symlink_to("/")
    assert Root(tmp_path / "root").is_host
    assert not Root(tmp_path).is_host


def test_a_root_that_is_no_name_is_said_to_be_none() -> None:
    with pytest.raises(Unreadable, match="does not exist"):
        Root(Path("a\0b")).check()


def test_what_several_probes_need_is_made_once(tmp_path: Path) -> None:
    root, made = Root(tmp_path), []
    threads = [threading.Thread(target=root.remember, args=("key", lambda: made.append(1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12\n", 12),
        ("-1", -1),
        ("18446744073709551615", 18446744073709551615),
        ("", None),
        ("x", None),
        ("9" * 100, None),
        ("9" * 5000, None),
        ("99999999999999999999", None),
        ("1_000", None),
        ("١٢", None),
        ("1 2", None),
        ("0x10", None),
    ],
)
def test_a_number_or_none(text: str, number: int | None) -> None:
    assert parse_int(text) == number


@pytest.mark.parametrize(("text", "number"), [("0x10de\n", 0x10DE), ("030000", 0x30000), ("0x", None), ("zz", None)])
def test_a_hexadecimal_number_or_none(text: str, number: int | None) -> None:
    assert parse_int(text, 16) == number


def test_names_are_printable_and_bounded() -> None:
    assert clean(" a\x1b[31m\n") == "a[31m"
    assert clean("\n\t") is None
    assert len(clean("x" * 10_000) or "") == 256
