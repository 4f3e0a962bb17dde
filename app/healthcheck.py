"""`python -m app.healthcheck`: whether the service that these settings start is alive, as a container's engine asks."""

from __future__ import annotations

import sys
from http.client import HTTPConnection, HTTPException

from app.settings import Settings

TIMEOUT_SECONDS = 2.0
# Who listens on every address is asked at one.
_ASKED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def is_alive(settings: Settings) -> bool:
    """Asked without a proxy, whichever the environment names."""
    connection = HTTPConnection(_ASKED_AT.get(settings.host, settings.host), settings.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(not is_alive(Settings.from_environment()))
