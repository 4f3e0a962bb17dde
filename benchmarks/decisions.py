"""How good are the answers: the plan that `quick` names against the best of a long interleaved measurement of all.

python -m benchmarks.decisions                 ten models, a minute of reference each, results under benchmarks/results
python -m benchmarks.decisions --seconds 20 --models 2

Beside it, what torch does by default (every thread and fp32, or the first GPU; there the better of fp32 and tf32 for a
model with convolutions or recurrent layers), and what `instant` names without measuring this model. A plan's slowdown
is its reference time over the fastest plan's, less one; a plan that does not run is counted as failed, not as slow.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.advisor.plans import candidate_plans, cuda_accelerators
from app.advisor.request import Request
from app.advisor.tried import OUT_OF_TIME
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.output import Unfinished, output_file
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.trace import Trace
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model

RESULTS = Path(__file__).parent / "results"
Say = Callable[[str], None]
Keep = Callable[[list[dict[str, Any]]], None]
Model = tuple[str, Any, int]  # name, as one would write it, batch size


def image_network(width: int) -> dict[str, Any]:
    """Four convolutions with batch norms, two of them around a residual, on 32 x 32 images."""
    block = [{"type": "conv2d", "out": width, "kernel": 3, "padding": 1}, "batch_norm", "relu"]
    return {
        "layers": [
            *block,
            {"type": "residual", "layers": [*block, *block]},
            {"type": "max_pool2d", "kernel": 2},
            *[{"type": "conv2d", "out": 2 * width, "kernel": 3, "padding": 1}, "relu", "global_avg_pool"],
            {"type": "linear", "out": 10},
        ],
        "input_shape": [3, 32, 32],
    }


def dense_network(*sizes: int) -> dict[str, Any]:
    layers: list[Any] = []
    for size in sizes[1:]:
        layers += [{"type": "linear", "out": size}, "relu"]
    return {"layers": layers[:-1], "input_shape": [sizes[0]]}


# Ten models from microseconds to a second a step: where one thread wins, where all do, and where it is close.
MODELS: tuple[Model, ...] = (
    ("iris network", dense_network(4, 10, 3), 120),
    ("digits network", dense_network(784, 128, 10), 64),
    ("wide dense network", dense_network(512, 2048, 2048, 10), 256),
    ("small image network", image_network(16), 16),
    ("image network", image_network(64), 64),
    (
        "one-dimensional convolutions",
        {
            "layers": [
                *[
                    {"type": "conv1d", "out": 64, "kernel": 5, "padding": 2},
                    "relu",
                    {"type": "max_pool1d", "kernel": 2},
                ],
                *[{"type": "conv1d", "out": 128, "kernel": 5, "padding": 2}, "relu", "global_avg_pool"],
                {"type": "linear", "out": 12},
            ],
            "input_shape": [1, 2000],
        },
        32,
    ),
    (
        "text LSTM",
        {
            "layers": [
                {"type": "embedding", "in": 10000, "out": 128},
                {"type": "lstm", "hidden": 128, "output": "last"},
                {"type": "linear", "out": 2},
            ],
            "input_shape": [64],
        },
        32,
    ),
    (
        "small transformer",
        {
            "layers": [
                {"type": "embedding", "in": 5000, "out": 128},
                "position_embedding",
                *[{"type": "transformer_encoder_layer", "heads": 4, "feedforward": 512}] * 2,
                "mean",
                {"type": "linear", "out": 4},
            ],
            "input_shape": [64],
        },
        16,
    ),
    (
        "four BERT layers",
        {
            "huggingface": {
                "model_type": "bert",
                "hidden_size": 256,
                "num_hidden_layers": 4,
                "num_attention_heads": 4,
                "intermediate_size": 1024,
            },
            "task": "text-classification",
            "sequence_length": 64,
        },
        8,
    ),
    (
        "small GPT-2",
        {
            "huggingface": {"model_type": "gpt2", "n_embd": 192, "n_layer": 4, "n_head": 4, "vocab_size": 8000},
            "task": "causal-lm",
            "sequence_length": 128,
        },
        4,
    ),
)


@dataclass(frozen=True, slots=True)
class Decision:
    """One model: what each adviser named, and what every plan took in the reference (seconds, median)."""

    model: str
    batch_size: int
    reference: dict[str, float]
    chosen: dict[str, str | None]
    confidence: dict[str, float | None]

    @property
    def best(self) -> str:
        return min(self.reference, key=lambda label: self.reference[label])

    def slowdown(self, adviser: str) -> float | None:
        """None when the adviser named nothing, or a plan that did not run."""
        seconds = self.reference.get(self.chosen[adviser] or "")
        return None if seconds is None else seconds / self.reference[self.best] - 1

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "batch_size": self.batch_size,
            "best": self.best,
            "reference_seconds": self.reference,
            "chosen": self.chosen,
            "confidence": self.confidence,
            "slowdown": {adviser: self.slowdown(adviser) for adviser in self.chosen},
        }


def default_plan(survey: Survey, plans: Sequence[Plan]) -> Plan:
    """What everybody writes: the first GPU if there is one, else the CPU as torch finds it: fp32, every thread."""
    first_gpu = next((gpu.torch_device for gpu in cuda_accelerators(survey)), None)
    if first_gpu is not None:
        return Plan(first_gpu, "fp32")
    return max((p for p in plans if p.is_cpu and p.precision == "fp32"), key=lambda plan: plan.threads or 0)


# In tf32 unless that is forbidden, where products are not unless it is allowed (torch docs, "CUDA semantics").
KINDS_OF_CUDNN = frozenset({"convolution", "recurrent"})


def in_part_tf32(trace: Trace) -> bool:
    """Whether torch's default is, on a GPU."""
    return any(operation.kind in KINDS_OF_CUDNN for operation in trace.on(cpu=False).operations)


