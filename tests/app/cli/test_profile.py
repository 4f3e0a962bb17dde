"""`crosspoint profile`: a profile travels to another machine and back, and nothing bad comes in."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.endings import CommandFailed, ExitCode
from app.cli.files import check_place, write_whole
from app.service import Crosspoint
from app.settings import Settings
from probes.hardware import Survey
from probes.machine_facts import MachineFacts, facts_of
from probes.profile import Profile
from tests.app.advisor.machine import a_profile

CROSSPOINT = (sys.executable, "-c", "import sys; from app.cli.main import main; sys.exit(main())")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder that holds a profile of another machine, `rig`."""
    return in_store(tmp_path / "data", a_profile_of("rig"))


@pytest.fixture
def run(data: Path) -> Run:
    def call(*words: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (*CROSSPOINT, "profile", *words),
            input=given,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            env={**os.environ, "CROSSPOINT_DATA_DIR": str(data), "COLUMNS": "200"},
        )

    return call


def a_profile_of(name: str, **changes: object) -> Profile:
    facts = MachineFacts("A CPU", 2, 2.0, 8 * 2**30)
    return replace(a_profile(), name=name, fingerprint="another", hardware=facts, **changes)  # type: ignore[arg-type]


def in_store(folder: Path, *profiles: Profile) -> Path:
    async def keep() -> None:
        async with Crosspoint(Settings(data_dir=folder)) as crosspoint:
            for profile in profiles:
                await crosspoint.store.keep_profile(profile)

    asyncio.run(keep())
    return folder


def survey_here(folder: Path) -> Survey:
    async def read() -> Survey:
        async with Crosspoint(Settings(data_dir=folder)) as crosspoint:
            return await crosspoint.survey()

    return asyncio.run(read())


def test_a_profile_travels_as_a_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "rig.json"
    assert run("export", "rig", file).returncode == 0
    assert run("import", file, "--name", "travelled").returncode == 0
    there = json.loads(run("show", "travelled", "--json").stdout)
    assert there == {**json.loads(file.read_text()), "name": "travelled"}
    assert json.loads(run("export", "rig", "--as", "anon").stdout)["name"] == "anon"
    nameless = run("export", "rig", "--as", "")
    assert nameless.returncode != 0
    assert "The file would have a name that no profile can have" in nameless.stderr
    assert run("export", "rig", "-").stdout == file.read_text()
    names = [row["name"] for row in json.loads(run("list", "--json").stdout)["profiles"]]
    assert names == ["travelled", "rig"]
    assert run("remove", "travelled").returncode == 0
    gone = run("show", "travelled")
    assert gone.returncode == ExitCode.USAGE
    assert "rig" in gone.stderr


def test_show_says_what_was_measured_and_whose_it_is(run: Run) -> None:
    shown = run("show", "rig").stdout
    for words in ("a made-up machine", "dispatch", "cpu fp32, 1 thread", "ago", "torch 2.13.0", "not this machine's"):
        assert words in shown, words
    assert "rig" in run("list").stdout


def test_show_says_which_of_two_profiles_of_this_machine_answers(run: Run, data: Path) -> None:
    here = survey_here(data).fingerprint
    in_store(data, *(replace(a_profile_of(name), fingerprint=here) for name in ("host", "quiet")))
    assert "It is this machine's, as it is now, but quiet came later and answers" in run("show", "host").stdout
    assert "It is this machine's, as it is now.\n" in run("show", "quiet").stdout


def test_without_a_profile_of_this_machine_show_says_so(run: Run) -> None:
    shown = run("show")
    assert shown.returncode == ExitCode.USAGE
    assert "This machine, as it is now, has no profile" in shown.stderr
    assert "crosspoint calibrate" in shown.stderr
    assert "Known here: rig." in shown.stderr


