"""What is known of numbers under fake tensors is what real ones would say."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.nn.functional import one_hot

from probes.microtrain.traces.asking import as_usual
from probes.microtrain.traces.number_facts import COUNTS, FILLED
from probes.microtrain.traces.recording import Recorder


def no_numbers(x: torch.Tensor) -> object:
    """As torch itself asks for what went wrong."""
    weight = torch.nn.Parameter(torch.zeros_like(x))
    weight.grad = x
    torch.nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)
    valid = torch.distributions.constraints.real.check(x)  # type: ignore[attr-defined]
    return x[valid].shape, bool(valid.all()), int((~valid).sum() == 0)


def filled(x: torch.Tensor) -> object:
    mask = torch.ones(4, 6, dtype=torch.long)
    mask = mask.to(torch.bool) & ~torch.zeros(4, 6, dtype=torch.bool)
    return x.new_zeros(4, 6, 3)[mask].shape, bool(mask.all()), int(mask.sum())


def overwritten(_: torch.Tensor) -> object:
    mask = torch.zeros(4, dtype=torch.bool)
    mask.fill_(True)
    return mask.nonzero().shape, bool(mask.any())


def ranged(_: torch.Tensor) -> object:
    return [int(i) for i in torch.ones(5).to(torch.long).new_ones(5).gt(0).nonzero().flatten()]


def run_lengths(_: torch.Tensor) -> object:
    values, counts = torch.unique_consecutive(3 * torch.ones(7, dtype=torch.long), return_counts=True)
    return values.tolist(), counts.tolist()


def joined(_: torch.Tensor) -> object:
    mask = torch.cat([torch.ones(4, dtype=torch.bool), torch.ones(3, dtype=torch.bool)])
    return mask.nonzero().shape, bool(mask.all())


def infinite(x: torch.Tensor) -> object:
    full = torch.full((4, 4), float("-inf"))
    mask, other = torch.triu(full, diagonal=1), torch.triu(torch.full((4, 4), float("-inf")), diagonal=1)
    known = bool((mask == other).all()), bool((full == float("-inf")).all()), bool((full.clone() < 0).all())
    return known, bool((full > 1).any())


@pytest.mark.parametrize("look", [no_numbers, filled, overwritten, ranged, run_lengths, joined, infinite])
def test_an_answer_is_what_real_numbers_give(look: Callable[[torch.Tensor], object]) -> None:
    real = look(torch.randn(4, 6))
    with FakeTensorMode(), Recorder():
        assert look(torch.empty(4, 6)) == real


def test_tokens_that_stand_in_every_sample_are_found_as_often() -> None:
    with FakeTensorMode(), Recorder():
        ids = torch.empty(5, 8, dtype=torch.long)
        setattr(ids, COUNTS, {2: 3})
        found = ids == 2
        assert found.nonzero().shape == (15, 2)
        assert torch.empty(5, 8, 4)[found].shape == (15, 4)
        assert torch.empty(5, 8, 4)[ids != 2].shape == (25, 4)
        assert torch.empty(5, 8, 4)[found.unsqueeze(-1).expand(5, 8, 4)].shape == (60,)


def test_experts_are_taken_to_be_chosen_equally_often() -> None:
    with FakeTensorMode(), Recorder():
        chosen = torch.empty(9, 2, dtype=torch.long)
        mask = one_hot(chosen, num_classes=4).permute(2, 1, 0)
        hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        assert [int(expert) for expert in hit] == [0, 1, 2, 3]
        assert sum(mask.sum(dim=(-1, -2)).tolist()) == 18
        assert torch.where(mask[2])[0].shape == (4,)  # a quarter of eighteen, rounded


def test_what_was_written_to_is_no_longer_known() -> None:
    with FakeTensorMode(), Recorder():
        mask = torch.zeros(4, dtype=torch.bool)
        mask.copy_(torch.empty(4) > 0)
        with pytest.raises(DynamicOutputShapeException):
            mask.nonzero()


def added_in_place(total: torch.Tensor) -> None:
    total += torch.empty(())


def added_out(total: torch.Tensor) -> None:
    torch.add(torch.empty(()), 1.0, out=total)


def added_all(total: torch.Tensor) -> None:
    torch._foreach_add_([total], [torch.empty(())])


@pytest.mark.parametrize("write", [added_in_place, added_out, added_all])
def test_nor_when_it_was_written_to_as_often_before(write: Callable[[torch.Tensor], None]) -> None:
    with FakeTensorMode(), Recorder():
        for _ in range(2):
            total = torch.zeros(())
            assert total.item() == 0
            write(total)
            with pytest.raises(DataDependentOutputException):
                total.item()


def test_a_mark_on_an_input_says_nothing_of_what_was_written_over_it() -> None:
    with FakeTensorMode(), Recorder():
        sizes = torch.empty(1, dtype=torch.long)
        setattr(sizes, FILLED, 7)
        assert sizes.item() == 7
        sizes.copy_(torch.empty(1, dtype=torch.long))
        with pytest.raises(DataDependentOutputException):
            sizes.item()


@pytest.mark.parametrize("grown", [torch.inference_mode, torch.enable_grad])
def test_what_is_not_known_is_not_answered_to_ones_own_code(grown: Callable[[], Any]) -> None:
    with FakeTensorMode(), Recorder(), grown():
        mask = torch.empty(4) > 0
        for ask in (lambda: bool(mask.all()), lambda: mask.any().item(), lambda: True in mask):
            with pytest.raises(DataDependentOutputException):
                ask()


QUESTIONS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda x: x.isnan(),
    lambda x: x.isinf() | x.isnan(),
    lambda x: x != x,
    lambda x: ~(x == x),
    lambda x: x == float("inf"),
    lambda x: ~(x != float("-inf")),
    lambda x: x > float("inf"),
)


@pytest.mark.parametrize("question", QUESTIONS)
def test_ones_own_code_may_have_missing_numbers_or_infinite_ones(
    question: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    with FakeTensorMode(), Recorder():
        x = torch.empty(4, 6)
        with pytest.raises(DataDependentOutputException):
            bool(question(x).any())
        with pytest.raises(DynamicOutputShapeException):
            x[~question(x).any(-1)]


@pytest.mark.parametrize("question", QUESTIONS[:-1])  # more or less is answered the first time alone
def test_as_usual_it_has_none_at_all_which_chooses_no_rows(question: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with FakeTensorMode(), Recorder(), as_usual():
        x = torch.empty(4, 6)
        assert not question(x).any()
        assert not question(x.sum())
        assert (~question(x)).all()
        with pytest.raises(DynamicOutputShapeException):
            x[~question(x).any(-1)]
        with pytest.raises(DynamicOutputShapeException):
            x[question(x)]


def test_whole_numbers_are_never_missing() -> None:
    with FakeTensorMode(), Recorder():
        ids = torch.empty(4, dtype=torch.long)
        assert not ids.isnan().any()
        assert ids[ids == ids].shape == (4,)


def test_a_part_of_a_triangle_or_another_triangle_is_not_the_same() -> None:
    with FakeTensorMode(), Recorder():
        mask, lower = (cut(torch.full((4, 4), float("-inf")), 1) for cut in (torch.triu, torch.tril))
        written = torch.triu(torch.full((4, 4), float("-inf")), 1)
        written[0] = 0.0
        for other in (mask.t(), lower, written, torch.triu(torch.full((4, 4), float("-inf")), 2)):
            with pytest.raises(DataDependentOutputException):
                bool((mask == other).all())


def test_parts_of_an_input_that_is_one_number_are_that_number() -> None:
    with FakeTensorMode(), Recorder() as recorder:
        sizes = torch.empty(5, 2, dtype=torch.long)
        setattr(sizes, FILLED, 7)
        with pytest.raises(DataDependentOutputException):
            sizes[1].tolist()
        recorder.learn_inputs([sizes])
        assert sizes[1].tolist() == [7, 7]
