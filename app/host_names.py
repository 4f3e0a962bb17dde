"""Names of hosts, as requests carry them."""

from __future__ import annotations

import contextlib
import ipaddress
import re

_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_AUTHORITY = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::[0-9]*)?")  # a name or an address, and a port


def host_name(authority: str) -> str:
    """`[::1]:8000` -> `::1`, `localhost:8000` -> `localhost`."""
    authority = authority.strip().lower()
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0].removesuffix(".")


def allowed_name(written: str) -> str:
    """What a setting names: an address, or a host as it may stand before a path, its port with it or not.

    Raises ValueError for what no request is addressed to, as a pattern, a URL or a path.
    """
    name, is_whole = host_name(written), _AUTHORITY.fullmatch(written)
    for address in (written, name) if is_whole else (written,):
        with contextlib.suppress(ValueError):
            return str(ipaddress.ip_address(address))
    encoded = name if name.isascii() else _encode(name)
    if not (is_whole and all(map(_LABEL.fullmatch, encoded.split(".")))):
        raise ValueError("That is no host's name.")
    return encoded


def _encode(name: str) -> str:
    """`bücher.example` -> `xn--bcher-kva.example`. Raises ValueError where browsers may tell it otherwise: this codec
    is of IDNA 2003, and makes other letters of some, as ss of ß."""
    encoded = name.encode("idna")
    if encoded.decode("idna") != name:
        raise ValueError("That is written in more than one way.")
    return encoded.decode("ascii")
