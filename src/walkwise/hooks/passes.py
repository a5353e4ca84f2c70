"""R_α(S) pass by pass: one forward and one backward pass for one choice of node weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from walkwise.errors import Described, InputError, TraceError, as_whole, described
from walkwise.hooks.masked_run import MaskedRun
from walkwise.rules import RuleLike, as_schedule
from walkwise.tracing.coverage import notes_of_coverage
from walkwise.tracing.given.arguments import Given
from walkwise.tracing.given.target import Target
from walkwise.tracing.lowering import Lowering
from walkwise.tracing.prediction import lowered
from walkwise.tracing.tracer import given_to

#: The nodes of a subgraph; of a heterogeneous graph by type.
Nodes = Sequence[int] | Tensor | Mapping[str, Sequence[int]] | Sequence[tuple[str, int]]


def subgraph_relevance(
    model: nn.Module,
    x: Tensor | Data | HeteroData | dict[str, Tensor],
    edge_index: Any = ...,
    nodes: Nodes = ...,  # type: ignore[assignment]
    *,
    alpha: float = 0.0,
    target: Target = None,
    against: Target = None,
    index: int | tuple[str, int] | None = None,
    rule: RuleLike = "gamma",
    **model_kwargs: Any,
) -> float:
    """Return R_α(S) of one subgraph by the forward-hook trick, the same number as ``walkwise.subgraph_relevance``.

    With α = 0, Algorithm 1: the gradient is let through at the nodes of S only, at H⁰ … Hᴸ, and
    R(S) = ⟨M ⊙ ∂y/∂H⁰, H⁰⟩. With α > 0, Algorithm 2 with the mask on H⁰ that Theorem 4 requires: a pass with weight 1
    inside S and α outside, minus a pass with 0 inside and α outside (the walks that never visit S).

    Args:
        model: any model that `walkwise.trace` takes. It is left as it was.
        x: a Data, HeteroData or Batch; or the node features, (M, F) or {type: (M_t, F_t)}.
        edge_index: with features, the edges; left out with a Data.
        nodes: the nodes of S: ids, or {type: ids} for a heterogeneous graph. After a Data, give them by name.
        alpha: the weight of every step outside S, from 0 to 1.
        target: the output column (default: the largest), one per graph, or a callable that makes a scalar.
        against: another column: the explained number is then the target's output minus this one.
        index: the output row, for node-level models; (type, i) for outputs by node type.
        rule: as for `walkwise.trace`; "gamma", the paper's, unless another is given.
        **model_kwargs: passed to the model.

    >>> import walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model, x = GCN(2, 8, 2, out_channels=3).double(), torch.ones(3, 2).double()
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> hooked = subgraph_relevance(model, x, edge_index, [0, 1], index=1, alpha=0.5)
    >>> chain = ww.trace(model, x, edge_index, index=1, rule="gamma")
    >>> abs(hooked - float(ww.subgraph_relevance(chain, [[0, 1]], alpha=0.5)[0])) < 1e-12
    True
    """
    schedule = as_schedule(rule)
    if not (isinstance(alpha, int | float) and 0 <= alpha <= 1):
        raise InputError(argument="alpha", expected="a discount between 0 and 1", got=alpha)
    if isinstance(index, (list, Tensor)):
        raise InputError(argument="index", expected="one row of the output", got=described(index))
    with given_to(model, x, edge_index, model_kwargs) as given:
        recording = lowered(given, (target, against), index, schedule, closed=False)
        inside = _inside(nodes, recording.given)
        outside = alpha * (1 - inside)
        with torch.no_grad():
            return _relevance(recording.lowering, recording.scalar.direction, inside, outside)


def _relevance(lowering: Lowering, direction: Tensor, inside: Tensor, outside: Tensor) -> float:
    """All walks with these weights, minus those that never visit S (Eq. 10)."""
    relevance, again = _pass(lowering, direction, inside + outside)
    if bool(outside.any()):
        relevance -= _pass(again, direction, outside)[0]
    if not math.isfinite(relevance):
        raise TraceError(
            f"The relevance of the subgraph is {relevance}: on the way to the input it becomes too large, or 0 / 0.",
            remedy="Convert the model and its input to float64, or use another rule.",
        )
    return relevance


def _pass(lowering: Lowering, direction: Tensor, weights: Tensor) -> tuple[float, Lowering]:
    """Σ over walks of (product of node weights) · relevance; and the same recording, for another pass."""
    run = MaskedRun(weights=weights)
    beginning = lowering.encode(run)
    run.begin(beginning.roots)
    layers = lowering.walk(beginning)
    end = run.tensors.get(lowering.read_out().slot)
    if end is None:
        return 0.0, lowering.again()
    with torch.enable_grad():
        y = (end.reshape(direction.shape) * direction).sum()
    followed = {slot: tensor for slot, tensor in run.tensors.items() if tensor.requires_grad}
    found = torch.autograd.grad(y, list(followed.values()), allow_unused=True)
    gradients = {slot: gradient for slot, gradient in zip(followed, found, strict=True) if gradient is not None}
    silent = lowering.silent_of(layers, set(gradients))
    if 0 < len(silent) < len(lowering.calls):  # a gate is all that these layers make
        return _pass(lowering.again(silent), direction, weights)
    lowering.reached = set(gradients)
    notes_of_coverage(lowering)
    roots = [(gradients[slot] * H).sum() for slot, H in beginning.roots if slot in gradients]
    return float(sum(roots)), lowering.again()


def _inside(nodes: Any, given: Given) -> Tensor:
    """1 on S, 0 elsewhere.  # (M,)"""
    M, types = given.num_nodes, given.types
    numbers = nodes if types is None or nodes is ... else types.numbers(nodes)
    try:
        ids = [as_whole(node) for node in (numbers.tolist() if isinstance(numbers, Tensor) else numbers)]
    except TypeError:
        example = "[0, 3, 4]" if types is None else f"{{{next(iter(types.counts))!r}: [0, 1]}}"
        got = Described("nothing") if nodes is ... else described(nodes)
        raise InputError(argument="nodes", expected=f"the nodes of a subgraph, such as {example}", got=got) from None
    wrong = [node for node in ids if not 0 <= node < M]
    if wrong:
        raise InputError(
            f"Node {wrong[0]} is not in the graph, whose {M} nodes are 0 to {M - 1}.",
            argument="nodes",
            expected=f"node ids from 0 to {M - 1}",
            got=wrong[0],
        )
    return torch.zeros(M, dtype=torch.float64).index_fill_(0, torch.tensor(ids, dtype=torch.long), 1)
