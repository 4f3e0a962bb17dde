"""One measurement at a time: a short queue here, a lock between processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.errors import LabBusy, LabError
from app.lab import slot as slot_module
from app.lab.lock import MachineLock, is_wanted, waiting_lock
from app.lab.slot import Slot, Ticket

HOLD = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of this test's own: the machine's may be held by a test beside it."""
    path = tmp_path / "lock"
    monkeypatch.setattr("app.lab.lock.machine_lock_path", lambda: path)
    return path


async def started(ticket: Ticket) -> None:
    began = asyncio.Event()
    ticket.on_start = began.set
    if not ticket.running:
        await began.wait()


async def use(slot: Slot, ticket: Ticket, order: list[str], name: str, done: asyncio.Event | None = None) -> None:
    async with slot.hold(ticket):
        order.append(name)
        if done is not None:
            await done.wait()


def test_measurements_run_in_the_order_they_came() -> None:
    async def session() -> list[str]:
        slot, order = Slot(5), list[str]()
        tickets = [slot.reserve(1) for _ in range(3)]
        await asyncio.gather(
            *(use(slot, ticket, order, str(place)) for place, ticket in reversed([*enumerate(tickets)]))
        )
        return order

    assert asyncio.run(session()) == ["0", "1", "2"]


def test_beyond_the_queue_one_is_told_when_to_come_back() -> None:
    async def session() -> LabBusy:
        slot = Slot(1)
        slot.reserve(30)
        slot.reserve(12)
        with pytest.raises(LabBusy) as caught:
            slot.reserve(10)
        return caught.value

    error = asyncio.run(session())
    assert error.retry_after_seconds == 42
    assert error.code == "too-busy"


def test_a_place_that_is_handed_back_lets_the_next_one_in() -> None:
    async def session() -> list[str]:
        slot, order = Slot(0), list[str]()
        unused = slot.reserve(1)
        slot.release(unused)
        slot.release(unused)
        await use(slot, slot.reserve(1), order, "next")
        return order

    assert asyncio.run(session()) == ["next"]


def test_work_that_nobody_waits_for_gives_way_and_comes_last() -> None:
    async def session() -> list[str]:
        slot, order = Slot(3), list[str]()
        given_way = asyncio.Event()
        background = slot.reserve(30, on_preempt=given_way.set)
        task = asyncio.create_task(use(slot, background, order, "background", given_way))
        await started(background)
        again = slot.reserve(30, on_preempt=lambda: None)
        asked = [slot.reserve(1), slot.reserve(1)]
        names = ["again", "first", "second"]
        await asyncio.gather(
            task, *(use(slot, *pair) for pair in zip([again, *asked], [order] * 3, names, strict=True))
        )
        return order

    assert asyncio.run(session()) == ["background", "first", "second", "again"]


def test_who_is_cancelled_while_waiting_leaves_the_queue() -> None:
    async def session() -> list[str]:
        slot, order = Slot(3), list[str]()
        done = asyncio.Event()
        first, second, third = (slot.reserve(1) for _ in range(3))
        tasks = [
            asyncio.create_task(use(slot, ticket, order, name, done))
            for ticket, name in ((first, "first"), (second, "second"), (third, "third"))
        ]
        await started(first)
        tasks[1].cancel()
        done.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    assert asyncio.run(session()) == ["first", "third"]


