"""Calls that do not fit a model's ``forward``, in words."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from torch import Tensor, nn
from torch_geometric.data.data import BaseData

from walkwise.errors import InputError, described, noted
from walkwise.tracing.given.signatures import NAMED, ORDERED, signature_of, written
from walkwise.tracing.precision import HALVES

#: What a graph without features may be given; and the call where x and edge_index were meant.
ONES = (
    "If there are no features, use ones: data.x = torch.ones(data.num_nodes, 1). If the model takes None for one-hot "
    "features, as RGCNConv does, use torch.eye(data.num_nodes)."
)


def refuse_missing(
    model: nn.Module, signature: inspect.Signature, missing: list[str], held: Mapping[str, Any]
) -> NoReturn:
    """Refuse a graph that lacks an argument of the model."""
    has, name = ", ".join(sorted(held)) or "nothing", missing[0]
    remedy = ONES if name == "x" else f"Set data.{name}, or give it by name: ww.trace(model, data, {name}=...)."
    raise InputError(
        f"{type(model).__name__}.forward{written(signature)} needs {', '.join(missing)}, which the graph does not "
        f"have; it has {has}.",
        argument=name,
        expected="given, or a part of the graph",
        got=has,
        remedy=remedy,
    )


def by_name(model: Any, graph: Any, more: int) -> str:
    """How to write a call by name, if extra arguments were given in order."""
    if isinstance(graph, BaseData):
        return "model, data, name=..."
    signature = signature_of(model) if isinstance(model, nn.Module) else None
    names = [] if signature is None else [p.name for p in signature.parameters.values() if p.kind in ORDERED]
    names = names[: 2 + more] if len(names) >= 2 + more else ["", "", "name"]
    if not {"edge_index", "adj_t"}.isdisjoint(names[2:]):
        return f"model, Data({', '.join(f'{name}=...' for name in names)})"
    return ", ".join(["model, x, edge_index", *(f"{name}=..." for name in names[2:])])


def refuse_call(model: nn.Module, signature: inspect.Signature, given: str, why: str) -> NoReturn:
    """Refuse a call that does not fit a model's ``forward``."""
    names = [p.name for p in signature.parameters.values() if p.kind in NAMED]
    needed = [p for p in signature.parameters.values() if p.kind in NAMED and p.default is p.empty]
    remedy = (
        "It takes no arguments: let it take a graph, def forward(self, x, edge_index), or, if it reads one from an "
        "outside variable, pass that very object, ww.trace(model, data)."
        if not signature.parameters
        else f"It takes one object: write ww.trace(model, {names[0]}), with a torch_geometric Data or Batch."
        if len(needed) == 1 and names[0] not in ("x", "edge_index", "adj_t")
        else "Write ww.trace(model, x, edge_index, name=value, ...) with the names of its parameters, or "
        "ww.trace(model, data) with a Data object that has them."
    )
    raise InputError(
        f"{type(model).__name__}.forward{written(signature)} was given {given}, which does not fit: {why}.",
        argument="x",
        expected="what the model's forward takes",
        got=given,
        remedy=remedy,
    ) from None


def taken_alone(model: nn.Module, name: str | None, error: Exception) -> InputError:
    """The error for a ``forward(x)`` that does not take features alone: it may want a graph, or a pair."""
    return InputError(
        f"{type(model).__name__}.forward({name}) takes one thing and was given x alone, which does not fit: {error}.",
        argument="x",
        expected="what the model's forward takes",
        got="x",
        remedy=f"If {name} is a graph, write ww.trace(model, data); if it is several tensors, let forward take them by "
        "name: def forward(self, x, edge_index).",
    )


#: Arguments that are tensors in every model.
_TENSORS = ("batch", "edge_attr", "edge_weight", "edge_type", "pos", "z")


def explain_kinds(error: Exception, edge_index: Any, arguments: Mapping[str, Any]) -> None:
    """Say which arguments are arrays or lists, or missing, where the model takes tensors."""
    if edge_index is None and "edge_index" in str(error):
        expected = "the edges, (2, E), or a sparse adjacency"
        raise InputError(argument="edge_index", expected=expected, got=None) from error
    held = edge_index if isinstance(edge_index, Mapping) else {None: edge_index}
    named = {"edge_index" if kind is None else f"edge_index[{kind!r}]": edges for kind, edges in held.items()}
    for name, value in (named | {n: v for n, v in arguments.items() if n in _TENSORS}).items():
        if isinstance(value, np.ndarray) or (isinstance(value, (list, tuple)) and _are_numbers(value)):
            raise InputError(
                f"The model cannot compute with {name}, {_kind(value)} ({error}).",
                argument=name,
                expected="a tensor",
                got=described(value),
                remedy=f"Make a tensor of it: torch.as_tensor({name}).",
            ) from error


