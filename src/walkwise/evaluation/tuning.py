"""The discount α that serves a task best, found on held-out graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from walkwise.errors import InputError
from walkwise.evaluation.curves import mean_and_error
from walkwise.evaluation.ground_truth import Motif, motif_auroc
from walkwise.evaluation.inputs import graph_list
from walkwise.evaluation.parts import subgraph_values
from walkwise.evaluation.predictions import Prediction, predict, traced
from walkwise.evaluation.selections import prefixes, scores_of_order
from walkwise.questions.subgraphs import as_discounts
from walkwise.rules import RuleLike
from walkwise.search.orders import order_nodes

#: The eleven discounts of the paper's figures.
ALPHAS = tuple(step / 10 for step in range(11))


@dataclass(frozen=True, eq=False)
class AlphaCurve:
    """A task's score as a function of α; made by :func:`tune_alpha`."""

    task: str
    best_alpha: float
    alphas: tuple[float, ...]  # A
    mean: Tensor  # (A,)
    standard_error: Tensor  # (A,)
    scores: Tensor  # (G, A), every graph's own


def tune_alpha(
    model: nn.Module,
    graphs: Iterable[Data],
    *,
    task: str = "activation",
    alphas: float | Iterable[float] = ALPHAS,
    target: int | str | Callable[[Data], int | str] | None = None,
    index: int | Callable[[Data], int] | None = None,
    motif: Callable[[Data], Motif] | None = None,
    on: str = "logit",
    rule: RuleLike = "auto",
    progress: bool = False,
) -> AlphaCurve:
    """The α whose node orders do best on held-out graphs, with the whole curve.

    Every graph is traced once; each α then costs a search. The score is the AUAC of the activation order
    (task "activation", higher is better), the AUPC of the pruning order ("pruning", lower is better), or the
    AUROC of the activation order against the known motif ("motif", higher is better). Of equal α the
    smallest is best: it discounts most.

    Args:
        model: the model to explain.
        graphs: graphs to choose α on; report results on others.
        task: "activation", "pruning" or "motif".
        alphas: the discounts to try, between 0 and 1; one or several.
        target: the output column, or a function of the graph (``lambda data: int(data.y)``); default: the largest.
        index: the output row of a node-level model, or a function of the graph.
        motif: the known motif of a graph, for the task "motif".
        on: "logit" or "probability", what the curves follow.
        rule: the LRP rule, as for :func:`walkwise.trace`.
        progress: show a bar.

    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> graph = Data(torch.rand(4, 2), torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    >>> found = tune_alpha(model, [graph], index=1, alphas=[0.0, 0.5, 1.0])
    >>> found.best_alpha in found.alphas
    True
    """
    from tqdm.auto import tqdm

    if task not in ("activation", "pruning", "motif"):
        raise InputError(
            argument="task",
            expected='"activation", "pruning" or "motif"',
            got=task,
        )
    if task == "motif" and motif is None:
        raise InputError(
            'The task "motif" needs the motif of every graph.',
            argument="motif",
            expected="a function of the graph",
            remedy="Give motif=<a function of the graph>.",
        )
    tried = tuple(sorted(set(as_discounts(alphas))))
    if not tried:
        raise InputError(
            "alphas is empty.",
            argument="alphas",
            expected="at least one discount between 0 and 1",
            remedy="Give at least one discount between 0 and 1, as in [0.0, 0.5, 1.0].",
        )
    rows: list[Tensor] = []
    for data in tqdm(graph_list(graphs), disable=not progress, leave=False):
        prediction = predict(model, data, target=_of(target, data), index=_of(index, data))
        mode = "pruning" if task == "pruning" else "activation"
        orders = order_nodes(traced(prediction, rule=rule), mode=mode, alpha=tried).cpu()  # (A, M)
        if task == "motif":
            assert motif is not None
            known = motif(data)
            rows.append(torch.tensor([motif_auroc(scores_of_order(order), known) for order in orders]))
        else:
            rows.append(_areas(prediction, orders, task, on))
    scores = torch.stack(rows).double()  # (G, A)
    mean, error = mean_and_error(scores)
    best = mean.argmin() if task == "pruning" else mean.argmax()
    return AlphaCurve(task, tried[int(best)], tried, mean, error, scores)


def _areas(prediction: Prediction, orders: Tensor, task: str, on: str) -> Tensor:
    """AUAC or AUPC of every order; a node set that several orders share is evaluated once.  # (A,)"""
    A, M = orders.shape
    tops = torch.stack([prefixes(order, M) for order in orders])  # (A, M, M)
    if task == "pruning":
        tops = ~tops[:, :-1]
    sets, which = torch.unique(tops.reshape(-1, M), dim=0, return_inverse=True)
    values = subgraph_values(prediction, sets, on=on).values.cpu()[which].view(A, -1)
    if task == "activation":
        return values.mean(dim=1)
    return (values - prediction.value(on)).abs().sum(dim=1) / M  # with nothing removed nothing changes


def _of(choice: Any, data: Data) -> Any:
    """What was asked for, the same for every graph or a function of it."""
    return choice(data) if callable(choice) else choice
