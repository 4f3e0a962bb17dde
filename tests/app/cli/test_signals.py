"""What a signal does to the work of a command; tests/app/cli/test_interrupt.py does it to whole commands."""

import asyncio
import signal

import pytest

from app.cli.signals import run_until_signalled


def send(number: signal.Signals) -> None:
    assert signal.getsignal(number) is not signal.SIG_DFL, "it would end the tests"
    signal.raise_signal(number)


def test_a_second_signal_does_not_break_off_the_putting_in_order() -> None:
    """`timeout` sends two: one to the command, one to its group."""
    done = []

    async def work() -> None:
        try:
            send(signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            send(signal.SIGHUP)
            for _ in range(9):  # turns of the loop, in which it hears of the signal
                await asyncio.sleep(0)
            done.append("put in order")

    with pytest.raises(SystemExit) as ended:
        run_until_signalled(work())
    assert ended.value.code == 128 + signal.SIGTERM
    assert done == ["put in order"]


def test_a_command_that_is_done_leaves_signals_as_they_were() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]

    async def work() -> int:
        return 5

    assert run_until_signalled(work()) == 5
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before
