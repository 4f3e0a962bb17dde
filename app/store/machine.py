"""Which machine this is: a store that several share, as in a home folder on a network, holds the past of each."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from dataclasses import dataclass

from probes.reading import Root
from probes.system import read_hostname

# machine-id(5): made when the system was installed. Images that never started have none, or `uninitialized`.
_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")

_HOST = "CASE WHEN json_valid(document) THEN json_extract(document, '$.system.hostname') END"
_CLAIM_SURVEYS = f"UPDATE OR IGNORE surveys SET machine = ?1 WHERE machine = '' AND coalesce({_HOST}, ?2) = ?2"
_CLAIM_HISTORY = (
    "UPDATE history SET machine = ?1 WHERE machine = '' "
    "AND fingerprint NOT IN (SELECT fingerprint FROM surveys WHERE machine != ?1)"
)


@dataclass(frozen=True, slots=True)
class Machine:
    """key: another one for another machine. A hash, in the store alone. hostname: empty where it is not known."""

    key: str
    hostname: str = ""


def read_machine(root: Root) -> Machine:
    """By its machine-id; where there is none, as in most containers, by its host's name."""
    hostname = read_hostname(root) or ""
    own = next(filter(None, (parse_machine_id(root.read(path) or "") for path in _FILES)), None)
    return Machine(_hash(own or f"host {hostname}"), hostname)


def parse_machine_id(text: str) -> str | None:
    """None for what is no machine's."""
    word = text.strip().lower()
    return word if _ID.fullmatch(word) else None


def claim(connection: sqlite3.Connection, machine: Machine) -> None:
    """Take what was kept before the store told machines apart, but for what tells of another host: that is left for
    the machine of that name."""
    connection.execute(_CLAIM_SURVEYS, (machine.key, machine.hostname))
    connection.execute(_CLAIM_HISTORY, (machine.key,))


def _hash(text: str) -> str:
    """Of this program's own: machine-id(5) asks not to show the id itself."""
    return hashlib.sha256(f"crosspoint {text}".encode()).hexdigest()[:16]
