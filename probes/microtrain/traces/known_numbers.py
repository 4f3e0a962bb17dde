"""What is known of the numbers in a tensor that has none: facts by storage, which views of it share."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from probes.microtrain.traces.number_facts import FILLED, Fact, Filled
from probes.microtrain.traces.number_rules import RULES, SOURCES, Arguments


class KnownNumbers:
    """Facts of storages, forgotten when these die or are written to."""

    def __init__(self) -> None:
        self._facts: dict[int, Fact | None] = {}  # None: they were overwritten, whatever a mark says

    def of(self, tensor: Any) -> Fact | None:
        if not isinstance(tensor, torch.Tensor):
            return None
        place = tensor.untyped_storage()._cdata
        if place not in self._facts and (value := getattr(tensor, FILLED, None)) is not None:
            return Filled(value)
        return self._facts.get(place)

    def learn(self, tensor: torch.Tensor, fact: Fact | None) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._facts:
            weakref.finalize(storage, self._facts.pop, storage._cdata, None)
        self._facts[storage._cdata] = fact

    def learn_marked(self, tensors: Iterable[torch.Tensor]) -> None:
        """Of those that are marked as being one number everywhere."""
        for tensor in tensors:
            if (value := getattr(tensor, FILLED, None)) is not None:
                self.learn(tensor, Filled(value))

    def forget(self, tensor: torch.Tensor) -> None:
        """For its numbers were overwritten."""
        if self.of(tensor) is not None:
            self.learn(tensor, None)

    def follow(
        self, operation: OpOverload, args: Arguments, kwargs: Mapping[str, Any], result: torch.Tensor | None
    ) -> None:
        """What becomes known of a result because of its arguments, and is known no more of what was written to. result:
        None where it is no tensor."""
        rule = RULES.get(operation)
        fact = rule(self, args, result) if rule is not None and result is not None else None
        for tensor in _written_to(operation, args, kwargs):
            self.forget(tensor)
        if fact is not None and result is not None:
            self.learn(result, fact)

    def concerns(self, operation: OpOverload, args: Arguments, kwargs: Mapping[str, Any]) -> bool:
        """Whether something may become known by this operation, or be known no more, so that it is not to be repeated
        blindly."""
        if operation in SOURCES:
            return True
        if any(self.of(tensor) is not None for tensor in _written_to(operation, args, kwargs)):
            return True
        return operation in RULES and any(self.of(arg) is not None for arg in looked_through(args))


def looked_through(args: Arguments) -> Iterator[Any]:
    """Every argument, and what stands in a list of them, as the tensors that are joined do."""
    for arg in args:
        if isinstance(arg, list | tuple):
            yield from arg
        else:
            yield arg


def _written_to(operation: OpOverload, args: Arguments, kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors that an operation writes to, those of a list (`_foreach_add_`) and of `out=` among them."""
    for place, name in _written(operation):
        value = args[place] if place < len(args) else kwargs.get(name)
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, torch.Tensor):
                yield each


@cache
def _written(operation: OpOverload) -> tuple[tuple[int, str], ...]:
    """Places and names of the arguments that an operation writes to."""
    arguments = enumerate(operation._schema.arguments)
    return tuple((i, a.name) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write)
