"""Tensors other than features that a model uses before its first layer: embeddings, tables, positions.

Such a tensor is followed from the layer that takes it. If the model has read it before, or reads what it was computed
from (``h + conv(norm(h))`` with an embedding h), that would count as constant. So in this case the run is repeated with
those tensors followed from where they are first read, and walks also begin there, as they do with features.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.core.differential import leaves
from walkwise.tracing.nodes.identity import Identities, UnfollowedError
from walkwise.tracing.nodes.looked_up import of_nodes_in_order
from walkwise.tracing.recording.kinds import CASTING, READING
from walkwise.tracing.recording.numbers import has_columns_of
from walkwise.tracing.recording.recorded import Made
from walkwise.tracing.recording.tape import Tape

#: Rows of the result are other rows than those of what went in.
_LOOKED_UP = READING | {"embedding", "embedding_bag", "index"}
#: Functions whose second matrix is a weight, whatever its shape.
_WEIGHTED = frozenset({"linear", "matmul", "rmatmul", "addmm", "bmm"})

#: Which function outside of layers it was, counted and by name, and which of the tensors that it was given.
Place = tuple[int, str, int]


@dataclass(frozen=True, eq=False)
class _Family:
    """A layer's input, and the tensors it was computed from row by row."""

    members: dict[int, Tensor]  # by identity
    first: list[Tensor]  # those that are made of no other
    path: set[int]  # the numbers of the functions between them


def read_around(tape: Tape, identities: Identities, partly: Collection[int] = ()) -> dict[Place, Tensor]:
    """Where to start following tensors of the model's own, and the nodes of their rows, (K,) or (1, M).

    None if everything computed from them passes through layers' inputs. The tape forgets what it knows of them.
    Tensors in ``partly`` have rows of nobody, or of several nodes, besides those of all nodes: they are followed from
    the embeddings they are computed from.
    """
    made = tape.made
    if not made:
        return {}
    maker = {id(tensor): function for function in made for tensor in function.results}
    twins = _twins(made)
    found: dict[Place, Tensor] = {}
    for tensor in tape.own:
        slot = tape.slot_of(tensor)
        if slot in partly:  # as it is, or as what is put together of embeddings and something else
            begun = [first for first in _embeddings(tensor, maker, identities.num_nodes) if id(first) in tape.read]
            found |= {tape.read[id(first)][1][0]: identities.every for first in begun}
            continue
        across = identities.across(slot)  # type: ignore[arg-type]
        dim = across - tensor.dim() if across else 0
        family = _family(tensor, maker, dim)
        again = [twin for first in family.first for twin in twins.get(id(first), ())]
        family.members.update({id(twin): twin for twin in again})
        family.first.extend(again)
        if _is_read(family, tensor, tape):
            try:
                ids = identities.nodes(slot)  # type: ignore[arg-type]
            except UnfollowedError:
                continue
            begun = [first for first in family.first if id(first) in tape.read]
            in_order = of_nodes_in_order(tape, begun, identities.num_nodes)  # whatever was written into what is made
            for first, known in zip(begun, in_order, strict=True):
                rows = identities.every if known else ids
                found[tape.read[id(first)][1][0]] = rows.view(1, -1) if dim and first.dim() > 2 else rows
    tape.made, tape.read = [], {}
    return found


def embedded_nodes(tape: Tape, num_nodes: int) -> list[Place]:
    """Where embeddings of all nodes' numbers are first read; if there are none, a table with a row for every node.

    Args:
        tape: of a run in which nothing was followed; if it has numbers of the nodes, a table is not looked for.
        num_nodes: M.
    """
    looked_up = [f for f in tape.made if any(map(tape.numbers.hold, f.numbers))]
    embeddings = [t for f in looked_up for t in f.results if f.tensors and len(t) == num_nodes]
    hot = [f for f in tape.made if f.name in CASTING and [n.dim() for n in f.numbers] == [2]] if tape.numbers else []
    embeddings += [t for f in hot for t in f.results if t.dim() == 2 and len(t) == len(f.numbers[0]) == num_nodes]
    if not tape.numbers:
        joined = [f for f in tape.made if f.name == "cat" and all(_is_learned(t, tape) for _, t in f.tensors)]
        parts = {id(t) for f in joined for _, t in f.tensors}
        tables = [t for f in joined for t in f.results]
        tables += [t for t, _ in tape.read.values() if _is_learned(t, tape) and id(t) not in parts]
        embeddings = [t for t in tables if t.dim() == 2 and len(t) == num_nodes]
    return [tape.read[id(t)][1][0] for t in embeddings if id(t) in tape.read]


def _is_learned(tensor: Tensor, tape: Tape) -> bool:
    return tensor.layout == torch.strided and tensor.untyped_storage().data_ptr() in tape.parameters


def _family(tensor: Tensor, maker: dict[int, Made], dim: int) -> _Family:
    """The tensors from which a tensor was computed, as far back as they have the same rows, along a dimension."""
    members, first, path, todo = {id(tensor): tensor}, [], set[int](), [tensor]
    while todo:
        at = todo.pop()
        function = maker.get(id(at))
        parents = [] if function is None else list(_parents(function, tensor.shape[dim], dim))
        if function is not None:
            path.add(function.number)
        if not parents:
            first.append(at)
        todo += [parent for parent in parents if id(parent) not in members]
        members |= {id(parent): parent for parent in parents}
    return _Family(members, first, path)


def _embeddings(tensor: Tensor, maker: Mapping[int, Made], num_nodes: int) -> list[Tensor]:
    """The embeddings with a row for every node that a tensor was made of."""
    found, seen, todo = [], set[int](), [tensor]
    while todo:
        at = todo.pop()
        function = maker.get(id(at))
        if function is None or id(at) in seen:
            continue
        seen.add(id(at))
        if function.name == "embedding" and len(at) == num_nodes:
            found.append(at)
        elif function.name != "embedding":
            todo += [parent for _, parent in function.tensors]
    return found


def _twins(made: Sequence[Made]) -> dict[int, list[Tensor]]:
    """By identity, other results of looking up the same numbers in the same table."""
    found: dict[int, list[Tensor]] = {}
    looked_up = [f for f in made if f.name == "embedding" and len(f.tensors) == len(f.results) == 1]
    for one, other in itertools.permutations(looked_up, 2):
        if one.tensors[0][1] is other.tensors[0][1] and torch.equal(one.results[0], other.results[0]):
            found.setdefault(id(one.results[0]), []).append(other.results[0])
    return found


def _parents(function: Made, rows: int, dim: int) -> Iterator[Tensor]:
    """The arguments of a function that have the rows of its result."""
    if function.name in _LOOKED_UP:
        yield from (t for _, t in function.tensors for result in function.results if has_columns_of(result, t))
        return
    matrices = [tensor for _, tensor in function.tensors if tensor.dim() > 1]
    for tensor in matrices[:1] if function.name in _WEIGHTED else matrices:
        if tensor.shape[dim] == rows:
            yield tensor


def _is_read(family: _Family, handed: Tensor, tape: Tape) -> bool:
    """Whether anything besides the layer's input is computed from the family, outside layers or in them."""
    places = (place for member in family.members if member in tape.read for place in tape.read[member][1])
    if any(number not in family.path for number, _, _ in places):
        return True
    constants = (item for op in tape.ops for item in leaves((op.args, op.kwargs)))
    return any(id(item) in family.members and item is not handed for item in constants)