def test_another_process_on_this_machine_is_waited_for(own_lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_lock.touch()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, own_lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        monkeypatch.setattr(slot_module, "LOCK_WAIT_SECONDS", 0.05)
        monkeypatch.setattr(slot_module, "LOCK_RETRY_SECONDS", 0.01)
        monkeypatch.setattr(slot_module, "TOLD_AGAIN_SECONDS", 0.02)

        async def session() -> list[str]:
            slot, heard = Slot(1), list[str]()
            ticket = slot.reserve(1)
            ticket.on_wait = lambda: heard.append("waiting")
            with pytest.raises(LabError, match="Another process"):
                await use(slot, ticket, heard, "never")
            assert not slot.tickets
            return heard

        told = asyncio.run(session())
        assert set(told) == {"waiting"}
        assert len(told) > 1, "a log has left out what was said at once"
        other.kill()
    assert MachineLock(own_lock).try_acquire()


def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_module, "LOCK_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(slot_module, "WANTED_SECONDS", 0.01)


def test_work_that_nobody_waits_for_gives_way_to_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not take the machine again before that process has noticed. Locks are of open files: two slots that
    know nothing of each other are as two processes."""
    quickly(monkeypatch)

    async def session() -> list[str]:
        service, command, order = Slot(1), Slot(1), list[str]()
        preempted = asyncio.Event()
        background = service.reserve(60, on_preempt=preempted.set)
        work = asyncio.create_task(use(service, background, order, "background", preempted))
        await started(background)
        asked = asyncio.create_task(use(command, command.reserve(1), order, "asked"))
        await work
        again = asyncio.create_task(use(service, service.reserve(60, on_preempt=lambda: None), order, "again"))
        await asyncio.gather(asked, again)
        return order

    for _ in range(5):
        assert asyncio.run(session()) == ["background", "asked", "again"]


def test_who_waits_in_another_process_has_its_turn_before_a_queue_is_worked_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next one of a process is there the moment the machine is free, and a command looks now and then."""
    quickly(monkeypatch)

    async def session() -> list[str]:
        service, command, order = Slot(5), Slot(1), list[str]()
        done = asyncio.Event()
        tickets = [service.reserve(1) for _ in range(3)]
        queue = [
            asyncio.create_task(use(service, ticket, order, f"{place}", done)) for place, ticket in enumerate(tickets)
        ]
        await started(tickets[0])
        asked = asyncio.create_task(use(command, command.reserve(1), order, "asked"))
        await asyncio.sleep(0.05)
        done.set()
        await asyncio.gather(asked, *queue)
        return order

    for _ in range(5):
        assert asyncio.run(session()) == ["0", "asked", "1", "2"]


def test_two_processes_that_nobody_waits_for_leave_each_other_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(monkeypatch)

    async def session() -> list[str]:
        slots, order, heard = [Slot(1), Slot(1)], list[str](), list[str]()
        done = asyncio.Event()
        tickets = [slot.reserve(60, on_preempt=lambda: heard.append("preempted")) for slot in slots]
        first = asyncio.create_task(use(slots[0], tickets[0], order, "first", done))
        await started(tickets[0])
        second = asyncio.create_task(use(slots[1], tickets[1], order, "second", done))
        await asyncio.sleep(0.1)
        done.set()
        await asyncio.gather(first, second)
        return order + heard

    assert asyncio.run(session()) == ["first", "second"]


def test_work_that_nobody_waits_for_does_not_begin_while_another_process_waits(
    own_lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quickly(monkeypatch)

    async def session() -> list[str]:
        slot, order = Slot(1), list[str]()
        waiting = waiting_lock(own_lock)
        assert waiting.try_acquire()
        work = asyncio.create_task(use(slot, slot.reserve(60, on_preempt=lambda: None), order, "background"))
        await asyncio.sleep(0.05)
        order.append("waiter gone")
        waiting.release()
        await work
        return order

    assert asyncio.run(session()) == ["waiter gone", "background"]


def test_who_waits_and_never_takes_the_free_machine_keeps_nobody_from_it(
    own_lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a command that was stopped while it waited."""
    quickly(monkeypatch)
    monkeypatch.setattr(slot_module, "STOPPED_SECONDS", 0.1)

    async def session() -> list[str]:
        slot, order, heard = Slot(1), list[str](), list[str]()
        stopped = waiting_lock(own_lock)
        assert stopped.try_acquire()
        done = asyncio.Event()
        ticket = slot.reserve(60, on_preempt=lambda: heard.append("preempted"))
        work = asyncio.create_task(use(slot, ticket, order, "background", done))
        await started(ticket)
        await asyncio.sleep(0.05)
        done.set()
        await work
        stopped.release()
        return order + heard

    assert asyncio.run(session()) == ["background"]


def test_where_no_lock_can_be_used_nobody_is_known_to_wait_and_nothing_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not is_wanted(tmp_path / "missing" / "lock")
    assert not caplog.records


def test_several_wait_at_once(own_lock: Path) -> None:
    first, second = waiting_lock(own_lock), waiting_lock(own_lock)
    assert first.try_acquire()
    assert second.try_acquire()
    first.release()
    assert is_wanted(own_lock)
    second.release()
    assert not is_wanted(own_lock)


def test_the_lock_goes_from_hand_to_hand(own_lock: Path) -> None:
    first, second = MachineLock(own_lock), MachineLock(own_lock)
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    assert second.try_acquire()
    second.release()


def test_another_users_lock_file_is_enough_to_wait_for(own_lock: Path) -> None:
    own_lock.touch(0o444)
    lock = MachineLock(own_lock)
    assert lock.try_acquire()
    assert not MachineLock(own_lock).try_acquire()
    lock.release()


def test_a_trap_in_the_locks_place_is_neither_followed_nor_waited_for(own_lock: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    own_lock.symlink_to(target)
    assert MachineLock(own_lock).try_acquire()
    assert not target.exists()
    own_lock.unlink()
    os.mkfifo(own_lock)
    assert MachineLock(own_lock).try_acquire()
