"""What operations on whole matrices compute: FLOPs of factorizations, of what is solved by them, of exponentials and of
products of three tensors, and of distances between rows. torch.utils.flop_counter counts none of them.

n: rows of a square matrix; leading terms alone. Of factorizations by LAPACK Working Note 41 ("Installation Guide for
LAPACK", appendix C); of eigenvalues and singular values, whose iterations hang on numbers, by Golub and Van Loan,
"Matrix Computations", 4th edition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Arguments = tuple[Any, ...]

# Of a matrix exponential: products of its Taylor polynomial of degree 18, and as many squarings as halve the matrix
# until the sum of no column is more than 3 (aten/src/ATen/native/LinearAlgebra.cpp, compute_T18_scale_square). Numbers
# say how many these are, which a trace has none of: up to sums of 24 at most three. Of sums below 1.5 the degree is
# lower, and all products are four at most.
_TAYLOR_PRODUCTS, _SQUARINGS = 5, 3


def _given(args: Arguments, place: int, default: Any) -> Any:
    """What is left out is torch's default."""
    return args[place] if len(args) > place else default


def _cubes(matrices: torch.Tensor) -> float:
    """n^3, of all matrices of a batch."""
    return float(matrices.numel() * matrices.shape[-1])


def _of_cubes(times: float) -> Callable[[Arguments], int]:
    return lambda args: round(times * _cubes(args[0]))


def _matrix_exponential(args: Arguments) -> int:
    return round(2 * (_TAYLOR_PRODUCTS + _SQUARINGS) * _cubes(args[0]))


def _sides(matrices: torch.Tensor) -> tuple[int, int, int]:
    """How many matrices, and of each the longer and the shorter side."""
    *batch, rows, columns = matrices.shape
    return math.prod(batch), max(rows, columns), min(rows, columns)


def _lu(args: Arguments) -> int:
    """xGETRF; 2/3 n^3 of a square matrix."""
    count, long, short = _sides(args[0])
    return round(count * short**2 * (long - short / 3))


