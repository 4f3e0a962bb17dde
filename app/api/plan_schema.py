"""The schema of a plan in documents."""

from __future__ import annotations

from typing_extensions import NotRequired, TypedDict  # noqa: UP035 - pydantic reads the standard ones from 3.12 on only


class PlanName(TypedDict):
    """A plan; a change to how torch runs a model stands there only where it is true."""

    device: str
    precision: str
    threads: int | None
    channels_last: NotRequired[bool]
    compiled: NotRequired[bool]
    flush_denormal: NotRequired[bool]
