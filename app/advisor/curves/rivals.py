"""Which plans of the CPU a plan on a device is compared with over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter

from app.advisor.curves.over_batches import Batches
from probes.workload.description import Plan


@dataclass
class RivalsOnCpu:
    """on_cpu: the plans to choose from. best: of these at the batch asked for; None where no time of the CPU is known
    there, or nothing fits."""

    batches: Batches
    on_cpu: Sequence[Plan]
    best: Plan | None
    _known: dict[int, list[tuple[float, Plan]]] = field(default_factory=dict)

    def of(self, on_device: Plan) -> tuple[Plan, ...]:
        """The best one at the batch asked for, and the one that is overtaken last as the batch grows: where the CPU is
        left does not hang on what was asked. Where neither is known, what people take unasked: all threads in fp32."""
        found = [plan for plan in (self.best, self._overtaken_last(on_device)) if plan is not None]
        return tuple({plan.key: plan for plan in found or self._unasked()}.values())

    def _overtaken_last(self, on_device: Plan) -> Plan | None:
        """By medians, fed as asked; the quickest of those that are ahead at the largest batch looked at. None where the
        device's plan is ahead at each."""
        behind: int | None = None  # a batch at which none is quicker any more
        for size in reversed(self.batches.grid([on_device], self._telling_sizes)):
            theirs = _median(self.batches, on_device, size)
            if theirs is None:
                continue
            quicker = [plan for median, plan in self._quickest_first(size) if median < theirs]
            if quicker:
                return quicker[0] if behind is None else self._last_of(quicker, on_device, size, behind)
            behind = size
        return None

    def _last_of(self, quicker: list[Plan], on_device: Plan, ahead: int, behind: int) -> Plan:
        """The one that stays so the longest. quicker: at the batch `ahead`; none of them is at `behind`. Halfway those
        that are overtaken by then drop out, so that few batches are looked at."""
        while len(quicker) > 1 and behind - ahead > 1:
            middle = (ahead + behind) // 2
            theirs = _median(self.batches, on_device, middle)
            mine = _in_order(self.batches, quicker, middle)
            still = [plan for median, plan in mine if theirs is not None and median < theirs]
            if still:
                quicker, ahead = still, middle
            else:
                behind = middle
        return quicker[0]

    @cached_property
    def _telling_sizes(self) -> tuple[int, ...]:
        """At which plans of the CPU ran, and the ends of what each can hold."""
        times = (self.batches.times[plan.key].measured for plan in self.on_cpu)
        ran = {size for measured in times if measured is not None for size in measured.batch_sizes}
        rooms = (self.batches.room_of(plan) for plan in self.on_cpu)
        return (*ran, *(end for room in rooms for end in room.ends))

    def _quickest_first(self, batch_size: int) -> list[tuple[float, Plan]]:
        """All of the CPU's, once for every plan that they are compared with."""
        if batch_size not in self._known:
            self._known[batch_size] = _in_order(self.batches, self.on_cpu, batch_size)
        return self._known[batch_size]

    def _unasked(self) -> list[Plan]:
        plans = [plan for plan in self.on_cpu if plan.precision == "fp32"] or self.on_cpu
        return sorted(plans, key=lambda plan: plan.threads or 0)[-1:]


def _in_order(batches: Batches, plans: Sequence[Plan], batch_size: int) -> list[tuple[float, Plan]]:
    """By their medians, the quickest first; without those of which none is known."""
    found = ((_median(batches, plan, batch_size), plan) for plan in plans)
    return sorted(((median, plan) for median, plan in found if median is not None), key=itemgetter(0))


def _median(batches: Batches, plan: Plan, batch_size: int) -> float | None:
    if not batches.can_run(plan, batch_size):
        return None
    seconds = batches.times[plan.key].seconds(batch_size, batches.workload.data)
    return None if seconds is None else seconds.median
