"""``walkwise order``: the nodes in greedy order, and the model's output along it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkwise.cli import options
from walkwise.cli.beforehand import Request
from walkwise.cli.names import choice
from walkwise.cli.output import loading, progress, say, show_table

if TYPE_CHECKING:
    from walkwise.cli.predictions import TracedPrediction

MODES = ("activation", "pruning")


def order(
    model: options.ModelName,
    graphs: options.DataName = None,
    weights: options.Weights = None,
    data: options.DataRoot = None,
    smiles: options.Smiles = None,
    featurise: options.Featurise = None,
    graph: options.GraphNumber = None,
    target: options.Target = None,
    against: options.Against = None,
    index: options.Index = None,
    rule: options.RuleName = "auto",
    alpha: options.Alphas = None,
    mode: Annotated[
        str, typer.Option(metavar="MODE", help="activation (most relevant first) or pruning (least relevant first).")
    ] = "activation",
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Order the nodes greedily by relevance, and follow the model's output along the order.

    Activation adds, at every step, the node that adds the most relevance; its curve is the model's output on the nodes
    added so far. Pruning removes the node that matters least; its curve is how far the output has moved.
    """
    choice(mode, MODES, "mode")
    numbers = options.graph_numbers(graph, smiles)
    request = Request(model, graphs, weights, data, smiles, numbers, target, against, index, rule, featurise)
    with loading(request.words, quiet=as_json):
        from walkwise.cli.predictions import answer, traced_of
    found = [
        (traced, traced.head("order") | {"mode": mode, "orders": _orders(traced, mode, alpha)})
        for traced in traced_of(request)
    ]
    answer(found, _show, as_json=as_json)


def _orders(traced: TracedPrediction, mode: str, given: list[float] | None) -> list[dict[str, Any]]:
    from walkwise.evaluation import activation_along, pruning_along
    from walkwise.search.orders import DISCOUNTS, order_nodes

    along = activation_along if mode == "activation" else pruning_along
    alphas, found = given or [DISCOUNTS[mode]], []
    orders = order_nodes(traced.chain, mode=mode, alpha=alphas, progress=progress())
    for alpha, nodes in zip(alphas, orders, strict=True):
        curve = along(traced.prediction, nodes, progress=progress())
        found.append({"alpha": alpha, "nodes": nodes.tolist(), "curve": curve.values.tolist(), "area": curve.area})
    return found


def _show(traced: TracedPrediction, report: dict[str, Any]) -> None:
    adds = report["mode"] == "activation"
    say(traced.headline(), wrap=True)
    for found in report["orders"]:
        area = f"{'AUAC' if adds else 'AUPC'} {found['area']:.4g}"
        first = "most relevant first" if adds else "least relevant first"
        title = f"{report['mode'].capitalize()} order, α = {found['alpha']:g}: {first}; {area}"
        # The i-th value of an activation curve has the i-th node; that of a pruning curve lacks only those before it.
        column = ">output with it" if adds else ">change before it goes"
        rows = [
            (step, traced.listed([node]), value)
            for step, (node, value) in enumerate(zip(found["nodes"], found["curve"], strict=True), start=1)
        ]
        show_table(title, [">step", "node", column], rows)
