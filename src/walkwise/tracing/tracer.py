"""The tracer: the one way in. Checks the call, has the model run and recorded, and returns a RelevanceChain."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from walkwise.core.chain import ExplainedNumber, RelevanceChain
from walkwise.errors import InputError, UnsupportedLayerError, described
from walkwise.rules import RuleLike, as_schedule
from walkwise.tracing import linearize
from walkwise.tracing.given.arguments import Given
from walkwise.tracing.given.binding import given_as
from walkwise.tracing.given.inputs import check_call, check_told, told_dim
from walkwise.tracing.given.target import Index, Target
from walkwise.tracing.neighbourhoods import Neighbourhoods
from walkwise.tracing.prediction import lowered
from walkwise.tracing.private import modes_on, take_modes_off, watched, wrapped_in
from walkwise.tracing.reach import is_several, neighbourhoods_for
from walkwise.tracing.running.checkpoints import checkpoints_in_sight
from walkwise.tracing.running.modules import has_layers
from walkwise.tracing.runs import ModelRuns


def trace(
    model: nn.Module,
    x: Tensor | Data | HeteroData | dict[str, Tensor] = ...,  # type: ignore[assignment]
    edge_index: Any = ...,
    *rest: Any,
    target: Target = None,
    against: Target = None,
    index: Index = None,
    rule: RuleLike = "auto",
    fallback: str = "autograd",
    **model_kwargs: Any,
) -> RelevanceChain:
    """Trace one prediction into a relevance chain: ``trace(model, data)``, or ``trace(model, x, edge_index)``.

    From a PyG ``data`` (a Data, or a Batch from a DataLoader) the model gets every attribute that its ``forward`` has a
    parameter for: x, edge_index (or adj_t), batch, edge_attr and so on. A ``forward(data)`` gets a copy of the graph
    itself. Tensors are passed on as they are: ``model(x, edge_index, **model_kwargs)``. So are the dictionaries of a
    heterogeneous graph, which a HeteroData provides under their names: ``x_dict``, ``edge_index_dict``, ... A model
    that takes a tuple, a dictionary or an object of your own is traced with that, ``trace(model, (x, edges))``, and one
    of two graphs with the other by its name, which counts as constant: ``trace(model, mol, protein=other)``.

    The model runs in evaluation mode, as its author wrote it, and is left as it was. Attention coefficients, gates and
    the statistics of normalisations are held constant; every linear map follows its layer's LRP rule.

    Args:
        model: a model with torch_geometric message-passing layers.
        x: a Data, HeteroData or Batch; or the node features, (M, F) or {type: (M_t, F_t)}, or what the model takes
            instead (atomic numbers, say).
        edge_index: with features, the edges, (2, E), or a sparse adjacency, or edges by type; left out with a Data.
        *rest: nothing: all other arguments of the model are given by name.
        target: the output column to explain (default: the largest), one per graph of a batch, or a callable that turns
            the output into a scalar. For a binary model with one logit, "positive" (or 1) is the logit and "negative"
            the logit with its sign flipped; 0 is always the first column itself.
        against: another column (or one per graph): the explained number is then the target's output minus this one:
            what speaks for one class and not for the other. A single logit is such a difference already.
        index: the output row to explain: a node, or for a link predictor the score of a pair. In a sampled subgraph
            (NeighborLoader) it is a row of the subgraph, as all node ids are. One node of a large graph is traced on
            the nodes that its output depends on, and all answers use the graph's own ids. A list of nodes gives the
            chain of a batch with one graph for each node, its neighbourhood. Node ids are then rows of that batch;
            ``chain.origin`` says which node of the graph a row is (``nodes``), and which neighbourhood it is in
            (``graphs``), to pass as the argument ``graphs`` of the questions. For outputs by node type, (type, i).
        rule: "auto" (the generalised γ = 3 in every layer), "gamma" (the paper's), "zero", "epsilon", "alphabeta",
            "zplus", a rule, one rule per message-passing layer, or a Schedule.
        fallback: with "autograd", autograd carries the parts of a layer that have no closed form; "error" refuses them.
        **model_kwargs: passed to the model; they take precedence over the attributes of a Data. With ``batch`` the
            explained scalar is the sum of the graphs' outputs, and walks stay within their graph, as edges do.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(in_channels=2, hidden_channels=8, num_layers=2, out_channels=3)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> ww.trace(model, torch.ones(3, 2), edge_index, index=1, target=0)  # doctest: +ELLIPSIS
    RelevanceChain(2 layers, 3 nodes, output=...)
    >>> from torch_geometric.data import Data
    >>> ww.trace(model, Data(torch.ones(3, 2), edge_index), index=1, target=0)  # doctest: +ELLIPSIS
    RelevanceChain(2 layers, 3 nodes, output=...)
    """
    check_call(model, x, rest, model_kwargs)
    schedule = as_schedule(rule)
    if fallback not in ("autograd", "error"):
        raise InputError(argument="fallback", expected='"autograd" or "error"', got=fallback)
    with given_to(model, x, edge_index, model_kwargs) as given:
        hoods, notes = neighbourhoods_for(given, target, index)
        recording = lowered(given, (target, against), index, schedule, hoods, notes)
        chain, hoods = replace(recording.chain(), explained=_named(recording.scalar.name, index)), recording.hoods
        if fallback == "error":
            _refuse_autograd(chain)
        return chain if hoods is None else _placed(chain, hoods, given, not is_several(index))


@contextmanager
def given_to(model: nn.Module, x: Any, edge_index: Any, model_kwargs: dict[str, Any]) -> Iterator[Given]:
    """Check a model's arguments; inside, it can be run and watched, whatever is switched off outside."""
    model, modes = _unwrapped(model), modes_on()
    ordinary = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
    try:
        with (
            torch.set_grad_enabled(torch.is_grad_enabled()),
            watched(),
            checkpoints_in_sight(),
            ordinary,
        ):  # an interrupt must not leave gradients, or the recording, switched off
            given = given_as(model, x, edge_index, model_kwargs)
            check_told(given)
            told = told_dim(given.x, given.edge_index, by_layers=has_layers(given.model), count=given.count)
            given = given.turned(told) if told else given
            if given.instead:  # failing runs must not leave records
                given, _ = given.taken(lambda way: ModelRuns(way).output())
            given.check()
            yield given if has_layers(given.model) else _with_layers(given)
    finally:
        take_modes_off(modes)  # which an interrupt has left on


def _with_layers(given: Given) -> Given:
    """The input of a model that has no message-passing modules, with the modules that count as its layers."""
    dense = given.may_be_matrices and len(given.x) == 1  # (1, M, F): one graph, for dense layers
    given = given.turned() if dense else given
    return ModelRuns(given).found()


trace.linearize = linearize  # type: ignore[attr-defined]  # so that walkwise.trace.linearize is found


def _named(number: ExplainedNumber | None, index: Index) -> ExplainedNumber | None:
    """The explained number, in the caller's own rows."""
    if number is None or index is None:
        return number
    if isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], str):
        return replace(number, index=(index[0], operator.index(index[1])))
    return None if is_several(index) else replace(number, index=operator.index(index))  # type: ignore[arg-type]


