"""The answers to the page's questions about a case: plain functions, without Dash."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from walkwise import smarts
from walkwise.core.node_types import NodeTypes
from walkwise.errors import InputError, TooManyWalksError
from walkwise.evaluation import activation_along
from walkwise.explorer.cases import Case
from walkwise.questions.groups import REST, Interactions, interactions, query
from walkwise.questions.subgraphs import as_discount, subgraph_polynomial
from walkwise.questions.ties import ties_in_order
from walkwise.questions.walks import enumerate_walks, walk_relevance
from walkwise.search.best_walks import top_walks
from walkwise.search.orders import DISCOUNTS, order_nodes

#: How many values of α a curve is drawn through.
_POINTS = 51
#: Up to this many walks are listed to find the top ones.
_FEW_WALKS = 10_000
_RANGE = re.compile(r"(\d+)(?:\s*[-\N{EN DASH}]\s*(\d+))?")


@dataclass(frozen=True)
class SelectionAnswer:
    """R_α of a node set for one α, and for all of them."""

    nodes: tuple[int, ...]
    alpha: float
    relevance: float  # at that α
    inside: float  # at α = 0
    touching: float  # at α = 1
    total: float  # of all walks
    alphas: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class OrderAnswer:
    """The greedy activation order, and the model's output as its nodes come in."""

    alpha: float
    order: tuple[int, ...]
    values: tuple[float, ...]  # f of the first 1 … M nodes; none if the model cannot be run on parts of the graph
    area: float | None  # AUAC
    problem: str = ""  # why it cannot


@dataclass(frozen=True)
class WalkAnswer:
    """A walk, and its relevance."""

    nodes: tuple[int, ...]  # -1 where the walk bypasses a position
    relevance: float


def parse_nodes(text: str | None, num_nodes: int, types: NodeTypes | None = None) -> list[int]:
    """Node ids from what was typed, ascending.

    Args:
        text: ids and ranges with commas or spaces between; nothing is no nodes, "all" is all.
        num_nodes: M, the nodes of the graph.
        types: those of a heterogeneous graph: ids follow their type.

    >>> parse_nodes("7, 0-2", 10)
    [0, 1, 2, 7]
    >>> parse_nodes("item 0, 2 user 1", 5, NodeTypes({"user": 2, "item": 3}))
    [1, 2, 4]
    """
    given = (text or "").strip()
    if given.lower() == "all":
        return list(range(num_nodes))
    if types is not None:
        return sorted({node for name, ids in _by_type(given, types) for node in _numbers(name, ids, types)})
    return _ranges(given, num_nodes, "nodes")


def _ranges(given: str, num_nodes: int, whose: str) -> list[int]:
    """Ids and ranges, ascending."""
    chosen: set[int] = set()
    for part in re.split(r"[,;\s]+", re.sub(r"\s*([-\N{EN DASH}])\s*", r"\1", given)):
        found = _RANGE.fullmatch(part)
        if part and not found:
            expected = "node ids such as 0, 3, 5-8"
            raise InputError(f"Expected {expected}, got {part!r}.", argument="nodes", expected=expected, got=part)
        if found:
            first, last = int(found[1]), int(found[2] or found[1])
            if last >= num_nodes or first > last:
                known = f"{whose} 0 to {num_nodes - 1}"
                raise InputError(f"Expected {known}, got {part!r}.", argument="nodes", expected=known, got=part)
            chosen.update(range(first, last + 1))
    return sorted(chosen)


def _by_type(text: str, types: NodeTypes) -> list[tuple[str, str]]:
    """The types that a text names, and the ids that stand after each."""
    names = "|".join(re.escape(name) for name in sorted(types.counts, key=len, reverse=True))
    before, *named = re.split(rf"(?<!\S)({names})(?=[\s,;]|$)", text)
    if before.strip(" ,;"):
        first = next(iter(types.counts))
        expected = f"nodes by type ({', '.join(types.counts)}), such as {first} 0-2"
        raise InputError(f"Expected {expected}, got {text!r}.", argument="nodes", expected=expected, got=text)
    return list(zip(named[::2], named[1::2], strict=True))


