"""How the caller's arguments are bound to a model's ``forward``: by name, by place, or as a whole graph."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import BaseData
from torch_geometric.utils import is_sparse

from walkwise.errors import InputError, described
from walkwise.tracing.given.arguments import READ, Given, graphs_of
from walkwise.tracing.given.hetero import of_hetero_graph, of_types
from walkwise.tracing.given.holders import EDGES
from walkwise.tracing.given.in_order import are_told, are_turned, edges_first, is_square, may_be_edges
from walkwise.tracing.given.manners import Manner
from walkwise.tracing.given.misfits import refuse_missing
from walkwise.tracing.given.objects import taken_apart
from walkwise.tracing.given.outside import reads
from walkwise.tracing.given.signatures import (
    left_for_a_graph,
    open_form,
    ordered_names,
    parameters_of,
    place_left,
    signature_of,
    takes_none,
)
from walkwise.tracing.running.found import is_edges

#: What a ``forward`` that takes anything by name gets of a graph, if it has it.
_HANDED_ON = (*(name for name in READ if name != "batch"), "edge_type")
#: What names of features begin with.
_FEATURES = ("x", "h", "in", "feat", "node")
#: Names of parameters that are not features: atomic numbers and positions.
_NO_FEATURES = frozenset({"z", "pos", "atomic_numbers", "atomic_number", "atom_types", "atoms", "species"})


def given_as(model: nn.Module, x: Any, edge_index: Any, arguments: dict[str, Any]) -> Given:
    """The model's arguments; if a PyG graph was given as x, the attributes that its ``forward`` takes."""
    own = taken_apart(model, x, arguments) if edge_index is ... else None
    if own is not None:
        return Given(model, *own)
    if isinstance(x, Mapping) or isinstance(edge_index, Mapping):
        return of_types(model, x, edge_index, arguments)
    if isinstance(x, BaseData) and edge_index is ...:
        return of_graph(model, x, arguments)
    parameters = parameters_of(model)
    if isinstance(x, BaseData) and isinstance(edge_index, BaseData) and len(names := ordered_names(parameters)) > 1:
        return of_graph(model, x, arguments | {names[1]: edge_index})  # two graphs, in order
    if edge_index is ... and isinstance(x, Tensor) and (by_name := _edges_by_name(parameters, arguments)) is not None:
        rest = {name: value for name, value in arguments.items() if name != by_name}
        return Given(model, x, arguments[by_name], rest, Manner(ordered_names(parameters)[0], by_name, False))
    manner = Manner() if _in_place(parameters, arguments) else _manner(parameters)
    if not arguments and _takes_features_alone(model, parameters, x):  # it knows its edges itself
        manner = Manner(parameters[0].name, None, False)
    turned = edges_first(parameters)
    if turned is not None and are_turned(x, edge_index):
        x, edge_index = edge_index, x
    if turned is not None and manner == Manner() and are_told(x, edge_index):
        manner = Manner(*turned, False)
    form = open_form(model)
    if form in ("**kwargs", "*args, **kwargs"):
        instead = (manner,) if form == "*args, **kwargs" else ()
        return Given(model, x, edge_index, arguments, Manner("x", "edge_index", False), instead)
    return Given(model, x, edge_index, arguments, manner)


def of_graph(model: nn.Module, data: Any, given: Mapping[str, Any]) -> Given:
    """The model's arguments from a PyG graph: attributes by the names of parameters, or the graph itself.

    Args:
        model: the model; the parameters of its ``forward`` decide.
        data: a Data or a Batch.
        given: what the caller gave by name; it takes precedence.
    """
    if isinstance(data, HeteroData):
        return of_hetero_graph(model, data, given)
    if not isinstance(data, Data):
        raise InputError(argument="graph", expected="a torch_geometric Data, HeteroData or Batch", got=described(data))
    held = {name: data[name] for name in data.keys() if data[name] is not None}  # noqa: SIM118  (it is no dict)
    parameters = parameters_of(model)
    if not parameters and reads(model, data):
        whole = _whole(model, data, held, given)
        return replace(whole, manner=replace(whole.manner, outside=True))
    form = open_form(model)
    if form == "*args, **kwargs" and not parameters:
        return _by_any_name(model, data, held, given)
    if form == "**kwargs":
        return _by_every_name(model, data, held, given)
    if form == "*args" and not held.keys().isdisjoint(READ):
        return _whole_or_in_order(model, data, held, given)
    if _takes_whole(parameters, held, given):
        whole, x = _whole(model, data, held, given), held.get("x")
        alone = Manner(left_for_a_graph(parameters, given)[0].name, None, False, only=frozenset(given))
        several = isinstance(x, Tensor) and x.dim() > 2  # perhaps of a model that knows its edges itself
        return replace(whole, instead=(alone,)) if several else whole
    return _by_name(model, data, held, given, parameters)


