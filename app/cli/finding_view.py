"""A finding for people: what it is, and what to do."""

from __future__ import annotations

from typing import Any

from app.cli.output import print_heading, print_text, print_verbatim


def show_finding(finding: dict[str, Any], *, with_page: bool = False) -> None:
    """finding: a row of `findings` in GET /hardware. with_page: with its subject, and the page that explains it.

    The fix is one line, which the terminal breaks where it has to: a command that is copied is copied whole.
    """
    print_heading(f"{finding['severity']}: {finding['message']} [{finding['code']}]")
    if with_page:
        print_text(f"  {finding['subject']}; {finding['documentation']}")
    if finding["fix"]:
        print_verbatim(f"  {finding['fix']}")
