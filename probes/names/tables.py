"""The data tables beside this package, each read once."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def read_table(name: str) -> dict[str, Any]:
    """The table `<name>.toml` of this package, parsed once a process (about 6 ms each)."""
    with (Path(__file__).parent / f"{name}.toml").open("rb") as file:
        return tomllib.load(file)
