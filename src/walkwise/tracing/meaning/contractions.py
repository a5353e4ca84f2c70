"""What a product of two tensors sums over, whichever way it is written.

A weight mixes the neurons of a node; a matrix that mixes nodes (an adjacency) and a factor for every entry (edge
weights) are data. ``x @ W``, ``F.linear``, ``einsum`` and ``bmm`` can each be any of the three.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

#: The dimensions of both factors and of their product, a letter each.
Letters = tuple[str, str, str]


@dataclass(frozen=True)
class Contraction:
    """A product of a followed tensor and a constant.

    Attributes:
        summed: the dimensions of the followed tensor that are summed over.
        entrywise: whether every entry is multiplied by one number, and none is added to another.
        in_order: whether the product has the dimensions of the followed tensor, in their order.
    """

    summed: tuple[int, ...]
    entrywise: bool
    in_order: bool


def contraction(
    name: str, args: Sequence[Any], followed: torch.Size, constant: torch.Size, first: bool
) -> Contraction | None:
    """What a function does with a followed tensor and a constant, ``first`` if the followed one comes first.

    None where that is not known.

    >>> contraction("matmul", (), torch.Size([5, 4]), torch.Size([4, 3]), True)
    Contraction(summed=(1,), entrywise=False, in_order=False)
    >>> contraction("einsum", ("e,ef->ef",), torch.Size([9, 4]), torch.Size([9]), False)
    Contraction(summed=(), entrywise=True, in_order=True)
    """
    if name == "kron" and constant.numel() == 1 and len(constant) <= len(followed):
        return Contraction((), entrywise=True, in_order=True)
    make = _LETTERS.get(name)
    shapes = (followed, constant) if first else (constant, followed)
    letters = None if make is None else make(args, *map(len, shapes))
    if letters is None or [len(part) for part in letters[:2]] != [len(shape) for shape in shapes]:
        return None
    own, other = letters[:2] if first else letters[1::-1]
    return _read(own, other, letters[2], dict(zip(other, constant, strict=True)), dict(zip(own, followed, strict=True)))


def _read(own: str, other: str, out: str, sizes: dict[str, int], lengths: dict[str, int]) -> Contraction:
    summed = tuple(dim for dim, letter in enumerate(own) if letter not in out and lengths[letter] > 1)
    alike = [letter for letter in other if letter in own and letter in out]
    mixing = [letter for letter in other if letter not in alike]
    factor = all(sizes[letter] == 1 for letter in mixing) and (bool(alike) or not mixing) and not summed
    ordered = [[a for a in part if lengths.get(a, 1) > 1] for part in (own, out)]
    return Contraction(summed, factor, ordered[0] == ordered[1])


def _product(args: Sequence[Any], left: int, right: int) -> Letters | None:
    """torch.matmul: the last dimension of the first with the last but one of the second."""
    if not left or not right:
        return None
    batch = string.ascii_uppercase[: max(left, right, 2) - 2]
    rows, columns = "i" if left > 1 else "", "j" if right > 1 else ""
    over = [batch[len(batch) - max(dims - 2, 0) :] for dims in (left, right)]
    return over[0] + rows + "k", over[1] + "k" + columns, batch + rows + columns


def _linear(args: Sequence[Any], left: int, right: int) -> Letters | None:
    batch = string.ascii_uppercase[: left - 1]
    return batch + "k", "jk"[2 - right :], batch + "j"[2 - right :]


def _inner(args: Sequence[Any], left: int, right: int) -> Letters | None:
    a, b = string.ascii_uppercase[: max(left - 1, 0)], string.ascii_lowercase[: max(right - 1, 0)]
    return (a + "z", b + "z", a + b) if left and right else None


def _outer(args: Sequence[Any], left: int, right: int) -> Letters | None:
    return "i", "j", "ij"


def _tensordot(args: Sequence[Any], left: int, right: int) -> Letters | None:
    """torch.tensordot with a number of dimensions, or with those of both."""
    dims = args[2] if len(args) > 2 else 2
    if isinstance(dims, int):
        dims = range(left - dims, left), range(dims)
    first, second = ([dim % n for dim in each] for each, n in zip(dims, (left, right), strict=True))
    a, b = list(string.ascii_uppercase[:left]), list(string.ascii_lowercase[:right])
    for i, j in zip(first, second, strict=True):
        b[j] = a[i]
    kept = [x for i, x in enumerate(a) if i not in first] + [x for j, x in enumerate(b) if j not in second]
    return "".join(a), "".join(b), "".join(kept)


def _einsum(args: Sequence[Any], left: int, right: int) -> Letters | None:
    """torch.einsum with its equation; dimensions under "..." get digits, from the last on."""
    if not args or not isinstance(args[0], str):
        return None
    given, arrow, out = args[0].replace(" ", "").partition("->")
    parts = given.split(",")
    if len(parts) != 2:
        return None
    under = [max(dims - len(part.replace("...", "")), 0) for part, dims in zip(parts, (left, right), strict=True)]
    widest = string.digits[: max(under)]
    if not arrow:
        out = "..." + "".join(sorted(x for x in set("".join(parts)) - {"."} if given.count(x) == 1))
    first, second = (part.replace("...", widest[len(widest) - n :]) for part, n in zip(parts, under, strict=True))
    return first, second, out.replace("...", widest)


_LETTERS: dict[str, Callable[[Sequence[Any], int, int], Letters | None]] = dict(
    itertools.chain(
        ((name, _product) for name in ("matmul", "bmm", "mv", "dot", "vdot")),
        (("linear", _linear), ("inner", _inner), ("outer", _outer), ("tensordot", _tensordot), ("einsum", _einsum)),
    )
)