def _refuse_autograd(chain: RelevanceChain) -> None:
    """Refuse a layer that is carried by autograd."""
    for layer in chain.layers:
        if layer.route == "autograd":
            raise UnsupportedLayerError(
                f"layer '{layer.name}' ({layer.kind}) has no linearization.",
                argument="fallback",
                expected='"autograd" for a model with such a layer',
                got="error",
                remedy=f"Register one with walkwise.trace.linearize.register({layer.kind}), or trace with "
                'fallback="autograd".',
            )


def _placed(chain: RelevanceChain, hoods: Neighbourhoods, whole: Given, one: bool) -> RelevanceChain:
    """The chain of neighbourhoods, with their place in the graph; for one node, it uses the graph's ids."""
    origin, edge_index = hoods.origin, whole.edge_index
    if not torch.equal(chain.edge_index, hoods.edge_index):  # the model makes edges of its own
        origin, edge_index = replace(origin, edges=origin.edges[:0]), origin.nodes[chain.edge_index]
    chain = replace(chain, origin=origin)
    return replace(chain, num_nodes=whole.num_nodes, edge_index=edge_index, part=chain) if one else chain


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, if torch.compile or training on several devices has wrapped it."""
    if not isinstance(model, nn.Module):
        raise InputError(argument="model", expected="a torch.nn.Module", got=described(model))
    model = wrapped_in(model) or model
    looks = not isinstance(model, torch.jit.ScriptModule) and "forward" not in model.__dict__
    if looks and type(model).forward is nn.Module.forward:
        raise InputError(
            f"{type(model).__name__} has no forward, so it cannot be run.",
            argument="model",
            expected="a torch.nn.Module with a forward",
            got=described(model),
            remedy="Give it one that computes the number to explain: def forward(self, x, edge_index, "
            "edge_label_index): return self.decode(self.encode(x, edge_index), edge_label_index).",
        )
    return model
