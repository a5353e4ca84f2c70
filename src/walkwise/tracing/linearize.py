"""Closed forms of message passing: what ``propagate`` does to the node tensors it is given.

The rest of a layer (its linear maps, biases, heads, skips) is recorded as it runs, so a closed form
only has to say which linear map ``propagate`` is, once attention and gates are held constant.
Register one for your own layer with::

    @walkwise.trace.linearize.register(MyConv)
    def my_conv(conv, call):
        return call.sum("x", weight=call["edge_weight"])

It returns an :class:`Affine`, or None to leave this call to autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.utils import is_sparse, to_edge_index

from walkwise.core.edges import Edges
from walkwise.core.operators import Aggregate, Operator, Scale
from walkwise.core.row_maps import Send
from walkwise.tracing.private import MESSAGE_HOOKS, global_hooks, hooked, version_of

T = TypeVar("T")
ClosedForm = Callable[[Any, "PropagateCall"], "Affine | None"]

_FORMS: dict[type, ClosedForm] = {}
_PARTS = ("message", "aggregate", "update", "message_and_aggregate")


@dataclass(frozen=True, eq=False)
class Affine:
    """The map that a closed form gives for ``propagate``: Σ operator(tensor) + constant.

    Attributes:
        terms: the node tensors among propagate's arguments, each with the linear map applied to it.
        constant: a term that does not depend on those tensors, (M, N), if any.
        activated: whether messages go through an activation, which ends a rule's stretch before it.
    """

    terms: Sequence[tuple[Tensor, Operator]]
    constant: Tensor | None = None
    activated: bool = False

    def value(self) -> Tensor:
        """The result."""
        (first, operator), *rest = self.terms
        total = operator.push(_flat(first))
        for tensor, operator in rest:
            total = total + operator.push(_flat(tensor))
        total = total if self.constant is None else total + self.constant
        return total if first.dim() == 2 else total.view(-1, *first.shape[1:])


def register(kind: type) -> Callable[[ClosedForm], ClosedForm]:
    """Decorate a function to make it the closed form of a message-passing class.

    It serves subclasses too, unless they override what ``propagate`` calls.
    """

    def add(form: ClosedForm) -> ClosedForm:
        if kind in _FORMS:
            raise ValueError(f"{kind.__name__} already has a closed form: {_FORMS[kind].__qualname__}.")
        _FORMS[kind] = form
        return form

    return add


def closed_form(conv: torch.nn.Module) -> ClosedForm | None:
    """Return the closed form for a module, or None.

    It speaks for the class as written: a layer whose parts were overridden, replaced or hooked, or whose
    messages an explainer masks, computes something else.
    """
    kind = type(conv)
    base = kind if kind in _FORMS else next((base for base in kind.__mro__ if base in _FORMS), None)
    if base is None or getattr(conv, "explain", False):
        return None
    if kind is not base and any(getattr(kind, part, None) is not getattr(base, part, None) for part in _PARTS):
        return None
    own = conv.__dict__
    replaced = not own.keys().isdisjoint(_PARTS) or _own_propagate(conv)
    return None if replaced or any(map(own.get, MESSAGE_HOOKS)) else _FORMS[base]


def _own_propagate(conv: torch.nn.Module) -> bool:
    """Whether an instance has its own propagate, different from its class's.

    PyG leaves the class's own propagate on a layer whose messages were masked once.
    """
    found = conv.__dict__.get("propagate")
    return found is not None and getattr(found, "__func__", None) is not getattr(type(conv), "propagate", None)


@dataclass(eq=False)
class EdgeShelf:
    """Hands out one Edges for equal edges, so that layers share what is computed for them."""

    _made: list[Edges] = field(default_factory=list)
    _once: dict[Any, tuple[tuple[Any, ...], Any]] = field(default_factory=dict)

    def once(self, name: tuple[Hashable, ...], given: tuple[Tensor | None, ...], make: Callable[[], T]) -> T:
        """Compute something from tensors once, and reuse it for the same tensors as long as nobody writes into them."""
        key = name, *[None if tensor is None else (id(tensor), version_of(tensor)) for tensor in given]
        if key not in self._once:
            self._once[key] = given, make()  # with the tensors, so that no identity is used again
        made: T = self._once[key][1]
        return made

    def get(self, edge_index: Tensor, num_nodes: int, flow: str) -> Edges:
        """The edges of an edge index (2, E), source to target."""

        def make() -> Edges:
            source, target = (edge_index.clone() if flow == "source_to_target" else edge_index.flip(0)).unbind(0)
            return Edges(source.contiguous(), target.contiguous(), num_nodes).shared(self._made)

        return self.once(("edges", num_nodes, flow), (edge_index,), make)


@dataclass(frozen=True, eq=False)
class PropagateCall:
    """The arguments of one ``propagate`` and the closed forms that most layers need."""

    conv: Any
    edge_index: Any
    arguments: dict[str, Any]
    shelf: EdgeShelf
    follows: Callable[[Any], bool] = lambda _: False
    size: Any = None  # how many nodes send and receive, where the layer says so

    def __getitem__(self, name: str) -> Any:
        """One of propagate's keyword arguments."""
        return self.arguments[name]

    def node_tensor(self, name: str) -> Tensor:
        """The source side of a node argument (PyG passes one tensor or a pair)."""
        value = self.arguments[name]
        tensor: Tensor = value[0] if isinstance(value, (tuple, list)) else value
        return tensor

    def receivers(self, name: str) -> int:
        """How many nodes receive messages: as many as send them, unless there are two node sets."""
        value = self.arguments[name]
        if isinstance(value, (tuple, list)) and value[1] is not None:
            return int(value[1].shape[0])
        received = self.size[1] if self.size is not None else None
        return int(self.node_tensor(name).shape[0] if received is None else received)

    def edges(self, num_nodes: int) -> tuple[Edges, Tensor | None]:
        """Source and target of every edge, and the values of a sparse adjacency if one was given."""
        if is_sparse(self.edge_index):
            adjacency: Any = self.edge_index
            if isinstance(adjacency, Tensor) and adjacency.layout == torch.sparse_coo:
                adjacency = adjacency.coalesce()  # torch_geometric would take it for that, and write so into it
            (target, source), given = to_edge_index(adjacency)
            value: Tensor | None = given
            if not isinstance(adjacency, Tensor) and not adjacency.has_value():
                value = None
            return self.shelf.get(torch.stack([source, target]), num_nodes, "source_to_target"), value
        plain = self.edge_index
        if isinstance(plain, EdgeIndex):
            plain = plain.as_tensor()
        return self.shelf.get(plain, num_nodes, self.conv.flow), None

    def weights(self, edges: Edges, weight: Tensor | None, like: Tensor) -> Tensor | None:
        """The edge weights, including the mean's factor 1 / (number of edges at the target)."""
        weight = None if weight is None else weight.detach().to(like.dtype, copy=True)  # training may change it
        if not isinstance(self.conv.aggr_module, MeanAggregation):
            return weight
        share = edges.shares(like.dtype)  # (E,)
        return share if weight is None else share.view(-1, *[1] * (weight.dim() - 1)) * weight

    @property
    def additive(self) -> bool:
        """Whether messages are summed or averaged."""
        aggr = self.conv.aggr_module
        changed = hooked(aggr) or global_hooks() or "forward" in aggr.__dict__
        plain = type(aggr) in (SumAggregation, MeanAggregation) and not changed
        known = isinstance(self.edge_index, Tensor) or is_sparse(self.edge_index)  # of others the layer complains
        return plain and known and self.conv.decomposed_layers == 1

    def sum(self, name: str, weight: Tensor | None = None, *, ignore_values: bool = False) -> Affine | None:
        """Σ or mean over edges of weight · x_j, with one weight per edge, per head or per neuron.

        A sparse adjacency brings its values as weights where none are given, unless they are ignored.
        """
        x: Tensor | None = self.node_tensor(name)
        if x is None:
            return None
        nodes_first = x.dim() == 2 or (x.dim() == 3 and self.conv.node_dim in (0, -3))
        if not self.additive or not nodes_first or not x.is_floating_point():
            return None
        senders, receivers = x.shape[0], self.receivers(name)
        if senders != receivers and self.conv.flow != "source_to_target":
            return None
        edges, values = self.edges(max(senders, receivers))
        if weight is None and not ignore_values:
            weight = values
        if weight is not None and weight.dim() > 1 and weight.shape[-1] == 1:
            weight = weight.squeeze(-1)
        if weight is not None and weight.shape[:1] != edges.source.shape[:1]:  # the layer says best what is wrong
            return None
        each = self.weights(edges, weight, x)
        return Affine([(x, Aggregate(edges, each) if senders == receivers else Send(edges, each, senders, receivers))])


