"""Whether a model's step can be followed at all, seen before it is taken."""

from __future__ import annotations

from collections.abc import Sequence

from probes.microtrain.building.built import Batch, BuiltModel
from probes.microtrain.failures import NO_SPARSE_GRADIENTS, Untraceable, is_out_of_memory
from probes.microtrain.feeding import tensors_in
from probes.microtrain.step import UnsupportedWorkload
from probes.microtrain.traces.sparse_states import has_sparse_gradients
from probes.workload.description import InvalidModel, OptimizerName, Workload

# What a trace runs for real where no batch of two can be made: multiples of 4, 8 and 16.
OTHER_REAL_SIZES = (20, 24, 80)

_TAKE_NO_SPARSE_GRADIENTS: tuple[OptimizerName, ...] = ("adam", "adamw", "rmsprop")  # torch.optim, 2.13
# So few that lengths of their own show, so many times that they are no one length by chance.
_SAMPLES, _DRAWN_BATCHES = 2, 3


def check_traceable(workload: Workload, built: BuiltModel, batch_size: int) -> None:
    """Raises Untraceable, and UnsupportedWorkload where this optimizer cannot step this model anywhere. batch_size:
    that is traced first."""
    if workload.mode == "training" and has_sparse_gradients(built.module):
        raise _sparse_gradients(workload.optimizer)
    if workload.model.kind == "python":
        _check_shapes(built, batch_size)


def first_made(built: BuiltModel, batch_sizes: Sequence[int]) -> tuple[int, Batch]:
    """The first of these sizes of which a batch can be made, with the batch: what a user's own function cannot make of
    a size that nobody asked for is no matter, as where it makes multiples of 8. Raises what it does at the last."""
    *others, last = batch_sizes
    for size in others:
        try:
            return size, built.make_batch(size, None)
        except InvalidModel:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise
    return last, built.make_batch(last, None)


def _sparse_gradients(optimizer: OptimizerName) -> Exception:
    if optimizer in _TAKE_NO_SPARSE_GRADIENTS:
        return UnsupportedWorkload(NO_SPARSE_GRADIENTS)
    return Untraceable(
        "This model has sparse gradients (embeddings with sparse=True), which hold only the rows that a batch looks "
        "up, and a trace cannot follow them. Measure it instead (effort quick); with sparse=False it can be traced."
    )


def _check_shapes(built: BuiltModel, batch_size: int) -> None:
    """Of batches of one size. Lengths that chance decides would be taken for what the batch size does."""
    size, first = first_made(built, (_SAMPLES, batch_size))
    batches = [first, *(built.make_batch(size, None) for _ in range(_DRAWN_BATCHES - 1))]
    if len({tuple(tuple(tensor.shape) for tensor in tensors_in(batch)) for batch in batches}) > 1:
        raise Untraceable(
            "Batches of one size come in several shapes, as where samples are padded to the longest of them, "
            "and a trace would take that for the work of more samples. Give all batches one usual length, or measure "
            "the model instead (effort quick)."
        )
