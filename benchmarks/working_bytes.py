"""What libraries take in a process once they work, beyond its base, its tensors and its heap: medians for
app.advisor.memory_model.memory (WORKING_BYTES, CONVOLUTION_BYTES), of networks that no estimate is judged by.

    python -m benchmarks.working_bytes --output working.json                        # half an hour on two cores
    python -m benchmarks.working_bytes --output working.json --truths truths.json   # goes on where it was ended

Networks drawn by another seed than benchmarks.memory draws by, and architectures of transformers that are not among
benchmarks.workloads. What a process took less what is told of it without its libraries is what they took; the constants
of app.advisor.memory_model.memory have no part in it. Memory needs no quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers

from benchmarks.memory import Case, Truths, drawn_cases, read_base, run_case
from benchmarks.output import output_file
from benchmarks.workloads import AUDIO, BERT, CAUSAL, IMAGE, LLAMA, MASKED, SEQ2SEQ, TEXT, Row, transformer
from probes.workload.description import Mode

Document = dict[str, Any]

DRAWN, SEED = 24, 20261129
SIZES = (1, 8)
MODES: tuple[Mode, ...] = ("training", "inference")
# Of small sizes, as benchmarks.workloads has its own.
CONFIGS: tuple[tuple[str, Document], ...] = (
    ("text", transformer("xlm-roberta", TEXT, 64, **BERT)),
    ("text", transformer("mpnet", MASKED, 96, **BERT, vocab_size=8000)),
    ("causal", transformer("mistral", CAUSAL, 96, **LLAMA)),
    ("causal", transformer("bloom", CAUSAL, 96, hidden_size=256, n_layer=4, n_head=4, vocab_size=8000)),
    ("causal", transformer("phi", CAUSAL, 64, **BERT, vocab_size=8000)),
    ("seq2seq", transformer("mbart", SEQ2SEQ, 64, d_model=192, encoder_layers=3, decoder_layers=3,
                            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=768,
                            decoder_ffn_dim=768, vocab_size=8000)),
    ("vision", transformer("dinov2", IMAGE, hidden_size=192, num_hidden_layers=4, num_attention_heads=3,
                           image_size=112, patch_size=14)),
    ("vision", transformer("regnet", IMAGE, embedding_size=32, hidden_sizes=[64, 128, 256, 512], depths=[1, 1, 2, 1])),
    ("audio", transformer("hubert", AUDIO, hidden_size=192, num_hidden_layers=3, num_attention_heads=4,
                          intermediate_size=768)),
)  # fmt: skip


def config_cases() -> list[Case]:
    rows = [
        Row(model["huggingface"]["model_type"], family, model, SIZES, mode)
        for family, model in CONFIGS
        for mode in MODES
    ]
    return [Case(row, row.workload(), "fp32") for row in rows]


def layer_cases(count: int) -> list[Case]:
    """Drawn networks, in whatever mode they were drawn: in training, and in fp32 in inference, too."""
    drawn = [_in_mode(case, "training") for case in drawn_cases(count, SEED)]
    plain = [case for case in drawn if case.precision == "fp32"]
    return [*drawn, *(_in_mode(case, "inference") for case in plain)]


def _in_mode(case: Case, mode: Mode) -> Case:
    return case._replace(workload=replace(case.workload, mode=mode))


def medians(rows: Sequence[Document]) -> Document:
    """As app.advisor.memory_model.memory has them, in bytes: `working` by kind of model and mode, of networks without
    convolutions; `convolutions`, what those with some take beyond that; None where no row tells. rows: of
    benchmarks.memory."""
    good = [row for row in rows if "failed" not in row]
    plain: dict[str, list[int]] = defaultdict(list)
    for row in good:
        if not row["convolves"]:
            plain[_key(row)].append(row["libraries_bytes"])
    working = {key: round(median(found)) for key, found in sorted(plain.items())}
    beyond = [row["libraries_bytes"] - working[_key(row)] for row in good if row["convolves"] and _key(row) in working]
    counts = {key: len(found) for key, found in sorted(plain.items())}
    return {
        "working": working,
        "convolutions": round(median(beyond)) if beyond else None,
        "rows": {**counts, "convolutions": len(beyond)},
    }


def _key(row: Document) -> str:
    return f"{row['kind']}, {row['mode']}"


def describe_medians(found: Document) -> str:
    """One readable line a constant."""
    told = {**found["working"], "convolutions": found["convolutions"]}
    lines = [
        f"{name}: {'not known' if value is None else f'{value / 1e6:.1f} MB'} ({found['rows'][name]} rows)"
        for name, value in told.items()
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=output_file, required=True)
    parser.add_argument("--random", type=int, default=DRAWN, help=f"how many networks are drawn: {DRAWN}")
    parser.add_argument("--configs", type=int, help="so many of the cases of transformers; all when left out")
    parser.add_argument("--truths", type=Path, help="a file that keeps what real steps took")
    options = parser.parse_args()
    truths, base_bytes = Truths(options.truths), read_base()
    rows: list[Document] = []
    for case in (*config_cases()[: options.configs], *layer_cases(options.random)):
        rows += run_case(case, truths, base_bytes)
        sys.stderr.write(f"{case.row.name}, {case.workload.mode}, {case.precision}: {_said(rows[-1])}\n")
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        document = {**versions, "random": options.random, "seed": SEED, "medians": medians(rows), "rows": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(describe_medians(medians(rows)) + "\n")


def _said(row: Document) -> str:
    return str(row["failed"]) if "failed" in row else f"libraries took {row['libraries_bytes'] / 1e6:.1f} MB"


if __name__ == "__main__":
    main()
