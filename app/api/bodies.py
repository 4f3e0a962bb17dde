"""What may be in a request's body, field by field; also the source of the API's description. What a field says nothing
of is what it is in a Workload or a Plan (app.api.schemas)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.advisor.request import Request
from probes import bounds
from probes.workload.description import Data, Mode, OptimizerName, Plan, Precision, Workload
from probes.workload.models import parse_model

Count = Annotated[int, Field(strict=True, ge=1)]
BatchSize = Annotated[int, Field(strict=True, ge=1, le=bounds.MAX_BATCH_SIZE)]
Device = Annotated[str, Field(min_length=1, max_length=bounds.MAX_NAME_CHARACTERS)]
ProfileName = Annotated[str, Field(min_length=1, max_length=bounds.MAX_NAME_CHARACTERS)]
Seconds = Annotated[float, Field(gt=0, le=bounds.MAX_TIME_LIMIT_SECONDS, allow_inf_nan=False)]

# A measurement's plans and batch sizes: enough for every thread count and precision of a large machine.
MAX_PLANS = 64
MAX_BATCH_SIZES = 16


class Body(BaseModel):
    """Nothing is converted and nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Dataset(Body):
    """What a whole run goes over: how long that takes, what resident data take of memory, whether a start is repaid."""

    samples: Annotated[int, Field(ge=1, le=bounds.MAX_DATASET_SAMPLES, description="Rows in the training set.")]
    epochs: Annotated[int, Field(ge=1, le=bounds.MAX_EPOCHS)] | None = Field(
        None, description="Passes over it; null: one."
    )


class WorkloadBody(Body):
    """A model and how it is trained."""

    model: str | dict[str, Any] = Field(
        description="A name that GET /models lists, or an object with `layers` and `input_shape`, with `huggingface` "
        "(the content of a config.json), `task` and `sequence_length`, or with a `summary`."
    )
    batch_size: BatchSize
    mode: Mode = "training"
    optimizer: OptimizerName = "adamw"
    data: Data = "pageable"
    log_every: Annotated[int, Field(ge=1, le=bounds.MAX_LOG_EVERY)] | None = None
    dataset: Dataset | None = Field(None, description="What a whole run goes over; null: not told.")
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = Field(
        "auto", description="auto: each that a device has; else that one alone, as a plan's `precision`."
    )
    devices: list[Device] = Field(
        default=[], max_length=bounds.MAX_DEVICES, description="cpu, cuda:0, …, or cuda for every one; empty: all."
    )

    def workload(self) -> Workload:
        """Raises InvalidModel. Takes milliseconds, up to a second for the largest description: not for the loop."""
        return Workload(
            model=parse_model(self.model),
            batch_size=self.batch_size,
            mode=self.mode,
            optimizer=self.optimizer,
            data=self.data,
            log_every=self.log_every,
            dataset_samples=self.dataset.samples if self.dataset else None,
            epochs=self.dataset.epochs if self.dataset else None,
        )

    def request(self) -> Request:
        """Raises InvalidModel and InvalidRequest."""
        return Request(self.workload(), precision=self.precision, devices=tuple(self.devices))


class RecommendBody(WorkloadBody):
    """A question: where and how to train this."""

    effort: Literal["instant", "quick", "thorough"] = Field(
        "instant", description="instant: nothing is measured; quick: up to 10 s of real steps; thorough: up to 60 s."
    )
    time_limit_seconds: Seconds | None = Field(
        None,
        description="Of measuring, below what the effort allows; a first step that has begun is waited for, up to 30 s "
        "more. Not with instant, which measures nothing.",
    )
    profile: ProfileName | None = Field(None, description="The name of another machine's profile.")

    def request(self) -> Request:
        return Request(
            self.workload(),
            precision=self.precision,
            devices=tuple(self.devices),
            effort=self.effort,
            time_limit_seconds=self.time_limit_seconds,
            profile=self.profile,
        )


class PlanBody(Body):
    """A way to run a workload. Its environment is not for others to choose: it decides what code is loaded."""

    device: Device
    precision: Precision = "fp32"
    threads: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        None, description="On the CPU; none: all that may be used."
    )

    def plan(self) -> Plan:
        return Plan(self.device, self.precision, self.threads)


class MeasurementBody(WorkloadBody):
    """Real steps to run."""

    plans: list[PlanBody] = Field(default=[], max_length=MAX_PLANS, description="Empty: every sensible one here.")
    batch_sizes: list[BatchSize] = Field(
        default=[], max_length=MAX_BATCH_SIZES, description="Empty: the workload's own."
    )
    seconds: Seconds = Field(10.0, description="Time to spend.")


class CalibrationBody(Body):
    """A calibration to run."""

    effort: Literal["quick", "full"] = Field("quick", description="quick: within 30 s; full: within 60 s.")
    devices: list[Device] = Field(
        default=[], max_length=bounds.MAX_DEVICES, description="Empty: the CPU and one card of each kind."
    )
    name: ProfileName | None = Field(
        None,
        description="The profile's name; left out: the host's, with a number behind it where another machine's profile "
        "is called so.",
    )
