"""`crosspoint models [NAME]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from probes.workload.catalogue import CatalogueRow


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def command(name: str | None, as_json: bool) -> None:
    """List the models known by name, or show NAME with its description."""
    from app.cli.output import print_json
    from probes.workload.catalogue import list_models

    rows = list_models()
    if name is not None:
        row = _find(rows, name)
        print_json(_document(row, whole=True)) if as_json else _show_model(row)
    elif as_json:
        print_json({"models": [_document(row) for row in rows]})
    else:
        _show_models(rows)


def _find(rows: tuple[CatalogueRow, ...], name: str) -> CatalogueRow:
    """The row of a name or alias. Raises InvalidModel, with near names, for one that the catalogue does not have."""
    from probes.workload.models import parse_model

    found = parse_model(name).name
    return next(row for row in rows if row.name == found)


def _document(row: CatalogueRow, whole: bool = False) -> dict[str, Any]:
    document = {
        "name": row.name,
        "family": row.family,
        "summary": row.summary,
        "parameters": row.parameters,
        "source": row.source,
    }
    return document | {"description": row.description.content} if whole else document


def _show_models(rows: tuple[CatalogueRow, ...]) -> None:
    from app.cli.output import Column, print_table
    from app.cli.units import format_count

    columns = (
        Column("name"),
        Column("family"),
        Column("parameters", "right"),
        Column("what it is", needed=False, prose=True),
    )
    print_table(columns, [[row.name, row.family, format_count(row.parameters), row.summary] for row in rows])


def _show_model(row: CatalogueRow) -> None:
    import json

    from app.cli.output import print_heading, print_pairs, print_verbatim
    from app.cli.units import format_count

    print_heading(row.name)
    print_pairs(
        [
            ("family", row.family),
            ("what it is", row.summary),
            ("parameters", format_count(row.parameters)),
            ("source", row.source),
        ]
    )
    print_verbatim(json.dumps(row.description.content, indent=2, ensure_ascii=False))
