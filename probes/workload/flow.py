"""What flows from one layer to the next, for one sample: a shape, and what its numbers are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from probes.bounds import MAX_DIMENSION, MAX_DIMENSIONS, MAX_ELEMENTS_PER_SAMPLE
from probes.workload.description import InvalidModel


@dataclass(frozen=True, slots=True)
class Flow:
    """shape: without the batch. tokens: whole numbers still to be embedded. channels_first: the classes or features lie
    in the first axis, as convolutions leave them, not in the last, as linear layers do. features_last: they are known
    to lie in the last, as of a sequence; of what comes in nobody knows. trusted: which axis a layer takes is not
    doubted, as of layers that were read before."""

    shape: tuple[int, ...]
    tokens: bool = False
    channels_first: bool = False
    features_last: bool = False
    trusted: bool = False

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def text(self) -> str:
        """The shape as people write it: 3 x 224 x 224."""
        return " x ".join(str(size) for size in self.shape) if self.shape else "a single number"

    def reshaped(
        self, where: str, shape: tuple[int, ...], *, channels_first: bool | None = None, features_last: bool = False
    ) -> Flow:
        """The flow after a layer; without a word of its channels these lie where they did. Raises InvalidModel when the
        new shape is beyond the bounds."""
        check_shape(where, shape)
        first = self.channels_first if channels_first is None else channels_first
        last = features_last or (self.features_last and channels_first is None)
        return replace(self, shape=shape, tokens=False, channels_first=first, features_last=last)


def check_shape(where: str, shape: tuple[int, ...]) -> None:
    """Raises InvalidModel where a tensor for one sample would be empty or beyond MAX_ELEMENTS_PER_SAMPLE."""
    if len(shape) > MAX_DIMENSIONS:
        raise InvalidModel(f"{where} makes {len(shape)} dimensions a sample; at most {MAX_DIMENSIONS} are taken.")
    if any(not 1 <= size <= MAX_DIMENSION for size in shape) or prod(shape) > MAX_ELEMENTS_PER_SAMPLE:
        raise InvalidModel(
            f"{where} makes a tensor of {Flow(shape).text} for one sample, which is empty or beyond "
            f"{MAX_ELEMENTS_PER_SAMPLE} numbers. Look at its sizes and at input_shape."
        )
