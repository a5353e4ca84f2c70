"""What a product sums over, by its letters and by its derivative."""

import pytest
import torch
from torch.func import jacrev
from torch.nn import functional as F

from walkwise.tracing.meaning.contractions import Contraction, contraction

#: A function, its other arguments in their places, and the shapes of the followed tensor and the constant.
PRODUCTS = [
    ("matmul", torch.matmul, (), [2, 3], [3, 4]),
    ("matmul", torch.matmul, (), [3], [3, 4]),
    ("matmul", torch.matmul, (), [2, 3], [3]),
    ("matmul", torch.matmul, (), [3], [3]),
    ("matmul", torch.matmul, (), [5, 2, 3], [3, 4]),
    ("matmul", torch.matmul, (), [2, 3], [5, 3, 4]),
    ("matmul", torch.matmul, (), [5, 2, 3], [5, 3, 4]),
    ("matmul", torch.matmul, (), [2, 5, 2, 3], [5, 3, 4]),
    ("matmul", torch.matmul, (), [3], [5, 3, 4]),
    ("bmm", torch.bmm, (), [5, 2, 3], [5, 3, 4]),
    ("mv", torch.mv, (), [2, 3], [3]),
    ("dot", torch.dot, (), [3], [3]),
    ("vdot", torch.vdot, (), [3], [3]),
    ("linear", F.linear, (), [2, 3], [4, 3]),
    ("linear", F.linear, (), [5, 2, 3], [4, 3]),
    ("linear", F.linear, (), [3], [4, 3]),
    ("linear", F.linear, (), [2, 3], [3]),
    ("inner", torch.inner, (), [2, 3], [4, 3]),
    ("inner", torch.inner, (), [3], [3]),
    ("inner", torch.inner, (), [2, 5, 3], [3]),
    ("outer", torch.outer, (), [3], [4]),
    ("tensordot", torch.tensordot, (), [5, 2, 3], [2, 3, 4]),
    ("tensordot", torch.tensordot, (1,), [2, 3], [3, 4]),
    ("tensordot", torch.tensordot, (([0], [1]),), [2, 3], [4, 2]),
    ("tensordot", torch.tensordot, (([-1, 0], [0, -1]),), [2, 5, 3], [3, 4, 2]),
]
EQUATIONS = [
    ("ij,jk->ik", [2, 3], [3, 4]),
    ("ij,ij->ij", [2, 3], [2, 3]),
    ("ij,j->ij", [2, 3], [3]),
    ("ij,i->ij", [2, 3], [2]),
    ("ij,i->ji", [2, 3], [2]),
    ("ij,ij->i", [2, 3], [2, 3]),
    ("ij,k->ijk", [2, 3], [4]),
    ("ij, jk", [2, 3], [3, 4]),
    ("ji, kj", [2, 3], [4, 2]),
    ("...i,ji->...j", [5, 2, 3], [4, 3]),
    ("...i,...i->...i", [5, 2, 3], [2, 3]),
    ("...ij,...jk", [5, 2, 3], [5, 3, 4]),
    ("ihd,hd->ih", [5, 2, 3], [2, 3]),
]


def found_by_derivative(func, followed, constant):
    """The dimensions along which entries are added up; whether entries stay apart; and whether in their order."""
    torch.manual_seed(0)
    at, other = torch.rand(followed).double() + 1, torch.rand(constant).double() + 1
    used = jacrev(lambda x: func(x, other))(at) != 0
    used = used.reshape(-1, *followed, 1)
    along = [used.movedim(dim + 1, 1).flatten(2).any(2) for dim in range(len(followed))]  # (O, size of the dimension)
    summed = tuple(dim for dim, entries in enumerate(along) if bool((entries.sum(1) > 1).any()))
    table = used.reshape(len(used), -1)
    alone = bool((table.sum(0) <= 1).all() and (table.sum(1) <= 1).all())
    return summed, alone, alone and bool((table == torch.eye(*table.shape, dtype=torch.bool)).all())


def check(name, func, args, followed, constant, first):
    def turned(x, other):
        return func(x, other) if first else func(other, x)

    summed, alone, in_order = found_by_derivative(turned, followed, constant)
    given = contraction(name, args, torch.Size(followed), torch.Size(constant), first)
    assert (given.summed, given.entrywise) == (summed, alone)
    if alone:
        assert given.in_order == in_order


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("name", "func", "args", "left", "right"), PRODUCTS)
def test_products_sum_over_what_their_derivative_mixes(name, func, args, left, right, first):
    followed, constant = (left, right) if first else (right, left)
    check(name, lambda a, b: func(a, b, *args), (None, None, *args), followed, constant, first)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("equation", "left", "right"), EQUATIONS)
def test_equations_sum_over_what_their_derivative_mixes(equation, left, right, first):
    followed, constant = (left, right) if first else (right, left)
    check("einsum", lambda a, b: torch.einsum(equation, a, b), (equation,), followed, constant, first)


@pytest.mark.parametrize(
    ("name", "args", "followed", "constant", "expected"),
    [
        # A matrix of one number is a weight all the same; one for every row, or for all of them, is a factor.
        ("matmul", (), [5, 1], [1, 1], Contraction((), entrywise=False, in_order=True)),
        ("matmul", (), [5, 4], [4, 1], Contraction((1,), entrywise=False, in_order=False)),
        ("einsum", ("ij,ik->ij",), [5, 4], [5, 1], Contraction((), entrywise=True, in_order=True)),
        ("einsum", ("ij,ik->ij",), [5, 4], [5, 2], Contraction((), entrywise=False, in_order=True)),
        ("einsum", ("ij,->ij",), [5, 4], [], Contraction((), entrywise=True, in_order=True)),
        ("kron", (), [5, 4], [1, 1], Contraction((), entrywise=True, in_order=True)),
        ("kron", (), [5, 4], [1], Contraction((), entrywise=True, in_order=True)),
        # One node that is left alone is not summed over.
        ("einsum", ("ij,j->j",), [1, 4], [4], Contraction((), entrywise=True, in_order=True)),
        ("einsum", ("ij,j->j",), [2, 4], [4], Contraction((0,), entrywise=False, in_order=False)),
    ],
)
def test_a_single_number_is_a_weight_or_a_factor(name, args, followed, constant, expected):
    assert contraction(name, args, torch.Size(followed), torch.Size(constant), True) == expected


@pytest.mark.parametrize(
    ("name", "args", "followed", "constant"),
    [
        ("kron", (), [5, 4], [2, 1]),
        ("kron", (), [4], [1, 1]),
        ("cross", (), [5, 3], [5, 3]),
        ("matmul", (), [], [3]),
        ("matmul", (), [3], []),
        ("inner", (), [], [3]),
        ("inner", (), [3], []),
        ("einsum", (), [2, 3], [3]),
        ("einsum", ([0, 1],), [2, 3], [3]),
        ("einsum", ("ij,jk,kl->il",), [2, 3], [3, 4]),
        ("einsum", ("ij->i",), [2, 3], [3]),
        ("outer", (), [2, 3], [3]),
    ],
)
def test_what_is_not_known_is_said_to_be(name, args, followed, constant):
    assert contraction(name, args, torch.Size(followed), torch.Size(constant), True) is None