def default_label(default: Plan, seconds: Mapping[str, float], trace: Trace) -> str:
    """Of the plan whose time is taken for the default's; seconds: by label, of what ran. Ours are fp32 throughout or
    tf32 throughout: where the default is between them the better stands for it, and flatters it by the products."""
    if default.is_cpu or not in_part_tf32(trace):
        return default.label
    ran = [plan.label for plan in (default, replace(default, precision="tf32")) if plan.label in seconds]
    return min(ran, key=lambda label: seconds[label], default=default.label)


async def decide(crosspoint: Crosspoint, name: str, document: Any, batch_size: int, seconds: float) -> Decision:
    """Ask `instant` before anything of this model was measured, then `quick`, then measure every plan for long. Raises
    RuntimeError where no plan ran in the end, and as the service does."""
    workload = Workload(parse_model(document), batch_size)
    survey = await crosspoint.survey()
    instant = await crosspoint.recommend(Request(workload, effort="instant"))
    quick = await crosspoint.recommend(Request(workload, effort="quick"))
    plans = candidate_plans(survey, Request(workload))
    reference = await measure_all(crosspoint, workload, plans, seconds)
    if not reference:
        raise RuntimeError("No plan ran in the reference.")
    default = default_label(default_plan(survey, plans), reference, await crosspoint.trace(workload))
    chosen = {adviser: answer.recommended for adviser, answer in (("quick", quick), ("instant", instant))}
    return Decision(
        model=name,
        batch_size=batch_size,
        reference=reference,
        chosen={
            **{adviser: plan.label if plan is not None else None for adviser, plan in chosen.items()},
            "torch default": default,
        },
        confidence={"quick": quick.confidence, "instant": instant.confidence},
    )


async def measure_all(
    crosspoint: Crosspoint, workload: Workload, plans: Sequence[Plan], seconds: float
) -> dict[str, float]:
    """Median seconds by plan. Where the time did not do for every plan, again with twice the time, three times."""
    for patience in (1, 2, 4):
        rows = await crosspoint.measure(
            Request(workload), seconds=patience * seconds, plans=plans, batch_sizes=(workload.batch_size,)
        )
        if not any(OUT_OF_TIME in (row.reason or "").lower() for row in rows):
            break
    return _medians(rows)


