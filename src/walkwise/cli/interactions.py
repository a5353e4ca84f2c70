"""``walkwise interactions``: walks sorted by the groups of nodes that they visit."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkwise.cli import options
from walkwise.cli.beforehand import Request
from walkwise.cli.output import loading, say, show_table
from walkwise.errors import InputError

if TYPE_CHECKING:
    from walkwise.cli.predictions import TracedPrediction


def interactions(
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
    nodes: options.NodeLists = None,
    smarts: options.Smarts = None,
    functional: options.Functional = False,
    query: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMULA", help="A formula of group names, &, |, ~ and parentheses; can be given several times."
        ),
    ] = None,
    max_order: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="The largest number of groups in a term.")
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show how much relevance groups of nodes carry alone, and how much only together.

    Name the groups with --nodes ring=3-8 or, for molecules, with --smarts NO2='[N+](=O)[O-]'; without either, the
    functional groups of a molecule are used. A term is the relevance of the walks that visit all of its groups and no
    other node. A --query such as "ring & NO2" sums the walks that visit both, wherever else they go; "rest" stands for
    the nodes in no group, so "ring & NO2 & ~rest" is the term again.
    """
    sets, patterns = options.node_lists(nodes or []), options.patterns(smarts or [])
    functional = functional or not (sets or patterns)
    numbers = options.graph_numbers(graph, smiles)
    request = Request(model, graphs, weights, data, smiles, numbers, target, against, index, rule, featurise)
    with loading(request.words, quiet=as_json):
        from walkwise.cli.predictions import answer, groups_of, traced_of
    found = []
    for traced in traced_of(request):
        groups = groups_of(traced, sets, patterns, functional=functional)
        found.append((traced, traced.head("interactions") | _report(traced, groups, query or [], max_order)))
    answer(found, _show, as_json=as_json)


def _report(
    traced: TracedPrediction, groups: dict[str, list[int]], formulas: Sequence[str], max_order: int | None
) -> dict[str, Any]:
    from walkwise.questions.groups import interactions as terms_of

    shared = _shared(groups)
    if shared and not formulas:
        raise InputError(
            f"Groups {shared[0]!r} and {shared[1]!r} share node {shared[2]}; terms need groups that do not overlap.",
            argument="nodes",
            expected="groups that do not overlap",
            got=f"{shared[0]} and {shared[1]}",
            remedy="Remove the node from one of them, or ask with --query, which allows overlaps.",
        )
    answers = [{"formula": text, "relevance": _answer(traced, text, groups)} for text in formulas]
    found = None if shared else terms_of(traced.chain, groups, max_order=max_order)
    terms = {} if found is None else found.terms
    return {
        "groups": groups,
        "terms": [{"groups": list(names), "relevance": value} for names, value in terms.items()],
        "union": None if found is None else found.union,
        "remainder": None if found is None else found.remainder,
        "queries": answers,
    }


def _answer(traced: TracedPrediction, text: str, groups: dict[str, list[int]]) -> float:
    """The relevance of the walks that satisfy a formula."""
    from walkwise.questions.groups import query

    try:
        return query(traced.chain, text, groups)
    except InputError as error:
        odd = next((name for name in groups if not re.fullmatch(r"\w+", name)), None)
        if odd is None:
            raise
        nodes = ",".join(map(str, groups[odd]))
        raise InputError(
            f"Formulas name groups by one word, and {odd!r} is not one: write --nodes a={nodes}. {error}",
            argument="nodes",
            expected="named by one word",
            got=odd,
        ) from error


def _shared(groups: dict[str, list[int]]) -> tuple[str, str, int] | None:
    """Two groups and a node in both, if there are any: formulas allow it, terms do not."""
    for (one, some), (other, more) in itertools.combinations(groups.items(), 2):
        if both := set(some) & set(more):
            return one, other, min(both)
    return None


def _show(traced: TracedPrediction, report: dict[str, Any]) -> None:
    say(traced.headline(), wrap=True)
    rows: list[tuple[Any, ...]] = [(name, traced.listed(nodes)) for name, nodes in report["groups"].items()]
    show_table("Groups", ["group", "nodes"], rows)
    if report["terms"]:
        rows = [(" + ".join(term["groups"]), term["relevance"]) for term in report["terms"]]
        if abs(report["remainder"]) > 1e-5 * abs(report["union"]):
            rows.append(("higher orders", report["remainder"]))
        rows.append(("all of these", report["union"]))
        note = "Each of these walks visits every named group, and no other node."
        show_table("Walks that visit exactly these groups", ["groups", ">relevance"], rows, note=note)
    if report["queries"]:
        rows = [(answer["formula"], answer["relevance"]) for answer in report["queries"]]
        note = "Walks may go anywhere that the formula does not forbid; “rest” is the nodes in no group."
        show_table("Walks that satisfy a formula", ["formula", ">relevance"], rows, note=note)
