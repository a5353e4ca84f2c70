"""The layers of a model without message-passing modules: the modules in which nodes are seen to send to nodes.

In one run of the model, this inspects each module that takes nodes (a row for each) and edges, returns a row for each
node, and holds no other such module. It is a layer if the rows that it returns depend on rows of other nodes. A
normalisation, or a perceptron that also takes edges, is not a layer; nor is the half of a layer that makes the messages
of edges, or collects them. Other modules of a layer's class are layers, too, also on fewer nodes, after pooling.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import is_sparse, to_edge_index

from walkwise.tracing.dependence import dependence, is_along, mixes
from walkwise.tracing.private import unwatched
from walkwise.tracing.running.places import Arguments, Place, at, by_name, items_in, renewed, tensors_in
from walkwise.tracing.running.stand_ins import dismiss, stand_in

#: The part of an adjacency's entries that must be used.
_MOST = 0.5
_COUNTED = "{} has no torch_geometric message-passing layer; counted as layers: {}"


@dataclass(frozen=True)
class Found:
    """A module that counts as a layer, and where its nodes and edges are. Places are those of the first call."""

    name: str
    kind: str
    handed: tuple[Place, ...]  # tensors of nodes that it sends, among its arguments by name
    returned: Place  # of the nodes, in what it returns
    edges: tuple[Place, ...] | None  # of both ends, where each is given by itself; None where nothing says who sends
    turned: bool = False  # whether the columns of an adjacency take, and its rows send; or the first ends

    def nodes(self, given: Arguments, follows: Callable[[Tensor], bool] = lambda _: False) -> Tensor | None:
        """The nodes among its arguments: those that are followed, or the first."""
        there = [item for place in self.handed if isinstance(item := at(place, given), Tensor)]
        return next(filter(follows, there), there[0] if there else None)

    def takes(self, given: Arguments) -> bool:
        """Whether arguments have nodes where they are to be, and edges: of a part of the graph, say."""
        edges = [] if self.edges is None else [at(place, given) for place in self.edges]
        return self.nodes(given) is not None and all(item is not None for item in edges)

    def edge_index(self, given: Arguments) -> Tensor | None:
        """The edges among its arguments.  # (2, E)"""
        if self.edges is None:
            return None
        with unwatched():
            ends = ends_of(_edges_at(self.edges, given))
        return ends.flip(0) if self.turned and ends is not None else ends

    def results(self, result: Any) -> list[Tensor]:
        """The tensors in what the module has returned, its nodes first."""
        tensors = dict(tensors_in(result))
        nodes = tensors.pop(self.returned, None)
        return [*([] if nodes is None else [nodes]), *tensors.values()]


def words_of(model: str, layers: Sequence[Found]) -> str:
    """Which modules count as layers: "gcl_0, gcl_1 (E_GCL)"."""
    kinds = dict.fromkeys(layer.kind for layer in layers)
    listed = [f"{', '.join(la.name for la in layers if la.kind == kind)} ({kind})" for kind in kinds]
    return _COUNTED.format(model, "; ".join(listed))


