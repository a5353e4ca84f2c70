"""``walkwise walks``: the most relevant walks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkwise.cli import options
from walkwise.cli.beforehand import Request
from walkwise.cli.names import choice
from walkwise.cli.output import loading, progress, say, show_table

if TYPE_CHECKING:
    from walkwise.cli.predictions import TracedPrediction

BY = ("relevance", "magnitude")


def walks(
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
    count: Annotated[int, typer.Option("--count", "-k", metavar="K", min=1, help="The number of walks.")] = 10,
    by: Annotated[str, typer.Option(metavar="MEASURE", help="relevance (largest first) or magnitude.")] = "relevance",
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the most relevant walks, exactly.

    A walk visits one node at the input of every message-passing layer and one at the output of the last. A dash marks
    a position that it passes by through a skip connection. Walks that tie share a line.
    """
    choice(by, BY, "measure")
    numbers = options.graph_numbers(graph, smiles)
    request = Request(model, graphs, weights, data, smiles, numbers, target, against, index, rule, featurise)
    with loading(request.words, quiet=as_json):
        from walkwise.cli.predictions import answer, traced_of
    found = [(traced, traced.head("walks") | _report(traced, count, by)) for traced in traced_of(request)]
    answer(found, _show, as_json=as_json)


def _report(traced: TracedPrediction, count: int, by: str) -> dict[str, Any]:
    from walkwise.search.best_walks import top_walks

    found = top_walks(traced.chain, count, by="magnitude" if by == "magnitude" else "relevance", progress=progress())
    listed = [
        {"nodes": [None if node < 0 else node for node in nodes], "relevance": relevance}
        for nodes, relevance in zip(found.walks.tolist(), found.relevance.tolist(), strict=True)
    ]
    ties = [
        {
            "walks": len(tie.walks),
            "relevance": tie.relevance,
            "complete": tie.complete,
            "words": tie.words(traced.labels),
        }
        for tie in found.tied
    ]
    return {"by": by, "num_walks": found.num_walks, "walks": listed, "ties": ties}


def _show(traced: TracedPrediction, report: dict[str, Any]) -> None:
    from walkwise.cli.sources import truth_of

    truth, rows, first = set(truth_of(traced.data)), [], 0
    say(traced.headline(), wrap=True)
    for tie in report["ties"]:
        nodes = report["walks"][first]["nodes"]
        inside = sum(node in truth for node in nodes)
        share = [f"{inside} of {len(nodes)} visits"] if truth else []
        rows.append((tie["words"], f"{tie['walks']}{'' if tie['complete'] else ' or more'}", tie["relevance"], *share))
        first += tie["walks"]
    columns = ["walk, from input to output", ">walks", ">relevance of each", *(["in the known motif"] if truth else [])]
    amount = len(report["walks"])
    these = "The walk" if amount == 1 else f"The {amount} walks"
    title = f"{these} of largest {report['by']}, of {report['num_walks']}"
    note = "Walks that tie share a line." if amount > len(rows) else ""
    show_table(title, columns, rows, note=note)
