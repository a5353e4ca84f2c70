"""``walkwise compare``: several explainers on the same graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkwise.cli import options
from walkwise.cli.beforehand import Request
from walkwise.cli.names import METHODS, METRICS, SourceError, choice
from walkwise.cli.output import loading, print_json, progress, say, show_table
from walkwise.display import count, number

if TYPE_CHECKING:
    from walkwise.cli.sources import Subject

_METHODS = ("random", "gradient-x-input", "gnn-lrp", "sgnn-lrp")


def compare(
    model: options.ModelName,
    graphs: options.DataName = None,
    weights: options.Weights = None,
    data: options.DataRoot = None,
    smiles: options.Smiles = None,
    featurise: options.Featurise = None,
    graph: Annotated[
        list[int] | None, typer.Option(metavar="N", min=0, help="A graph to measure on; can be given several times.")
    ] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="The number of held-out graphs, unless --graph names some.")
    ] = 10,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"An explainer; can be given several times. One of {', '.join(METHODS)}."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"A measure; can be given several times. One of {', '.join(METRICS)}."),
    ] = None,
    target: options.Target = None,
    index: options.Index = None,
    alpha: options.Alphas = None,
    seed: Annotated[int, typer.Option(metavar="N", help="The seed of explainers that draw random numbers.")] = 0,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Compare explainers by activation and pruning curves, fidelity, and accuracy against a known motif.

    Higher is better, except for aupc and fidelity-. Accuracy and auroc need graphs with a known motif.
    """
    methods = [choice(name, METHODS, "method") for name in method or _METHODS]
    metrics = [choice(name, METRICS, "measure") for name in metric or ("auac", "aupc")]
    request = Request(model, graphs, weights, data, smiles, graph or (), target, index=index, featurise=featurise)
    words = f"Comparing {', '.join(methods)} by {', '.join(metrics)}: {model} on {request.source}."
    with loading(words, quiet=as_json):
        from walkwise import baselines
        from walkwise.cli.predictions import opened, predicted
        from walkwise.cli.sources import truth_of
        from walkwise.evaluation.types import node_of
        from walkwise.search.orders import DISCOUNTS
    subject = opened(request)
    chosen = _chosen(subject, graph, limit)
    _check_motifs(subject, chosen, metrics)
    column: int | str | None = target
    for one in chosen:  # what does not fit is said before anything is measured
        found = predicted(subject, one, target=target, index=index)
        if target is not None and isinstance(found.target, int):  # of a class, its column
            column = "negative" if found.negative else "positive" if len(found.logits) == 1 else found.target
    rows = baselines.compare(
        methods,
        subject.model,
        [subject.graph(one) for one in chosen],
        metrics=metrics,
        alphas=alpha or (DISCOUNTS["activation"],),
        target=column,
        index=None if index is None else lambda data: node_of(data, index),
        motif=truth_of if {"accuracy", "auroc"} & set(metrics) else None,
        seed=seed,
        progress=progress(),
    )
    report = {
        "command": "compare",
        "model": subject.model_name,
        "data": subject.data.source,
        "graphs": chosen,
        "rows": [vars(row) for row in rows],
    }
    if as_json:
        print_json(report)
    else:
        _show(report)


def _chosen(subject: Subject, named: Sequence[int] | None, limit: int) -> list[int]:
    """The graphs to measure on: the given ones, or an even selection of the held-out ones."""
    if named:
        return list(named)
    held_out = subject.data.held_out
    count = min(limit, len(held_out))
    return [held_out[i * len(held_out) // count] for i in range(count)]


def _check_motifs(subject: Subject, chosen: Sequence[int], metrics: Sequence[str]) -> None:
    from walkwise.cli.sources import truth_of

    wanted = [name for name in metrics if name in ("accuracy", "auroc")]
    without = [one for one in chosen if wanted and not truth_of(subject.graph(one))]
    if without:
        raise SourceError(
            f"{wanted[0]} needs a known motif (ground_truth), which graph {without[0]} does not have.",
            argument="metric",
            expected="a metric that needs no motif",
            got=wanted[0],
        )


def _show(report: dict[str, Any]) -> None:
    metrics = list(dict.fromkeys(row["metric"] for row in report["rows"]))
    lines: dict[tuple[str, Any], dict[str, dict[str, Any]]] = {}
    for row in report["rows"]:
        lines.setdefault((row["method"], row["alpha"]), {})[row["metric"]] = row
    rows = []
    for (method, alpha), found in lines.items():
        one = next(iter(found.values()))
        cells = [_mean(found[m]) if m in found else "" for m in metrics]
        rows.append((method, alpha, *cells, one["graphs"], 1e3 * one["seconds"]))
    graphs = count(len(report["graphs"]), "graph")
    title = f"{report['model']} on {graphs} of {report['data']}: mean ± standard error"
    columns = ["method", ">α", *(f">{metric}" for metric in metrics), ">graphs", ">ms / graph"]
    show_table(title, columns, rows)
    for note in dict.fromkeys(f"{row['method']}: {row['note']}" for row in report["rows"] if row["note"]):
        say(note)


def _mean(row: dict[str, Any]) -> str:
    """A mean with its standard error, which does not exist for a single graph."""
    mean = number(row["mean"])
    if math.isnan(row["mean"]):
        return ""
    return mean if math.isnan(row["standard_error"]) else f"{mean} ± {row['standard_error']:.2g}"
