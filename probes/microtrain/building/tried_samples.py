"""Which of several samples a model takes: tried on fake tensors, which costs no memory and no computing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from probes.microtrain.traces.recording import Recorder

Make = Callable[[int, torch.Generator | None], torch.Tensor]
_BATCH = 2


def first_taken(module: nn.Module, samples: Iterable[dict[str, Make]], task: str = "") -> dict[str, Make] | None:
    """The first of these that the model computes its loss from; None: it takes none of them."""
    return next((makers for makers in samples if _takes(module, makers, task)), None)


def _takes(module: nn.Module, makers: dict[str, Make], task: str) -> bool:
    try:
        with _trying(module):
            batch = {name: make(_BATCH, None) for name, make in makers.items()}
            if task in ("causal-lm", "masked-lm"):
                batch["labels"] = next(iter(batch.values()))
            module(**batch)
    except Exception:  # noqa: BLE001 - whatever a model raises on a shape it does not take
        return False
    return True


def sound_tokens(module: nn.Module, sound: dict[str, Make]) -> int | None:
    """How many tokens' places the sound of one sample takes in a prompt. None: the model does not tell, or does not
    take such sound."""
    features = getattr(module, "get_audio_features", None) or getattr(
        getattr(module, "model", None), "get_audio_features", None
    )
    if features is None:
        return None
    try:
        with _trying(module):
            made = features(**{name: make(_BATCH, None) for name, make in sound.items()}, return_dict=True)
            pieces = made if isinstance(made, torch.Tensor) else made.pooler_output
            pieces = torch.cat(list(pieces)) if isinstance(pieces, list | tuple) else pieces
    except Exception:  # noqa: BLE001 - as above
        return None
    return int(pieces.numel() // pieces.shape[-1] // _BATCH)


@contextmanager
def _trying(module: nn.Module) -> Iterator[None]:
    """As a trace runs it, so that it has the same answers to what hangs on numbers; the module stays as it was."""
    training = module.training
    module.eval()
    try:
        with _fake_mode(module), torch.no_grad(), Recorder():
            yield
    finally:
        module.train(training)


def _fake_mode(module: nn.Module) -> FakeTensorMode:
    """The mode that a fake module was built under, or a new one that takes a real module as it is."""
    first = next(module.parameters(), None)
    return first.fake_mode if isinstance(first, FakeTensor) else FakeTensorMode(allow_non_fake_inputs=True)
