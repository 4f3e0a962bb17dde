"""How many of transformers' architectures are traced, and why the others are not.

    python -m benchmarks.traces --output traces.json                  # every model type and task
    python -m benchmarks.traces --output traces.json --whole          # and each with all of its layers
    python -m benchmarks.traces --output traces.json --types bert t5  # these only
    python -m benchmarks.traces --output traces.json --again          # those of the file that were not traced

Each is traced as the service does it, in the tracing process and within its deadline, with the config's own sizes but
few layers, which takes half an hour for all; where that fails, with all layers. What comes of all layers is also asked
for the first task of each model type (`own_sizes` of a row), or with --whole for every one: a user's config has them
all. The process has a limit of memory. No quiet machine is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from app.lab.tracer import TRACE_SECONDS
from benchmarks.measuring_child import Child
from benchmarks.output import output_file
from probes.workload.architectures import read_architectures
from probes.workload.description import InvalidModel, Workload
from probes.workload.models import parse_model

Document = dict[str, Any]

MEMORY_BYTES = 6 * 2**30  # private memory of the tracing process, libraries included
FEW = 2  # layers: enough that one follows another
FEW_LAYERS, OWN_SIZES = "few layers", "default"  # what a row says was traced
# What configs call the number of their layers.
LAYER_COUNTS = (
    "num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers",
    "num_encoder_layers", "num_decoder_layers", "encoder_num_hidden_layers", "decoder_num_hidden_layers",
)  # fmt: skip
# What a config's class leaves open and every published config.json of its kind states.
KINDS = ("full_attention", "sliding_attention")
SUPPLIED: dict[str, Document] = {
    "bamba": {"attn_layer_indices": [0]},
    "beit": {"out_indices": [3, 5, 7, 11], "use_relative_position_bias": True},
    "blt": {"use_cache": False},
    "cohere_compass_text": {"rope_parameters": {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in KINDS}},
    "data2vec-vision": {"use_relative_position_bias": True},
    "dbrx": {"attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 5e5}},
    "deepseek_v2": {"num_experts_per_tok": 6, "n_routed_experts": 16, "topk_group": 1, "n_group": 1},
    "dots1": {"n_routed_experts": 16, "num_experts_per_tok": 6, "n_shared_experts": 2},
    "esm": {"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1},
    "granite_speech": {"projector_config": {"model_type": "blip_2_qformer", "encoder_hidden_size": 1024}},
    "granite_speech_plus": {"projector_config": {"model_type": "blip_2_qformer", "encoder_hidden_size": 1024}},
    "granitemoehybrid": {"layer_types": ["attention", "mamba"], "num_hidden_layers": 2},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "ministral": {"head_dim": 128},
    "moonshine_streaming": {"num_key_value_heads": 8},
    "nemotron": {"num_key_value_heads": 8},
    "reformer": {"is_decoder": True, "axial_pos_shape": [8, 16]},
    "voxtral": {"audio_token_id": 24},
    "wav2vec2-bert": {"vocab_size": 32},
    "wav2vec2-conformer": {"vocab_size": 32},
    "xlstm": {"mode": "train"},
}
# What hangs on the task, too.
SUPPLIED_FOR: dict[tuple[str, str], Document] = {("reformer", "masked-lm"): {"is_decoder": False}}


class Case(NamedTuple):
    model_type: str
    task: str


def all_cases(types: list[str], tasks: list[str]) -> list[Case]:
    known = read_architectures()
    return [
        Case(name, task)
        for name in known.trainable_types()
        for task in known.tasks(name)
        if (not types or name in types) and (not tasks or task in tasks)
    ]


def configs_of(model_type: str, task: str = "") -> Iterator[tuple[str, Document]]:
    """The configs to try: few layers where the class says more, then as it has them."""
    supplied = {**SUPPLIED.get(model_type, {}), **SUPPLIED_FOR.get((model_type, task), {})}
    whole = {"model_type": model_type, **supplied}
    few = fewer_layers(default_config(model_type))
    if few:
        yield FEW_LAYERS, merged(whole, few)
    yield OWN_SIZES, whole


def merged(one: Document, other: Document) -> Document:
    """The second over the first, in nested configs too."""
    both = {key for key in one.keys() & other.keys() if isinstance(one[key], dict) and isinstance(other[key], dict)}
    return {**one, **other, **{key: merged(one[key], other[key]) for key in both}}


def default_config(model_type: str) -> Document:
    """What the config's class says; empty when it says nothing without being told something."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    transformers.logging.set_verbosity_error()
    try:
        return dict(transformers.AutoConfig.for_model(model_type).to_dict())
    except Exception:  # noqa: BLE001 - a config class may raise anything; the tracing process will say what
        return {}


