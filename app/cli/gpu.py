"""`crosspoint gpu NAME`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from probes.names.gpu import GpuName


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="NAME")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
def command(words: tuple[str, ...], as_json: bool) -> None:
    """Say what a card's name means, without owning the card: `crosspoint gpu RTX 4070 Ti`."""
    from app.cli.output import print_json
    from probes.names.gpu import near_names, parse_gpu_name

    name = " ".join(words)
    known = parse_gpu_name(name)
    if known is None:
        near = near_names(name)
        hint = f"Did you mean {' or '.join(near)}?" if near else "Write it as nvidia-smi or the box does."
        raise click.UsageError(f"No card is known by exactly this name. {hint}")
    print_json(known.to_json()) if as_json else _show(known)


def _show(known: GpuName) -> None:
    from app.cli.output import print_heading, print_pairs
    from app.cli.units import format_bytes

    memory, bandwidth = known.memory_total_bytes, known.memory_bandwidth_bytes_per_second
    unknown = {field: f"not settled: {reason}" for field, reason in known.reasons.items()}
    rows = {
        "vendor": known.vendor,
        "generation": known.generation,
        "architecture": known.architecture or unknown.get("architecture"),
        "tier": known.tier,
        "what that means": known.tier_meaning,
        "suffix": known.suffix,
        "what it means": known.suffix_meaning,
        "segment": known.segment,
        "memory": f"{memory / 2**30:g} GiB" if memory else unknown.get("memory_total_bytes"),
        "bandwidth": f"{format_bytes(bandwidth)} a second" if bandwidth else None,
        "compute capability": known.compute_capability,
        "note": " ".join(known.notes) or None,
        "source": known.source,
    }
    print_heading(known.name)
    print_pairs([(label, value) for label, value in rows.items() if value is not None])