def _flat(tensor: Tensor) -> Tensor:
    """A node tensor's values, flat.  # (M, …) -> (M, N)"""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return tensor if tensor.dim() == 2 else tensor.flatten(1)


def _weighted(name: str) -> ClosedForm:
    def form(conv: Any, call: PropagateCall) -> Affine | None:
        return call.sum("x", call[name])

    return form


for _kind, _name in (
    (pyg.GCNConv, "edge_weight"),
    (pyg.GraphConv, "edge_weight"),
    (pyg.SGConv, "edge_weight"),
    (pyg.TAGConv, "edge_weight"),
    (pyg.ChebConv, "norm"),
    (pyg.GATConv, "alpha"),
    (pyg.GATv2Conv, "alpha"),
):
    register(_kind)(_weighted(_name))


@register(pyg.GINConv)
@register(pyg.SAGEConv)
def _plain(conv: Any, call: PropagateCall) -> Affine | None:
    """Σ x_j; PyG drops the values of a torch_sparse adjacency here, but not those of torch's own."""
    return call.sum("x", ignore_values=not isinstance(call.edge_index, Tensor))


@register(pyg.RGCNConv)
def _rgcn(conv: Any, call: PropagateCall) -> Affine | None:
    """One relation at a time; PyG's fused product over all relations is left to autograd."""
    return None if call["edge_type_ptr"] is not None else _plain(conv, call)


