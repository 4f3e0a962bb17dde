"""What issues a step's operations: Python calls, autograd's nodes, and other operations."""

from __future__ import annotations

from typing import NamedTuple


class Issued(NamedTuple):
    """Counts of one step, its operations' own work apart.

    calls: functions that Python calls, in Python and in C, the optimizer's among them. nodes: of autograd's graph that
    ran an operation in the backward. nested: operations that followed another one without a call or a node of their
    own, issued in C++ (what a GRU runs for each place, the view and the product of a linear layer).
    """

    calls: int = 0
    nodes: int = 0
    nested: int = 0

    def plus(self, other: Issued) -> Issued:
        return Issued(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: Issued) -> Issued:
        return Issued(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))
