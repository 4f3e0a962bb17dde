"""The link “not hidden by the environment”: CUDA_VISIBLE_DEVICES with its kin, of each vendor."""

from __future__ import annotations

from probes.diagnose.codes import make_finding
from probes.diagnose.links import Case, Checked, State, broken, fine, unknown
from probes.gpu.visible import Visibility
from probes.hardware import Finding

_ON_PURPOSE = ("", "-1", "none", "NoDevFiles")  # what people write to hide every card


def find_variable(case: Case) -> str | None:
    """The variable that limits which of the vendor's cards are visible; None: none is set."""
    return _find(case).variable


def may_be_hidden(case: Case) -> bool:
    """Whether a variable hides this card, or may; one that leaves it visible explains nothing."""
    return find_variable(case) is not None and check_hidden(case).state is not State.OK


def _find(case: Case) -> Visibility:
    return case.facts.find_visible(case.card.vendor or "")


def check_hidden(case: Case) -> Checked:
    seen = _find(case)
    if seen.variable is None:
        return fine("no variable hides cards")
    if case.card.usable and case.card.torch_device:
        return fine(f"{seen.variable} is set, and torch uses it as {case.card.torch_device}")
    value = case.facts.environment.get(seen.variable, "").strip()
    if seen.count == 0:
        return broken(_all_hidden(case, seen, value))
    hidden = _is_hidden(case, seen)
    if hidden is None:
        told = seen.reason if seen.invalid is None else None
        order = f"{seen.variable} leaves {seen.count} of the cards; which ones, its library's own order decides"
        return unknown(told or order)
    if hidden:
        return broken(_left_out(case, seen, value))
    return fine(f"{seen.variable} leaves it visible")


def _is_hidden(case: Case, seen: Visibility) -> bool | None:
    """A card that MIG splits is seen by its instances."""
    parts = [part for part in case.facts.accelerators if part.parent_id == case.card.id]
    answers = [seen.hides(card) for card in (case.card, *parts)]
    return False if False in answers else None if None in answers else True


def _all_hidden(case: Case, seen: Visibility, value: str) -> Finding:
    variable = seen.variable or ""
    if value in _ON_PURPOSE:
        message = f"{variable} is set to “{value}”, which hides every card from torch."
        return make_finding("hidden-by-environment", case.subject, message, f"unset {variable}")
    message = f"{seen.reason or f'{variable} matches no card'}."
    return make_finding(
        "visible-devices-match-nothing", case.subject, message, f"unset {variable}, or export {variable}=0"
    )


def _left_out(case: Case, seen: Visibility, value: str) -> Finding:
    """Meant so, most often: a machine's cards are shared out by this variable."""
    message = (
        f"{seen.variable}={value[:80]} leaves this card out; torch sees {seen.count} other "
        f"card{'' if seen.count == 1 else 's'}."
    )
    if seen.invalid is not None:
        message += f" {seen.reason}."
    return make_finding("left-out-by-environment", case.subject, message, f"unset {seen.variable}")