@register(pyg.GINEConv)
def _gine(conv: Any, call: PropagateCall) -> Affine | None:
    """relu(x_j + e): the edge's part is constant, and so is which neurons are on."""
    x, edge_attr = call.node_tensor("x"), call["edge_attr"]
    if call.receivers("x") != x.shape[0]:
        return None
    if not call.additive or edge_attr is None or is_sparse(call.edge_index) or call.follows(edge_attr):
        return None
    edges, _ = call.edges(x.shape[0])
    edge_attr = (edge_attr if conv.lin is None else conv.lin(edge_attr)).detach()  # (E, N)
    gate = ((x[edges.source] + edge_attr) > 0).to(x.dtype).detach()
    weight = call.weights(edges, gate, x)
    assert weight is not None
    constant = torch.zeros_like(x).index_add(0, edges.target, weight * edge_attr)
    return Affine([(x, Aggregate(edges, weight))], constant.detach(), activated=True)


@register(pyg.LEConv)
def _le(conv: Any, call: PropagateCall) -> Affine | None:
    """Σ w (a_j − b_i): along the edges from a, and at the node itself from b."""
    a, b, weight = call["a"], call["b"], call["edge_weight"]
    if not call.additive or is_sparse(call.edge_index) or a.shape[0] != b.shape[0]:
        return None
    edges, _ = call.edges(a.shape[0])
    weight = a.new_ones(edges.source.numel()) if weight is None else weight.view(-1)
    weight = call.weights(edges, weight, a)
    assert weight is not None
    terms: list[tuple[Tensor, Operator]] = [(a, Aggregate(edges, weight))]
    for part in (weight.clamp(min=0), weight.clamp(max=0)):  # apart, for rules that separate signs
        received = torch.zeros_like(a[:, :1]).index_add(0, edges.target, part.view(-1, 1))  # (M, 1)
        terms.append((b, Scale(-received)))
    return Affine(terms)
