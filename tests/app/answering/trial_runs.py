"""A trial of a plan, and what it finds: what tests of trials stand on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.advisor.environments import KEEP_MEMORY
from app.answering.trials import Trial
from app.answering.variants import environment_here
from app.lab import Lab
from app.settings import Settings
from probes.measurement import Measurement
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, a_survey

MLP = parse_model({"layers": [{"type": "linear", "out": 8}, {"type": "linear", "out": 2}], "input_shape": [4]})
CNN = parse_model(
    {
        "layers": [
            {"type": "conv2d", "out": 4, "kernel": 3},
            {"type": "relu"},
            {"type": "flatten"},
            {"type": "linear", "out": 2},
        ],
        "input_shape": [3, 8, 8],
    }
)
CONFIG = {"model_type": "swin", "image_size": 56, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4]}
SWIN = parse_model({"huggingface": CONFIG, "task": "image-classification"})
KEEPING = replace(ONE, environment=dict(KEEP_MEMORY))
FLUSHING, COMPILED = replace(ONE, flush_denormal=True), replace(ONE, compiled=True)
CHANNELS_LAST = replace(ONE, channels_last=True)

glibc_only = pytest.mark.skipif(environment_here() is None, reason="the C library here is not glibc")


def standing_still() -> float:
    return 0.0


def a_trial(lab: Lab, seconds: float = 60.0, **changes: Any) -> Trial:
    facts: dict[str, Any] = {"step_seconds": 1e-4, "on_turn": lambda fraction, message: None, "clock": standing_still}
    return Trial(
        lab, a_survey(), seconds=seconds, **{"workload": Workload(MLP, 4), "plan": KEEPING, **facts, **changes}
    )


def run(data_dir: Path, program: tuple[str, ...] | None, **changes: Any) -> Measurement | None:
    async def session() -> Measurement | None:
        settings = Settings(data_dir=data_dir)
        lab = Lab(settings) if program is None else Lab(settings, program)
        try:
            return await a_trial(lab, **changes).run()
        finally:
            await lab.close()

    return asyncio.run(session())
