"""The one family of errors that the layers above probes raise: each carries a stable code and a sentence."""

from __future__ import annotations

RETRY_SECONDS = 10


class CrosspointError(Exception):
    """Something asked for could not be done. `code` is stable (docs/protocol.md lists those of a measurement)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnknownProfile(CrosspointError):
    """A profile was asked for by a name that the store does not hold; or, is_this_machines, without one, where this
    machine has none."""

    def __init__(self, suggestions: tuple[str, ...] = (), *, is_this_machines: bool = False) -> None:
        known = f" Known here: {', '.join(suggestions)}." if suggestions else " None is stored here yet."
        what = (
            "This machine, as it is now, has no profile; `crosspoint calibrate` makes one."
            if is_this_machines
            else "No stored profile has the name asked for."
        )
        super().__init__("unknown-profile", f"{what}{known}")
        self.suggestions = suggestions


class ProfileRefused(CrosspointError):
    """A profile from elsewhere cannot be taken. code: profile-refused, or profile-exists where another has its name.
    theirs: the words in the message of who wrote it, which are told to nobody else."""

    def __init__(self, code: str, message: str, theirs: tuple[str, ...] = ()) -> None:
        super().__init__(code, message)
        self.theirs = theirs


class FeedRefused(CrosspointError):
    """Nobody more can listen to what changes, or nothing does."""


class LabError(CrosspointError):
    """A measuring process said no, was ended, or never answered. retry_after_seconds: when another try may go better,
    as far as anybody knows."""

    def __init__(self, code: str, message: str, retry_after_seconds: int = RETRY_SECONDS) -> None:
        super().__init__(code, message)
        self.retry_after_seconds = retry_after_seconds


class LabBusy(LabError):
    """Too many wait already."""

    def __init__(self, retry_after_seconds: int, busy: str, otherwise: str = "") -> None:
        """busy: with what, a sentence. otherwise: what else could be done than to come back."""
        sentence = f"{busy} Ask again in about {retry_after_seconds} seconds{otherwise}."
        super().__init__("too-busy", sentence, retry_after_seconds)


class StoreError(CrosspointError):
    """The store could not be written or read."""

    def __init__(self, message: str) -> None:
        super().__init__("not-saved", message)