def test_what_is_no_profile_is_refused_in_a_sentence_and_the_old_one_stays(run: Run) -> None:
    before = run("export", "rig").stdout
    contents = ('{"schema_version": "2", "po', "[" * 50_000, " " * (5 * 2**20), before[: len(before) // 2])
    for content in contents:
        refused = run("import", "-", "--name", "rig", given=content)
        assert refused.returncode == ExitCode.USAGE
        assert refused.stderr.startswith("Error: This profile was not taken: ")
        assert refused.stderr.count("\n") == 1
    assert run("export", "rig").stdout == before


def test_a_file_that_is_not_there_is_said_to_be(run: Run, tmp_path: Path) -> None:
    for file in (tmp_path / "none.json", tmp_path):
        refused = run("import", file)
        assert refused.returncode == ExitCode.USAGE
        assert "cannot be read" in refused.stderr


def test_where_nothing_can_be_saved_an_import_says_so(run: Run, data: Path) -> None:
    profile = run("export", "rig").stdout
    for file in data.iterdir():
        file.unlink()
    data.rmdir()
    data.touch()  # a file in the folder's place
    refused = run("import", "-", given=profile)
    assert refused.returncode == ExitCode.FAULT
    assert "Error: This was not saved: the data folder cannot be used" in refused.stderr


def test_a_name_that_is_no_utf_8_is_one_that_is_not_known(run: Run) -> None:
    for words in (("show",), ("export",), ("remove",)):
        refused = run(*words, "caf\udce9")
        assert refused.returncode == ExitCode.USAGE
        assert "rig" in refused.stderr


def test_a_name_that_another_machine_has_is_not_taken_over(run: Run) -> None:
    stranger = json.dumps(a_profile_of("rig", created_at="2027-01-01T00:00:00Z").to_json() | {"fingerprint": "third"})
    refused = run("import", "-", given=stranger)
    assert refused.returncode == ExitCode.USAGE
    assert "another name" in refused.stderr
    assert run("import", "-", "--name", "third", given=stranger).returncode == 0


def test_this_machines_profile_from_before_it_changed_is_taken_in_by_a_name_that_gives_it(run: Run, data: Path) -> None:
    """As it was kept by the name that this machine's has now, too."""
    now, before = survey_here(data), replace(survey_here(data), fingerprint="before")
    profiles = {each.fingerprint: replace(a_profile_of("host"), fingerprint=each.fingerprint) for each in (before, now)}

    async def keep() -> None:
        async with Crosspoint(Settings(data_dir=data)) as crosspoint:
            for survey in (before, now):
                await crosspoint.store.keep_survey(survey)
                await crosspoint.store.keep_profile(profiles[survey.fingerprint], profiles[survey.fingerprint])

    asyncio.run(keep())
    sent = json.dumps(profiles["before"].to_json())
    refused = run("import", "-", given=sent)
    assert refused.returncode == ExitCode.USAGE
    assert "another name" in refused.stderr
    kept = run("import", "-", "--name", "old", given=sent)
    assert "this machine's from before it changed" in kept.stderr
    assert "--profile old" in kept.stderr
    assert json.loads(run("show", "old", "--json").stdout)["fingerprint"] == "before"


def test_an_older_profile_of_the_same_machine_does_not_hide_the_newer_one(run: Run) -> None:
    older = json.dumps(a_profile_of("rig", created_at="2020-01-01T00:00:00Z").to_json())
    assert "newer" in run("import", "-", given=older).stderr
    newer = json.dumps(a_profile_of("rig", created_at="2027-01-01T00:00:00Z").to_json())
    assert run("import", "-", given=newer).returncode == 0
    assert json.loads(run("show", "rig", "--json").stdout)["created_at"] == "2027-01-01T00:00:00Z"


def test_a_profile_that_passes_for_this_machines_has_to_describe_it(run: Run, data: Path) -> None:
    survey = survey_here(data)
    impostor = replace(a_profile_of("mine"), fingerprint=survey.fingerprint)
    refused = run("import", "-", given=json.dumps(impostor.to_json()))
    assert refused.returncode == ExitCode.USAGE
    assert "claims to be this machine's" in refused.stderr
    many = [replace(point, plan=replace(point.plan, threads=512)) for point in impostor.points]
    for silent in (None, MachineFacts()):
        larger = replace(impostor, points=tuple(many), networks=(), hardware=silent)
        refused = run("import", "-", given=json.dumps(larger.to_json()))
        assert refused.returncode == ExitCode.USAGE
        assert "claims to be this machine's, and has plans of 512 threads where there" in refused.stderr
    honest = replace(impostor, hardware=facts_of(survey))
    kept = run("import", "-", given=json.dumps(honest.to_json()))
    assert kept.returncode == 0
    assert "this machine's profile" in kept.stderr
    assert "It is this machine's" in run("show").stdout


def test_a_file_is_written_whole_or_left_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    write_whole(file, b"old")
    with pytest.raises(Exception, match="could not be written"):
        write_whole(tmp_path / "no" / "folder", b"new")
    write_whole(file, b"new")
    assert file.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["kept.json"]


def test_what_a_link_names_is_written_and_the_link_stays(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    for before in (None, b"old"):
        there.unlink(missing_ok=True)
        link.unlink(missing_ok=True)
        if before is not None:
            there.write_bytes(before)
        link.symlink_to(there)
        write_whole(link, b"new")
        assert link.is_symlink()
        assert there.read_bytes() == b"new"


def test_standard_output_that_goes_to_a_file_gets_what_is_written_to_it(tmp_path: Path) -> None:
    file = tmp_path / "out"
    program = "import pathlib, app.cli.files as files; files.write_whole(pathlib.Path('/dev/stdout'), b'new')"
    with file.open("wb") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
    assert file.read_bytes() == b"new"
    assert Path("/dev/stdout").is_symlink()


def test_a_pipe_keeps_its_place(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_file_in_shared_memory_is_replaced_like_any_other(tmp_path: Path) -> None:
    """/dev/shm is a folder, though it lies among devices."""
    file = Path("/dev/shm") / f"crosspoint-{secrets.token_hex(8)}"
    if not file.parent.is_dir():
        pytest.skip("/dev/shm is Linux's")
    try:
        write_whole(file, b"old")
        write_whole(file, b"new")
        assert file.read_bytes() == b"new"
    finally:
        file.unlink(missing_ok=True)


def test_a_file_that_is_mounted_by_itself_is_written_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rename(2) refuses with EBUSY to put another in its place."""
    file = tmp_path / "rig.json"
    file.write_bytes(b"an older and longer one")

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(Path, "replace", refuse)
    write_whole(file, b"new")
    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("place", ["", ".", "reports"])
def test_a_folder_is_no_file_to_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Path("") is what an unset variable of a shell gives."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").mkdir()
    with pytest.raises(CommandFailed, match="is a folder"):
        check_place(Path(place))
