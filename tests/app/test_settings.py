"""Settings come from one table."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from app.settings import HOMELESS, InvalidSetting, Settings, parse_setting, variable_name


def test_every_setting_says_what_it_is_for() -> None:
    assert all(item.metadata["help"].endswith(".") for item in fields(Settings))


def test_the_service_listens_on_loopback_unless_told_otherwise() -> None:
    assert Settings.from_environment({}).host == "127.0.0.1"


def test_a_variable_sets_every_kind_of_setting() -> None:
    settings = Settings.from_environment(
        {
            "CROSSPOINT_PORT": "0",
            "CROSSPOINT_DATA_DIR": "/somewhere",
            "CROSSPOINT_ALLOWED_HOSTS": "one.example, two.example",
            "CROSSPOINT_CALIBRATE_ON_START": "no",
            "CROSSPOINT_GRACE_SECONDS": "2.5",
        }
    )
    assert settings.port == 0
    assert settings.data_dir == Path("/somewhere")
    assert settings.allowed_hosts == ("one.example", "two.example")
    assert settings.calibrate_on_start is False
    assert settings.grace_seconds == 2.5


def test_a_flag_goes_before_its_variable() -> None:
    assert Settings.from_environment({"CROSSPOINT_PORT": "1"}, port=2, host=None).port == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("data_dir", "~no-such-user/data"),
        ("port", "many"),
        ("port", "70000"),
        ("grace_seconds", "nan"),
        ("calibrate_on_start", "perhaps"),
        ("port", "1e3"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_as_it_was_set(name: str, text: str) -> None:
    item = next(item for item in fields(Settings) if item.name == name)
    with pytest.raises(InvalidSetting, match=f"^{variable_name(item)} "):
        Settings.from_environment({variable_name(item): text})
    with pytest.raises(InvalidSetting, match=r"^--flag "):
        parse_setting(item, text, "--flag")


@pytest.mark.parametrize(
    "written", ["https://rig.example", "rig.example/crosspoint", "rig example", "*", "*.rig.example", ".rig.example"]
)
def test_what_can_be_no_hosts_name_is_refused_at_the_start(written: str) -> None:
    with pytest.raises(InvalidSetting, match="ALLOWED_HOSTS"):
        Settings.from_environment({"CROSSPOINT_ALLOWED_HOSTS": written})


def test_without_a_home_folder_settings_are_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a user number without a name, as a container may have: reading the machine keeps nothing anywhere."""

    def unknown(number: int) -> None:
        raise KeyError(f"uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert Settings.from_environment({}).data_dir == HOMELESS


def test_a_home_folder_that_stays_unknown_is_none_below_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As older versions of platformdirs have it."""
    monkeypatch.setattr("platformdirs.user_data_path", lambda *_, **__: Path("~/.local/share/crosspoint"))
    assert Settings.from_environment({}).data_dir == HOMELESS