def fewer_layers(config: Document) -> Document:
    """The overrides that leave few layers, in nested configs too."""
    few: Document = {}
    for key, value in config.items():
        if key in LAYER_COUNTS and isinstance(value, int) and value > FEW:
            few[key] = FEW
        elif isinstance(value, dict) and key.endswith("_config") and (inner := fewer_layers(value)):
            few[key] = {"model_type": value["model_type"], **inner} if value.get("model_type") else inner
    return few


def trace_case(child: Child, case: Case, *, ask_whole: bool) -> Document:
    """A row of the table: by the first config that traces, or the last. ask_whole: all layers as well, in any case."""
    tries: dict[str, Document] = {}
    for sizes, config in configs_of(case.model_type, case.task):
        if ask_whole or not any(row["outcome"] == "traced" for row in tries.values()):
            before = time.monotonic()
            tries[sizes] = _try(child, config, case.task)
            tries[sizes]["seconds"] = round(time.monotonic() - before, 2)
    return describe_tries(case, tries)


def describe_tries(case: Case, tries: dict[str, Document]) -> Document:
    """own_sizes: what came of all layers; None where that was not asked."""
    sizes = next((name for name, row in tries.items() if row["outcome"] == "traced"), list(tries)[-1])
    return {**case._asdict(), "sizes": sizes, **tries[sizes], "own_sizes": tries.get(OWN_SIZES)}


def _try(child: Child, config: Document, task: str) -> Document:
    try:
        workload = Workload(parse_model({"huggingface": config, "task": task}), 4)
    except InvalidModel as error:
        return {"outcome": "refused", "code": "invalid-model", "reason": str(error)}
    event = child.run({"kind": "trace", "workload": workload.to_json()}, TRACE_SECONDS)
    if event["event"] == "result":
        trace = event["result"]
        return {"outcome": "traced", "parameters": trace["parameters"], "operations": len(trace["operations"])}
    refused = event["code"] in ("invalid-model", "unsupported")
    return {"outcome": "refused" if refused else "failed", "code": event["code"], "reason": event["reason"]}


def traced_before(output: Path) -> list[Document]:
    rows = json.loads(output.read_text(encoding="utf-8"))["rows"] if output.exists() else []
    return [row for row in rows if row["outcome"] == "traced"]


def summarize(rows: list[Document]) -> Document:
    """Counts by task and outcome, by which sizes traced and what came of all layers where that was asked, and the model
    types that no task traces."""
    tasks = dict.fromkeys(row["task"] for row in rows)
    traced = {row["model_type"] for row in rows if row["outcome"] == "traced"}
    return {
        "by_task": {task: dict(Counter(row["outcome"] for row in rows if row["task"] == task)) for task in tasks},
        "all": dict(Counter(row["outcome"] for row in rows)),
        "sizes": dict(Counter(row["sizes"] for row in rows if row["outcome"] == "traced")),
        "own_sizes": dict(Counter(row["own_sizes"]["outcome"] for row in rows if row.get("own_sizes"))),
        "model_types": len({row["model_type"] for row in rows}),
        "model_types_untraced": sorted({row["model_type"] for row in rows} - traced),
    }


def main() -> None:
    import torch
    import transformers

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=output_file, required=True)
    parser.add_argument("--types", nargs="*", default=[], help="model types; all when left out")
    parser.add_argument("--tasks", nargs="*", default=[], help="tasks; all when left out")
    parser.add_argument("--again", action="store_true", help="only what the output file has as not traced")
    parser.add_argument("--whole", action="store_true", help="ask for all layers of every one, not of one task a type")
    options = parser.parse_args()
    child, rows = Child(MEMORY_BYTES, quiet=True), traced_before(options.output) if options.again else []
    cases = all_cases(options.types, options.tasks)
    first = {case.model_type: case for case in reversed(cases)}
    done = {(row["model_type"], row["task"]) for row in rows}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    try:
        for case in cases:
            if case in done:
                continue
            row = trace_case(child, case, ask_whole=options.whole or case == first[case.model_type])
            rows.append(row)
            sys.stderr.write(f"{case.model_type} {case.task}: {row['outcome']} {row.get('reason', '')}\n")
            rows.sort(key=lambda row: (row["model_type"], row["task"]))
            document = {"versions": versions, "summary": summarize(rows), "rows": rows}
            options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    finally:
        child.end()


if __name__ == "__main__":
    main()