def _whole(model: nn.Module, data: Data, held: dict[str, Any], given: Mapping[str, Any]) -> Given:
    edges = next((name for name in EDGES if name in held), "edge_index")
    arguments = {name: value for name, value in held.items() if name not in ("x", edges)} | dict(given)
    has_x, has_edges = "x" in held, edges in held
    manner = Manner("x" if has_x else None, edges if has_edges else None, False, data, frozenset(given))
    manner = replace(manner, name=place_left(parameters_of(model), given))
    return Given(model, held.get("x"), held.get(edges), arguments, manner, data=data)


def _whole_or_in_order(model: nn.Module, data: Data, held: dict[str, Any], given: Mapping[str, Any]) -> Given:
    """The arguments of a ``forward(*argv)``: the graph, or x and edge_index if that is all the graph has."""
    whole = _whole(model, data, held, given)
    if set(READ) & held.keys() != {"batch"} or whole.num_graphs > 1:
        return whole
    return replace(whole, instead=(Manner(only=frozenset(given)),))


def _by_any_name(model: nn.Module, data: Data, held: dict[str, Any], given: Mapping[str, Any]) -> Given:
    """The arguments of a ``forward(*args, **kwargs)``: what most models read, by name, or else the graph itself."""
    whole = _whole(model, data, held, given)
    read = frozenset(given).union(READ)
    by_name = replace(whole.manner, whole=None, beside=frozenset(), only=read)
    typed = replace(by_name, only=read.union(_HANDED_ON))
    in_order = Manner(only=frozenset({*given, "batch"}))
    first, more = (typed, [by_name]) if "edge_type" in held else (by_name, [])
    return replace(whole, manner=first, instead=(*more, replace(whole.manner, name="data"), whole.manner, in_order))


def _by_every_name(model: nn.Module, data: Data, held: dict[str, Any], given: Mapping[str, Any]) -> Given:
    """The arguments of a ``forward(**kwargs)``: all that the graph has, or what most models read, or the least."""
    whole = _whole(model, data, held, given)
    least, read = frozenset(given), frozenset(given).union(READ)
    plain = replace(whole.manner, whole=None, beside=frozenset(), name=None)
    return replace(whole, manner=plain, instead=(replace(plain, only=read), replace(plain, only=least)))


def _by_name(
    model: nn.Module,
    data: Data,
    held: dict[str, Any],
    given: Mapping[str, Any],
    parameters: list[inspect.Parameter],
) -> Given:
    edge_index, x = next((held[name] for name in EDGES if name in held), None), held.get("x")
    manner = _manner(parameters, {**held, **given})
    if manner.edges == "adj_t":
        edge_index = held.get("adj_t", edge_index)
    taken = [p for p in parameters if p.name not in (manner.x, manner.edges)]
    arguments = {p.name: value for p in taken if (value := _value(p, data, held, given)) is not None} | dict(given)
    manner = replace(manner, x=None if x is None else manner.x, edges=None if edge_index is None else manner.edges)
    arguments |= {p.name: None for p in parameters if x is None and p.name == "x" and takes_none(p)}
    bound = {manner.x, manner.edges, *arguments}
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in bound]
    signature = signature_of(model)
    if missing and signature is not None:
        refuse_missing(model, signature, missing, held)
    usual = ordered_names(parameters)[:2] == [manner.x, manner.edges] and open_form(model) != "*args, **kwargs"
    missed = manner.x if manner.x in _NO_FEATURES else None
    plain = Given(model, x, edge_index, arguments, Manner() if usual else manner, data=data, missed=missed)
    more = {name: held[name] for name in _HANDED_ON if name in held and name not in bound}
    if not more or not _takes_more_by_name(signature):
        return plain
    fewer = [frozenset(arguments).union(more) - {"edge_type"}, frozenset(arguments)]
    instead = tuple(replace(plain.manner, only=only) for only in fewer)
    return replace(plain, arguments=arguments | more, instead=instead)


