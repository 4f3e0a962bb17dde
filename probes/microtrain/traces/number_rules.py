"""What becomes known of a result because of what is known of its arguments, by operation."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch._ops import OpOverload

from probes.microtrain.traces.asking import is_answered_as_usual, is_asked_by_a_library
from probes.microtrain.traces.number_facts import (
    COUNTS,
    Chance,
    Drawn,
    Fact,
    Filled,
    Granted,
    Ones,
    Rising,
    Spread,
    Triangle,
)

aten = torch.ops.aten
Arguments = tuple[Any, ...]


class Known(Protocol):
    """What is known already (probes.microtrain.traces.known_numbers)."""

    def of(self, tensor: Any) -> Fact | None: ...


Rule = Callable[[Known, Arguments, Any], Fact | None]


def _is_whole(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and not tensor.dtype.is_floating_point and not tensor.dtype.is_complex


def _finite(answer: bool) -> Fact | None:
    """What holds of numbers that are numbers, and finite: a library asks for what went wrong. A user's own code may ask
    for values that are missing."""
    if is_asked_by_a_library():
        return Filled(answer)
    return Granted(answer) if is_answered_as_usual() else None


def _compared(compare: Callable[[Any, Any], bool], otherwise: bool | None = None) -> Rule:
    """A comparison with a number. otherwise: what holds of most whole numbers that a library asks of, such as
    `labels != -100`; in a user's own code they may be anything."""

    def rule(known: Known, args: Arguments, _: Any) -> Fact | None:
        tensor, number = args[:2]
        fact = known.of(tensor)
        if not _is_whole(tensor):
            if isinstance(fact, Filled) and math.isinf(fact.value):
                return Filled(compare(fact.value, number))
            if isinstance(fact, Drawn) and 0 <= number <= 1 and compare(0, 1) != compare(1, 0):
                return Chance(number if compare(0, 1) else 1 - number)
            infinite = isinstance(number, float) and math.isinf(number) and not isinstance(fact, Triangle)
            return _finite(compare(0.0, number)) if infinite else None
        match fact:
            case Filled(value):
                return Filled(compare(value, number))
            case Ones() as ones:
                zero, one = compare(0, number), compare(1, number)
                return Filled(one) if zero == one else ones if one else ones.inverse()
            case Spread(total, places) if total >= places and number == 0:
                return Filled(compare(1, number))
            case Rising() as rising if tensor.numel() == 1:
                return Filled(compare(rising.at(int(tensor.storage_offset())), number))
        count = getattr(tensor, COUNTS, {}).get(number)
        if count is not None and compare(0, 0) != compare(0, 1):  # equal or unlike, not more or less
            ones = Ones(count * tensor.shape[0], tensor.numel())
            return ones if compare(0, 0) else ones.inverse()
        ordering = compare(-1, 0) != compare(1, 0)  # `>= vocabulary` asks for what is wrong
        guessed = otherwise is not None and not (ordering and number > 0) and is_asked_by_a_library()
        return Filled(otherwise) if otherwise is not None and guessed else None

    return rule


def _conjunction(known: Known, args: Arguments, _: Any) -> Fact | None:
    facts = [known.of(arg) for arg in args[:2]]
    if Filled(False) in facts:
        return Filled(False)
    rest = [fact for fact in facts if fact != Filled(True)]
    return _remaining(rest) if rest else Filled(True)


def _disjunction(known: Known, args: Arguments, _: Any) -> Fact | None:
    facts = [known.of(arg) for arg in args[:2]]
    if Filled(True) in facts:
        return Filled(True)
    rest = [fact for fact in facts if fact != Filled(False)]
    return _remaining(rest) if rest else Filled(False)


def _remaining(facts: list[Fact | None]) -> Fact | None:
    alone = len(facts) == 1 and isinstance(facts[0], Ones)
    agreed = isinstance(facts[0], Granted) and len(set(facts)) == 1
    return facts[0] if alone or agreed else None


def _negation(known: Known, args: Arguments, _: Any) -> Fact | None:
    match known.of(args[0]):
        case Filled(value) if args[0].dtype is torch.bool:
            return Filled(not value)
        case Granted(truth):
            return Granted(not truth)
        case Ones() as ones if args[0].dtype is torch.bool:
            return ones.inverse()
    return None


