"""The schema of a plan in documents."""

from __future__ import annotations

from typing_extensions import NotRequired, TypedDict  # noqa: UP035 - pydantic reads the standard ones from 3.12 on only


class PlanName(TypedDict):
    device: str
    precision: str
    threads: int | None
    channels_last: NotRequired[bool]
    compiled: NotRequired[bool]
    flush_denormal: NotRequired[bool]
