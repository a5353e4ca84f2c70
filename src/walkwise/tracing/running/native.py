"""Common layers, run natively: the operations that their ``forward`` would record, without its detours.

On small graphs, most of the time goes into what PyG does around a layer's few matrix products: modules and hooks,
keyword arguments, and normalising the same edges again for every layer. Here a layer is computed and recorded by hand.
This covers the classes as PyG wrote them, with ordinary arguments; anything unusual goes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import conv as pyg
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.dense.linear import Linear as PygLinear
from torch_geometric.nn.models import MLP
from torch_geometric.utils import add_self_loops, remove_self_loops

from walkwise.core.edges import Edges
from walkwise.core.operators import Aggregate
from walkwise.tracing.linearize import Affine, EdgeShelf
from walkwise.tracing.meaning.weights import propagate
from walkwise.tracing.private import (
    EDGE_HOOKS,
    autocasting,
    children_of,
    global_hooks,
    hooked,
    unwatched,
)
from walkwise.tracing.recording.tape import Tape

#: Records a layer: its output from its features, edges and edge weights; None, if nothing is recorded.
Recipe = Callable[["Native", Any, Tensor, Tensor, "Tensor | None"], "Tensor | None"]

#: Classes whose calls are known, with what they did when this was loaded.
_KNOWN = {
    kind: kind.forward
    for kind in (
        nn.Linear, PygLinear, nn.ReLU, nn.Dropout, nn.Identity, nn.BatchNorm1d, nn.Sequential, MLP, SumAggregation,
        MeanAggregation, pyg.GINConv, pyg.GCNConv, pyg.SAGEConv, pyg.GraphConv, pyg.GATConv,
    )
}  # fmt: skip
#: Arguments besides features and edges; just edge weights may be given.
_NAMES = {
    pyg.GINConv: ("size",),
    pyg.GCNConv: ("edge_weight",),
    pyg.SAGEConv: ("size",),
    pyg.GraphConv: ("edge_weight", "size"),
    pyg.GATConv: ("edge_attr", "size", "return_attention_weights"),
}


@dataclass(frozen=True, eq=False)
class Native:
    """Runs layers on behalf of a tape."""

    tape: Tape
    shelf: EdgeShelf

    def layer(self, conv: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """The output of a layer, recorded; None where the layer is to run itself."""
        with unwatched():
            given = self._given(conv, args, kwargs)
            if given is None:
                return None
            with torch.no_grad():
                return _RECIPES[type(conv)](self, conv, *given)

    def _given(
        self, conv: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """Features, edges and edge weights, if there is nothing else and nothing is out of the ordinary."""
        weight, names = kwargs.get("edge_weight"), _NAMES[type(conv)]
        if any(name not in names or (value is not None and name != "edge_weight") for name, value in kwargs.items()):
            return None
        if len(args) != 2 or type(args[0]) is not Tensor or type(args[1]) is not Tensor:
            return None
        if autocasting() or global_hooks() or not torch.is_grad_enabled() or not _ready(conv):
            return None
        x, edge_index = args
        between_nodes = edge_index.dtype == torch.long and edge_index.dim() == 2 and edge_index.shape[0] == 2
        if not between_nodes or x.dim() != 2 or not x.is_floating_point():
            return None
        return None if weight is not None and not self._weighs(weight, x, edge_index) else (x, edge_index, weight)

    def _weighs(self, weight: Any, x: Tensor, edge_index: Tensor) -> bool:
        """Whether edge weights are one constant number per edge."""
        plain = type(weight) is Tensor and weight.shape == edge_index.shape[1:] and weight.dtype == x.dtype
        return plain and self.tape.slot_of(weight) is None

    # -- what layers are made of --------------------------------------------------------------

    def linear(self, module: Any, x: Tensor) -> Tensor:
        """A linear module's output."""
        weight, bias = module.weight, module.bias
        result = F.linear(x, weight, bias)
        self.tape.record(F.linear, (x, weight, bias), result)
        return result

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """a + b."""
        result = a + b
        self.tape.record(torch.add, (a, b), result)
        return result

    def aggregate(self, x: Tensor, edges: Edges, weight: Tensor | None, root: float = 0.0) -> Tensor:
        """The sum or mean along the edges."""
        affine = Affine([(x, Aggregate(edges, weight, root))])
        result = affine.value()
        self.tape.record_affine(propagate, affine, result)
        return result

    def perceptron(self, parts: Sequence[Any], x: Tensor) -> Tensor:
        """Linear modules, batch normalisations and ReLUs in a row."""
        for part in parts:
            if type(part) is nn.ReLU:
                result = torch.relu(x)
                self.tape.record(torch.relu, (x,), result)
            elif type(part) is nn.BatchNorm1d:
                given = part.running_mean, part.running_var, part.weight, part.bias, False, 0.0, part.eps
                result = F.batch_norm(x, *given)
                self.tape.record(F.batch_norm, (x, *given), result)
            else:
                result = self.linear(part, x)
            x = result
        return x

    def edges_of(self, conv: Any, edge_index: Tensor, like: Tensor) -> tuple[Edges, Tensor | None]:
        """The edges as a layer reads them, and the weight of each if it takes the mean."""
        edges = self.shelf.get(edge_index, like.shape[0], conv.flow)
        if type(conv.aggr_module) is SumAggregation:
            return edges, None
        return edges, self.shelf.once(("mean", like.dtype, id(edges)), (), lambda: edges.shares(like.dtype))


