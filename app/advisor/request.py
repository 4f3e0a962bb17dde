"""What was asked: a workload, and how far the answer may go to find out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from probes.workload.description import PRECISIONS, Workload

Effort = Literal["instant", "quick", "thorough"]
EFFORTS: tuple[Effort, ...] = get_args(Effort)
PRECISION_CHOICES: tuple[str, ...] = ("auto", *PRECISIONS)

# Seconds of measuring that each effort may take.
EFFORT_SECONDS: dict[str, float] = {"instant": 0.0, "quick": 10.0, "thorough": 60.0}


class InvalidRequest(ValueError):
    """A question that cannot be answered here. The message says what is wrong and what would do instead. It names what
    is known here and nothing else that was asked for: HTTP tells it as it stands."""

    def __init__(self, message: str, suggestions: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.suggestions = suggestions


@dataclass(frozen=True)
class Request:
    """A workload with the freedom that the answer has.

    precision: `auto` looks at every precision that makes sense. devices: `cpu`, `cuda:0`, …, or `cuda` for every
    CUDA device; empty: every device. time_limit_seconds: the most that measuring may take, below what the effort
    allows; None with `instant`, which measures nothing. profile: name of another machine's profile to answer for.
    Raises InvalidRequest.
    """

    workload: Workload
    precision: str = "auto"
    devices: tuple[str, ...] = ()
    effort: str = "instant"
    time_limit_seconds: float | None = None
    profile: str | None = None

    def __post_init__(self) -> None:
        _check_choice("precision", self.precision, PRECISION_CHOICES)
        _check_choice("effort", self.effort, EFFORTS)
        if self.workload.batch_size < 1:
            raise InvalidRequest("batch_size is below 1: a step needs at least one sample.")
        limit = self.time_limit_seconds
        if limit is not None and not (math.isfinite(limit) and limit > 0):
            raise InvalidRequest("time_limit_seconds has to be a number above 0, or be left out.")
        if limit is not None and self.effort == "instant":
            raise InvalidRequest(
                "time_limit_seconds bounds measuring, and effort instant, the default, measures nothing: leave it out, "
                "or ask with effort quick or thorough."
            )

    @property
    def measuring_seconds(self) -> float:
        """Seconds that measuring may take: what the effort allows, and no more than the time limit."""
        allowed = EFFORT_SECONDS[self.effort]
        return allowed if self.time_limit_seconds is None else min(allowed, self.time_limit_seconds)

    @property
    def leaves_plans_out(self) -> bool:
        """It names devices or a precision, so that its plans may not be all that there are."""
        return bool(self.devices) or self.precision != "auto"


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidRequest(f"{name} is none of {', '.join(choices)}.", suggestions=choices)
