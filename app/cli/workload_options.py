"""The options that describe a workload and a request, shared by `recommend` and `measure`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from app.cli.model_argument import read_model
from probes import bounds
from probes.workload.description import DATA, MODES, OPTIMIZERS, PRECISIONS, Workload

if TYPE_CHECKING:
    from app.advisor.request import Request

Command = TypeVar("Command", bound=Callable[..., Any])

# As in app.advisor.request, which brings the whole advisor along: --help would wait for it. A test holds them equal.
EFFORTS = ("instant", "quick", "thorough")
PRECISION_CHOICES = ("auto", *PRECISIONS)

DEFAULT_BATCH_SIZE = 32  # what torch and Hugging Face examples begin with; said in the help

WORKLOAD_OPTIONS = (
    click.option(
        "-b",
        "--batch-size",
        type=click.IntRange(1, bounds.MAX_BATCH_SIZE),
        default=DEFAULT_BATCH_SIZE,
        show_default=True,
        help="Samples a step.",
    ),
    click.option("--mode", type=click.Choice(MODES), default="training", show_default=True),
    click.option("--optimizer", type=click.Choice(OPTIMIZERS), default="adamw", show_default=True),
    click.option(
        "--data",
        type=click.Choice(DATA),
        default="pageable",
        show_default=True,
        help="How a batch reaches the device.",
    ),
    click.option(
        "--log-every",
        type=click.IntRange(1, bounds.MAX_LOG_EVERY),
        help="Steps between two readings of the loss with .item(); never when left out.",
    ),
    click.option(
        "--precision",
        type=click.Choice(PRECISION_CHOICES),
        default="auto",
        show_default=True,
        help="auto looks at every precision that makes sense.",
    ),
    click.option(
        "--device",
        "devices",
        multiple=True,
        metavar="DEVICE",
        help="cpu, cuda:0, …, or cuda for every CUDA device; repeatable. Every device when left out.",
    ),
    click.option("--dataset-samples", type=click.IntRange(1, bounds.MAX_DATASET_SAMPLES), help="Rows to train on."),
    click.option("--epochs", type=click.IntRange(1, bounds.MAX_EPOCHS), help="Passes over them."),
    click.option("--task", help="What a Hugging Face model is trained for, as in text-classification."),
    click.option(
        "--sequence-length",
        type=click.IntRange(1, bounds.MAX_SEQUENCE_LENGTH),
        help="Tokens a sample, for a Hugging Face model.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else."),
)


def with_workload_options(command: Command) -> Command:
    """Add MODEL and every workload option, in the order in which help lists them."""
    for option in reversed(WORKLOAD_OPTIONS):
        command = option(command)
    return click.argument("model")(command)


def make_request(options: dict[str, Any], **more: Any) -> Request:
    """Build the request from a command's parsed options. Raises InvalidModel, InvalidRequest or CommandFailed."""
    from app.advisor.request import Request

    _check_devices(options["devices"])
    if options["epochs"] and not options["dataset_samples"]:
        raise click.UsageError("--epochs are passes over a data set: say with --dataset-samples how many rows it has.")
    workload = Workload(
        model=read_model(options["model"], options["task"], options["sequence_length"]),
        batch_size=options["batch_size"],
        mode=options["mode"],
        optimizer=options["optimizer"],
        data=options["data"],
        log_every=options["log_every"],
        dataset_samples=options["dataset_samples"],
        epochs=options["epochs"],
    )
    return Request(workload, precision=options["precision"], devices=tuple(options["devices"]), **more)


def _check_devices(devices: tuple[str, ...]) -> None:
    if len(devices) > bounds.MAX_DEVICES:
        raise click.UsageError(f"More than {bounds.MAX_DEVICES} devices were named.")
