"""What factorizes matrices, solves by them, or multiplies three tensors is counted by what it computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from probes.microtrain.traces.recording import Record, Recorder

COUNT, ROWS, COLUMNS = 3, 6, 2
CUBE = COUNT * ROWS**3

aten = torch.ops.aten


def recorded(run: Callable[[], object]) -> list[Record]:
    """What computes."""
    with FakeTensorMode(), Recorder() as recorder:
        run()
    return [record for record in recorder.records if record.flops]


def square(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(COUNT, ROWS, ROWS, dtype=dtype)


def columns() -> Tensor:
    return torch.empty(COUNT, ROWS, COLUMNS)


def many(rows: int) -> Tensor:
    return torch.empty(COUNT, rows, ROWS)


def pivots() -> Tensor:
    return torch.empty(COUNT, ROWS, dtype=torch.int32)


@pytest.mark.parametrize(
    ("run", "flops"),
    [
        (lambda: torch.linalg.matrix_exp(square()), 2 * 8 * CUBE),
        (lambda: torch.linalg.cholesky_ex(square()), CUBE / 3),
        (lambda: torch.cholesky_inverse(square()), 2 / 3 * CUBE),
        (lambda: torch.cholesky_solve(columns(), square()), 2 * ROWS * COUNT * ROWS * COLUMNS),
        (lambda: torch.linalg.lu_factor_ex(square()), 2 / 3 * CUBE),
        (lambda: aten._linalg_det(square()), 2 / 3 * CUBE),
        (lambda: aten._linalg_slogdet(square()), 2 / 3 * CUBE),
        (lambda: torch.linalg.lu_solve(square(), pivots(), columns()), 2 * ROWS * COUNT * ROWS * COLUMNS),
        (lambda: aten._linalg_solve_ex(square(), columns()), 2 / 3 * CUBE + 2 * ROWS * COUNT * ROWS * COLUMNS),
        (lambda: aten._linalg_solve_ex(square(), torch.empty(ROWS)), 2 / 3 * CUBE + 2 * COUNT * ROWS**2),
        (lambda: torch.linalg.inv_ex(square()), 8 / 3 * CUBE),
        (lambda: torch.linalg.solve_triangular(square(), columns(), upper=True), ROWS * COUNT * ROWS * COLUMNS),
        (lambda: aten._linalg_eigh(square()), 9 * CUBE),
        (lambda: aten._linalg_eigh(square(), "L", False), 4 / 3 * CUBE),
        (lambda: torch.linalg.eig(square()), 25 * CUBE),
        (lambda: aten._linalg_eigvals(square()), 10 * CUBE),
        (lambda: aten._linalg_svd(square()), 22 * CUBE),
        (lambda: aten._linalg_svd(square(), False, False), 8 / 3 * CUBE),
        (lambda: aten._linalg_svd(square(), True), 21 * CUBE),
        (lambda: torch.linalg.qr(square()), 8 / 3 * CUBE),
        (lambda: torch.linalg.qr(square(), mode="r"), 4 / 3 * CUBE),
        (lambda: torch.linalg.householder_product(square(), torch.empty(COUNT, ROWS)), 4 / 3 * CUBE),
        (lambda: torch.linalg.inv_ex(square(torch.complex64)), 4 * 8 / 3 * CUBE),
        (lambda: torch.linalg.pinv(square()), 24 * CUBE),
        (lambda: torch.ormqr(square(), torch.empty(COUNT, ROWS), columns()), 2 * ROWS * COUNT * ROWS * COLUMNS),
        (lambda: torch.cdist(many(30), many(40)), 2 * COUNT * 30 * 40 * (ROWS + 2)),
        (lambda: torch.cdist(many(20), many(10)), 2 * COUNT * 20 * 10 * ROWS),
        (lambda: torch.pdist(many(20)[0]), 20 * 19 * ROWS),
    ],
)
def test_what_works_on_whole_matrices_is_counted_as_it_is_published(run: Callable[[], object], flops: float) -> None:
    (record,) = recorded(run)
    assert record.flops == round(flops)


@pytest.mark.parametrize("shape", [(2, 40, 4), (2, 4, 40)])
def test_of_a_long_matrix_a_factorization_is_counted_by_its_shorter_side(shape: tuple[int, ...]) -> None:
    (record,) = recorded(lambda: torch.linalg.qr(torch.empty(shape), mode="r"))
    assert record.flops == round(2 * 2 * 4**2 * (40 - 4 / 3))
    (record,) = recorded(lambda: aten._linalg_svd(torch.empty(shape)))
    assert record.flops == 2 * (6 * 40 * 4**2 + 20 * 4**3)  # by a QR factorization first


def test_a_bilinear_layer_computes_a_product_for_each_of_its_outputs() -> None:
    batch, left, right, outputs = 5, 3, 4, 2
    every = batch * left * right * outputs

    def step() -> None:
        one, other = (torch.empty(batch, size, requires_grad=True) for size in (left, right))
        weight = torch.empty(outputs, left, right, requires_grad=True)
        functional.bilinear(one, other, weight).sum().backward()

    forward, *backward = recorded(step)
    summed = 2 * (every + batch * outputs * right)  # over what the first has, then over what the other has
    assert forward.flops == summed
    of_weights = 2 * (every + batch * outputs * left)
    assert sorted(record.flops for record in backward) == sorted([2 * 2 * every, of_weights, summed])
    assert {record.kind for record in (forward, *backward)} == {"matmul"}


def test_the_gradient_of_a_matrix_exponential_is_one_of_twice_the_side() -> None:
    """As an orthogonal layer (torch.nn.utils.parametrizations) computes them."""
    found = recorded(lambda: torch.linalg.matrix_exp(square().requires_grad_()).sum().backward())
    assert [record.flops for record in found] == [2 * 8 * CUBE, 2 * 8 * 2**3 * CUBE]
    assert {record.kind for record in found} == {"matmul"}


def test_distances_of_other_powers_have_no_products() -> None:
    assert recorded(lambda: torch.cdist(many(20), many(10), 1.0)) == []


def test_what_is_solved_by_least_squares_is_counted_by_its_factorization() -> None:
    with Recorder() as recorder:
        torch.linalg.lstsq(torch.ones(COUNT, 20, ROWS), torch.ones(COUNT, 20, COLUMNS))
    factorized, through = 2 * ROWS**2 * (20 - ROWS / 3), COLUMNS * (4 * 20 * ROWS - ROWS**2)
    assert sum(record.flops for record in recorder.records) == round(COUNT * (factorized + through))
