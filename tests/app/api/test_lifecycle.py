"""How the service starts, what it does by itself, and how it ends."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import psutil
import pytest

from app.errors import StoreError
from app.main import AddressTaken, listen
from app.service import Crosspoint
from app.settings import Settings
from app.store.store import FILE_NAME
from app.upkeep import Upkeep
from tests.app.advisor.machine import a_profile
from tests.app.api.test_jobs import LONG, SHORT, start, wait_for, watch
from tests.app.lab.test_child import is_gone
from tests.app.serving import COMMAND, PATIENCE_SECONDS, running_server, wait_until

IRIS = {"model": "iris-mlp", "batch_size": 8}


def test_term_ends_everything_while_everything_is_going_on(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        address = start(client, LONG)
        wait_for(client, address, "running")
        children = [child.pid for child in server.children()]
        head = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\n"
        half_head, half_body = server.connect(), server.connect()
        half_head.sendall(head)
        half_body.sendall(head + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        with client.stream("GET", f"{address}/events") as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("event: ")
            assert server.stop() == 0
            rest = list(lines)
        assert any("cancelled" in line for line in rest)
        half_head.close()
        half_body.close()
        assert children
        assert all(is_gone(pid) for pid in children)
        assert "Traceback" not in "".join(server.log)


def test_a_job_of_another_service_on_the_same_store_runs_on_and_is_its_own(tmp_path: Path) -> None:
    with (
        running_server(tmp_path) as one,
        running_server(tmp_path) as other,
        one.client() as owner,
        other.client() as client,
    ):
        job = start(owner, LONG)
        wait_for(owner, job, "running")
        assert client.get(job).json()["state"] in ("queued", "running")
        for refused in (client.get(f"{job}/events"), client.delete(job)):
            assert (refused.status_code, refused.json()["type"]) == (409, "/problems/job-elsewhere")
        assert owner.delete(job).json()["state"] == "cancelled"
        assert client.get(job).json()["state"] == "cancelled"


@pytest.mark.usefixtures("hup_ends")
def test_a_service_whose_terminal_is_closed_leaves_nothing(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        wait_for(client, start(client, LONG), "running")
        temporary = Path(psutil.Process(server.process.pid).environ()["TMPDIR"])
        assert [path for path in temporary.iterdir() if path.is_dir()]
        assert server.stop(signal.SIGHUP) == 129
        assert not [path for path in temporary.iterdir() if path.is_dir()]


def test_children_end_when_the_service_is_killed(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        wait_for(client, start(client, LONG), "running")
        children = [child.pid for child in server.children()]
        server.stop(signal.SIGKILL)
    wait_until(lambda: all(is_gone(pid) for pid in children), "the children's end")
    with running_server(tmp_path) as server, server.client() as client:
        (job,) = client.get("/measurements").json()["measurements"]
        assert job["state"] == "failed"
        assert "ended while this job ran" in job["reason"]
        assert client.get(f"/measurements/{job['id']}").json()["state"] == "failed"
        ((name, event),) = watch(client, f"/measurements/{job['id']}")
        assert (name, event["state"]) == ("finished", "failed")


def test_the_first_start_calibrates_and_gives_way_to_who_waits(tmp_path: Path) -> None:
    with running_server(tmp_path, calibrate_on_start="true") as server, server.client() as client:
        answer = client.post("/recommend", json=IRIS).json()
        assert answer["recommended"] is None or answer["options"][0]["basis"] != "predicted"
        assert "calibrat" in str(answer)
        wait_until(lambda: client.get("/healthz").json()["calibration"]["state"] == "running", "a calibration")
        assert watch(client, start(client, SHORT))[-1][1]["state"] == "succeeded"
        wait_until(lambda: client.get("/healthz").json()["calibration"]["state"] == "running", "another calibration")
        assert server.stop() == 0


def test_on_a_full_disk_the_answer_is_served_and_says_that_it_was_not_saved(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        wait_until(lambda: client.get("/readyz").is_success, "readiness")
        psutil.Process(server.process.pid).rlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        answer = client.post("/recommend", json=IRIS)
        assert answer.status_code == 200, answer.text
        assert answer.json()["saved"] is False
        assert any(reason["code"] == "not-saved" for reason in answer.json()["reasons"])
        document = client.get(start(client, SHORT)).json()
        document = watch(client, f"/measurements/{document['id']}")[-1][1]
        assert (document["state"], document["saved"]) == ("succeeded", False)
        assert "not saved" in document["not_saved_because"]


def test_a_disk_that_fills_while_the_service_runs_is_told_until_something_was_saved(tmp_path: Path) -> None:
    def warnings(client: httpx.Client) -> list[str]:
        found = client.get("/readyz").json()["warnings"]
        return [warning for warning in found if warning.startswith("Nothing is saved")]

    with running_server(tmp_path) as server, server.client() as client:
        # Once the service has written what it writes at its start: unlike on most full disks no page that there is can
        # be written here, so that a write that is cut off cannot be taken back, and nothing be read before it is.
        wait_until(lambda: client.get("/hardware/history").json()["history"], "a state that is noted")
        assert warnings(client) == []
        profile, process = a_profile(fingerprint="another").to_json(), psutil.Process(server.process.pid)
        process.rlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        assert client.put("/profiles/rig", json=profile).status_code == 503
        (warning,) = warnings(client)
        assert client.get("/healthz").json()["store"]["trouble"] in warning
        assert client.get("/profiles").is_success
        assert warnings(client) == [warning], "reading is no news"
        process.rlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert client.put("/profiles/rig", json=profile).is_success
        assert warnings(client) == []
        assert client.get("/healthz").json()["store"]["trouble"] is None
        (tmp_path / FILE_NAME).unlink()
        assert "rig" not in client.get("/profiles").text
        assert any("was removed or replaced" in told for told in client.get("/readyz").json()["warnings"])


def test_where_the_data_folder_cannot_be_used_the_service_serves_and_warns(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with running_server(tmp_path / "file" / "data") as server, server.client() as client:
        wait_until(lambda: client.get("/readyz").is_success, "readiness")
        assert "Nothing is saved" in str(client.get("/readyz").json()["warnings"])
        document = client.put("/profiles/rig", json=a_profile(fingerprint="another").to_json())
        assert document.status_code == 503
        assert document.json()["type"] == "/problems/not-saved"
        assert document.json()["title"] == "The store could not be used"


def test_the_service_never_has_torch_in_its_address_space(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, server.client() as client:
        wait_until(lambda: client.get("/healthz").json()["lab"]["tracer_is_warm"], "a warm tracer")
        assert client.post("/recommend", json={**IRIS, "effort": "quick", "time_limit_seconds": 1}).is_success
        client.get("/metrics").raise_for_status()
        client.get("/openapi.json").raise_for_status()
        maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "torch" not in maps
    assert "libcuda" not in maps


def test_a_port_that_is_taken_is_a_sentence_and_wrong_usage(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        second = subprocess.run(
            [COMMAND, "serve", "--port", str(server.port), "--data-dir", tmp_path],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert second.returncode == 2
    assert f"Port {server.port}" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_setting_that_cannot_be_used_is_wrong_usage() -> None:
    ended = subprocess.run(
        [COMMAND, "serve", "--port", "99999"], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert ended.returncode == 2
    assert "Error: --port has to be" in ended.stderr  # as it was set


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "no host"])
def test_an_address_that_is_none_is_wrong_usage(host: str) -> None:
    ended = subprocess.run(
        [COMMAND, "serve", "--host", host], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert ended.returncode == 2
    assert f"of {host} cannot be listened on" in ended.stderr
    assert "--host" in ended.stderr


def test_what_to_do_is_said_of_an_address_that_cannot_be_listened_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        not_here = [(host, 0, "--host") for host in ("192.0.2.1", "fe80::1")]
        for host, port, flag in (("127.0.0.1", taken.getsockname()[1], "--port"), *not_here):
            with pytest.raises(AddressTaken, match=flag):
                listen(Settings(host=host, port=port))


def test_requests_are_written_to_standard_error_where_that_was_asked_for(tmp_path: Path) -> None:
    with running_server(tmp_path, access_log="true") as server, server.client() as client:
        client.get("/livez").raise_for_status()
        wait_until(lambda: any('"GET /livez HTTP/1.1" 200' in line for line in server.log), "the request's line")


def test_a_host_name_that_was_allowed_is_served(tmp_path: Path) -> None:
    with running_server(tmp_path, allowed_hosts="gpu-node.example:8443,fd00::5") as server, server.client() as client:
        assert client.get("/livez", headers={"Host": "gpu-node.example:8000"}).is_success
        assert client.get("/livez", headers={"Host": "[fd00::5]:8000"}).is_success
        assert client.get("/livez", headers={"Host": "other.example"}).status_code == 421


def test_a_page_that_a_proxy_shows_under_an_allowed_name_may_ask(tmp_path: Path) -> None:
    """The proxy names this service in Host as it does by itself, or leaves the port out."""

    def ask(client: httpx.Client, origin: str, **headers: str) -> int:
        return client.post("/recommend", json={}, headers={"Origin": origin, **headers}).status_code

    with running_server(tmp_path, allowed_hosts="rig.example,localhost") as server, server.client() as client:
        assert ask(client, "https://rig.example") == 422
        assert ask(client, "https://rig.example:8443", Host="rig.example") == 422
        for foreign in ("https://other.example", "https://rig.example.evil.example", "http://localhost:1", "null"):
            assert ask(client, foreign) == 403


@pytest.mark.parametrize("host", ["0.0.0.0"])
def test_on_every_address_the_service_answers_to_addresses_and_not_to_names(tmp_path: Path, host: str) -> None:
    with running_server(tmp_path, host=host) as server, server.client() as client:
        assert client.get("/livez", headers={"Host": "10.1.2.3:8000"}).is_success
        assert client.get("/livez", headers={"Host": "evil.example"}).status_code == 421


def test_readiness_comes_with_the_first_survey(client: httpx.Client) -> None:
    wait_until(lambda: client.get("/readyz").is_success, "readiness")
    details = client.get("/healthz").json()
    assert details["status"] == "ok"
    assert details["probes"]["cpu"] == "ok"


def test_a_service_whose_store_cannot_be_opened_is_not_ready_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.upkeep.STORE_RETRY_SECONDS", 0.01)
    attempts = 0

    async def use() -> None:
        nonlocal attempts
        settings = Settings(data_dir=tmp_path, sysroot=tmp_path)
        async with Crosspoint(settings) as crosspoint:
            opened, upkeep = crosspoint.store.open, Upkeep(crosspoint)

            async def open_late() -> None:
                nonlocal attempts
                attempts += 1
                assert not upkeep.store_opened
                if attempts < 3:
                    raise StoreError("The store could not be used.")
                await opened()

            monkeypatch.setattr(crosspoint.store, "open", open_late)
            task = asyncio.create_task(upkeep.run())
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not upkeep.store_opened:  # noqa: ASYNC110 - it has no event for that
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(use())
    assert attempts == 3
