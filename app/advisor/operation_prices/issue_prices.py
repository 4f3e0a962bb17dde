"""What issuing a step's operations takes, beyond what each took under the clock: fitted to whole micro-networks.

A clocked operation is handed from Python to torch by a dispatch mode. In a plain step Python calls take the place of
that, in the backward autograd's nodes do, and an operation that another one issues in C++ has neither: a GRU's
inference, two hundred of them in a call, took 0.4 of what its operations had taken under the clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.advisor.time_model.fitting import solve
from probes.issued import Issued

# Seconds of each, in those of the shortest operation that was clocked (0.4 to 0.7 us on one core of an EPYC, Zen 5,
# torch 2.13). What a plan's own networks say counts more: they said 0.2 us a call, 2.2 to 2.7 us a node and 1.1 us less
# for a nested operation there (fp32).
PRIORS = (0.4, 4.0, -2.0)
# How firmly: in networks whose step is all of it. What was clocked is not fitted here.
HOLDS = (1e6, 0.05, 0.05, 0.05)
# Of a step: where page faults are more, their price decides what is left for the rest.
MOST_FAULTS = 0.15


@dataclass(frozen=True, slots=True)
class IssuedStep:
    """A whole step that was timed. clocked: seconds of its operations; faults: of its page faults."""

    seconds: float
    clocked: float
    faults: float
    issued: Issued


@dataclass(frozen=True, slots=True)
class IssuePrices:
    """Seconds of one of each; a nested operation's are below zero."""

    call: float
    node: float
    nested: float

    def seconds(self, issued: Issued) -> float:
        """What a step takes beyond its clocked operations: less than nothing where most are nested."""
        return self.call * issued.calls + self.node * issued.nodes + self.nested * issued.nested


def issue_prices(steps: Iterable[IssuedStep], shortest: float) -> IssuePrices:
    """Of one plan's micro-networks, of both modes. shortest: seconds of the shortest operation that was clocked."""
    usual = [prior * shortest for prior in PRIORS]
    rows = [
        [
            (step.clocked + step.faults) / step.seconds,
            *(each * count / step.seconds for each, count in zip(usual, step.issued, strict=True)),
        ]
        for step in steps
        if step.faults <= MOST_FAULTS * step.seconds
    ]
    _, *factors = solve(rows, (1.0, 1.0, 1.0, 1.0), HOLDS)
    return IssuePrices(*(each * factor for each, factor in zip(usual, factors, strict=True)))
