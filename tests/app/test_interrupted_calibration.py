"""A calibration that is interrupted, however rudely, leaves the last good profile."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest

from app.cli.endings import ExitCode
from app.service import Crosspoint
from app.settings import Settings
from probes.profile import Profile
from tests.app.advisor.machine import a_profile
from tests.app.serving import Server, running_server, wait_until

CROSSPOINT = (sys.executable, "-c", "import sys; from app.cli.main import main; sys.exit(main())")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a good profile of this machine."""

    async def keep() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path / "data")) as crosspoint:
            fingerprint = (await crosspoint.survey()).fingerprint
            await crosspoint.store.keep_profile(replace(a_profile(fingerprint=fingerprint), name="good"))

    asyncio.run(keep())
    return tmp_path / "data"


def stored(folder: Path) -> Profile | None:
    """This machine's profile, as the next process finds it."""

    async def read() -> Profile | None:
        async with Crosspoint(Settings(data_dir=folder)) as crosspoint:
            return await crosspoint.profile(await crosspoint.survey())

    return asyncio.run(read())


def begin_calibration(server: Server, client: httpx.Client) -> tuple[str, list[psutil.Process]]:
    """Its address and its processes, once it runs."""
    address = client.post("/calibrations", json={"effort": "quick"}).headers["location"]
    service = psutil.Process(server.process.pid)
    wait_until(lambda: client.get(address).json()["state"] != "queued", "the calibration begins")
    wait_until(lambda: service.children(recursive=True), "its process starts")
    return address, service.children(recursive=True)


def test_its_process_is_killed(data: Path) -> None:
    with running_server(data) as server, server.client() as client:
        address, children = begin_calibration(server, client)
        for child in children:
            child.kill()
        wait_until(lambda: client.get(address).json()["state"] == "failed", "the calibration fails")
        assert [row["name"] for row in client.get("/profiles").json()["profiles"]] == ["good"]
    found = stored(data)
    assert found is not None
    assert found.name == "good"


def test_the_service_is_killed(data: Path) -> None:
    with running_server(data) as server, server.client() as client:
        _, children = begin_calibration(server, client)
        server.stop(signal.SIGKILL)
    psutil.wait_procs(children, timeout=30)
    found = stored(data)
    assert found is not None
    assert found.name == "good"


def test_the_command_is_interrupted(data: Path, tmp_path: Path) -> None:
    command = subprocess.Popen(
        (*CROSSPOINT, "calibrate", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CROSSPOINT_DATA_DIR": str(data), "TMPDIR": str(tmp_path)},
    )
    wait_until(lambda: psutil.Process(command.pid).children(), "the measuring process starts")
    command.send_signal(signal.SIGINT)
    output, errors = command.communicate(timeout=60)
    assert command.returncode == ExitCode.INTERRUPTED
    assert output == ""
    assert "Traceback" not in errors
    found = stored(data)
    assert found is not None
    assert found.name == "good"