class Search:
    """Inspects the calls of a shadow's modules, except the model itself."""

    def __init__(self, modules: Sequence[tuple[str, Any]], num_nodes: int, x: Any) -> None:
        """Watch these modules, on a graph of so many nodes with features x."""
        self._modules, self._M, self._x = modules, num_nodes, x
        self._found: dict[str, Found] = {}
        self._outer: set[str] = set()  # modules that run layers, and are none
        self._silent: set[str] = set()  # modules that were looked at, and send nothing
        self._called: dict[str, Arguments] = {}  # what modules were given first, in the order of these calls
        self._calls, self._looking = 0, False  # calls of layers so far; whether one is made to look at it
        for name, module in modules:
            stand_in(module, "forward", self._forward(name, module))

    def release(self) -> None:
        """Break the reference cycle with the modules."""
        dismiss(self._modules)

    def layers(self) -> tuple[Found, ...]:
        """The layers, in the order in which they are called first."""
        found = {name: layer for name, layer in self._found.items() if name not in self._outer}
        own = [(name, module) for name, module in self._modules if not type(module).__module__.startswith("torch.")]
        alike = {type(module).forward: found[name] for name, module in own if name in found}
        for name, module in own:
            like = alike.get(type(module).forward) if name not in {*found, *self._silent, *self._outer} else None
            if like is not None and name in self._called and like.takes(self._called[name]):
                found[name] = replace(like, name=name, kind=type(module).__name__)
        return tuple(found[name] for name in self._called if name in found)

    def _forward(self, name: str, module: Any) -> Callable[..., Any]:
        original = module.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            given = by_name(module, args, kwargs)
            if not self._looking:
                self._called.setdefault(name, given)
            ways = [] if self._looking else self._edges(given)
            if not ways:
                return original(*args, **kwargs)
            before = renewed((args, kwargs), _copied)  # the module may write into what it is handed
            calls, result = self._calls, original(*args, **kwargs)
            if self._calls > calls:
                self._outer.add(name)
                return result
            for edges in ways if name not in self._found else ():
                if layer := self._looked_at(name, module, original, before, edges):
                    self._found[name] = layer
                    break
                self._silent.add(name)
            self._calls += name in self._found
            return result

        return forward

    # -- what a module is handed --------------------------------------------------------------

    def _edges(self, given: Arguments) -> list[tuple[Place, ...]]:
        """The place of edges, or of their two ends, if there are also nodes; several that may be it, if all may."""
        there = [(place, item) for place, item in items_in(given) if place and self._are_edges(item)]
        found = [place for place, item in there if not self._are_features(item)] or [place for place, _ in there]
        edges = tuple(found[:1]) or self._two_ends(given)
        if edges and any(True for _ in self._nodes(given, self._count(_edges_at(edges, given)), found)):
            return [edges]
        return [(place,) for place in reversed(found)] if len(found) > 1 else []  # h, (M, M), may look like adj

    def _two_ends(self, given: Arguments) -> tuple[Place, ...]:
        """The places of the first two vectors that may hold node numbers, one for each edge."""
        ids = [(place, len(item)) for place, item in tensors_in(given) if place and self._are_ids(item)]
        return next((one[:1] + other[:1] for one, other in itertools.pairwise(ids) if one[1] == other[1]), ())

    def _are_ids(self, item: Tensor) -> bool:
        vector = item.dtype == torch.long and item.layout == torch.strided and item.dim() == 1 and len(item) > 0
        return vector and bool(((item >= 0) & (item < self._M)).all())

    def _are_edges(self, item: Any) -> bool:
        """Whether something is an edge index, its two rows, or an adjacency, and not learned or made from nodes."""
        learned = isinstance(item, Tensor) and item.layout == torch.strided and item.requires_grad
        return item is not self._x and not learned and joins(item, self._M)

    def _are_features(self, item: Any) -> bool:
        """Whether something is the features, in another shape, say, which may have as many columns as rows."""
        x = self._x
        dense = isinstance(item, Tensor) and isinstance(x, Tensor) and item.layout == x.layout == torch.strided
        return dense and item.numel() == x.numel() and torch.equal(item.detach().reshape(x.shape).to(x), x)

    def _count(self, edges: Any) -> int:
        """How many rows nodes have: more than there are nodes if edges lead to others (a token of the whole graph)."""
        named = int(edges.max()) + 1 if is_edges(edges) and edges.numel() else 0
        return max(self._M, named)

    def _nodes(self, given: Any, count: int, edges: Sequence[Place] = ()) -> Iterator[tuple[Place, Tensor, Tensor]]:
        """The places of tensors with a row for each node, these tensors, and their rows."""
        for place, tensor in tensors_in(given):
            rows = None if place in edges else _rows(tensor, count)
            if rows is not None:
                yield place, tensor, rows

    # -- what it does with it -----------------------------------------------------------------

    def _looked_at(
        self, name: str, module: Any, original: Any, given: tuple[Any, ...], edges: tuple[Place, ...]
    ) -> Found | None:
        """The module as a layer, if its result for a node depends on other nodes; it is given (args, kwargs)."""
        named = by_name(module, *given)
        item = _edges_at(edges, named)
        count = self._count(item)
        nodes = list(self._nodes(named, count, edges))
        leaves = {id(tensor): rows.detach().requires_grad_() for _, tensor, rows in nodes}
        handed: list[Tensor] = []

        def clone(tensor: Tensor) -> Tensor:
            leaf = leaves.get(id(tensor))
            handed.append(_copied(tensor) if leaf is None else leaf.clone().view(tensor.shape))
            return handed[-1]

        self._looking = True
        try:
            args, kwargs = renewed(given, clone)
            result = original(*args, **kwargs)
        finally:
            self._looking = False
        ends, pairs = ends_of(item), _are_pairs(item)
        for place, made, rows in self._nodes(result, count):
            if not made.requires_grad or any(made is tensor for tensor in handed):
                continue
            sent = {known for known, leaf in leaves.items() if self._sends(rows, leaf, ends if pairs else None)}
            if sent:
                places = tuple(place for place, tensor, _ in nodes if id(tensor) in sent)
                told = pairs and len(edges) == 1
                leaf = leaves[min(sent, key=list(leaves).index)]
                there = None if told else turned(rows, leaf, ends)
                if len(edges) > 1 and (there is None or not _along(rows, leaf, ends)):
                    continue  # vectors of something else
                known = told or there is not None
                return Found(name, type(module).__name__, places, place, edges if known else None, bool(there))
        return None

    def _sends(self, made: Tensor, leaf: Tensor, pairs: Tensor | None) -> bool:
        """Whether rows depend on rows of a tensor other than their own."""
        if pairs is not None and pairs.shape[1] == len(made):  # rows of edges must not be taken for those of nodes
            return _between_nodes(made, leaf, pairs)
        return mixes(made, [leaf])


