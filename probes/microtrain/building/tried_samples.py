"""Which of several samples a model takes: tried on fake tensors, which costs no memory and no computing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from probes.microtrain.building.fake_models import fake_copy
from probes.microtrain.building.makers import Make
from probes.microtrain.building.remembered_tensors import forget_tensors
from probes.microtrain.traces.recording import Recorder

_BATCH = 2


class Asked:
    """A copy of a module that is asked what it takes, in eval mode and on the CPU: so the answer is the same wherever
    the module's weights lie, and what a model keeps of a call (tables of positions) is kept neither by the module nor
    by its functions."""

    def __init__(self, module: nn.Module) -> None:
        self._mode = _fake_mode(module)
        self._copy = fake_copy(module, self._mode).eval()

    def first_taken(self, samples: Iterable[dict[str, Make]], task: str = "") -> dict[str, Make] | None:
        """The first of these that the model computes its loss from; None: it takes none of them."""
        return next((makers for makers in samples if self._takes(makers, task)), None)

    def sound_tokens(self, sound: dict[str, Make]) -> int | None:
        """How many tokens' places the sound of one sample takes in a prompt. None: the model does not tell, or does
        not take such sound."""
        features = getattr(self._copy, "get_audio_features", None) or getattr(
            getattr(self._copy, "model", None), "get_audio_features", None
        )
        if features is None:
            return None
        try:
            with self._trying():
                made = features(**{name: make(_BATCH, None) for name, make in sound.items()}, return_dict=True)
                pieces = made if isinstance(made, torch.Tensor) else made.pooler_output
                pieces = torch.cat(list(pieces)) if isinstance(pieces, list | tuple) else pieces
        except Exception:  # noqa: BLE001 - whatever a model raises on sound that it does not take
            return None
        return int(pieces.numel() // pieces.shape[-1] // _BATCH)

    def _takes(self, makers: dict[str, Make], task: str) -> bool:
        try:
            with self._trying():
                batch = {name: make(_BATCH, None) for name, make in makers.items()}
                if task in ("causal-lm", "masked-lm"):
                    batch["labels"] = next(iter(batch.values()))
                self._copy(**batch)
        except Exception:  # noqa: BLE001 - whatever a model raises on a shape it does not take
            return False
        return True

    @contextmanager
    def _trying(self) -> Iterator[None]:
        """As a trace runs it, so that it has the same answers to what hangs on numbers."""
        try:
            with self._mode, torch.no_grad(), Recorder():
                yield
        finally:
            forget_tensors()


def _fake_mode(module: nn.Module) -> FakeTensorMode:
    """The mode that a fake module was built under, or a new one that takes what else is real in a module as it is."""
    first = next(module.parameters(), None)
    return first.fake_mode if isinstance(first, FakeTensor) else FakeTensorMode(allow_non_fake_inputs=True)