def _quantified(is_so: Callable[[int, int], bool]) -> Rule:
    """Whether every one of them, or some: by how many of how many there are."""

    def rule(known: Known, args: Arguments, result: Any) -> Fact | None:
        match known.of(args[0]):
            case Filled(value):
                return Filled(bool(value))
            case Granted(truth) as granted:
                return Filled(truth) if result.numel() == 1 else granted
            case Ones(hits, of) if result.numel() == 1:
                return Filled(is_so(hits, of))
        return None

    return rule


_every, _some = _quantified(lambda hits, of: hits == of), _quantified(lambda hits, _: hits > 0)


def _sum(known: Known, args: Arguments, result: Any) -> Fact | None:
    entries = args[0].numel() // max(result.numel(), 1)
    match known.of(args[0]):
        case Filled(value) if _is_whole(args[0]):
            return Filled(int(value) * entries)
        case Ones() as ones:
            total = ones.among(args[0].numel())
            whole = total % max(result.numel(), 1) == 0 and not ones.even
            return Filled(total // result.numel()) if whole else Spread(total, result.numel(), ones.even)
        case Spread(total) if result.numel() == 1:
            return Filled(total)
    return None


def _same(known: Known, args: Arguments, result: Any) -> Fact | None:
    """A copy, or a selection, which is as the whole."""
    fact = known.of(args[0])
    if isinstance(fact, Filled) and math.isinf(fact.value):
        return fact if result.dtype.is_floating_point else None
    if isinstance(fact, Filled):
        return Filled(bool(fact.value) if result.dtype is torch.bool else int(fact.value))
    lost = isinstance(fact, Triangle) or (isinstance(fact, Spread | Rising) and result.shape != args[0].shape)
    return None if lost else fact


def _extreme(known: Known, args: Arguments, _: Any) -> Fact | None:
    fact = known.of(args[0])
    return fact if isinstance(fact, Filled) else None


def _joined(known: Known, args: Arguments, _: Any) -> Fact | None:
    facts = {known.of(tensor) for tensor in args[0]}
    return facts.pop() if len(facts) == 1 and isinstance(next(iter(facts)), Filled) else None


def _filling(place: int | None, value: int = 0) -> Rule:
    """A new tensor of one number: the argument in this place, else `value`."""

    def rule(_: Known, args: Arguments, result: Any) -> Fact | None:
        number = value if place is None else args[place]
        plain = isinstance(number, int) and (_is_whole(result) or number == 0)
        infinite = isinstance(number, float) and math.isinf(number)
        return Filled(number) if (plain or infinite) and _fills_its_memory(result) else None

    return rule


def _fills_its_memory(tensor: torch.Tensor) -> bool:
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def _cut(*, upper: bool) -> Rule:
    """A triangle of a tensor that is infinite everywhere."""

    def rule(known: Known, args: Arguments, _: Any) -> Fact | None:
        fact = known.of(args[0])
        infinite = isinstance(fact, Filled) and math.isinf(fact.value)
        return Triangle(fact.value, upper, args[1] if len(args) > 1 else 0) if infinite else None  # type: ignore[union-attr]

    return rule


def _drawn(_known: Known, _args: Arguments, result: Any) -> Fact | None:
    return Drawn() if result.numel() == 1 else None


def _computed(compute: Callable[[int, int], int]) -> Rule:
    def rule(known: Known, args: Arguments, result: Any) -> Fact | None:
        fact, number = known.of(args[0]), args[1]
        plain = isinstance(fact, Filled) and isinstance(number, int) and _is_whole(result) and len(args) == 2
        return Filled(compute(int(fact.value), number)) if plain else None  # type: ignore[union-attr]

    return rule


def _product(known: Known, args: Arguments, result: Any) -> Fact | None:
    """Of truths: both (isfinite is made of two)."""
    if isinstance(result, torch.Tensor) and result.dtype == torch.bool:
        return _conjunction(known, args, result)
    return _computed(operator.mul)(known, args, result)


def _scattered(known: Known, args: Arguments, _: Any) -> Fact | None:
    """Ones at chosen places of zeros, as experts' choices are written: which ones is not known, how many is."""
    zeros, indices, number = args[0], args[2], args[3]
    if number == 1 and known.of(zeros) == Filled(0) and 0 < indices.numel() <= zeros.numel():
        return Ones(indices.numel(), zeros.numel(), even=True)
    return None


def _equal(known: Known, args: Arguments, result: Any) -> Fact | None:
    """A tensor against itself asks for numbers that are none; choices against the range of all that can be chosen
    make a one-hot matrix."""
    one, other = args
    if one is other:
        return Filled(True) if _is_whole(one) else _finite(True)
    if _is_same_triangle(known, one, other):
        return Filled(True)
    if known.of(other) == Rising() and other.dim() == 1 and one.dim() > 0 and one.shape[-1] == 1 < other.shape[0]:
        return Ones(result.numel() // other.shape[0], result.numel(), even=True)
    return None


def _is_same_triangle(known: Known, one: Any, other: Any) -> bool:
    fact = known.of(one)
    if not isinstance(fact, Triangle) or fact != known.of(other) or one.shape != other.shape:
        return False
    return all(tensor.is_contiguous() and _fills_its_memory(tensor) for tensor in (one, other))


def _certain(known: Known, args: Arguments, result: Any) -> Fact:
    """What torch's checks ask, which raise where it does not hold: of a step that runs it does."""
    return _every(known, args, result) or Filled(True)


def _unlike(_: Known, args: Arguments, _result: Any) -> Fact | None:
    if args[0] is not args[1]:
        return None
    return Filled(False) if _is_whole(args[0]) else _finite(False)


def _range(_: Known, args: Arguments, result: Any) -> Fact | None:
    return Rising() if _is_whole(result) and (len(args) == 1 or args[0] == 0) else None


def _out_of_bounds(_known: Known, args: Arguments, _result: Any) -> Fact | None:
    return Filled(False) if _is_whole(args[0]) else _finite(False)


RULES: dict[OpOverload, Rule] = {
    aten.eq.Scalar: _compared(lambda a, b: a == b),
    aten.ne.Scalar: _compared(lambda a, b: a != b, otherwise=True),
    aten.ge.Scalar: _compared(lambda a, b: a >= b, otherwise=True),
    aten.gt.Scalar: _compared(lambda a, b: a > b, otherwise=True),
    aten.le.Scalar: _compared(lambda a, b: a <= b),
    aten.lt.Scalar: _compared(lambda a, b: a < b),
    aten.eq.Tensor: _equal,
    aten.ne.Tensor: _unlike,
    aten.isnan.default: _out_of_bounds,
    aten.isinf.default: _out_of_bounds,
    aten.bitwise_and.Tensor: _conjunction,
    aten.logical_and.default: _conjunction,
    aten.bitwise_or.Tensor: _disjunction,
    aten.logical_or.default: _disjunction,
    aten.bitwise_not.default: _negation,
    aten.logical_not.default: _negation,
    aten.all.default: _every,
    aten.all.dim: _every,
    aten._is_all_true.default: _certain,
    aten._is_any_true.default: _some,
    aten.any.default: _some,
    aten.any.dim: _some,
    aten.sum.default: _sum,
    aten.sum.dim_IntList: _sum,
    aten.max.default: _extreme,
    aten.min.default: _extreme,
    aten._to_copy.default: _same,
    aten.clone.default: _same,
    aten.index.Tensor: _same,
    aten.index_select.default: _same,
    aten.gather.default: _same,
    aten.cat.default: _joined,
    aten.zeros.default: _filling(None),
    aten.zeros_like.default: _filling(None),
    aten.new_zeros.default: _filling(None),
    aten.zero_.default: _filling(None),
    aten.ones.default: _filling(None, 1),
    aten.ones_like.default: _filling(None, 1),
    aten.new_ones.default: _filling(None, 1),
    aten.full.default: _filling(1),
    aten.full_like.default: _filling(1),
    aten.new_full.default: _filling(2),
    aten.fill_.Scalar: _filling(1),
    aten.rand.default: _drawn,
    aten.arange.default: _range,
    aten.arange.start: _range,
    aten.triu.default: _cut(upper=True),
    aten.tril.default: _cut(upper=False),
    aten.add.Tensor: _computed(lambda a, b: a + b),
    aten.sub.Tensor: _computed(lambda a, b: a - b),
    aten.mul.Tensor: _product,
    aten.scatter.value: _scattered,
    aten.scatter_.value: _scattered,
}
# Something becomes known by these whatever is known of their arguments, even floating-point ones.
SOURCES = {aten.isnan.default, aten.isinf.default, aten.eq.Tensor, aten.ne.Tensor, aten.eq.Scalar, aten.ne.Scalar}