def _copied(tensor: Any) -> Any:
    """A tensor's copy, where it may be written into."""
    dense = isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.layout == torch.strided
    return tensor.detach().clone() if dense else tensor


def _rows(tensor: Tensor, num_nodes: int) -> Tensor | None:
    """The rows of nodes of a tensor (M, …), or (1, M, F).  # (M, …)"""
    if not tensor.is_floating_point() or tensor.layout != torch.strided or tensor.dim() < 2 or not tensor.numel():
        return None
    if tensor.dim() == 3 and tensor.shape[:2] == (1, num_nodes):
        return tensor[0]
    return tensor if len(tensor) == num_nodes else None


def _are_pairs(edges: Any) -> bool:
    """Whether edges are listed one by one, not given by an adjacency."""
    return not is_sparse(edges) and (isinstance(edges, (tuple, list)) or is_edges(edges))


def is_edges(item: Any) -> bool:
    """Whether something has the type and the shape of an edge index, (2, E)."""
    return isinstance(item, Tensor) and item.dtype == torch.long and item.dim() == 2 and item.shape[0] == 2


def joins(item: Any, num_nodes: int) -> bool:
    """Whether something is an edge index, its two rows, or an adjacency."""
    if isinstance(item, (tuple, list)):
        long = [isinstance(part, Tensor) and part.dtype == torch.long and part.dim() == 1 for part in item]
        return len(item) == 2 and all(long) and len(item[0]) == len(item[1])
    if is_sparse(item):
        return bool(item.size(0) == item.size(1) == num_nodes)
    square = isinstance(item, Tensor) and item.shape[-2:] == (num_nodes, num_nodes) and item.shape[:-2] in ((), (1,))
    return square or is_edges(item)


def ends_of(edges: Any) -> Tensor | None:
    """Sources and targets of edges; the rows of an adjacency are the receivers.  # (2, E)"""
    if isinstance(edges, (tuple, list)):
        return torch.stack(tuple(edges))
    if is_sparse(edges):
        return sparse_ends(edges)
    if not isinstance(edges, Tensor):
        return None
    return edges.as_subclass(Tensor) if is_edges(edges) else edges.view(edges.shape[-2:]).nonzero().t().flip(0)


def sparse_ends(adjacency: Any) -> Tensor:
    """Sources and targets of the entries of a sparse adjacency, whose rows are the receivers.  # (2, E)"""
    if isinstance(adjacency, Tensor) and adjacency.layout == torch.sparse_coo:
        return adjacency.detach().coalesce().indices().flip(0)  # torch_geometric would write into it
    return to_edge_index(adjacency)[0].flip(0)


def _between_nodes(made: Tensor, leaf: Tensor, ends: Tensor) -> bool:
    """Whether rows belong to nodes, if there are as many edges: rows of edges would not depend on each other so."""
    rows, depends = dependence(made, [leaf])
    every = torch.arange(len(made), device=made.device)
    taken = (rows.view(-1, 1) == ends[0]) | (rows.view(-1, 1) == ends[1])  # where edges are what is depended on
    taking = (every == ends[0, rows].view(-1, 1)) | (every == ends[1, rows].view(-1, 1))  # where edges depend
    others = depends & (rows.view(-1, 1) != every)
    return all(bool(where.any()) for where in (others, depends & ~taken, depends & ~taking))


def _edges_at(places: tuple[Place, ...], given: Any) -> Any:
    """Edges as they are given; of ends that are given one by one, both."""
    items = tuple(at(place, given) for place in places)
    return items if len(items) > 1 else items[0]


def _along(made: Tensor, leaf: Tensor, ends: Tensor | None) -> bool:
    """Whether rows depend only on their own and on those that edges join them to."""
    if ends is None:
        return False
    rows, depends = dependence(made, [leaf])
    return is_along(rows, depends.scatter(1, rows.view(-1, 1), False), ends)


def turned(made: Tensor, leaf: Tensor, ends: Tensor | None) -> bool | None:
    """Whether the columns of an adjacency are the receivers; None if neither they nor its rows are, as in a mask."""
    if ends is None:
        return None
    rows, depends = dependence(made, [leaf])
    rows, depends = rows[depends.any(1)], depends[depends.any(1)]  # without those that are dead
    place = torch.full((len(made),), -1, device=made.device).index_put((rows,), torch.arange(len(rows)).to(rows))
    sources, targets = ends[:, ends[0] != ends[1]]

    def seen(sources: Tensor, targets: Tensor) -> float:
        looked_at = place[targets] >= 0
        found = depends[place[targets[looked_at]], sources[looked_at]]
        return float(found.double().mean()) if found.numel() else 0.0

    by_rows, by_columns = seen(sources, targets), seen(targets, sources)
    return by_columns > by_rows if max(by_rows, by_columns) > _MOST else None