# -- the layers -------------------------------------------------------------------------------


def _gin(native: Native, conv: Any, x: Tensor, edge_index: Tensor, _: Tensor | None) -> Tensor | None:
    parts, root = _parts(conv.nn), 1 + conv.eps.item()
    if parts is None or root < 0:
        return None
    edges, shares = native.edges_of(conv, edge_index, x)
    return native.perceptron(parts, native.aggregate(x, edges, shares, root))


def _gcn(native: Native, conv: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> Tensor:
    options = conv.improved, conv.add_self_loops, conv.flow, x.dtype

    def normalised() -> tuple[Edges, Tensor]:
        index, each = gcn_norm(edge_index, weight, x.shape[0], *options)
        return native.shelf.get(index, x.shape[0], conv.flow), each.detach()

    edges, each = native.shelf.once(("gcn", x.shape[0], *options), (edge_index, weight), normalised)
    out = native.aggregate(native.linear(conv.lin, x), edges, each)
    return out if conv.bias is None else native.add(out, conv.bias)


def _sage(native: Native, conv: Any, x: Tensor, edge_index: Tensor, _: Tensor | None) -> Tensor:
    edges, shares = native.edges_of(conv, edge_index, x)
    out = native.linear(conv.lin_l, native.aggregate(x, edges, shares))
    return native.add(out, native.linear(conv.lin_r, x)) if conv.root_weight else out


def _graph(native: Native, conv: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> Tensor:
    edges, each = native.edges_of(conv, edge_index, x)
    if weight is not None:
        each = weight.detach().clone() if each is None else each * weight.detach()
    out = native.linear(conv.lin_rel, native.aggregate(x, edges, each))
    return native.add(out, native.linear(conv.lin_root, x))


def _gat(native: Native, conv: Any, x: Tensor, edge_index: Tensor, _: Tensor | None) -> Tensor:
    """Attention is held constant: only the values that it weights are recorded."""
    M, H, C = x.shape[0], conv.heads, conv.out_channels

    def looped() -> Edges:
        index = add_self_loops(remove_self_loops(edge_index)[0], num_nodes=M)[0] if conv.add_self_loops else edge_index
        return native.shelf.get(index, M, conv.flow)

    edges = native.shelf.once(("gat", M, conv.add_self_loops, conv.flow), (edge_index,), looped)
    flat = native.linear(conv.lin, x)
    sent = flat.view(M, H, C)
    ends = (sent * conv.att_src).sum(-1), (sent * conv.att_dst).sum(-1)  # (M, H)
    score = F.leaky_relu(ends[0][edges.source] + ends[1][edges.target], conv.negative_slope)
    out = native.aggregate(flat, edges, _attention(score, edges.target, M))
    return out if conv.bias is None else native.add(out, conv.bias)


def _attention(score: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """The softmax over the edges that come to each node.  # (E, H) -> (E, H), or (E,) for one head"""
    index = target.view(-1, 1).expand_as(score)
    highest = score.new_zeros(num_nodes, score.shape[1]).scatter_reduce_(0, index, score, "amax", include_self=False)
    grown = (score - highest[target]).exp_()
    total = grown.new_full(highest.shape, 1e-16).index_add_(0, target, grown)  # as PyG does
    weight = grown / total[target]
    return weight.squeeze(-1) if weight.shape[1] == 1 else weight


_RECIPES: dict[type, Recipe] = {
    pyg.GINConv: _gin,
    pyg.GCNConv: _gcn,
    pyg.SAGEConv: _sage,
    pyg.GraphConv: _graph,
    pyg.GATConv: _gat,
}


# -- what is ordinary -------------------------------------------------------------------------


def is_native(conv: Any) -> bool:
    """Whether a layer, before it is watched, is one of those above, as PyG wrote it."""
    own = conv.__dict__
    replaced = not own.keys().isdisjoint(("forward", "propagate", "edge_update", "edge_updater"))
    written = type(conv) in _RECIPES and _KNOWN[type(conv)] is type(conv).forward
    return written and not replaced and not any(map(own.get, EDGE_HOOKS))


def _ready(conv: Any) -> bool:
    """Whether a layer's options and modules are ordinary."""
    aggr, kind = conv.aggr_module, type(conv)
    if not _plain(aggr) or conv.decomposed_layers > 1 or conv.training or conv.explain:
        return False
    if kind is pyg.GINConv:
        return type(conv.eps) in _TENSORS and conv.eps.numel() == 1
    if kind is pyg.GATConv:
        simple = (conv.concat or conv.heads == 1) and conv.res is None and conv.lin is not None and conv.node_dim == 0
        return simple and type(aggr) is SumAggregation and _is_linear(conv.lin)
    if kind is pyg.GCNConv:
        simple = conv.normalize and not conv.cached and type(aggr) is SumAggregation
        return simple and _is_linear(conv.lin)
    if kind is pyg.SAGEConv:
        simple = not conv.normalize and not conv.project
        return simple and _is_linear(conv.lin_l) and (not conv.root_weight or _is_linear(conv.lin_r))
    return _is_linear(conv.lin_rel) and _is_linear(conv.lin_root)


_TENSORS = (Tensor, nn.Parameter)
_CHANGED_BY_TRAINING = (nn.Dropout, nn.BatchNorm1d, MLP)


def _plain(module: Any) -> bool:
    """Whether calling a module does what its class did when this file was loaded, and nothing more."""
    kind = type(module)
    return kind in _KNOWN and _KNOWN[kind] is kind.forward and "forward" not in module.__dict__ and not hooked(module)


def _is_linear(module: Any) -> bool:
    return type(module) in (nn.Linear, PygLinear) and _plain(module) and type(module.weight) in _TENSORS


def _parts(module: Any) -> list[Any] | None:
    """The modules of a perceptron that have an effect, in order; None if there are unknown ones."""
    kind = type(module)
    if not _plain(module) or (module.training and kind in _CHANGED_BY_TRAINING):
        return None
    if kind is nn.Dropout or kind is nn.Identity:
        return []
    if kind is nn.ReLU:
        return [module]
    if kind is nn.BatchNorm1d:
        return [module] if module.running_mean is not None and module.running_var is not None else None
    if kind is nn.Sequential:
        return _joined(children_of(module).values())
    if kind is MLP:
        return _parts_of_mlp(module)
    return [module] if _is_linear(module) else None


def _parts_of_mlp(mlp: Any) -> list[Any] | None:
    if mlp.supports_norm_batch:
        return None
    lins, norms, act = list(mlp.lins), list(mlp.norms), [] if mlp.act is None else [mlp.act]
    rows = [[lin, *act, norm] if mlp.act_first else [lin, norm, *act] for lin, norm in zip(lins, norms, strict=False)]
    return _joined([part for row in rows for part in row] + (lins[-1:] if mlp.plain_last else []))


def _joined(modules: Iterable[Any]) -> list[Any] | None:
    found = [_parts(module) for module in modules]
    return None if None in found else [part for parts in found if parts is not None for part in parts]
