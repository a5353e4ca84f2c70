"""Calls that do not fit a model's ``forward``, in words."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NoReturn

from torch import Tensor, nn

from walkwise.errors import InputError, noted
from walkwise.tracing.given.signatures import NAMED, written

#: What a graph without features may be given; and the call where x and edge_index were meant.
ONES = (
    "Where there are no features, give ones: data.x = torch.ones(data.num_nodes, 1); where the model takes None for "
    "one-hot features, as RGCNConv does, torch.eye(data.num_nodes)."
)


def refuse_missing(
    model: nn.Module, signature: inspect.Signature, missing: list[str], held: Mapping[str, Any]
) -> NoReturn:
    """Refuse a graph that lacks what the model takes."""
    has, name = ", ".join(sorted(held)) or "nothing", missing[0]
    remedy = ONES if name == "x" else f"Set data.{name}, or give it by name: ww.trace(model, data, {name}=...)."
    raise InputError(
        f"{type(model).__name__}.forward{written(signature)} wants {', '.join(missing)}, which the graph does not "
        f"have; it has {has}.",
        argument=name,
        expected="given, or a part of the graph",
        got=has,
        remedy=remedy,
    )


def refuse_call(model: nn.Module, signature: inspect.Signature, given: str, why: str) -> NoReturn:
    """Refuse a call that does not fit a model's ``forward``."""
    names = [p.name for p in signature.parameters.values() if p.kind in NAMED]
    needed = [p for p in signature.parameters.values() if p.kind in NAMED and p.default is p.empty]
    remedy = (
        "It takes nothing: have it take a graph, def forward(self, x, edge_index), or, where it reads one from a "
        "variable outside, hand that very object over, ww.trace(model, data)."
        if not signature.parameters
        else f"It takes one object: write ww.trace(model, {names[0]}), with a torch_geometric Data or Batch."
        if len(needed) == 1 and names[0] not in ("x", "edge_index", "adj_t")
        else "Write ww.trace(model, x, edge_index, name=value, ...) with its own names, or ww.trace(model, data) "
        "with a Data object that has them."
    )
    raise InputError(
        f"{type(model).__name__}.forward{written(signature)} was given {given}, which does not fit: {why}.",
        argument="x",
        expected="what the model's forward takes",
        got=given,
        remedy=remedy,
    ) from None


def explain_types(error: Exception, tensors: Mapping[str, Tensor]) -> None:
    """Say which arguments are integers where the model's own error is about types of numbers."""
    whole = [n for n, t in tensors.items() if not t.is_floating_point() and n in ("x", "edge_attr", "edge_weight")]
    if whole and any(word in str(error) for word in ("dtype", "Long", "Int")):
        one = whole[0]
        raise InputError(
            f"The model cannot compute with {one} of {tensors[one].dtype} ({error}).",
            argument=one,
            expected="of floating-point numbers",
            got=tensors[one].dtype,
            remedy=f"If these are features, not numbers of categories, convert them: data.{one} = data.{one}.float().",
        ) from error
    noted(error, "Raised by the model, which got " + ", ".join(f"{n} {tuple(t.shape)}" for n, t in tensors.items()))
