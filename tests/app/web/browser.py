"""A real Chromium without a window: asked once for what a page has become, or held at a page and spoken to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tests.app.serving import PATIENCE_SECONDS, wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
)
# Timers run at once while nothing is being fetched, and stand still while something is.
HURRIED = "--virtual-time-budget=20000"

# Chromium reads commands from descriptor 3 and writes to descriptor 4; what a child is handed has other numbers.
LAUNCH = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(number), fcntl.F_DUPFD_CLOEXEC, 10) for number in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def render(address: str, profile: Path) -> tuple[str, list[str]]:
    """The document after its scripts ran, and what they wrote to the console."""
    assert CHROMIUM is not None
    finished = subprocess.run(
        (CHROMIUM, *FLAGS, HURRIED, f"--user-data-dir={profile}", "--dump-dom", address),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return finished.stdout, [line for line in finished.stderr.splitlines() if "CONSOLE" in line]


class Tab:
    """A page that stays open, spoken to in the Chrome DevTools Protocol: JSON documents, each ended by a NUL."""

    def __init__(self, commands: BinaryIO, answers: BinaryIO) -> None:
        self._commands = commands
        self._answers = answers
        self._asked = 0
        self._session: dict[str, str] = {}
        self._events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command's result; what happens meanwhile is kept for `await_event`."""
        self._asked += 1
        command = {"id": self._asked, "method": method, "params": parameters, **self._session}
        self._commands.write(json.dumps(command).encode() + b"\0")
        self._commands.flush()
        while (message := self._read()).get("id") != self._asked:
            self._events.append(message)
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    def await_event(self, method: str) -> dict[str, Any]:
        """The first event of that name that nobody was given yet."""
        while True:
            for event in self._events:
                if event.get("method") == method:
                    self._events.remove(event)
                    parameters: dict[str, Any] = event["params"]
                    return parameters
            self._events.append(self._read())

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, address: str) -> None:
        """Returns when the page's scripts have run."""
        self.ask("Page.navigate", url=address)
        wait_until(lambda: self.run("document.readyState") == "complete" and self._is_at(address), "the page is there")

    def _is_at(self, address: str) -> bool:
        return str(self.run("location.href")).startswith(address)

    def press(self, place: str) -> None:
        self.run(f"document.getElementById({place!r}).click()")

    def text(self, place: str) -> str:
        return str(self.run(f"document.getElementById({place!r}).textContent"))

    def await_text(self, place: str, words: str) -> None:
        wait_until(lambda: words in self.text(place), f"{words} in {place}")

    def _read(self) -> dict[str, Any]:
        found = bytearray()
        while (byte := self._answers.read(1)) not in (b"", b"\0"):
            found += byte
        assert byte, "the browser has ended"
        message: dict[str, Any] = json.loads(found)
        return message


@contextmanager
def opened_tab(profile: Path) -> Iterator[Tab]:
    """A browser of its own, which is ended however the test ends, and when it hangs."""
    assert CHROMIUM is not None
    (their_commands, our_commands), (our_answers, their_answers) = os.pipe(), os.pipe()
    ends = (str(their_commands), str(their_answers))
    flags = (*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}")
    process = subprocess.Popen(
        (sys.executable, "-c", LAUNCH, *ends, CHROMIUM, *flags),
        pass_fds=(their_commands, their_answers),
        stderr=subprocess.DEVNULL,
    )
    os.close(their_commands)
    os.close(their_answers)
    hanging = threading.Timer(2 * PATIENCE_SECONDS, process.kill)
    hanging.start()
    try:
        with os.fdopen(our_commands, "wb") as commands, os.fdopen(our_answers, "rb") as answers:
            yield Tab(commands, answers)
    finally:
        process.wait(3 * PATIENCE_SECONDS)  # it ends with its pipe, or is killed
        hanging.cancel()
