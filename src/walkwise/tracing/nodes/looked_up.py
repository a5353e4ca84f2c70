"""Tensors of a model's own whose rows are seen to be all nodes in order: looked up by the nodes' numbers, row by row.

Most models that begin with whole numbers embed them and do little else before the first layer: ``emb(z)``, a sum of
``emb[i](x[:, i])``, a normalisation, a linear map. Then the recording alone tells which node a row is, and nothing has
to be run again.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from walkwise.tracing.private import version_of
from walkwise.tracing.recording.kinds import CASTING, ENTRYWISE, RESHAPING
from walkwise.tracing.recording.numbers import has_columns_of
from walkwise.tracing.recording.recorded import Made
from walkwise.tracing.recording.tape import Tape

#: Functions of one tensor that keep its rows, or rearrange each of them; that may pick columns; and that join columns.
_KEEPING = RESHAPING | CASTING
_PICKING = frozenset({"getitem", "select", "narrow"})
_ADDING, _JOINING = frozenset({"sum", "mean"}), frozenset({"cat", "stack"})
#: Functions whose first tensor has the rows, and whose other tensors are weights.
_WEIGHING = frozenset({"linear", "layer_norm", "batch_norm", "rms_norm"})


def of_nodes_in_order(tape: Tape, tensors: Sequence[Tensor], num_nodes: int) -> list[bool]:
    """Whether each tensor is seen to have a row for every node, in order.

    Args:
        tape: what was recorded, with the functions of constants outside of layers.
        tensors: those that nothing else is known of.
        num_nodes: M.
    """
    look = _Look(tape, num_nodes)
    return [look.in_order(tensor) for tensor in tensors]


class _Look:
    """Goes back from tensors to the numbers they were looked up by."""

    def __init__(self, tape: Tape, num_nodes: int) -> None:
        self._numbers, self._parameters, self._M = tape.numbers, tape.parameters, num_nodes
        self._maker = {id(tensor): made for made in tape.made for tensor in made.results}
        self._known: dict[int, bool] = {}

    def in_order(self, tensor: Tensor) -> bool:
        """Whether a tensor has a row for every node, in order."""
        todo = [tensor]
        while todo:  # there may be many functions: no recursion
            at = todo[-1]
            made = self._maker.get(id(at))
            parts = [] if made is None or made.word.name == "embedding" else self._parts(made)
            missing = [part for part in parts if id(part) not in self._known]
            if not missing:
                todo.pop()
                self._known[id(at)] = made is not None and self._keeps(made, at, parts)
            todo += missing
        return self._known[id(tensor)]

    def _parts(self, made: Made) -> list[Tensor]:
        """What a function was given, except for weights."""
        return [tensor for _, tensor in made.tensors if not self._is_weight(tensor)]

    def _keeps(self, made: Made, result: Tensor, parts: Sequence[Tensor]) -> bool:
        """Whether a function makes rows of nodes, in order, of such rows, or of all nodes' numbers."""
        name, M = made.word.name, self._M
        if len(made.results) > 1 or result.dim() < 2 or len(result) != M or version_of(result):
            return False
        if name == "embedding":
            (index, *others) = made.numbers
            return not others and result.shape[:-1] == index.shape and self._numbers.hold(index)
        if not parts or not all(self._known[id(part)] for part in parts):
            return False
        first, alone = parts[0], len(parts) == 1
        if name in _ADDING:
            return alone and first.dim() == 3 and first.shape[1] != M and result.dim() == 2
        if name in _JOINING:
            return len(parts) == len(made.tensors) and (name == "cat" or len(parts) != M)
        if name in _KEEPING or name in _PICKING or made.word.same:
            return alone and (name not in _PICKING or has_columns_of(result, first))
        if name in _WEIGHING:
            return alone and made.tensors[0][1] is first and result.shape[:-1] == first.shape[:-1]
        by_entry = name in ENTRYWISE or made.word.pointwise
        return by_entry and all(part.dim() == result.dim() for part in parts)

    def _is_weight(self, tensor: Tensor) -> bool:
        strided = tensor.layout == torch.strided and id(tensor) not in self._maker
        return strided and tensor.untyped_storage().data_ptr() in self._parameters
