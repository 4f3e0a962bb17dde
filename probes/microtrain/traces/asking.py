"""Who asks for numbers that a fake tensor does not have: a library's questions have usual answers, a user's own have
none that could be guessed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_LIBRARIES = ("torch", "transformers", "probes")
# What lies between whoever asks and the answer, beside torch's private modules.
_BETWEEN = {
    f"probes.microtrain.traces.{name}"
    for name in ("asking", "decomposing", "known_numbers", "number_rules", "recording", "stand_ins")
}
# Questions of libraries to which both answers are common: is this mask a causal one?
_OPEN = {("torch.nn.modules.transformer", "_detect_is_causal_mask")}

# Far beyond what numbers are compared with. Each further answer lies farther out: so are answers compared with another.
_EXTREME = 1e20
_MOST_ANSWERS = 1000  # in one step: a loop that waits for another number never ends


@dataclass
class Guesses:
    """Extreme answers to a user's own questions for numbers with a point. Where a step does the same under very small
    answers and under very large ones, none of it hangs on them: they are printed, or computed with.

    answered: how many in this step; given: whether any was in any step."""

    large: bool = False
    answered: int = 0
    given: bool = False

    def begin(self, *, large: bool) -> None:
        """Another step."""
        self.large, self.answered = large, 0

    def answer(self) -> float | None:
        """None: too many were asked for."""
        if self.answered >= _MOST_ANSWERS:
            return None
        self.answered += 1
        self.given = True
        return self.answered * (_EXTREME if self.large else -_EXTREME)


_guesses: Guesses | None = None
_usual = False  # whether open questions are answered as those that have usual answers


@contextmanager
def guessing() -> Iterator[Guesses]:
    """Numbers with a point that a user's own code asks for are guessed inside; whoever enters sees to it that nothing
    hangs on them."""
    global _guesses
    before, _guesses = _guesses, Guesses()
    try:
        yield _guesses
    finally:
        _guesses = before


def guess() -> float | None:
    """None: nobody guesses."""
    return None if _guesses is None else _guesses.answer()


def is_guessed() -> bool:
    """Whether an answer was guessed in this step."""
    return _guesses is not None and _guesses.answered > 0


@contextmanager
def as_usual() -> Iterator[None]:
    """Open questions are answered "no" inside: a mask is any mask, no number is infinite, or none at all."""
    global _usual
    before, _usual = _usual, True
    try:
        yield
    finally:
        _usual = before


def is_answered_as_usual() -> bool:
    """Whether open questions are answered."""
    return _usual


def is_asked_by_a_library() -> bool:
    """Whether torch's or transformers' code asks, or ours: they ask for exceptions to a rule."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and _lies_between(_module_of(frame)):
        frame = frame.f_back
    if frame is None or (not _usual and (_module_of(frame), frame.f_code.co_name) in _OPEN):
        return False
    return _module_of(frame).partition(".")[0] in _LIBRARIES


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _lies_between(module: str) -> bool:
    return module in _BETWEEN or (module.startswith("torch.") and "._" in module)
