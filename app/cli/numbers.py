"""Numbers on the command line."""

from __future__ import annotations

import math
from typing import Any

import click


class FloatRange(click.FloatRange):
    """click's own takes NaN, which is below no bound and above none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number
