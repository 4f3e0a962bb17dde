"""What docs/cli.md and README.md promise is there."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from app.cli.endings import ExitCode
from app.cli.main import COMMANDS
from app.settings import Settings, variable_name

ROOT = Path(__file__).parents[3]
CLI = ROOT / "docs" / "cli.md"


def test_every_command_exit_code_and_setting_is_documented() -> None:
    text = CLI.read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`crosspoint {name}" not in text] == []
    assert [code for code in ExitCode if f"| {code} |" not in text] == []
    assert [variable_name(item) for item in fields(Settings) if f"`{variable_name(item)}`" not in text] == []


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md", "docs/cli.md", "docs/http-api.md"])
def test_links_between_the_pages_lead_somewhere(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []
