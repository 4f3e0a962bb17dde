"""What a snippet needs of a model: Python source for each part of a step."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Source:
    """imports: beyond torch and nn. model: ends with a `model`. batch: makes a batch on the CPU. pin: puts it into
    pinned memory. feed: lines that put it on `device`; renew: that make another of it where it lies there already, if a
    step may alter it; place: that put it there for good, if `feed` does something else. loss: lines that end with a
    `loss`; forward: one line that runs the model."""

    model: str
    batch: str
    pin: str
    feed: list[str]
    forward: str
    loss: list[str]
    classes: str = ""
    imports: list[str] = field(default_factory=list)
    renew: list[str] = field(default_factory=list)
    place: list[str] = field(default_factory=list)
