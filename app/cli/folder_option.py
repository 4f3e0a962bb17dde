"""A command line's option that names a folder."""

from __future__ import annotations

import os
from pathlib import Path

import click


class Folder(click.Path):
    """A path that is not empty: one from a shell's variable that is not set would be the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if not os.fspath(value):
            self.fail("it is empty: leave the option out, or name a folder.", param, ctx)
        return super().convert(value, param, ctx)
