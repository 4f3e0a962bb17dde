"""Settings: one table, from which the CROSSPOINT_… variables and the command line's flags derive.

A field's type says how its text is read, its metadata says what it is for. Adding a setting is adding a field.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from app.host_names import allowed_name
from probes.bounds import MAX_SURVEY_SECONDS, MIN_SURVEY_SECONDS

PREFIX = "CROSSPOINT_"
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


class InvalidSetting(ValueError):
    """A setting that cannot be used; the message names its variable, or flag, and what would do."""


def _about(help_text: str, low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """A field's metadata: its help and, for a number, the range that makes sense."""
    return {"help": help_text, "low": low, "high": high}


# Stands for the user's data folder where nobody can tell which it is: the store keeps nothing in it.
HOMELESS = Path("~", "crosspoint")


def default_data_dir() -> Path:
    """The user's data folder, by the platform's own convention; HOMELESS where no home folder is known, as of a user
    number without a name in a container."""
    from platformdirs import user_data_path

    try:
        folder = user_data_path("crosspoint", appauthor=False)
    except RuntimeError:
        return HOMELESS
    return folder if folder.is_absolute() else HOMELESS  # older ones leave the ~ where it stands


@dataclass(frozen=True)
class Settings:
    """Everything that can be set. `metadata["help"]` of each field is its documentation."""

    host: str = field(
        default="127.0.0.1", metadata=_about("Address to listen on. 0.0.0.0 opens the service to the network.")
    )
    port: int = field(default=8000, metadata=_about("Port to listen on; 0 takes a free one.", 0, 65535))
    data_dir: Path = field(
        default_factory=default_data_dir,
        metadata=_about("Folder for the store: profiles, traces, measurements, jobs."),
    )
    sysroot: Path = field(
        default=Path("/"), metadata=_about("Read /proc and /sys below this folder: a captured machine.")
    )
    allowed_hosts: tuple[str, ...] = field(
        default=(),
        metadata=_about("Host names, separated by commas, that requests may be addressed to besides this machine's."),
    )
    calibrate_on_start: bool = field(
        default=True,
        metadata=_about(
            "Calibrate in the background where no profile of this machine is stored, and again minutes and hours "
            "later while nobody computes, until four calibrations count."
        ),
    )
    learning: bool = field(
        default=True, metadata=_about("Let what was measured of other models here correct the estimates of like ones.")
    )
    access_log: bool = field(default=False, metadata=_about("Write a line for each request to standard error."))
    survey_seconds: float = field(
        default=5.0,
        metadata=_about("Seconds that one survey may take.", MIN_SURVEY_SECONDS, MAX_SURVEY_SECONDS),
    )
    trace_idle_seconds: float = field(
        default=86_400.0,
        metadata=_about(
            "Seconds that the process that traces models is kept without work; at most 600 where memory is scarce.",
            0,
            86_400,
        ),
    )
    queue_length: int = field(default=4, metadata=_about("Measurements that may wait for the one that runs.", 0, 100))
    grace_seconds: float = field(
        default=60.0,
        metadata=_about("Seconds that a measurement may take beyond its time before it is ended.", 1, 3600),
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **chosen: Any) -> Settings:
        """Settings from CROSSPOINT_… variables; `chosen` (flags; None: not given) goes before them.

        Raises InvalidSetting.
        """
        environment = os.environ if environment is None else environment
        values = {name: value for name, value in chosen.items() if value is not None}
        for item in fields(cls):
            text = environment.get(variable_name(item))
            if item.name not in values and text:
                values[item.name] = parse_setting(item, text)
        return cls(**values)

    def __post_init__(self) -> None:
        for item in fields(self):
            _check(item, getattr(self, item.name), variable_name(item))


def variable_name(item: Field[Any]) -> str:
    """`data_dir` -> `CROSSPOINT_DATA_DIR`."""
    return PREFIX + item.name.upper()


def setting_type(item: Field[Any]) -> Any:
    """The type of a setting: str, int, float, bool, Path or tuple[str, ...]."""
    return get_type_hints(Settings)[item.name]


def parse_setting(item: Field[Any], text: str, flag: str | None = None) -> Any:
    """The value that a variable's text stands for, or a flag's. Raises InvalidSetting."""
    named = flag or variable_name(item)
    value = _parse(setting_type(item), text, named)
    _check(item, value, named)
    return value


def _parse(wanted: Any, text: str, named: str) -> Any:
    if wanted is bool:
        return _parse_switch(text, named)
    if wanted == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if wanted is Path:
        return _parse_path(text, named)
    try:
        return wanted(text)
    except ValueError:
        kind = "a whole number" if wanted is int else "a number"
        raise InvalidSetting(f"{named} has to be {kind}.") from None


def _parse_path(text: str, named: str) -> Path:
    if not text:  # as of a shell's variable that is not set; it would be the current folder
        raise InvalidSetting(f"{named} is empty: leave it out, or name a folder.")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InvalidSetting(f"{named} begins with ~, and that home folder is not known here.") from None


def _parse_switch(text: str, named: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise InvalidSetting(f"{named} has to be true or false.")
    return word in _TRUE


def _check(item: Field[Any], value: Any, named: str) -> None:
    low, high = item.metadata["low"], item.metadata["high"]
    if low is not None and not low <= value <= high:
        raise InvalidSetting(f"{named} has to be between {low:g} and {high:g}.")
    if item.name == "allowed_hosts":
        _check_hosts(value, named)


def _check_hosts(written: Iterable[str], named: str) -> None:
    """Raises InvalidSetting: under a name that no request carries the service would never answer."""
    try:
        for name in written:
            allowed_name(name)
    except ValueError:
        raise InvalidSetting(
            f"{named} takes names of hosts as they stand in an address, such as rig.example: without http:// before "
            "them, a path behind, or a * for others. One with letters beyond ASCII may have to begin with xn--."
        ) from None
