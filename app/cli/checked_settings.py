"""The settings of a command that reads the machine: its sysroot is looked at before anything is answered from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.cli.endings import fail_usage
from app.settings import Settings
from probes.reading import Root, Unreadable


def checked_settings(sysroot: Path | None = None, **chosen: Any) -> Settings:
    """Settings from the flags and CROSSPOINT_… variables. sysroot, chosen: flags; None: not given.

    Raises InvalidSetting, and CommandFailed where --sysroot, or else CROSSPOINT_SYSROOT, is no folder.
    """
    settings = Settings.from_environment(sysroot=sysroot, **chosen)
    try:
        Root(settings.sysroot).check()
    except Unreadable as unreadable:
        where = "CROSSPOINT_SYSROOT" if sysroot is None else "--sysroot"
        fail_usage(f"{where}: {unreadable.reason}.")
    return settings
