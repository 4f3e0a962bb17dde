"""What the pages promise is there."""

import ast
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from app.advisor.explanations.noise_signs import SIGNS
from app.cli.endings import ExitCode
from app.cli.main import COMMANDS
from app.settings import Settings, variable_name
from probes.microtrain.quiet.noise import Noise
from probes.workload.architectures import TASKS_BY_NAME
from probes.workload.description import OPTIMIZERS
from probes.workload.layers import LAYER_TYPES, LOSSES
from probes.workload.models import parse_model
from probes.workload.summary import FIGURES

ROOT = Path(__file__).parents[3]
CLI = ROOT / "docs" / "cli.md"
MODELS = CLI.parent / "models.md"
PAGES = sorted(CLI.parent.rglob("*.md"))


def test_every_command_exit_code_and_setting_is_documented() -> None:
    text = CLI.read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`crosspoint {name}" not in text] == []
    assert [code for code in ExitCode if f"| {code} |" not in text] == []
    assert [variable_name(item) for item in fields(Settings) if f"`{variable_name(item)}`" not in text] == []


@pytest.mark.parametrize("page", ["README.md", *(str(path.relative_to(ROOT)) for path in PAGES)])
def test_links_between_the_pages_lead_somewhere(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_way_to_write_a_model_is_documented() -> None:
    options = {option.name for kind in LAYER_TYPES for option in kind.options}
    names = {kind.name for kind in LAYER_TYPES} | options | TASKS_BY_NAME.keys() | {*OPTIMIZERS, *LOSSES, *FIGURES}
    text = MODELS.read_text(encoding="utf-8")
    assert sorted(name for name in names if f"`{name}`" not in text and f'"{name}"' not in text) == []


def test_every_other_name_of_a_layer_and_of_its_options_is_documented() -> None:
    """Case and `_` do not count in a type, and one of several ranks is enough."""
    written = re.findall(r"`(\w+)`", MODELS.read_text(encoding="utf-8"))
    plain = {name.lower().replace("_", "") for name in written}
    types = {re.sub(r"[23]d$", "1d", alias).replace("_", "") for kind in LAYER_TYPES for alias in kind.aliases}
    options = {alias for kind in LAYER_TYPES for option in kind.options for alias in option.aliases}
    assert sorted(types - plain) == []
    assert sorted(options - set(written)) == []


def test_the_models_that_stand_there_as_examples_are_models() -> None:
    examples = re.findall(r"```json\n(.*?)```", MODELS.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        assert parse_model(json.loads(example))


def test_every_code_of_a_failure_is_documented() -> None:
    """docs/protocol.md lists them for programs."""
    sources = [*(ROOT / "app").rglob("*.py"), *(ROOT / "probes" / "microtrain").rglob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    made = set(re.findall(r'(?:LabError|Failure)\(\s*"([a-z-]+)"', text))
    made |= set(re.findall(r'\("(cancelled|invalid-request|fault)", ', text)) | {"ended"}
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert {"killed", "too-slow", "cancelled", "fault", "invalid-model"} <= made
    assert sorted(code for code in made if f"| `{code}` |" not in page) == []


def codes_of_problems() -> set[str]:
    """Of every problem that the HTTP interface makes, and of the errors that become one."""
    places = {"Problem": 1, "FeedRefused": 0, "ProfileRefused": 0}
    found: set[str] = set()
    for path in (ROOT / "app").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in places:
                words = node.args[places[node.func.id] :]
                found |= {word.value for word in words[:1] if isinstance(word, ast.Constant)}
    return found | {"unknown-profile", "too-busy", "not-saved", "invalid-model", "not-found", "method-not-allowed"}


def test_every_code_of_a_problem_is_documented() -> None:
    page = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    codes = codes_of_problems()
    assert {"too-slow", "unknown-host", "captured", "profile-exists", "twice"} <= codes
    assert sorted(code for code in codes if f"`{code}`" not in page) == []


def test_every_figure_of_a_profile_s_noise_is_a_word() -> None:
    """`profile show` prints them by their names."""
    kept = {*SIGNS, *Noise(None, None, None, None, 0.0).figures()}
    page = (ROOT / "docs" / "words.md").read_text(encoding="utf-8")
    assert sorted(name for name in kept if f"| `{name}` |" not in page) == []


def test_the_index_of_decisions_names_each() -> None:
    folder = CLI.parent / "decisions"
    index = (folder / "index.md").read_text(encoding="utf-8")
    assert [page.name for page in folder.glob("*.md") if page.name != "index.md" and page.name not in index] == []
