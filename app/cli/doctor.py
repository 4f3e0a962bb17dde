"""`crosspoint doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.folder_option import Folder

if TYPE_CHECKING:
    from probes.examination import Examination

BLOCKED = 1  # the exit code when something stands in the way of training


@click.command(epilog="Exit codes: 0 nothing stands in the way of training, 1 something does.")
@click.option("--json", "as_json", is_flag=True, help="Print the examination as JSON, anonymous.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print it as Markdown for a bug report, anonymous.")
@click.option(
    "--sysroot",
    type=Folder(),
    help="Read /proc, /sys, /dev and /cgroup below this folder: a captured machine.",
)
@click.option("--torch/--no-torch", "ask_torch", default=True, help="Start torch to see what it can use; seconds.")
@click.pass_context
def command(ctx: click.Context, as_json: bool, as_markdown: bool, sysroot: Path | None, ask_torch: bool) -> None:
    """Say what stands in the way of training here, from the PCI bus to torch's kernels, and what to do."""
    from app.cli.endings import fail_usage

    if as_json and as_markdown:
        fail_usage("--json and --markdown are two ways to print the same; choose one.")
    examination = run_examination(sysroot, ask_torch)
    show(examination, as_json, as_markdown)
    if examination.is_blocked:
        ctx.exit(BLOCKED)


def run_examination(sysroot: Path | None, ask_torch: bool) -> Examination:
    from app.cli.checked_settings import checked_settings
    from probes.examination import examine

    settings = checked_settings(sysroot)
    return examine(settings.sysroot, deadline_seconds=settings.survey_seconds, ask_torch=ask_torch)


def show(examination: Examination, as_json: bool, as_markdown: bool) -> None:
    from app.cli.doctor_view import show_examination, write_markdown
    from app.cli.output import print_json, print_verbatim

    document = to_document(examination)
    if as_json:
        print_json(document)
    elif as_markdown:
        print_verbatim(write_markdown(document))
    else:
        show_examination(document)


def to_document(examination: Examination) -> dict[str, Any]:
    """What --json prints; nothing in it names the machine or the person, so that it can be shown in public."""
    from dataclasses import asdict

    from app.cli.scrub import name_secrets, scrub

    survey = examination.survey
    document = {
        "schema_version": survey.schema_version,
        "surveyed_at": survey.surveyed_at,
        "exit_code": BLOCKED if examination.is_blocked else 0,
        "machine": describe_machine(survey.to_json()),
        "chain": [chain.to_json() for chain in examination.chains],
        "findings": [asdict(finding) for finding in sort_findings(examination)],
        "probes": {name: asdict(report) for name, report in survey.probes.items()},
    }
    scrubbed: dict[str, Any] = scrub(document, name_secrets((survey.system.hostname,)))
    return scrubbed


def sort_findings(examination: Examination) -> list[Any]:
    """What blocks first, then by weight; among equals as they were found."""
    weights = {"error": 0, "warning": 1, "info": 2}
    return sorted(examination.findings, key=lambda finding: (not finding.blocking, weights[finding.severity]))


def describe_machine(survey: dict[str, Any]) -> dict[str, Any]:
    """What a bug report needs of a machine."""
    cards = (
        "vendor",
        "name",
        "memory_total_bytes",
        "compute_capability",
        "pci_address",
        "driver_version",
        "torch_device",
    )
    return {
        "crosspoint": _own_version(),
        "system": {key: value for key, value in survey["system"].items() if key != "hostname"},
        "cpu": {
            key: survey["cpu"][key]
            for key in ("name", "microarchitecture", "physical_cores", "logical_cores", "usable_cores")
        },
        "memory": {key: survey["memory"][key] for key in ("total_bytes", "available_bytes", "limit_bytes")},
        "accelerators": [{key: card[key] for key in cards} for card in survey["accelerators"]],
        "software": survey["software"],
    }


def _own_version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("crosspoint")
    except PackageNotFoundError:
        return None
