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
    from probes.workload.catalogue import find_row, list_models
    from probes.workload.written import write_row

    if name is not None:
        row = write_row(find_row(name))
        print_json(row) if as_json else _show_model(row)
    elif as_json:
        print_json({"models": [row.to_json() for row in list_models()]})
    else:
        _show_models(list_models())


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


def _show_model(row: dict[str, Any]) -> None:
    """row: with its description, as `recommend` takes it from a file or standard input."""
    import json

    from app.cli.output import print_heading, print_pairs, print_verbatim
    from app.cli.units import format_count

    print_heading(row["name"])
    print_pairs(
        [
            ("family", row["family"]),
            ("what it is", row["summary"]),
            ("parameters", format_count(row["parameters"])),
            ("source", row["source"]),
        ]
    )
    print_verbatim(json.dumps(row["model"], indent=2, ensure_ascii=False))