def _medians(rows: Sequence[Measurement]) -> dict[str, float]:
    return {row.plan.label: row.step.median for row in rows if row.outcome == "ok" and row.step is not None}


async def decide_each(
    crosspoint: Crosspoint, models: Sequence[Model], seconds: float, say: Say, keep: Keep
) -> tuple[list[Decision], list[dict[str, Any]]]:
    """The decisions, and a row a model: that of one that could not be decided has an `error`, and costs the others
    nothing. keep: told all rows so far, after each model."""
    decisions: list[Decision] = []
    rows: list[dict[str, Any]] = []
    for name, document, batch_size in models:
        try:
            decision = await decide(crosspoint, name, document, batch_size, seconds)
        except Exception as error:  # noqa: BLE001 - a miss is shown, not dropped
            rows.append({"model": name, "batch_size": batch_size, "error": f"{type(error).__name__}: {error}"})
            say(f"{name}, batch {batch_size}: {rows[-1]['error']}")
        else:
            decisions.append(decision)
            rows.append(decision.to_json())
            say(describe(decision))
        keep(rows)
    return decisions, rows


async def run_decisions(seconds: float, models: int, data_dir: Path, say: Say, keep: Keep) -> dict[str, Any]:
    """The document that is kept: every decision, and the mean slowdown of each adviser."""
    async with Crosspoint(Settings.from_environment(data_dir=data_dir, learning=False)) as crosspoint:
        survey = await crosspoint.survey()
        say("calibrating")
        profile = await crosspoint.calibrate("quick")
        decisions, rows = await decide_each(crosspoint, MODELS[:models], seconds, say, keep)
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": profile.machine,
        "software": {"python": platform.python_version(), **profile.software},
        "fingerprint": survey.fingerprint,
        "reference_seconds_a_model": seconds,
        "summary": {adviser: summarise(decisions, adviser) for adviser in ("quick", "instant", "torch default")},
        "decisions": rows,
    }


def summarise(decisions: Sequence[Decision], adviser: str) -> dict[str, Any]:
    """Mean and worst slowdown over the models where the adviser named a plan that ran."""
    found = [slow for decision in decisions if (slow := decision.slowdown(adviser)) is not None]
    return {
        "mean_slowdown": statistics.fmean(found) if found else None,
        "worst_slowdown": max(found, default=None),
        "best_named": sum(decision.chosen[adviser] == decision.best for decision in decisions),
        "named": len(found),
        "models": len(decisions),
    }


def describe(decision: Decision) -> str:
    """One readable line a model."""
    parts = []
    for adviser, label in decision.chosen.items():
        slow = decision.slowdown(adviser)
        parts.append(f"{adviser}: {label or 'nothing'} ({'did not run' if slow is None else f'+{slow:.1%}'})")
    best = f"best: {decision.best}, {decision.reference[decision.best] * 1000:.3g} ms"
    return f"{decision.model}, batch {decision.batch_size}; {best}; {'; '.join(parts)}"


def describe_summary(document: dict[str, Any]) -> str:
    lines = []
    for adviser, row in document["summary"].items():
        mean, worst = row["mean_slowdown"], row["worst_slowdown"]
        figures = (
            "named nothing" if mean is None else f"{mean:.1%} slower than the best on average, {worst:.1%} at worst"
        )
        lines.append(f"{adviser}: {figures}; the best plan itself on {row['best_named']} of {row['models']} models")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a line a model, and write the document. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decisions", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="reference measurement of one model")
    parser.add_argument("--models", type=int, default=len(MODELS), help="how many of the models")
    parser.add_argument("--output", type=output_file, default=RESULTS / "decisions.json")
    chosen = parser.parse_args(arguments)

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    unfinished = Unfinished(chosen.output)
    with tempfile.TemporaryDirectory() as folder:  # a store of its own: nothing measured earlier helps
        document = asyncio.run(run_decisions(chosen.seconds, chosen.models, Path(folder), say, unfinished.keep))
    chosen.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    unfinished.end()
    say(describe_summary(document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