def explain_precision(error: Exception, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Say which arguments are of another floating-point type than the model's weights."""
    weights = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    wrong = [name for name, t in tensors.items() if t.is_floating_point() and t.dtype not in weights]
    single = len(weights) == 1 and weights.isdisjoint(HALVES)  # those are run in another type first
    if wrong and single and "dtype" in str(error):
        (kind,), name = weights, wrong[0]
        raise InputError(
            f"{name} is {tensors[name].dtype} but the model's weights are {kind}; convert one of them.",
            argument=name,
            expected=f"of {kind}",
            got=tensors[name].dtype,
        ) from error


def explain_batch(error: Exception, arguments: Mapping[str, Any], num_nodes: int) -> None:
    """Say what is wrong with ``batch``."""
    batch = arguments.get("batch")
    fits = not isinstance(batch, Tensor) or (batch.shape == (num_nodes,) and not batch.is_floating_point())
    if fits or not isinstance(error, (IndexError, RuntimeError)):
        return
    expected = f"whole numbers, one for each node, of shape ({num_nodes},)"
    raise InputError(
        f"batch must be {expected}, got {described(batch)} ({error}).",
        argument="batch",
        expected=expected,
        got=described(batch),
    ) from error


def explain_edges(error: Exception, edge_index: Any, arguments: Mapping[str, Any]) -> None:
    """Say what has not one row for each edge."""
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or not isinstance(error, (IndexError, RuntimeError)):
        return
    E = edge_index.shape[1]
    for name in ("edge_attr", "edge_weight", "edge_type"):
        rows = arguments.get(name)
        if isinstance(rows, Tensor) and rows.dim() and len(rows) != E:
            raise InputError(
                f"{name} must have a row for each of the {E} edges, got {described(rows)} ({error}).",
                argument=name,
                expected=f"a tensor with a row for each of the {E} edges",
                got=described(rows),
            ) from error


def _are_numbers(value: Any) -> bool:
    """Whether a list, or a list of lists, is made of numbers."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(_are_numbers, value))
    return isinstance(value, (int, float, np.number))


def _kind(value: Any) -> str:
    return "a list of numbers" if isinstance(value, (list, tuple)) else "a NumPy array"


def _converted(name: str) -> str:
    """How to make floating-point numbers of x, or of x['user']."""
    attribute, _, kind = name.partition("[")
    place = f"data[{kind}.{attribute}" if kind else f"data.{attribute}"
    return f"{place} = {place}.float()"


#: What torch says where a table, or an embedding, is read at places that are no whole numbers.
_OF_LOOKING_UP = ("'indices' to have one of the following scalar types", "used as indices must be long", "index tensor")


def _explain_lookup(error: Exception, tensors: Mapping[str, Tensor], missed: str | None) -> None:
    """Say which arguments are no whole numbers, where the model looks something up by them."""
    broken = [n for n, t in tensors.items() if t.is_floating_point() and n in ("x", "z", "edge_attr", "edge_type")]
    if not broken:
        return
    one = broken[0]
    convert = f"data.{one} = data.{one}.long()" if missed is None else f"data.{missed} = data.x.view(-1).long()"
    remedy = f"If these are category numbers, convert them: {convert}."
    if missed is not None:
        remedy = f"The graph has no {missed}, so the model got x instead: set data.{missed}. {remedy}"
    raise InputError(
        f"The model looks {' or '.join(broken)} of {tensors[one].dtype} up in a table, which takes whole numbers "
        f"({error}).",
        argument=missed or one,
        expected="of whole numbers",
        got=tensors[one].dtype,
        remedy=remedy,
    ) from error


def explain_types(error: Exception, tensors: Mapping[str, Tensor], missed: str | None = None) -> None:
    """Say which arguments are integers, or are none, where the model's own error is about types of numbers."""
    if any(words in str(error) for words in _OF_LOOKING_UP):
        _explain_lookup(error, tensors, missed)
    numbers = ("x", "edge_attr", "edge_weight")
    whole = [n for n, t in tensors.items() if not t.is_floating_point() and n.partition("[")[0] in numbers]
    if whole and any(word in str(error) for word in ("dtype", "Long", "Int", "Bool")):
        one = whole[0]
        raise InputError(
            f"The model cannot compute with {one} of {tensors[one].dtype} ({error}).",
            argument=one,
            expected="of floating-point numbers",
            got=tensors[one].dtype,
            remedy=f"If these are features, not category numbers, convert them: {_converted(one)}.",
        ) from error
    noted(error, "Raised by the model, which got " + ", ".join(f"{n} {_seen(t)}" for n, t in tensors.items()))


def _seen(given: Tensor) -> str:
    """The shape of a tensor, and between what its numbers are where they are whole, as numbers of categories are."""
    whole = given.numel() and not given.is_floating_point() and not given.is_complex()
    return f"{tuple(given.shape)}" + (f" of {int(given.min())} to {int(given.max())}" if whole else "")
