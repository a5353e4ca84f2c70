"""``walkwise explain``: which nodes, and which sets of nodes, made the model say that."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from walkwise.cli import options
from walkwise.cli.beforehand import Request
from walkwise.cli.names import SourceError
from walkwise.cli.output import loading, say, show_table
from walkwise.display import count
from walkwise.errors import InputError

if TYPE_CHECKING:
    from walkwise.cli.predictions import TracedPrediction

#: The size of the set to find if neither an option nor a known motif sets it.
_SIZE = 5

#: How many nodes the table shows.
_SHOWN = 10


def explain(
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
    nodes: options.NodeLists = None,
    smarts: options.Smarts = None,
    functional: options.Functional = False,
    size: options.Size = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Explain a prediction: the nodes, and the sets of nodes, that it rests on.

    The sets are those given with --nodes, the known motif if the graph has one, the most relevant connected set of
    --size nodes, and the whole graph. The model is asked again on that most relevant set alone, and without it.
    """
    sets, patterns = options.node_lists(nodes or []), options.patterns(smarts or [])
    numbers = options.graph_numbers(graph, smiles)
    request = Request(model, graphs, weights, data, smiles, numbers, target, against, index, rule, featurise)
    with loading(request.words, quiet=as_json):
        from walkwise.cli.predictions import answer, groups_of, traced_of
    found = []
    for traced in traced_of(request):
        groups = groups_of(traced, sets, patterns, functional=functional)
        found.append((traced, traced.head("explain") | _report(traced, groups, alpha or [0.0, 0.5, 1.0], size)))
    answer(found, _show, as_json=as_json)


def _report(
    traced: TracedPrediction, sets: dict[str, list[int]], alphas: list[float], size: int | None
) -> dict[str, Any]:
    from walkwise.cli.sources import truth_of
    from walkwise.evaluation import motif_auroc
    from walkwise.explanation import check_subgraph
    from walkwise.questions.components import largest_component
    from walkwise.questions.subgraphs import subgraph_relevance
    from walkwise.search.best_subgraph import find_subgraph

    chain, truth = traced.chain, truth_of(traced.data)
    largest = largest_component(traced.prediction.edge_index, chain.num_nodes)
    graph = traced.subject.names[traced.number]
    size = size or min(len(truth) or _SIZE, largest)
    if size > chain.num_nodes:
        expected = f"at most {chain.num_nodes}, the number of nodes of {graph}"
        raise SourceError(f"--size must be {expected}, got {size}.", argument="size", expected=expected, got=size)
    if size > largest:
        raise InputError(
            f"--size is {size}, but {graph} is not connected: the largest connected component has {largest} nodes.",
            argument="size",
            expected=f"at most {largest}",
            got=size,
        )
    found = find_subgraph(chain, size)
    reason, names = traced.prediction.by_numbers, traced.subject.data.class_names
    named = {**sets, **({"known motif": truth} if truth else {}), f"found {size}": list(found.numbers)}
    named["whole graph"] = list(range(chain.num_nodes))
    relevance = subgraph_relevance(chain, list(named.values()), alpha=alphas).tolist()  # (B, A)
    scores = traced.node_relevance
    report: dict[str, Any] = {
        "alphas": alphas,
        "node_relevance": scores.tolist(),
        "subgraphs": [
            {"name": name, "nodes": nodes, "relevance": row}
            for (name, nodes), row in zip(named.items(), relevance, strict=True)
        ],
        "found": {"nodes": list(found.numbers), "relevance": found.score, "exhaustive": found.exhaustive},
        "check": None if reason else asdict(check_subgraph(traced.prediction, found.numbers, names)),
        "unchecked": reason.note if reason else None,
        "truth": None,
    }
    if truth:
        hits = len(set(truth) & set(found.numbers))
        auroc = motif_auroc(scores, truth) if len(truth) < chain.num_nodes else None
        report["truth"] = {"nodes": truth, "found": hits, "node_auroc": auroc}
    return report


def _show(traced: TracedPrediction, report: dict[str, Any]) -> None:
    from walkwise.questions.ties import by_size

    say(traced.headline(), wrap=True)
    scores = report["node_relevance"]
    best = by_size(traced.node_relevance)[:_SHOWN]
    truth = set(report["truth"]["nodes"]) if report["truth"] else set()
    rows = [
        (traced.listed([node]), scores[node], *(["yes" if node in truth else ""] if truth else [])) for node in best
    ]
    title = f"Nodes by the size of their relevance ({len(best)} of {len(scores)})"
    show_table(title, ["node", ">relevance", *(["in the motif"] if truth else [])], rows)
    columns = [f">α = {a:g}" for a in report["alphas"]]
    every = {"whole graph": f"all {len(scores)}"}
    rows = [
        (s["name"], every.get(s["name"]) or traced.listed(s["nodes"]), *s["relevance"]) for s in report["subgraphs"]
    ]
    note = "α = 0: walks that never leave the set; α = 1: all walks that touch it."
    show_table("Sets of nodes", ["set", "nodes", *columns], rows, note=note)
    say(_checked(report), wrap=True)
    if truth:
        known = report["truth"]
        words = f"The set that was found has {known['found']} of the {count(len(truth), 'node')} of the known motif"
        auroc = "" if known["node_auroc"] is None else f"; AUROC of the nodes' relevance {known['node_auroc']:.3f}"
        say(f"{words}{auroc}.", wrap=True)


def _checked(report: dict[str, Any]) -> str:
    """Whether the prediction depends on the set that was found, in a sentence."""
    from walkwise.explanation import Check, Outcome

    if report["check"] is None:
        return f"The set “found {len(report['found']['nodes'])}” was not checked: {report['unchecked']}"
    found = Check(**{name: Outcome(**outcome) for name, outcome in report["check"].items()})
    return f"The set “found {len(report['found']['nodes'])}”: {found.words()[0].lower()}{found.words()[1:]}"
