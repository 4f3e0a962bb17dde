"""What an answer says beside the advisor's reasons: what came in the way of measuring, tracing or saving."""

from __future__ import annotations

from typing import TypeVar

from app.advisor.recommendation import Reason
from app.keeping import Kept

T = TypeVar("T")

# The code of the reason that says that something was not saved.
NOT_SAVED = "not-saved"


class AnswerNotes:
    """Reasons, in the order in which they came up."""

    def __init__(self) -> None:
        self.reasons: list[Reason] = []

    def add(self, reason: Reason) -> None:
        self.reasons.append(reason)

    def add_first(self, reason: Reason) -> None:
        """Of one that is known last and is of more weight than the others."""
        self.reasons.insert(0, reason)

    def value_of(self, kept: Kept[T]) -> T:
        """The value; that it was not saved becomes a reason, once."""
        if kept.trouble is not None and all(note.code != NOT_SAVED for note in self.reasons):
            self.add(Reason(NOT_SAVED, kept.trouble))
        return kept.value