def _numbers(name: str, ids: str, types: NodeTypes) -> list[int]:
    """Nodes of a type by their numbers among all; the type alone is all of them."""
    count, first = types.counts[name], types.offsets[name]
    typed = ids.strip(" ,;")
    return [first + i for i in (_ranges(typed, count, f"{name} nodes") if typed else range(count))]


def format_nodes(nodes: Sequence[int], types: NodeTypes | None = None) -> str:
    """Node ids as one would type them.

    >>> format_nodes([0, 1, 2, 7])
    '0-2, 7'
    >>> format_nodes([1, 2, 4], NodeTypes({"user": 2, "item": 3}))
    'user 1, item 0, 2'
    """
    if types is not None:
        return ", ".join(f"{name} {format_nodes(ids)}" for name, ids in types.grouped(nodes).items())
    runs: list[list[int]] = []
    for node in sorted(nodes):
        if runs and node == runs[-1][-1] + 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    return ", ".join(f"{r[0]}-{r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in runs)


def selection_answer(case: Case, nodes: Sequence[int], alpha: float | str) -> SelectionAnswer:
    """R_α of the nodes for this α and for every other, from one contraction.

    Args:
        case: the prediction.
        nodes: the node set.
        alpha: the discount, 0 to 1, perhaps as it was typed.
    """
    at = as_discount(alpha)  # type: ignore[arg-type]
    coefficients: list[float] = subgraph_polynomial(case.chain, [list(nodes)])[0].double().tolist()
    alphas = tuple(i / (_POINTS - 1) for i in range(_POINTS))

    def relevance(a: float) -> float:
        return math.fsum(c * a**d for d, c in enumerate(coefficients))

    values = tuple(map(relevance, alphas))
    ends = relevance(at), relevance(0.0), relevance(1.0)
    return SelectionAnswer(tuple(nodes), at, *ends, float(case.chain.input_relevance), alphas, values)


def order_answer(case: Case, alpha: float | str | None = None) -> OrderAnswer:
    """The greedy order for this α, and the model's output along it.

    Args:
        case: the prediction.
        alpha: the discount, 0 to 1, perhaps as it was typed; by default that of :func:`walkwise.order_nodes`.
    """
    at = as_discount(DISCOUNTS["activation"] if alpha is None else alpha)  # type: ignore[arg-type]
    order = order_nodes(case.chain, alpha=at)
    if (reason := case.prediction.by_numbers) is not None:
        return OrderAnswer(at, tuple(order.tolist()), (), None, f"{reason.problem}.")
    curve = activation_along(case.prediction, order.cpu())  # on a shadow of the model: others may run it meanwhile
    return OrderAnswer(at, tuple(order.tolist()), tuple(curve.values.double().tolist()), curve.area)


def walks_answer(case: Case, *, count: int = 8, by: str = "relevance") -> list[WalkAnswer]:
    """The walks of largest relevance, or of largest magnitude, best first, of ties the lexicographically smallest.

    Args:
        case: the prediction.
        count: how many.
        by: "relevance" or "magnitude".
    """
    if by not in ("relevance", "magnitude"):
        expected = '"relevance" or "magnitude"'
        raise InputError(argument="by", expected=expected, got=by)
    try:
        walks = enumerate_walks(case.chain, max_walks=_FEW_WALKS)
    except TooManyWalksError:
        found = top_walks(case.chain, count, by="relevance" if by == "relevance" else "magnitude")
        walks, relevance = found.walks, found.relevance
    else:  # few: looking at all is quicker than searching
        relevance = walk_relevance(case.chain, walks)
        score = relevance if by == "relevance" else relevance.abs()
        best = score.argsort(descending=True, stable=True)[:count]
        best = best[ties_in_order(walks[best], score[best])]
        walks, relevance = walks[best], relevance[best]
    return [WalkAnswer(tuple(w), r) for w, r in zip(walks.tolist(), relevance.double().tolist(), strict=True)]


def name_group(groups: Mapping[str, Sequence[int]], name: str | None, nodes: Sequence[int]) -> dict[str, list[int]]:
    """The groups with one more; a name that is there already gets the new nodes.

    Args:
        groups: names and their nodes.
        name: the new group's; "rest" has a meaning already.
        nodes: the new group's; there must be some.
    """
    called = (name or "").strip()
    if not called:
        raise InputError("A group needs a name, such as ring.", argument="name", expected="a word", got=name)
    if called == REST:
        raise InputError(
            f"In formulas {REST!r} stands for the nodes in no group.",
            argument="name",
            expected=f"another name than {REST!r}",
            got=name,
            remedy="Choose another name.",
        )
    if not nodes:
        raise InputError(
            f"The group {called!r} needs nodes: select some first.", argument="nodes", expected="at least one node"
        )
    return {**{n: list(g) for n, g in groups.items()}, called: list(nodes)}


def pattern_group(case: Case, pattern: str) -> list[int]:
    """The atoms that match a SMARTS pattern, none where there are none.

    Args:
        case: the prediction of a molecule.
        pattern: the pattern.
    """
    if case.molecule is None:
        raise InputError(
            "Patterns are for molecules, and this graph is not one.",
            argument="pattern",
            expected="left out for graphs that are not molecules",
            got=pattern,
        )
    try:
        return smarts.groups(case.molecule, pattern=pattern).get("pattern", [])
    except InputError as error:
        raise InputError(
            f"{pattern!r} is not a SMARTS pattern that RDKit can read, such as [N+](=O)[O-].",
            argument="pattern",
            expected="a SMARTS pattern",
            got=pattern,
        ) from error


def groups_here(case: Case, own: Mapping[str, Any]) -> dict[str, list[int]]:
    """The groups of a graph: those it offers, and those that a tab has named, patterns found again.

    Args:
        case: the prediction.
        own: names, and for each a SMARTS pattern, or nodes, of which those that are there count.
    """
    found = {name: list(nodes) for name, nodes in case.drawing.groups.items()}
    for name, made in own.items():
        if not isinstance(made, str):
            nodes = [node for node in made if node < case.num_nodes]
        else:
            nodes = pattern_group(case, made) if case.molecule is not None else []
        if nodes:
            found[name] = nodes
    return found


def overlap_words(groups: Mapping[str, Sequence[int]], types: NodeTypes | None = None) -> str:
    """Which groups overlap, and what that means here; nothing where none do."""
    names = list(groups)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            if shared := sorted(set(groups[one]) & set(groups[other])):
                node = f"node {shared[0]}" if types is None else types.written(shared)[0]
                return (
                    f"{one} and {other} share {node}. Bars need groups that do not overlap: remove one of them, or ask "
                    "with a formula above, which allows overlaps."
                )
    return ""


def found_graphs(
    summaries: Sequence[tuple[str, str | None, str | None]], text: str = "", *, wrong: bool = False, most: int = 60
) -> list[int]:
    """The numbers of the graphs whose name, prediction or label has all words of a text.

    Args:
        summaries: of every graph its name, what the model says, and what the data say.
        text: words to look for; nothing finds all.
        wrong: only those where the model and the data disagree.
        most: how many at most.

    >>> found_graphs([("a 1", "cycle", "house"), ("a 2", "house", "house")], "house", wrong=True)
    [0]
    """
    words = text.lower().split()
    found = []
    for number, (name, said, label) in enumerate(summaries):
        line = " ".join(filter(None, (name, said, label))).lower()
        differs = said is not None and label is not None and said != label
        if all(word in line for word in words) and (differs or not wrong):
            found.append(number)
    return found[:most]


def groups_answer(case: Case, groups: Mapping[str, Sequence[int]]) -> Interactions:
    """The interactions of the groups: see :func:`walkwise.interactions`.

    Args:
        case: the prediction.
        groups: names and their nodes.
    """
    return interactions(case.chain, groups)


def query_answer(case: Case, formula: str, groups: Mapping[str, Sequence[int]]) -> float:
    """The relevance of the walks that satisfy a formula: see :func:`walkwise.query`.

    Args:
        case: the prediction.
        formula: as in "ring & NO2".
        groups: names and their nodes.
    """
    return query(case.chain, formula, groups)
