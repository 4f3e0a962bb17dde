"""Shares out the time for one network among plans: a plan that is slow here (bf16 where the processor has no
instructions for it) has as much of it as the others, and fewer steps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence

from probes.workload.description import Plan

# So many times as long as the first plan's step: plans that are not slower take what they need.
SLOW = 2.5
# A slow plan's smallest batch may take so many shares: the time is found again in the networks that follow.
SMALLEST_SHARES = 3.0


class PlanShares:
    """plans: the first is what others are compared with, and runs every batch size before they do. slowness: how many
    times as long steps of other networks took under a plan, by its key."""

    def __init__(self, plans: Sequence[Plan], seconds: float, slowness: Mapping[object, float]) -> None:
        self._first = plans[0].key
        self._share = seconds / len(plans)
        self._left = {plan.key: self._share for plan in plans}
        self._slowness = slowness
        self._seconds: dict[object, dict[int, float]] = {plan.key: {} for plan in plans}  # by batch size

    def learn(self, plan: Plan, batch_size: int, step_seconds: float) -> None:
        self._seconds[plan.key][batch_size] = step_seconds

    def slowness(self) -> dict[object, float]:
        """Of each plan, at the largest batch size that it ran, where the first ran as well."""
        first = self._seconds[self._first]
        found: dict[object, float] = {}
        for key, known in self._seconds.items():
            both = known.keys() & first.keys()
            if both:
                found[key] = known[max(both)] / first[max(both)]
        return found

    def expected(self, plan: Plan, batch_size: int) -> float | None:
        """Seconds of a step; None where nothing is known."""
        known, first = self._seconds[plan.key], self._seconds[self._first]
        if batch_size in known:
            return known[batch_size]
        if batch_size not in first:
            return None
        return first[batch_size] * self.slowness().get(plan.key, self._slowness.get(plan.key, 1.0))

    def affords(self, plan: Plan, batch_size: int, steps: int) -> bool:
        """Whether so many steps can be had: always of a plan that is not slow, else of what is left of its share."""
        first = self._seconds[self._first]
        expected = self.expected(plan, batch_size)
        if expected is None or batch_size not in first or expected <= SLOW * first[batch_size]:
            return True
        more = (SMALLEST_SHARES - 1) * self._share if batch_size == min(first) else 0.0
        return steps * expected <= self._left[plan.key] + more

    @contextlib.contextmanager
    def spending(self, plan: Plan) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._left[plan.key] -= time.perf_counter() - begun
