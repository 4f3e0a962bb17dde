"""Memory that is used once before anything is clocked."""

from __future__ import annotations

import mmap
import resource
from typing import Any

import pytest

from probes.hardware import Memory, Outcome
from probes.memory import MemoryReading
from probes.microtrain.processes import touched_memory
from probes.microtrain.processes.touched_memory import PIECE_BYTES, touch_memory
from probes.reading import Root, Unreadable


def with_usable(monkeypatch: pytest.MonkeyPatch, usable: int | None) -> None:
    reading = MemoryReading(Memory(total_bytes=2**40, usable_bytes=usable))
    monkeypatch.setattr(touched_memory, "read_memory", lambda root: reading)


def test_every_page_is_written_to_and_given_back() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    assert touch_memory(60.0, 2 * PIECE_BYTES) == 2 * PIECE_BYTES
    after = resource.getrusage(resource.RUSAGE_SELF)
    largest_page = 2**21  # where the kernel gives such by itself
    assert after.ru_minflt - before.ru_minflt >= 2 * PIECE_BYTES / largest_page
    assert after.ru_maxrss * 1024 >= 2 * PIECE_BYTES


def test_no_more_is_touched_than_a_quarter_of_what_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with_usable(monkeypatch, 8 * PIECE_BYTES + 1)
    assert touch_memory(60.0) == 2 * PIECE_BYTES
    with_usable(monkeypatch, 3 * PIECE_BYTES)
    assert touch_memory(60.0) == 0


def test_nothing_is_touched_where_nothing_tells_how_much_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(root: Root) -> MemoryReading:
        raise Unreadable(Outcome.FAILED, "no such file")

    with_usable(monkeypatch, None)
    assert touch_memory(60.0) == 0
    monkeypatch.setattr(touched_memory, "read_memory", unreadable)
    assert touch_memory(60.0) == 0


def test_it_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with_usable(monkeypatch, 2**40)
    ticks = iter((0.0, 0.5, 0.9, 1.0))
    monkeypatch.setattr(touched_memory.time, "perf_counter", lambda: next(ticks))
    assert touch_memory(1.0, 8 * PIECE_BYTES) == 2 * PIECE_BYTES


def test_memory_that_the_kernel_refuses_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[mmap.mmap] = []
    real = mmap.mmap

    def refusing(number: int, length: int) -> Any:
        if given:
            raise OSError(12, "Cannot allocate memory")
        given.append(real(number, length))
        return given[-1]

    with_usable(monkeypatch, 2**40)
    monkeypatch.setattr(touched_memory.mmap, "mmap", refusing)
    assert touch_memory(60.0, 4 * PIECE_BYTES) == PIECE_BYTES
    assert given[0].closed
