"""One version of the user's own Python is told from another, and none of it is run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from app.cli.model_argument import read_model
from probes.workload.description import ModelDescription
from probes.workload.python_sources import MOST_FILES, hash_source


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, **sources: str) -> None:
    for name, source in sources.items():
        path = folder / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")


def test_the_module_itself_counts_and_is_not_run(here: Path) -> None:
    write(here, own="raise SystemExit('run')\n")
    first = hash_source("own:make")
    assert first is not None
    assert hash_source("own:make") == first
    write(here, own="raise SystemExit('again')\n")
    assert hash_source("own:make") != first


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("import parts", "parts"),
        ("from parts import Net", "parts"),
        ("def make():\n    from parts import Net", "parts"),
        ("from nets import wide", "nets__in__wide"),
        ("from nets.wide import Net", "nets__in__wide"),
        ("import nets.wide", "nets__in__wide"),
        ("import nets.wide", "nets__in____init__"),
        ("import nets", "nets__in__deep"),  # which its __init__ imports
        ("import chain", "parts"),
    ],
)
def test_what_it_imports_from_its_folder_counts(here: Path, statement: str, changed: str) -> None:
    sources = {
        "own": statement,
        "parts": "Net = 1",
        "chain": "import parts\nimport own",
        "nets__in____init__": "from . import deep",
        "nets__in__deep": "from .wide import Net",
        "nets__in__wide": "Net = 2",
        "another": "Net = 3",
    }
    write(here, **sources)
    first = hash_source("own:make")
    write(here, another="Net = 4")
    assert hash_source("own:make") == first
    write(here, **{changed: sources[changed] + "\n# and more"})
    assert hash_source("own:make") != first


def test_what_it_imports_from_another_folder_that_nothing_is_installed_in_counts(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONPATH, or a package that is installed in place."""
    write(here, own="from nets.model import Net\nimport json")
    write(here / "beside", nets__in____init__="", nets__in__model="import parts\nNet = 1", parts="x = 1", json="y = 1")
    monkeypatch.syspath_prepend(str(here / "beside"))
    hashes = [hash_source("own:make")]
    for changed in ({"nets__in__model": "import parts\nNet = 2"}, {"parts": "x = 2"}):
        write(here / "beside", **changed)
        hashes.append(hash_source("own:make"))
    assert None not in hashes
    assert len(set(hashes)) == 3
    write(here / "beside", json="y = 2")
    assert hash_source("own:make") == hashes[-1], "Python's own is not looked for there"


def test_a_large_folder_beside_costs_no_answer_its_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here, own="import m0")
    write(here / "beside", **{f"m{n}": f"import m{n + 1}" for n in range(MOST_FILES + 1)})
    alone = hash_source("own:make")
    monkeypatch.syspath_prepend(str(here / "beside"))
    assert hash_source("own:make") == alone is not None


def test_a_module_in_a_package_is_followed_from_the_folder_above(here: Path) -> None:
    write(
        here, work__in____init__="", work__in__train="from ..outside import x\nfrom .net import Net", work__in__net=""
    )
    first = hash_source("work.train:make")
    write(here, work__in__net="Net = 1")
    assert hash_source("work.train:make") != first


def test_an_installed_package_is_not_followed_beyond_itself(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = here / "lib" / "site-packages"
    write(installed, theirs__in____init__="import another", theirs__in__net="", another="x = 1")
    monkeypatch.syspath_prepend(str(installed))
    first = hash_source("theirs.net:make")
    write(installed, another="x = 2")
    assert hash_source("theirs.net:make") == first
    write(installed, theirs__in____init__="import another  # changed")
    assert hash_source("theirs.net:make") != first


@pytest.mark.parametrize("target", ["nowhere:make", "math:sqrt", "sys:exit", "no.where:make", "own.part:make"])
def test_what_has_no_source_has_no_hash(here: Path, target: str) -> None:
    write(here, own="")
    assert hash_source(target) is None


@pytest.mark.parametrize("source", ["def broken(:\n", "x = '\0'\n", "(" * 5000])
def test_source_that_cannot_be_read_counts_as_it_is(here: Path, source: str) -> None:
    write(here, own=source)
    first = hash_source("own:make")
    write(here, own=source + "#")
    assert first is not None
    assert hash_source("own:make") != first


def test_a_folder_of_many_files_comes_to_an_end_and_is_never_told_to_be_the_same(here: Path) -> None:
    count = MOST_FILES - 1
    write(here, own="import m0", **{f"m{n}": f"import m{n + 1}" for n in range(count)})
    assert hash_source("own:make") is not None
    write(here, **{f"m{count}": "import m0"})
    assert hash_source("own:make") is None
    assert read_model("own:make").key != read_model("own:make").key


@pytest.mark.parametrize("above", [Path(ast.__file__).parent.name, "site-packages"])
def test_a_folder_above_may_be_called_as_those_of_installed_packages(
    here: Path, monkeypatch: pytest.MonkeyPatch, above: str
) -> None:
    project = here / above / "project"
    write(project, own="from net import Net", net="1")
    monkeypatch.chdir(project)
    first = hash_source("own:make")
    write(project, net="2")
    assert hash_source("own:make") != first


def test_two_versions_have_two_keys(here: Path) -> None:
    write(here, own="1")
    one = read_model("own:make")
    write(here, own="2")
    other = read_model("own:make")
    assert one.name == other.name
    assert one.key != other.key
    assert read_model("own:make").key == other.key == ModelDescription.from_json(other.to_json()).key


def install(folder: Path, name: str, version: str) -> None:
    """A package as it lies among installed ones, under another name than it is imported by."""
    write(folder, **{f"{name}__in____init__": ""})
    told = folder / f"the_{name}.dist-info"
    told.mkdir(exist_ok=True)
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: the-{name}\nVersion: {version}\n")
    (told / "top_level.txt").write_text(f"{name}\n")


@pytest.mark.parametrize("statement", ["import theirs", "def make():\n    from theirs.nets import Net", "import parts"])
def test_another_version_of_an_installed_package_that_it_imports_is_another_model(
    here: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    installed = here / "lib" / "site-packages"
    for name in ("theirs", "unasked"):
        install(installed, name, "1.0")
    monkeypatch.syspath_prepend(str(installed))
    write(here, own=statement, parts="import theirs")
    first = hash_source("own:make")
    install(installed, "unasked", "2.0")
    assert hash_source("own:make") == first
    install(installed, "theirs", "2.0")
    assert hash_source("own:make") != first


def test_a_module_of_its_folder_is_not_the_package_that_is_called_the_same(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = here / "lib" / "site-packages"
    install(installed, "theirs", "1.0")
    monkeypatch.syspath_prepend(str(installed))
    write(here, own="from theirs import Net", theirs="Net = 1")
    first = hash_source("own:make")
    install(installed, "theirs", "2.0")
    assert hash_source("own:make") == first


def test_packages_of_an_installed_model_count_by_their_version(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = here / "lib" / "site-packages"
    install(installed, "helper", "1.0")
    write(installed, theirs__in____init__="import helper", theirs__in__net="")
    monkeypatch.syspath_prepend(str(installed))
    first = hash_source("theirs.net:make")
    install(installed, "helper", "2.0")
    assert hash_source("theirs.net:make") != first