def _takes_more_by_name(signature: inspect.Signature | None) -> bool:
    """Whether a ``forward(x, edge_index, **kwargs)`` takes more than it names."""
    kinds = [] if signature is None else [p.kind for p in signature.parameters.values()]
    return inspect.Parameter.VAR_KEYWORD in kinds


def _manner(parameters: list[inspect.Parameter], known: Mapping[str, Any] | None = None) -> Manner:
    """How a ``forward`` with these parameters is given x and edge_index; with ``known``, always by name.

    Those of other names (``h``, ``adj``) are found by their places, the first and the second.
    """
    names = [parameter.name for parameter in parameters]
    if known is None:  # tensors: in order, unless their names stand elsewhere
        in_order = ordered_names(parameters)[:2]
        if {"x", "edge_index"} <= set(names):
            return Manner() if in_order == ["x", "edge_index"] else Manner("x", "edge_index", False)
        return Manner("x", in_order[0], False) if (edges_first(parameters) or ())[:1] == ("x",) else Manner()
    if not names:
        return Manner()
    unknown = [p.name if p.default is p.empty and p.name not in known else None for p in parameters[:2]] + [None, None]
    x = "x" if "x" in names else unknown[0]
    edges = next((name for name in EDGES if name in names), unknown[1])
    return Manner(x, edges, False)


def _in_place(parameters: list[inspect.Parameter], given: Mapping[str, Any]) -> bool:
    """Whether features go to a ``forward(z, edge_index, x=None)`` as ``z``, the first argument if it is missing."""
    first, others = parameters[:1], {p.name: p for p in parameters[1:]}
    optional = "x" in others and others["x"].default is not inspect.Parameter.empty
    return optional and ordered_names(parameters)[1:2] == ["edge_index"] and first[0].name not in given


def _edges_by_name(parameters: list[inspect.Parameter], given: Mapping[str, Any]) -> str | None:
    """The only argument by name that is edges, by what it is called and what it is; of a ``forward(x, adj)``."""
    names = ordered_names(parameters)
    found = [name for name in names[1:] if name in given and may_be_edges(name)]
    edges = [name for name in found if is_edges(given[name]) or is_sparse(given[name]) or is_square(given[name])]
    return edges[0] if len(edges) == 1 and names[0] not in given else None


def _takes_features_alone(model: nn.Module, parameters: list[inspect.Parameter], x: Any) -> bool:
    """Whether a ``forward(x)`` takes nothing else, and by its name, or because of several matrices, no graph."""
    signature = signature_of(model)
    alone = signature is not None and len(signature.parameters) == len(parameters) == 1
    own = not type(model).__module__.startswith("torch.")  # no torch.nn.Sequential: nothing in it knows edges
    several = isinstance(x, Tensor) and x.dim() > 2
    return own and alone and (several or parameters[0].name.lower().startswith(_FEATURES))


def _takes_whole(parameters: list[inspect.Parameter], held: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether ``forward`` takes the graph as one object: ``forward(data)``, ``forward(batch)``, ..."""
    names = {parameter.name for parameter in parameters}
    left = left_for_a_graph(parameters, given)
    if not left or names & {"x", *EDGES}:
        return False
    first, *others = left
    if first.name in given or (first.name in held and first.name != "batch"):
        return False
    if isinstance(first.default, (bool, int, float, str)):  # a switch of a model that takes no graph
        return False
    return all(p.default is not p.empty or p.name in given for p in others)


def _value(parameter: inspect.Parameter, data: Data, held: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """What a parameter gets from a graph, or None."""
    name = parameter.name
    if name in given:
        return given[name]
    needed = parameter.default is parameter.empty and name in held
    if name == "batch_size" and "batch" not in held and not needed:  # of a sampled graph: how many nodes are asked for
        return None
    if name in held:
        return held[name]
    if parameter.default is not parameter.empty:
        return None
    num_nodes = int(data.num_nodes or 0)
    if name == "batch":
        edges = next((held[n] for n in (*EDGES, "x") if isinstance(held.get(n), Tensor)), None)
        return torch.zeros(num_nodes, dtype=torch.long, device=None if edges is None else edges.device)
    graphs = graphs_of(data) or 1
    return {"num_nodes": num_nodes, "num_edges": data.num_edges, "num_graphs": graphs, "batch_size": graphs}.get(name)
