"""``walkwise walks``: the most relevant walks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkwise.cli import options
from walkwise.cli.names import choice
from walkwise.cli.output import progress, say, show_table

if TYPE_CHECKING:
    from walkwise.cli.asked import Asked

BY = ("relevance", "magnitude")


def walks(
    model: options.ModelName,
    graphs: options.DataName = None,
    weights: options.Weights = None,
    data: options.DataRoot = None,
    smiles: options.Smiles = None,
    graph: options.GraphNumber = None,
    target: options.Target = None,
    index: options.Index = None,
    rule: options.RuleName = "auto",
    count: Annotated[int, typer.Option("--count", "-k", min=1, help="How many walks.")] = 10,
    by: Annotated[str, typer.Option(help="relevance (largest first) or magnitude.")] = "relevance",
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the most relevant walks, found exactly.

    A walk names the node at the input of every message-passing layer and at the output of the last; a dash where a skip
    connection lets it pass a position by.
    """
    from walkwise.cli.asked import answer, ask, opened

    choice(by, BY, "measure")
    session = opened(model, graphs, weights=weights, smiles=smiles or (), root=data)
    found = []
    for number in options.graph_numbers(graph, smiles):
        asked = ask(session, number, target=target, index=index, rule=rule)
        found.append((asked, asked.head("walks") | _report(asked, count, by)))
    answer(found, _show, as_json=as_json)


def _report(asked: Asked, count: int, by: str) -> dict[str, Any]:
    from walkwise.search.best_walks import top_walks

    found = top_walks(asked.chain, count, by="magnitude" if by == "magnitude" else "relevance", progress=progress())
    listed = [
        {"nodes": [None if node < 0 else node for node in nodes], "relevance": relevance}
        for nodes, relevance in zip(found.walks.tolist(), found.relevance.tolist(), strict=True)
    ]
    return {"by": by, "num_walks": found.num_walks, "walks": listed}


def _show(asked: Asked, report: dict[str, Any]) -> None:
    from walkwise.cli.sources import truth_of

    labels, truth = asked.labels, set(truth_of(asked.data))
    say(asked.headline())
    columns = ["walk, from input to output", ">relevance", *(["in the known motif"] if truth else [])]
    rows = []
    for walk in report["walks"]:
        steps = ["–" if node is None else f"{node} {labels[node]}" if labels else str(node) for node in walk["nodes"]]
        inside = sum(node in truth for node in walk["nodes"])
        share = [f"{inside} of {len(steps)} visits"] if truth else []
        rows.append((" → ".join(steps), walk["relevance"], *share))
    these = "The walk" if len(rows) == 1 else f"The {len(rows)} walks"
    title = f"{these} of largest {report['by']}, of {report['num_walks']}"
    show_table(title, columns, rows)
