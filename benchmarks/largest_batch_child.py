"""One process under a memory limit: does a batch size run, or what does Lightning's batch-size finder find?

Reads one JSON document from standard input, `{"workload", "limit_bytes", "threads", "task"}`, with `"task": "fits"` and
a `batch_size`, or `"task": "lightning"`. Writes one to standard output: `{"fits", "reason"}`, or `{"batch_size",
"seconds", "error"}`. The limit is on private writable memory (RLIMIT_DATA), counted from what the process holds
resident once its model is built: what goes beyond it fails as an allocation, which the finder takes for out of memory.
Lightning is imported in either task, after that was read and before the limit is set: what its code takes is taken from
neither.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from probes.microtrain.building.built import BuiltModel
from probes.microtrain.models import build_model
from probes.microtrain.processes.footprint import limited_to, read_resident_bytes
from probes.microtrain.step import make_step
from probes.workload.description import Plan, Workload

STEPS = 3  # as many as the finder tries
ONEDNN_OUT_OF_MEMORY = ("could not create a", "could not execute a", "bad_alloc")


def fits(workload: Workload, built: BuiltModel, batch_size: int) -> dict[str, Any]:
    try:
        step = make_step(
            built,
            [built.batch_for(workload.mode, batch_size)],
            Plan("cpu"),
            mode=workload.mode,
            optimizer=workload.optimizer,
            data="resident",
        )
        for _ in range(STEPS):
            step()
    except (RuntimeError, MemoryError) as error:
        return {"fits": False, "reason": str(error)[:200]}
    return {"fits": True, "reason": None}


@contextlib.contextmanager
def known_as_out_of_memory() -> Iterator[None]:
    """oneDNN has words of its own when memory runs out, with which the finder would end; it knows torch's."""
    try:
        yield
    except RuntimeError as error:
        if any(word in str(error) for word in ONEDNN_OUT_OF_MEMORY):
            raise RuntimeError(f"DefaultCPUAllocator: can't allocate memory: {error}") from error
        raise


def import_lightning() -> None:
    """Where it is installed; without it the finder's task fails by itself."""
    with contextlib.suppress(ImportError):
        import pytorch_lightning.tuner  # noqa: F401


def find_with_lightning(built: BuiltModel) -> dict[str, Any]:
    """By its rule: double the batch while three steps run, then bisect. Its own defaults otherwise."""
    import pytorch_lightning as lightning
    from pytorch_lightning.tuner import Tuner

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")

    class Batches(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            while True:
                yield built.make_batch(model.batch_size, None)

    class Model(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.batch_size = 2
            self.network = built.module

        def training_step(self, batch: Any, _place: int) -> torch.Tensor:
            with known_as_out_of_memory():
                return built.loss(built.forward(self.network, batch), batch)

        def backward(self, loss: torch.Tensor) -> None:
            with known_as_out_of_memory():
                loss.backward()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.network.parameters())

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(Batches(), batch_size=None)

    model = Model()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(accelerator="cpu", enable_checkpointing=False, default_root_dir=folder, **quiet)
        try:
            found, error = Tuner(trainer).scale_batch_size(model, mode="binsearch"), None
        except (RuntimeError, MemoryError) as caught:  # an out-of-memory that it does not know as one
            found, error = None, str(caught)[:200]
    return {"batch_size": found, "seconds": time.perf_counter() - begun, "error": error}


def main() -> None:
    job = json.loads(sys.stdin.read())
    workload = Workload.from_json(job["workload"])
    torch.set_num_threads(job["threads"])
    built = build_model(workload.model)
    built.module.train()
    room = job["limit_bytes"] - (read_resident_bytes() or 0)
    import_lightning()
    with limited_to(room):
        is_trial = job["task"] == "fits"
        answer = fits(workload, built, job["batch_size"]) if is_trial else find_with_lightning(built)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