def _solved(factorized: int, place: int) -> Callable[[Arguments], int]:
    """By two triangular matrices. place: of what is solved for, at least one column of each matrix."""

    def formula(args: Arguments) -> int:
        matrices, columns = args[factorized], args[place]
        rows = matrices.shape[-1]
        return int(2 * rows * max(columns.numel(), matrices.numel() // max(rows, 1)))

    return formula


def _solve(args: Arguments) -> int:
    """(A, B): factorized first."""
    return _lu(args) + _solved(0, 1)(args)


def _inverse(args: Arguments) -> int:
    """Solved for the identity (aten/src/ATen/native/BatchLinearAlgebra.cpp)."""
    return _lu(args) + round(2 * _cubes(args[0]))


def _solve_triangular(factorized: int, place: int) -> Callable[[Arguments], int]:
    """xTRTRS."""
    return lambda args: int(args[factorized].shape[-1] * args[place].numel())


def _reflections(args: Arguments) -> int:
    """xGEQRF."""
    count, long, short = _sides(args[0])
    return round(2 * count * short**2 * (long - short / 3))


def _orthogonal(count: int, rows: int, columns: int, reflections: int) -> int:
    """xORGQR: as many columns of what so many reflections come to."""
    k = reflections
    return round(count * (4 * rows * columns * k - 2 * (rows + columns) * k**2 + 4 / 3 * k**3))


def _householder_product(args: Arguments) -> int:
    """(reflections as columns, their factors)."""
    *batch, rows, columns = args[0].shape
    return _orthogonal(math.prod(batch), rows, columns, args[1].shape[-1])


def _qr(args: Arguments) -> int:
    """(A, mode)."""
    mode = _given(args, 1, "reduced")
    if mode == "r":
        return _reflections(args)
    *batch, rows, columns = args[0].shape
    short = min(rows, columns)
    return _reflections(args) + _orthogonal(math.prod(batch), rows, rows if mode == "complete" else short, short)


def _symmetric_eigenvalues(args: Arguments) -> int:
    """(A, which half, whether vectors too): section 8.3.3."""
    return round((9 if _given(args, 2, True) else 4 / 3) * _cubes(args[0]))


def _singular_values(args: Arguments) -> int:
    """(A, whether all of U, whether vectors too): figure 8.6.1, with a QR factorization first where that is less."""
    count, m, n = _sides(args[0])
    if not _given(args, 2, True):
        ways = 4 * m * n**2 - 4 / 3 * n**3, 2 * m * n**2 + 2 * n**3
    elif _given(args, 1, False):
        ways = 4 * m**2 * n + 8 * m * n**2 + 9 * n**3, 4 * m**2 * n + 22 * n**3
    else:
        ways = 14 * m * n**2 + 8 * n**3, 6 * m * n**2 + 20 * n**3
    return round(count * min(ways))


def _trilinear(args: Arguments) -> int:
    """(three tensors, the dimensions that each of them lacks, those that are summed over, the one that is gone through
    step by step): in each step a product of the first two, summed over what the third lacks, and one of that with the
    third (aten/src/ATen/native/Linear.cpp)."""
    tensors, lacking, summed = args[:3], args[3:6], args[6]
    step = _given(args, 7, 1)
    sizes: dict[int, int] = {}
    held = []
    for tensor, lacks in zip(tensors, lacking, strict=True):
        own = [place for place in range(tensor.dim() + len(lacks)) if place not in lacks]
        sizes |= dict(zip(own, tensor.shape, strict=True))
        held.append(set(own))
    first = held[0] | held[1] | {step}
    second = first - (set(summed) & set(lacking[2])) | held[2] | {step}
    return 2 * sum(math.prod(sizes[place] for place in places) for places in (first, second))


def _least_squares(args: Arguments) -> int:
    """(A, B): A by reflections, which B goes through as well, and a triangle (xGELSY)."""
    count, long, short = _sides(args[0])
    columns = args[1].numel() / max(count * args[0].shape[-2], 1)
    return _reflections(args) + round(count * columns * (4 * long * short - short**2))


def _reflected(args: Arguments) -> int:
    """(reflections, their factors, what goes through them, whether these come first): xORMQR."""
    *batch, rows, columns = args[2].shape
    k, through, along = args[1].shape[-1], *((rows, columns) if _given(args, 3, True) else (columns, rows))
    return round(math.prod(batch) * (4 * through * along * k - 2 * along * k**2))


def _pseudoinverse(args: Arguments) -> int:
    """By singular values, and a product of their vectors."""
    count, long, short = _sides(args[0])
    return _singular_values((args[0],)) + 2 * count * long * short**2


def _pairs(one: torch.Tensor, other: torch.Tensor) -> int:
    """Rows of a matrix by rows of another, of all matrices of a batch."""
    return math.prod(one.shape[:-1]) * other.shape[-2]


def _euclidean_distances(args: Arguments) -> int:
    """A product of rows with both sums of squares beside them (aten/src/ATen/native/Distance.cpp)."""
    return 2 * _pairs(args[0], args[1]) * (args[0].shape[-1] + 2)


def _distances(first: int, power: int) -> Callable[[Arguments], int]:
    """Pair by pair. first: of two matrices of rows; power: that of p, of which only 2 has products."""
    return lambda args: 2 * _pairs(args[first], args[first + 1]) * args[first].shape[-1] if args[power] == 2 else 0


def _own_distances(rows: int, power: int) -> Callable[[Arguments], int]:
    """Of each row of one matrix with every later one."""
    return lambda args: math.comb(args[rows].shape[0], 2) * 2 * args[rows].shape[1] * (_given(args, power, 2) == 2)


MATRIX_FORMULAS: dict[str, Callable[[Arguments], int]] = {
    "aten._trilinear": _trilinear,
    "aten.linalg_matrix_exp": _matrix_exponential,
    "aten.cholesky": _of_cubes(1 / 3),  # xPOTRF
    "aten.linalg_cholesky_ex": _of_cubes(1 / 3),
    "aten.cholesky_inverse": _of_cubes(2 / 3),  # xPOTRI
    "aten.cholesky_solve": _solved(1, 0),  # xPOTRS
    "aten._cholesky_solve_helper": _solved(1, 0),
    "aten.linalg_ldl_factor_ex": _of_cubes(1 / 3),  # xSYTRF
    "aten.linalg_ldl_solve": _solved(0, 2),
    "aten.linalg_lu": _lu,
    "aten.linalg_lu_factor_ex": _lu,
    "aten._linalg_det": _lu,
    "aten._linalg_slogdet": _lu,
    "aten.linalg_lu_solve": _solved(0, 2),  # xGETRS
    "aten._linalg_solve_ex": _solve,
    "aten.linalg_inv_ex": _inverse,
    "aten.linalg_solve_triangular": _solve_triangular(0, 1),
    "aten.triangular_solve": _solve_triangular(1, 0),
    "aten.geqrf": _reflections,
    "aten.linalg_householder_product": _householder_product,
    "aten.linalg_qr": _qr,
    "aten._linalg_eigh": _symmetric_eigenvalues,
    "aten.linalg_eig": _of_cubes(25),  # section 7.5.6
    "aten._linalg_eigvals": _of_cubes(10),
    "aten._linalg_svd": _singular_values,
    "aten.linalg_pinv": _pseudoinverse,
    "aten.linalg_lstsq": _least_squares,
    "aten.ormqr": _reflected,
    "aten._euclidean_dist": _euclidean_distances,
    "aten._cdist_forward": _distances(0, 2),
    "aten._cdist_backward": _distances(1, 3),
    "aten._pdist_forward": _own_distances(0, 1),
    "aten._pdist_backward": _own_distances(1, 2),
}
