"""The nodes of a heterogeneous graph in one numbering: those of the first type, then those of the second, and so on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from walkwise.core.lazy import cached_property
from walkwise.errors import InputError, as_whole, described

#: A node of a heterogeneous graph: its type, and its number among those of its type.
TypedNode = tuple[str, int]
EdgeType = tuple[str, str, str]
#: One value per node, (M,), or of a heterogeneous graph {type: (M_t,)}.
NodeValues = Any


@dataclass(frozen=True, eq=False)
class NodeTypes:
    """Node types and how many nodes each has; a node's number runs on from type to type.

    Args:
        counts: how many nodes each type has, in their order.
        edge_counts: how many edges each type of edges has, in the order of the chain's ``edge_index``.
        featured: the types whose features are among the chain's ``features``, in their order.

    >>> types = NodeTypes({"user": 2, "item": 3})
    >>> types.number(("item", 1)), types.named(3)
    (3, ('item', 1))
    >>> types.split(torch.arange(5))
    {'user': tensor([0, 1]), 'item': tensor([2, 3, 4])}
    """

    counts: Mapping[str, int]
    edge_counts: Mapping[EdgeType, int]
    featured: tuple[str, ...] = ()

    def __init__(
        self,
        counts: Mapping[str, int],
        edge_counts: Mapping[EdgeType, int] | None = None,
        featured: Sequence[str] = (),
    ) -> None:
        """Types in their order."""
        object.__setattr__(self, "counts", dict(counts))
        object.__setattr__(self, "edge_counts", dict(edge_counts or {}))
        object.__setattr__(self, "featured", tuple(featured))

    @cached_property
    def offsets(self) -> dict[str, int]:
        """The number of each type's first node."""
        found, total = {}, 0
        for name, count in self.counts.items():
            found[name] = total
            total += count
        return found

    @property
    def num_nodes(self) -> int:
        """M, the nodes of all types."""
        return sum(self.counts.values())

    def first_of(self, name: str, rows: int) -> int | None:
        """Where the nodes of a type begin in a tensor with rows for that type or for all types; None if for neither.

        >>> types = NodeTypes({"user": 2, "item": 3})
        >>> types.first_of("item", 3), types.first_of("item", 5), types.first_of("item", 4)
        (0, 2, None)
        """
        return {self.num_nodes: self.offsets[name], self.counts[name]: 0}.get(rows)

    def rows_of(self, name: str, rows: Any) -> Any:
        """The rows of a type, if a tensor has rows for all types; anything else is returned as it is.

        >>> NodeTypes({"user": 2, "item": 3}).rows_of("item", torch.arange(5))
        tensor([2, 3, 4])
        """
        first = self.first_of(name, len(rows)) if isinstance(rows, Tensor) and rows.dim() else None
        return rows if first is None else rows.narrow(0, first, self.counts[name])

    def number(self, node: Any) -> int:
        """The number of a node (type, i); a number is returned as it is."""
        if not isinstance(node, tuple):
            return _whole(node, node)
        name, i = node if len(node) == 2 else (None, None)
        count = self.counts.get(name) if isinstance(name, str) else None
        if count is None:
            raise InputError(
                argument="node", expected=f"(type, i) with a type of {', '.join(map(repr, self.counts))}", got=node
            )
        i = _whole(i, node)
        if not 0 <= i < count:
            raise InputError(
                f"There is no node {i} of type {name!r}: it has {count}, numbered from 0.",
                argument="node",
                expected=f"({name!r}, i) with i from 0 to {count - 1}",
                got=node,
            )
        return self.offsets[name] + i  # type: ignore[index]

    def named(self, node: int) -> TypedNode | None:
        """The type of a node, and its number within the type; None for -1, a position that a walk bypasses."""
        if node < 0:
            return None
        name = next(name for name, count in self.counts.items() if node < self.offsets[name] + count)
        return name, node - self.offsets[name]

    def written(self, nodes: Iterable[int]) -> list[str]:
        """Nodes in words: "user 0"."""
        return ["–" if node is None else f"{node[0]} {node[1]}" for node in map(self.named, map(int, nodes))]

    def read(self, text: str) -> int:
        """The number of a node written in words; digits are read as the number itself.

        >>> NodeTypes({"user": 2, "item": 3}).read("item 1")
        3
        """
        name, _, number = text.strip().rpartition(" ")
        if not number.isdecimal():
            raise InputError(argument="node", expected="a number, or a type and a number, such as 'user 0'", got=text)
        return self.number((name.strip(), int(number))) if name else int(number)

    def walk(self, nodes: Sequence[int] | Tensor) -> list[TypedNode | None]:
        """The nodes of a walk by their types.

        >>> NodeTypes({"user": 2, "item": 3}).walk(torch.tensor([0, -1, 4]))
        [('user', 0), None, ('item', 2)]
        """
        return [self.named(int(node)) for node in nodes]

    def numbers(self, nodes: Any) -> Any:
        """The numbers of nodes given as {type: ids} or as (type, i) one by one; anything else is returned as it is.

        >>> types = NodeTypes({"user": 2, "item": 3})
        >>> types.numbers({"item": torch.tensor([0, 2])}), types.numbers({"item": torch.tensor([True, False, True])})
        ([2, 4], [2, 4])
        """
        if isinstance(nodes, Mapping):
            return [self.number((name, i)) for name, ids in nodes.items() for i in self._ids(name, ids)]
        if isinstance(nodes, (list, tuple)) and any(isinstance(node, tuple) for node in nodes):
            return [-1 if node is None else self.number(node) for node in nodes]
        return nodes

    def _ids(self, name: str, given: Any) -> Sequence[Any]:
        """The nodes of a type as they are given: ids, or a mask."""
        if str(getattr(given, "dtype", "")).endswith("bool") and tuple(given.shape) == (self.counts.get(name),):
            given = torch.as_tensor(given).nonzero().view(-1)
        given = given.tolist() if hasattr(given, "tolist") else given
        if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
            expected, remedy = "a list of node ids", f"For a single node write {{{name!r}: [0]}}."
            raise InputError(argument=f"nodes[{name!r}]", expected=expected, got=described(given), remedy=remedy)
        return list(given)

    def grouped(self, nodes: Iterable[int]) -> dict[str, list[int]]:
        """Nodes by type, as a subgraph is given.

        >>> NodeTypes({"user": 2, "item": 3}).grouped([4, 0, 1])
        {'user': [0, 1], 'item': [2]}
        """
        named = sorted(node for node in map(self.named, map(int, nodes)) if node is not None)
        return {kind: found for kind in self.counts if (found := [i for name, i in named if name == kind])}

    def split(self, per_node: Tensor) -> dict[str, Tensor]:
        """Values of all nodes by type.  # (M, …) -> {type: (M_t, …)}"""
        return dict(zip(self.counts, torch.split(per_node, list(self.counts.values())), strict=True))

    def joined(self, by_type: Mapping[str, Tensor]) -> Tensor:
        """Values by type as those of all nodes.  # {type: (M_t, …)} -> (M, …)"""
        return torch.cat([by_type[name] for name in self.counts])

    def split_edges(self, per_edge: Tensor) -> dict[EdgeType, Tensor]:
        """Values of all edges by type.  # (E, …) -> {type: (E_t, …)}"""
        return dict(zip(self.edge_counts, torch.split(per_edge, list(self.edge_counts.values())), strict=True))


def _whole(i: Any, node: Any) -> int:
    try:
        return as_whole(i)
    except TypeError:
        raise InputError(argument="node", expected="a node id, or (type, i) with a node id", got=node) from None
