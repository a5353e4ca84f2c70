"""The tracer: runs a model once, watches it, and makes a RelevanceChain of what it saw."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.data.data import BaseData
from torch_geometric.nn import HypergraphConv

from walkwise.core.chain import RelevanceChain
from walkwise.errors import CoverageWarning, InputError, TargetError, TraceError
from walkwise.rules import RuleLike, Schedule, as_schedule
from walkwise.tracing import linearize
from walkwise.tracing.lowering import Lowering
from walkwise.tracing.modules import Modules, a_weight, check_layers, check_weights, modules_of
from walkwise.tracing.private import compiled_from
from walkwise.tracing.shadow import same_random_numbers, shadow_of
from walkwise.tracing.tape import Tape
from walkwise.tracing.target import Explained, Target, explained
from walkwise.tracing.watch import Watch, check_fresh, note_handed


def trace(
    model: nn.Module,
    x: Tensor,
    edge_index: Any = ...,
    *,
    target: Target = None,
    index: int | None = None,
    rule: RuleLike = "gamma",
    fallback: str = "autograd",
    **model_kwargs: Any,
) -> RelevanceChain:
    """The relevance chain of one prediction ``model(x, edge_index, **model_kwargs)``.

    The model runs in evaluation mode, as its author wrote it, and is left as it was found.
    Attention coefficients, gates and the statistics of normalisations are held constant; every linear
    map is under its layer's LRP rule.

    Args:
        model: a model with torch_geometric message-passing layers.
        x: the node features, (M, F), or what the model takes in their place (atom numbers, say).
        edge_index: the edges, (2, E), or a sparse adjacency. Always to be given: of a PyG ``data``, the call is
            ``trace(model, data.x, data.edge_index)``, with ``batch=data.batch`` for a Batch.
        target: the output column to explain (default: the largest), one per graph of a batch, or a
            callable that makes a scalar from the output.
        index: the output row to explain, for node-level models.
        rule: "auto" (the generalised γ where a layer's output passes a non-linearity, LRP-0 where it does not),
            "gamma" (the paper's), "zero", "epsilon", "alphabeta", "zplus", a rule, one rule per message-passing
            layer, or a Schedule.
        fallback: "autograd" lets layers without a closed form be carried by autograd; "error" refuses.
        **model_kwargs: passed to the model. With ``batch`` the explained scalar is the sum of the
            graphs' own outputs, and walks never leave their graph.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(in_channels=2, hidden_channels=8, num_layers=2, out_channels=3)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> ww.trace(model, torch.ones(3, 2), edge_index, index=1, target=0)  # doctest: +ELLIPSIS
    RelevanceChain(2 layers, 3 nodes, output=...)
    """
    schedule = as_schedule(rule)
    if fallback not in ("autograd", "error"):
        raise InputError(f'fallback must be "autograd" or "error", got {fallback!r}.')
    model = _unwrapped(model)
    recording = torch.is_grad_enabled()  # an interrupt must not leave it switched off
    with torch.inference_mode(False) if torch.is_inference_mode_enabled() else torch.set_grad_enabled(recording):
        return _traced(model, x, edge_index, target, index, schedule, fallback, model_kwargs)


_IDLE = "layer '{}' ({}) ran, but the explained output does not follow from it; it is on no walk"
_HIDDEN = "node features went {}; what comes out of it counts as constant"

trace.linearize = linearize  # type: ignore[attr-defined]  # so that walkwise.trace.linearize is found


def _traced(
    model: nn.Module,
    x: Tensor,
    edge_index: Any,
    target: Target,
    index: int | None,
    schedule: Schedule,
    fallback: str,
    model_kwargs: dict[str, Any],
) -> RelevanceChain:
    def run(suspects: Sequence[str] = ()) -> tuple[Tape, Watch, Explained]:
        shadow = shadow_of(model)
        modules = modules_of(shadow)
        _check_input(modules, x, edge_index, model_kwargs)
        num_graphs, num_nodes = _num_graphs(model_kwargs), x.shape[0]
        tape = Tape()
        watch = Watch(tape, modules, fallback, suspects)
        features, arguments = _copies(x, model_kwargs)
        if features.is_floating_point():
            tape.follow_features(features)
        try:
            with same_random_numbers(), torch.enable_grad(), tape:
                output = shadow.model(features, edge_index, **arguments)
                scalar = explained(output, target, index, num_graphs, num_nodes)
        finally:
            watch.release()
        tape.check_aliases()
        return tape, watch, scalar

    def handed(disturbing: bool) -> list[Tensor]:
        shadow = shadow_of(model)
        seen = note_handed(modules_of(shadow), disturbing)
        features, arguments = _copies(x, model_kwargs)
        with same_random_numbers(), torch.no_grad():
            shadow.model(features, edge_index, **arguments)
        return seen

    tape, watch, scalar = run()
    if unreached := watch.unreached():  # run again and look whether they lose sight of what they take in
        tape, watch, scalar = run(unreached)
    if watch.fresh and not tape.cut:
        check_fresh(watch, handed)
    slot = tape.slot_of(scalar.tensor)
    _check_finite(tape, scalar.outputs, watch.modules, {"x": x})
    if slot is None:
        raise TargetError(
            "The explained scalar does not depend differentiably on the node features: the target (or the "
            "model) detaches it, rounds it, or takes an index instead of a value."
        )
    _check_rows(tape, x.shape[0])
    notes = [_HIDDEN.format(where) for where in sorted(tape.hidden)]
    for note in notes:
        warnings.warn(f"{note}.", CoverageWarning, stacklevel=3)
    with torch.no_grad():
        used = torch.empty(2, 0, dtype=torch.long) if watch.edge_index is None else watch.edge_index.clone()
        lowering = Lowering(tape, slot, schedule)
        idle = [_IDLE.format(call.name, type(call.module).__name__) for call in lowering.idle]
        for note in idle if tape.cut else ():  # by what the model has detached, perhaps
            warnings.warn(f"{note}.", CoverageWarning, stacklevel=3)
        return _in_one_type(lowering.chain(scalar, used, tape.first, [*notes, *idle]))


def _in_one_type(chain: RelevanceChain) -> RelevanceChain:
    """The chain in the widest of the floating-point types that its layers compute in: messages pass all of them."""
    passed = [place for layer in chain.layers for place in (*layer.starts, *layer.ends)]
    kinds = {values.dtype for _, values in (*chain.roots, *chain.seeds, *passed)}
    return chain if len(kinds) == 1 else chain.to(dtype=functools.reduce(torch.promote_types, kinds))


def _copies(x: Tensor, model_kwargs: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """The input anew, for every run: a model may write into it."""
    features = x.detach().clone()
    arguments = {
        name: features if value is x else value.clone() if _is_floating(value) else value
        for name, value in model_kwargs.items()
    }
    return features, arguments


def _check_finite(tape: Tape, outputs: Tensor, modules: Modules, given: dict[str, Tensor]) -> None:
    """Refuse features, weights and outputs that are not finite; looks closely only where something is wrong.

    A weight that is not finite shows in what it was used for, before an activation may hide it.
    """
    seen = [outputs, *([] if tape.first is None else [tape.values[tape.first]])]
    for op in tape.ops:
        constants = [a for a in (*op.args, *op.kwargs.values()) if isinstance(a, Tensor) and a.is_floating_point()]
        if constants or op.word.name == "propagate":
            seen += [tape.values[slot] for slot in op.outputs if slot is not None]
        if "norm" in op.word.name:  # an infinite variance shows nowhere
            seen += constants
    if _all_finite(seen, outputs.dtype):
        return
    check_tensors(given)
    check_weights(modules)
    if not bool(outputs.isfinite().all()):
        raise InputError(f"The model's output is not finite ({outputs.tolist()}); nothing can be explained.")


#: So many numbers are put together faster than each tensor is added up by itself.
_FEW = 1 << 16


def _all_finite(tensors: Sequence[Tensor], dtype: torch.dtype) -> bool:
    """Whether the sum of everything is finite; if it is, so is everything."""
    if sum(t.numel() for t in tensors) <= _FEW:
        total = torch.cat([t.reshape(-1) for t in tensors]).sum()
    else:
        total = torch.stack([t.sum().to(dtype) for t in tensors]).sum()
    return math.isfinite(total.item())


def check_tensors(given: dict[str, Tensor]) -> None:
    """Refuse dense tensors with entries that are not finite."""
    for name, tensor in given.items():
        dense = tensor.is_floating_point() and tensor.layout == torch.strided
        if dense and not bool(tensor.isfinite().all()):
            raise InputError(f"{name} has NaN or infinite entries; relevance needs finite numbers.")


def _check_rows(tape: Tape, num_nodes: int) -> None:
    """Refuse a first layer that runs on other nodes than x has rows."""
    rows = tape.values[tape.calls[0].handed].shape[0] if tape.calls else num_nodes
    if rows != num_nodes:
        raise TraceError(
            f"x has {num_nodes} rows but the first message-passing layer runs on {rows} nodes. Trace on the subgraph "
            "itself, so that node ids mean rows of x."
        )


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.layout == torch.strided


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, where torch.compile has wrapped it."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    return compiled_from(model) or model


def _num_graphs(model_kwargs: dict[str, Any]) -> int:
    batch = model_kwargs.get("batch")
    if not isinstance(batch, Tensor) or batch.numel() == 0:
        return 1
    return int(batch.max()) + 1


def _check_input(modules: Modules, x: Any, edge_index: Any, model_kwargs: dict[str, Any]) -> None:
    """Refuse what no relevance can be computed with, before the model runs."""
    if not isinstance(x, Tensor) or x.dim() == 0:
        raise InputError(f"x must be a tensor with one row per node, got {_kind(x)}.{_remedy(x)}")
    if x.shape[0] == 0:
        raise InputError("x has no nodes: a graph needs at least one.")
    if edge_index is ... or isinstance(edge_index, BaseData):
        came = "it was left out" if edge_index is ... else f"got {_kind(edge_index)}"
        raise InputError(f"edge_index must be the edges, (2, E), or a sparse adjacency; {came}.{_remedy(edge_index)}")
    check_layers(modules)
    given = {"x": x, "edge_index": edge_index} | model_kwargs
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    check_tensors({name: value for name, value in tensors.items() if name != "x"})  # x: where its effect is seen
    if not any(isinstance(conv, HypergraphConv) for _, conv in modules.convs):  # whose second row names hyperedges
        _check_edges(edge_index, x.shape[0])
    _check_places(a_weight(modules), x, tensors)


def _check_edges(edge_index: Any, num_nodes: int) -> None:
    """Refuse edges between nodes that do not exist."""
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        return
    if edge_index.is_floating_point() and edge_index.dim() == 2 and edge_index.shape[0] == 2 != edge_index.shape[1]:
        raise InputError(f"edge_index holds node ids and must be of integers (torch.long), got {edge_index.dtype}.")
    if edge_index.dtype != torch.long:
        return
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InputError(f"edge_index has shape (2, E), one column per edge; got {tuple(edge_index.shape)}.")
    if not edge_index.numel():
        return
    low, high = (int(end) for end in torch.aminmax(edge_index))
    if low < 0 or high >= num_nodes:
        raise InputError(f"edge_index names nodes {low} to {high}, but x has {num_nodes} rows (0 to {num_nodes - 1}).")


def _check_places(parameter: Tensor | None, x: Tensor, tensors: dict[str, Tensor]) -> None:
    """Refuse tensors on another device or of another type than the model's weights."""
    if parameter is None:
        return
    for name, tensor in tensors.items():
        if tensor.device != parameter.device:
            raise InputError(f"{name} is on {tensor.device} but the model is on {parameter.device}; move one of them.")
    if x.is_floating_point() and x.dtype != parameter.dtype:
        raise InputError(f"x is {x.dtype} but the model's weights are {parameter.dtype}; convert one of them.")


def _remedy(value: Any) -> str:
    """What to write where the edges were left out, or a PyG graph was given in place of its tensors."""
    if value is ...:
        return " Write ww.trace(model, x, edge_index)."
    if isinstance(value, HeteroData):
        return " Heterogeneous graphs are not supported."
    if not isinstance(value, BaseData):
        return ""
    batch = "" if getattr(value, "batch", None) is None else ", batch=data.batch"
    return (
        f" Write ww.trace(model, data.x, data.edge_index{batch}); what else the model takes follows by name, as "
        "edge_attr=data.edge_attr."
    )


def _kind(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
