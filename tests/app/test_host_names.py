"""Names of hosts are told as requests carry them."""

from __future__ import annotations

import pytest

from app.host_names import allowed_name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Rig.Example:8443", "rig.example"),
        ("rig.example.", "rig.example"),
        ("gpu_node", "gpu_node"),
        ("10.1.2.3:8000", "10.1.2.3"),
        ("fd00:0::5", "fd00::5"),
        ("[fd00:0::5]:8000", "fd00::5"),
        ("Bücher.example:80", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_a_name_is_what_requests_carry(written: str, name: str) -> None:
    assert allowed_name(written) == name


@pytest.mark.parametrize(
    "written",
    [
        "*",
        "*.example",
        ".example",
        "rig..example",
        "r" * 64,
        "https://rig.example",
        "rig.example/crosspoint",
        "rig.example:8000/crosspoint",
        "10.1.2.3:8000/crosspoint",
        "[fd00::5]/crosspoint",
        "10.1.2.3:a@b",
        "somebody@rig.example",
        "somebody:secret@rig.example",
        "rig example",
        ":8000",
        "straße.example",  # browsers carry xn--strae-oqa, older programs strasse
    ],
)
def test_what_no_request_is_addressed_to_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        allowed_name(written)
