"""Wiring only: the application, and the server that runs it."""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from app.api import (
    calibrations,
    gpus,
    hardware,
    hardware_events,
    health,
    measurements,
    metrics,
    models,
    page,
    profiles,
    recommend,
)
from app.api.context import Context
from app.api.guard import Guard
from app.api.head import Head
from app.api.hot import HotPaths
from app.api.openapi import install_openapi
from app.api.problems import install_problems
from app.api.protocol import DeadlineProtocol
from app.api.tally import Counting, Tally
from app.errors import CrosspointError
from app.service import Crosspoint
from app.settings import Settings
from probes import bounds

DESCRIPTION = "Where should this model train, with which settings, and why? Measured, not guessed."
ROUTERS = (
    hardware,
    hardware_events,
    gpus,
    recommend,
    measurements,
    calibrations,
    profiles,
    models,
    health,
    metrics,
    page,
)

# Ending: processes (3.5 s at most: app.lab.child), then answers that are being written, then the store. What still
# hangs 0.2 s after the first two is left behind.
GRACEFUL_SECONDS = 1
LAST_RESORT_SECONDS = 4.7
# How long a thread (a survey, the advisor) may keep the interpreter from the event loop; Python's own is 5 ms.
SWITCH_SECONDS = 0.0005
BACKLOG = 512  # connections that may wait to be accepted


class AddressTaken(CrosspointError):
    """The address to listen on cannot be used."""


def create_app(settings: Settings) -> FastAPI:
    """The HTTP application over one Crosspoint. Its lifespan starts the upkeep, and ends every process."""
    tally = Tally()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        context = app.state.context = Context(Crosspoint(settings), tally)
        try:
            yield
        finally:
            await context.close()

    app: FastAPI = FastAPIOffline(
        title="crosspoint",
        version=version("crosspoint"),
        description=DESCRIPTION,
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
    )
    for module in ROUTERS:
        app.include_router(module.router)
    page.mount_static(app)
    install_problems(app)
    install_openapi(app)
    app.add_middleware(HotPaths, answers={"/livez": health.live_body, "/hardware": hardware.encoded_survey})
    app.add_middleware(Head)
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(Counting, tally=tally)  # what the guard refuses as well
    return app


class Server(uvicorn.Server):
    """uvicorn, with jobs and their event streams ended before it waits for connections to close."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, *, owns_process: bool = False) -> None:
        super().__init__(config)
        self._app = app
        self._owns_process = owns_process

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        context: Context = self._app.state.context
        if self._owns_process:
            last_resort = threading.Timer(LAST_RESORT_SECONDS, _leave_at_once, (context,))
            last_resort.daemon = True
            last_resort.start()
        for server in self.servers:
            server.close()
        await context.end_work()
        await super().shutdown(sockets)


def _leave_at_once(context: Context) -> None:
    """Something hangs beyond its deadline: take the children along and go."""
    context.crosspoint.lab.kill()
    os._exit(0)


def serve(settings: Settings) -> None:
    """Serve until TERM, INT or HUP; ends within 5 seconds. Raises AddressTaken."""
    listener = listen(settings)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        http=DeadlineProtocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        h11_max_incomplete_event_size=bounds.MAX_HEAD_BYTES,
        access_log=settings.access_log,
        log_config=_logging_to_standard_error(),
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    # uvicorn raises the signal that ended it once more. TERM is how a service is meant to end: exit code 0.
    signal.signal(signal.SIGTERM, lambda *_: None)
    server = Server(config, app, owns_process=True)
    hung_up = _end_when_hung_up(server)
    server.run(sockets=[listener])
    if hung_up:
        raise SystemExit(128 + signal.SIGHUP)


def _end_when_hung_up(server: Server) -> list[int]:
    """As a terminal that is closed sends it, which uvicorn does not heed; under nohup it is ignored, and stays so. The
    list has the signal once it came."""
    came: list[int] = []

    def end(number: int, _frame: object) -> None:
        came.append(number)
        server.should_exit = True

    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, end)
    return came


def _logging_to_standard_error() -> dict[str, Any]:
    """uvicorn's, whose lines of requests would go to standard output."""
    config = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    config["handlers"]["access"]["stream"] = "ext://sys.stderr"
    return config


def listen(settings: Settings) -> socket.socket:
    """A listening socket, made before anything slow, so that who connects early waits instead of being refused.

    Raises AddressTaken.
    """
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with contextlib.ExitStack() as unless_it_listens:
            # With the protocol named, asyncio turns Nagle's algorithm off; else every answer waits 40 ms for an ACK.
            listener = unless_it_listens.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
            unless_it_listens.pop_all()
    except (OSError, UnicodeError) as error:  # what cannot be a host's name is no error of the system's
        why = getattr(error, "strerror", None) or "no host can have that name"
        raise AddressTaken(
            "address-taken",
            f"Port {settings.port} of {settings.host} cannot be listened on: {why}. {_instead(error)}",
        ) from error
    host, port = listener.getsockname()[:2]
    sys.stderr.write(f"crosspoint listens on http://{f'[{host}]' if ':' in host else host}:{port}" + "\n")
    return listener


def _instead(error: OSError | UnicodeError) -> str:
    """What to do where an address cannot be listened on."""
    number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
    if number == errno.EADDRINUSE:
        return "Choose another with --port, or end what listens there."
    if number == errno.EACCES:
        return "Choose one from 1024 on with --port."
    return "Choose a name or an address of this machine with --host."
