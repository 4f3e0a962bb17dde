"""The process that traces is started with what its first job needs."""

from __future__ import annotations

import asyncio
from typing import Any

from app.lab.tracer import Tracer
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.lab.programs import serving

ARGUMENTS = serving('say(event="result", job=job["job"], result={"arguments": sys.argv[1:]})')
LAYERS = {"layers": [{"type": "linear", "out": 2}], "input_shape": [4]}
BERT = {"huggingface": {"model_type": "bert"}, "task": "text-classification", "sequence_length": 8}


def arguments_for(model: Any) -> list[str]:
    async def use() -> list[str]:
        tracer = Tracer(60.0, set(), ARGUMENTS)
        try:
            workload = Workload(parse_model(model), 1)
            answer = await tracer.run({"kind": "trace", "workload": workload.to_json()})
        finally:
            await tracer.close()
        return list(answer["arguments"])

    return asyncio.run(use())


def test_a_config_is_traced_by_two_processes_and_a_layer_list_by_one() -> None:
    assert arguments_for(BERT)[:2] == ["--forks", "--configs"]
    assert "--forks" not in arguments_for(LAYERS)
