"""Takes out of a document what names a machine or a person, so that it can be shown in public."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_HEX = "[0-9a-fA-F]"
_PATTERNS = (
    # Cards' UUIDs, whole or begun, as CUDA_VISIBLE_DEVICES takes them; then any other UUID.
    (re.compile(rf"\b(GPU|MIG)-(?:GPU-)?{_HEX}{{4,}}[-/0-9a-fA-F]*"), r"\1-…"),
    # In the names of cgroups underscores stand for the hyphens, and a container's own number is 64 digits.
    (re.compile(rf"{_HEX}{{8}}([-_])(?:{_HEX}{{4}}\1){{3}}{_HEX}{{12}}(?!{_HEX})"), "(UUID)"),
    (re.compile(rf"(?<![0-9a-zA-Z]){_HEX}{{32,}}(?![0-9a-zA-Z])"), "(id)"),
    (re.compile(rf"\b{_HEX}{{2}}([:-])(?:{_HEX}{{2}}\1){{4}}{_HEX}{{2}}\b"), "(address)"),
    # IPv6 in full, or with its one `::`; a place on the PCI bus (0000:01:00.0) has two colons, and apart.
    (re.compile(rf"(?<![\w:])(?:{_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}(?![\w:])"), "(address)"),
    (re.compile(rf"(?<![\w:])(?:{_HEX}{{1,4}}:){{1,6}}(?::{_HEX}{{1,4}}){{1,6}}(?![\w:])"), "(address)"),
    # Four numbers up to 255, and no version of a kernel (5.15.167.4-microsoft).
    (
        re.compile(r"(?<![\w.-])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w.-])"),
        "(address)",
    ),
    (re.compile(r"((?:/home|/Users|[A-Za-z]:\\Users)[/\\])[^/\\\s\"':]+"), r"\1(user)"),
)
# What programs choose by is a word of ours; a host that is called `slow` must not change it.
_CODES = frozenset({"code", "finding", "documentation", "severity", "state", "outcome"})
_SHORTEST = 3  # letters: a shorter host name is part of too many words
# Account names that half of all machines have: they name nobody, and are words of commands.
_NAMES_OF_NOBODY = frozenset(
    {
        "root",
        "user",
        "ubuntu",
        "admin",
        "localhost",
        "nobody",
        "docker",
        "none",
        "cpu",
        "gpu",
        "cuda",
        "driver",
        "kernel",
        "python",
        "linux",
        "debian",
        "fedora",
        "machine",
        "torch",
        "nvidia",
    }
)


def scrub(document: Any, secrets: Mapping[str, str]) -> Any:
    """The document with every text in it scrubbed. secrets: a name that must not be shown -> what stands for it."""
    if isinstance(document, str):
        return scrub_text(document, secrets)
    if isinstance(document, dict):
        return {key: value if key in _CODES else scrub(value, secrets) for key, value in document.items()}
    return [scrub(value, secrets) for value in document] if isinstance(document, list | tuple) else document


def scrub_text(text: str, secrets: Mapping[str, str]) -> str:
    for pattern, stand_in in _PATTERNS:
        text = pattern.sub(stand_in, text)
    for name, stand_in in secrets.items():
        text = re.sub(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", stand_in, text, flags=re.IGNORECASE)
    return text


def name_secrets(hostnames: tuple[str | None, ...] = ()) -> dict[str, str]:
    """This machine's and this person's names, longest first; hostnames: more of them, as a captured machine's."""
    home = Path(_ask(Path.home) or "~")
    found = {str(home): "~"} if home.name not in ("", "~") and home.name.lower() not in _NAMES_OF_NOBODY else {}
    for name in (*hostnames, _ask(socket.gethostname)):
        for part in (name or "", (name or "").split(".")[0]):
            found |= _name(part, "(host)")
    found |= _name(_ask(getpass.getuser) or "", "(user)")
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _name(name: str, stand_in: str) -> dict[str, str]:
    worth = len(name) >= _SHORTEST and name.lower() not in _NAMES_OF_NOBODY
    return {name: stand_in} if worth else {}


def _ask(function: Any) -> str | None:
    try:
        return str(function())
    except (OSError, KeyError, ImportError, RuntimeError):  # a user number without a name or home, as containers have
        return None
