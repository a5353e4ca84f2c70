"""What a model makes, before its first layer, of tensors that are no features: of embeddings, of tables, of places.

Such a tensor is followed from the layer on that it is handed to. Where the model has read it before, or reads what it
was made of (``h + conv(norm(h))`` of an embedding h), that would count as constant. So the run is made again then, with
those tensors followed from where they are first read, and walks begin there, too, as they do with features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from walkwise.tracing.nodes.identity import Identities, UnfollowedError
from walkwise.tracing.recording.recorded import Made, leaves
from walkwise.tracing.recording.tape import Tape

#: Rows of the result are other rows than those of what went in.
_LOOKED_UP = frozenset({"embedding", "embedding_bag", "getitem", "index_select", "index", "take_along_dim", "gather"})
#: Functions whose second matrix is a weight, whatever its shape.
_WEIGHTED = frozenset({"linear", "matmul", "mm", "rmatmul", "addmm", "bmm"})

#: Which function outside of layers it was, counted, and which of the tensors that it was given.
Place = tuple[int, int]


@dataclass(frozen=True, eq=False)
class _Family:
    """A tensor that a layer is handed, and what it was made of row by row."""

    members: dict[int, Tensor]  # by identity
    first: list[Tensor]  # those that are made of no other
    path: set[int]  # the functions between them, by identity


def read_around(tape: Tape, identities: Identities) -> dict[Place, Tensor]:
    """Where tensors of the model's own are to be followed from, and the nodes of their rows, (K,).

    None where all that is made of them goes through what layers are handed. The tape lets go of what it knows of them.
    """
    made = tape.made
    if not made:
        return {}
    maker = {id(tensor): function for function in made for tensor in function.results}
    firsts: dict[int, Place] = {}
    for function in made:
        for place, tensor in function.tensors:
            firsts.setdefault(id(tensor), (function.number, place))
    found: dict[Place, Tensor] = {}
    for tensor in tape.own:
        family = _family(tensor, maker)
        if _is_read(family, tensor, tape):
            try:
                ids = identities.nodes(tape.slot_of(tensor))  # type: ignore[arg-type]
            except UnfollowedError:
                continue
            found |= {firsts[id(first)]: ids for first in family.first if id(first) in firsts}
    tape.made = []
    return found


def _family(tensor: Tensor, maker: dict[int, Made]) -> _Family:
    """What a tensor was made of, as far back as it has the same rows."""
    members, first, path, todo = {id(tensor): tensor}, [], set[int](), [tensor]
    while todo:
        at = todo.pop()
        function = maker.get(id(at))
        parents = [] if function is None else list(_parents(function, len(tensor)))
        if function is not None:
            path.add(id(function))
        if not parents:
            first.append(at)
        todo += [parent for parent in parents if id(parent) not in members]
        members |= {id(parent): parent for parent in parents}
    return _Family(members, first, path)


def _parents(function: Made, rows: int) -> Iterator[Tensor]:
    """What a function was given that has the rows of its result."""
    if function.name in _LOOKED_UP:
        return
    matrices = [tensor for _, tensor in function.tensors if tensor.dim() > 1]
    for tensor in matrices[:1] if function.name in _WEIGHTED else matrices:
        if len(tensor) == rows:
            yield tensor


def _is_read(family: _Family, handed: Tensor, tape: Tape) -> bool:
    """Whether something else is made of a family than what is handed to the layer."""

    def is_member(item: Any) -> bool:
        return id(item) in family.members

    if any(is_member(t) for function in tape.made if id(function) not in family.path for _, t in function.tensors):
        return True
    constants = (item for op in tape.ops for item in leaves((op.args, op.kwargs)))
    return any(is_member(item) and item is not handed for item in constants)
