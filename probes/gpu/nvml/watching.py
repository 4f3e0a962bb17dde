"""Asks a few quick questions of every card, again and again, and finds cards that come, go or are lost.

A card that hangs costs itself: each is asked in a thread of its own, and one that has not come back is not asked again.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from probes.gpu.nvml.activity import read_activity, read_memory
from probes.gpu.nvml.asking import NO_ACCESS, Card, as_count, as_counts, as_flag, ask_library, explain_unreached
from probes.gpu.nvml.cards import list_instances
from probes.gpu.nvml.identity import read_identity
from probes.gpu.nvml.processes import count_processes

Facts = dict[str, Any]
Emit = Callable[[Facts], None]

_MAX_CARDS = 64
_PATIENCE = 0.5  # of an interval, for all cards to answer
_SILENT_INTERVALS = 5  # a busy machine may be late by one or two
# How long a lost card is left alone before NVML is started again to look for it, which is not cheap.
_LOST_SECONDS = 60.0
_REPEAT_SECONDS = 30.0  # how long MIG instances are believed to be the same
_HELD_CARDS = "/proc/driver/nvidia/gpus"  # a folder for each card that the driver holds, by PCI address


def watch_cards(
    nvml: Any, emit: Emit, interval_seconds: float, wait_for_end: Callable[[], Any], restart: Callable[[], Facts | None]
) -> Facts:
    """One document an interval, `{"cards": {id: facts}}`; gives the closing document once NVML cannot go on.

    wait_for_end: returns when nobody listens any more; the process ends then, whatever hangs in it.
    restart: starts NVML again; a closing document when it does not start.
    """
    threading.Thread(target=_end_with, args=(wait_for_end,), daemon=True).start()
    while True:
        present = find_present(nvml)
        if present[0] is None:
            return {"outcome": "failed", "reason": "NVML does not say how many cards there are (try: nvidia-smi)"}
        cards = WatchedCards(nvml, present[0])
        while find_present(nvml) == present and not cards.is_outdated:
            began = time.monotonic()
            emit({"cards": cards.ask(interval_seconds)})
            time.sleep(max(0.0, interval_seconds - (time.monotonic() - began)))
        if cards.is_stuck:
            return {"outcome": "timeout", "reason": "NVML does not answer about a card; the driver or the card hangs"}
        ask_library(nvml, "nvmlShutdown")
        refusal = restart()
        if refusal is not None:
            return refusal


def _end_with(wait_for_end: Callable[[], Any]) -> None:
    wait_for_end()
    os._exit(0)


def find_present(nvml: Any) -> tuple[int | None, list[str]]:
    """What changes when a card comes or goes: NVML's count, and the driver's own list, which NVML reads only once."""
    try:
        held = sorted(os.listdir(_HELD_CARDS))  # noqa: PTH208 - asked every second
    except OSError:
        held = []
    return as_count(ask_library(nvml, "nvmlDeviceGetCount")), held


class WatchedCards:
    """The cards as NVML lists them now, asked in parallel."""

    def __init__(self, nvml: Any, count: int) -> None:
        self._nvml = nvml
        self._count = count
        self._threads: dict[str, threading.Thread] = {}
        self._asked: dict[str, float] = {}
        self._facts: dict[str, Facts] = {}
        self._began = self._listed = time.monotonic()
        self._readers = self._list()

    def ask(self, interval_seconds: float) -> dict[str, Facts]:
        """What every card said last; of one that has not answered for several intervals, that it does not."""
        now = time.monotonic()
        if now - self._listed > _REPEAT_SECONDS and not self.is_stuck:
            self._listed, self._readers = now, self._list()
        for name in self._readers:
            if not (name in self._threads and self._threads[name].is_alive()):
                self._asked[name] = now
                self._threads[name] = threading.Thread(target=self._ask_one, args=(name,), daemon=True)
                self._threads[name].start()
        for name in self._readers:
            self._threads[name].join(max(0.0, now + _PATIENCE * interval_seconds - time.monotonic()))
            if self._threads[name].is_alive() and now - self._asked[name] > _SILENT_INTERVALS * interval_seconds:
                self._facts[name] = {"why_not": "NVML does not answer about this card; the driver or the card hangs"}
        return {name: self._facts[name] for name in self._readers if name in self._facts}

    @property
    def is_stuck(self) -> bool:
        return any(thread.is_alive() for thread in self._threads.values())

    @property
    def is_outdated(self) -> bool:
        """Whether it is time to look whether a lost card is back."""
        has_lost = any(facts.get("usable") is False for facts in self._facts.values() if not _is_refused(facts))
        return has_lost and time.monotonic() - self._began > _LOST_SECONDS

    def _list(self) -> dict[str, Callable[[], Facts]]:
        return dict(found for index in range(min(self._count, _MAX_CARDS)) for found in list_readers(self._nvml, index))

    def _ask_one(self, name: str) -> None:
        self._facts[name] = self._readers[name]()


def list_readers(nvml: Any, index: int) -> Iterator[tuple[str, Callable[[], Facts]]]:
    """What to call for the changes of a card and of its MIG instances, each by its id."""
    try:
        card = Card(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
    except Exception as error:  # noqa: BLE001 - one that is lost stays in the list with the reason
        yield f"nvidia-{index}", partial(dict, usable=False, why_not=explain_unreached(error))
        return
    is_split = as_flag(as_counts(card.ask("nvmlDeviceGetMigMode"), 2)[0])
    yield read_identity(card, index)["id"], partial(_read_changes, card, read_activity)
    for number, instance in (list_instances(card) or []) if is_split else []:
        name = instance.text("nvmlDeviceGetUUID") or f"nvidia-{index}/mig-{number}"
        yield name, partial(_read_changes, instance, read_memory)


def _is_refused(facts: Facts) -> bool:
    """A card of somebody else's comes back to nobody who looks."""
    return facts.get("why_not") == NO_ACCESS


def _read_changes(card: Card, read: Callable[[Card], Facts]) -> Facts:
    card.errors.clear()
    facts = {**read(card), "process_count": count_processes(card)}
    return facts if card.why_lost is None else {**facts, "usable": False, "why_not": card.why_lost}
