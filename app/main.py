"""Wiring only: the application, and the server that runs it."""

from __future__ import annotations

from fastapi import FastAPI

from app.settings import Settings


def create_app(settings: Settings) -> FastAPI:
    """The HTTP application over one Crosspoint."""
    raise NotImplementedError


def serve(settings: Settings) -> None:
    """Serve until TERM or INT; ends within 5 seconds. Raises PortTaken when the address is in use."""
    raise NotImplementedError
