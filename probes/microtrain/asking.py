"""Who asks for numbers that a fake tensor does not have: a library's questions have usual answers, a user's own have
none that could be guessed."""

from __future__ import annotations

import sys
from types import FrameType

_LIBRARIES = ("torch", "transformers", "probes")
# What lies between whoever asks and the answer, beside torch's private modules.
_BETWEEN = {f"probes.microtrain.{name}" for name in ("asking", "known_numbers", "recording", "stand_ins")}
# Questions of libraries to which both answers are common: is this mask a causal one?
_OPEN = {("torch.nn.modules.transformer", "_detect_is_causal_mask")}


def is_asked_by_a_library() -> bool:
    """Whether torch's or transformers' code asks, or ours: they ask for exceptions to a rule."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and _lies_between(_module_of(frame)):
        frame = frame.f_back
    if frame is None or (_module_of(frame), frame.f_code.co_name) in _OPEN:
        return False
    return _module_of(frame).partition(".")[0] in _LIBRARIES


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _lies_between(module: str) -> bool:
    return module in _BETWEEN or (module.startswith("torch.") and "._" in module)
