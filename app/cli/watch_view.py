"""A reading of what changes, for people: a line for a log, a table for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.cli.units import UNKNOWN, format_bytes, format_share

if TYPE_CHECKING:
    from rich.console import RenderableType

    from probes.live import Live, LiveAccelerator


def describe_live(live: Live) -> str:
    """`17:00:01  cpu 12 % busy, 0 % stolen  memory 20.1 GB usable  cuda:0 97 % busy, …`."""
    parts = [live.read_at[11:19], f"cpu {_cpu(live)}", f"memory {format_bytes(live.memory.usable_bytes)} usable"]
    parts += [f"{_name(card, place)}: {', '.join(_facts(card))}" for place, card in enumerate(live.accelerators)]
    return "  ".join([*parts, *([live.reason] if live.reason else [])])


def _name(card: LiveAccelerator, place: int) -> str:
    return card.torch_device or f"#{place} {card.name or card.id}"


def _cpu(live: Live) -> str:
    return f"{format_share(live.load.busy_fraction)} busy, {format_share(live.load.steal_fraction)} stolen"


def _facts(card: LiveAccelerator) -> Iterator[str]:
    if card.usable is False and card.why_not and card.memory_free_bytes is None:
        yield card.why_not
        return
    yield f"{_percent(card)} busy"
    yield _memory(card)
    if card.temperature_celsius is not None:
        yield f"{card.temperature_celsius:.0f} °C"
    if card.power_watts is not None:
        yield f"{card.power_watts:.0f} W"
    yield from card.throttle_reasons or ()


def _percent(card: LiveAccelerator) -> str:
    return UNKNOWN if card.utilization_percent is None else f"{card.utilization_percent:.0f} %"


def _memory(card: LiveAccelerator) -> str:
    return f"{format_bytes(card.memory_free_bytes)} free of {format_bytes(card.memory_total_bytes)}"


@contextmanager
def live_table() -> Iterator[Callable[[Live], None]]:
    """Yield the function that shows a reading in the place of the last one."""
    from rich.live import Live as Screen

    with Screen(auto_refresh=False) as screen:
        yield lambda live: screen.update(render_live(live), refresh=True)


def render_live(live: Live) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    memory = f"{format_bytes(live.memory.usable_bytes)} usable of {format_bytes(live.memory.total_bytes)}"
    head = Text(f"{live.read_at[11:19]}  cpu {_cpu(live)}, memory {memory}")
    rows = [head, *([_cards(live)] if live.accelerators else [])]
    return Group(*rows, *([Text(live.reason, style="yellow")] if live.reason else []))


def _cards(live: Live) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for title in ("device", "accelerator"):
        table.add_column(title, overflow="fold")
    for title in ("busy", "memory", "temperature", "power"):
        table.add_column(title, justify="right", overflow="fold")
    table.add_column("held down", overflow="fold")
    for card in live.accelerators:
        table.add_row(*(Text(cell) for cell in _row(card)))
    return table


def _row(card: LiveAccelerator) -> list[str]:
    heat, power = card.temperature_celsius, card.power_watts
    return [
        card.torch_device or "-",
        card.name or card.id,
        _percent(card),
        _memory(card),
        UNKNOWN if heat is None else f"{heat:.0f} °C",
        UNKNOWN if power is None else f"{power:.0f} W",
        _held_down(card),
    ]


def _held_down(card: LiveAccelerator) -> str:
    """Why it is slower than it could be, or why it is not usable at all."""
    if card.throttle_reasons is None:
        return card.why_not or UNKNOWN
    return ", ".join(card.throttle_reasons) or "no"
