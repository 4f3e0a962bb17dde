"""Which axis a layer takes for its channels or features, where what comes before leaves them in another: a network of
other sizes would be answered for, without a word."""

from __future__ import annotations

from typing import Any

from probes.workload.description import InvalidModel
from probes.workload.flow import Flow


def check_features_last(
    where: str, options: dict[str, Any], flow: Flow, *, takes_in: bool = True, takes_flat: bool = False
) -> None:
    """Of a layer that reads the last axis. takes_in: what arrives may be written, which says that it is meant.
    takes_flat: all numbers of a sample in one axis do for it. Raises InvalidModel behind a convolution, whose channels
    come first."""
    if flow.channels_first and _is_doubtful(options, flow):
        size = flow.shape[-1] if takes_in else None
        flat = ', {"type": "flatten"} to take all numbers of a sample' if takes_flat else ""
        raise InvalidModel(_told(where, "features", "last", "channels", "first", flow, size, flat))


def check_channels_first(where: str, options: dict[str, Any], flow: Flow, *, takes_in: bool = True) -> None:
    """Of a layer that reads the first axis, and those behind it as space. Raises InvalidModel for a sequence, whose
    features come last."""
    if flow.features_last and _is_doubtful(options, flow):
        size = flow.shape[0] if takes_in else None
        raise InvalidModel(_told(where, "channels", "first", "features", "last", flow, size))


def _is_doubtful(options: dict[str, Any], flow: Flow) -> bool:
    return len(flow.shape) > 1 and "in" not in options and not flow.trusted


def _told(
    where: str, what: str, axis: str, found: str, other: str, flow: Flow, size: int | None, also: str = ""
) -> str:
    """size: of the axis that it would read, where that may be written. also: what else may be put before it."""
    rank = len(flow.shape)
    dims = [*range(2, rank + 1), 1] if axis == "last" else [rank, *range(1, rank)]
    turn = '{"type": "transpose"}' if rank == 2 else f'{{"type": "permute", "dims": {dims}}}'
    meant = "" if size is None else f', or write "in": {size} if the {axis} axis is meant'
    return (
        f"{where} expects its {what} in the {axis} axis, but one sample is {flow.text}, with its {found} in the "
        f"{other}. Put {turn} before it{also}{meant}."
    )
