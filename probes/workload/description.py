"""Words for what is to be trained and how: workload and plan.

Pure and free of torch, so that the service and the micro-training share one definition. A workload here has been
checked: `parse_model` (probes.workload.models) turns what a user wrote into a ModelDescription or raises
InvalidModel with a sentence that helps.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

Mode = Literal["training", "inference"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Data = Literal["resident", "pageable", "pinned"]
OptimizerName = Literal["sgd", "sgd-momentum", "adam", "adamw", "rmsprop", "adagrad"]

MODES: tuple[Mode, ...] = get_args(Mode)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
DATA: tuple[Data, ...] = get_args(Data)
OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)


# A plan's changes to how torch runs a model, as people read them.
PLAN_CHANGES = {"channels_last": "channels-last", "compiled": "compiled", "flush_denormal": "denormals flushed"}
# The variables that a plan's environment may have, each with a pattern of what it may be: when glibc gives memory back,
# in bytes (mallopt(3)). A plan without them runs without them, whoever's shell has them set. No other is taken from a
# profile: answers tell people to set what a plan has, and many a variable chooses which code is run.
PLAN_VARIABLES: Mapping[str, str] = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), "[0-9]{1,19}")


class InvalidModel(ValueError):
    """A model description that cannot be used. The message is for the person who wrote it: what is wrong, where
    in their own words (`layers[3]`), what to do. It never repeats input longer than a name."""

    def __init__(self, message: str, suggestions: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.suggestions = suggestions


@dataclass(frozen=True)
class ModelDescription:
    """A checked, resolved model.

    kind: `layers`, `huggingface`, `summary` or `python`. content: the canonical JSON of that kind (a catalogue
    name is resolved to its row's content). name: what to call it when speaking. version: of the code that makes it,
    where that is not ours: transformers' version, or what tells one's own source from another
    (probes.workload.python_sources). written: the layers of a `layers` model as somebody wrote them, with sizes left to
    what comes in, of which a wider one makes others; None of one that was sent to another process, which needs no more
    than the content.
    """

    kind: Literal["layers", "huggingface", "summary", "python"]
    name: str
    content: dict[str, Any]
    version: str = ""
    written: list[Any] | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> str:
        """Content address: equal descriptions have equal keys, whatever they are called."""
        content = _written_one_way(self.content) if self.kind == "huggingface" else self.content
        named = [self.kind, content, *([self.version] if self.version else [])]
        canonical = json.dumps(named, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:32]

    def to_json(self) -> dict[str, Any]:
        document = asdict(replace(self, written=None))
        del document["written"]
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> ModelDescription:
        return cls(document["kind"], document["name"], document["content"], document.get("version", ""))


def _written_one_way(content: Any) -> Any:
    """A config of which 1 and 1.0 are one content: JSON that was read and written anew may have lost the ".0". Layers
    and summaries are checked number by number, and have one way already."""
    if isinstance(content, dict):
        return {name: _written_one_way(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_written_one_way(value) for value in content]
    return int(content) if isinstance(content, float) and content.is_integer() else content


@dataclass(frozen=True)
class Workload:
    """Model, batch size, mode and optimizer, with how data arrives and how often the loss is read. dataset_samples and
    epochs serve to say what a whole run takes, and the first how much memory `resident` data take."""

    model: ModelDescription
    """What is trained."""
    batch_size: int
    """Of each step."""
    mode: Mode = "training"
    """training: a step is forward, loss, backward and optimizer; inference: the forward alone, in eval mode."""
    optimizer: OptimizerName = "adamw"
    """torch's own, with its defaults; sgd-momentum is SGD with momentum 0.9. In inference it counts for nothing."""
    data: Data = "pageable"
    """How a batch reaches the device: resident (already there), pageable (copied from ordinary memory) or pinned
    (copied from pinned memory, while the step before runs)."""
    log_every: int | None = None
    """Steps between two readings of the loss with `.item()`; None: never."""
    dataset_samples: int | None = None
    """Rows in the training set; None: not told."""
    epochs: int | None = None
    """Passes over it; None: one."""

    @property
    def steps(self) -> int | None:
        """Of the whole run, one epoch unless more were asked for; None where nobody told how much data there is."""
        if self.dataset_samples is None:
            return None
        return math.ceil(self.dataset_samples / self.batch_size) * (self.epochs or 1)

    @property
    def readings_every(self) -> int | None:
        """Steps between two readings of the loss; None where none is read, as in inference, which has no loss."""
        return self.log_every if self.mode == "training" else None

    @property
    def stepped_by(self) -> OptimizerName:
        """The optimizer; in inference, where there is none, the same whatever was asked for."""
        return self.optimizer if self.mode == "training" else "adamw"

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "model": self.model.to_json()}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Workload:
        """Raises KeyError or TypeError when the document is not a workload."""
        values = dict(document)
        values["model"] = ModelDescription.from_json(values["model"])
        return cls(**values)


@dataclass(frozen=True)
class Plan:
    """A way to run a workload."""

    device: str
    """cpu, or torch's name of a card, as cuda:0."""
    precision: Precision = "fp32"
    """fp32; tf32: fp32 whose products the card's tensor cores take in TF32; bf16, fp16: under autocast, fp16 with a
    gradient scaler."""
    threads: int | None = None
    """CPU threads; None on another device."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables to set before torch is imported; {}: none."""
    channels_last: bool = False
    """The model's images lie in memory channel by channel of each pixel (torch.channels_last)."""
    compiled: bool = False
    """The model is called through torch.compile, with its defaults."""
    flush_denormal: bool = False
    """Numbers too small for a full fraction count as 0 (torch.set_flush_denormal)."""

    @property
    def is_cpu(self) -> bool:
        return self.device == "cpu"

    @property
    def label(self) -> str:
        """For people: `cpu fp32, 2 threads`, and what else is set where something is."""
        threads = "" if self.threads is None else f", {self.threads} thread{'s' if self.threads != 1 else ''}"
        environment = "".join(f" {name}={value}" for name, value in sorted(self.environment.items()))
        changes = "".join(f", {PLAN_CHANGES[name]}" for name in self.changes)
        return f"{self.device} {self.precision}{threads}{changes}{environment}"

    @property
    def changes(self) -> tuple[str, ...]:
        """The fields, in the order of PLAN_CHANGES, in which it differs from how torch runs a model unasked."""
        return tuple(name for name in PLAN_CHANGES if getattr(self, name))

    @property
    def key(self) -> tuple[Any, ...]:
        """Hashable identity."""
        environment = tuple(sorted(self.environment.items()))
        changes = (self.channels_last, self.compiled, self.flush_denormal)
        return (self.device, self.precision, self.threads, environment, *changes)

    def to_json(self) -> dict[str, Any]:
        """Changes stand there only where they are true."""
        document = {
            "device": self.device,
            "precision": self.precision,
            "threads": self.threads,
            "environment": dict(self.environment),
        }
        return {**document, **dict.fromkeys(self.changes, True)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Plan:
        return cls(
            document["device"],
            document.get("precision", "fp32"),
            document.get("threads"),
            dict(document.get("environment") or {}),
            **{name: document.get(name) is True for name in PLAN_CHANGES},
        )
