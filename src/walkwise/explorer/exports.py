"""The shown content as data: one JSON document, or one table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from walkwise.errors import WalkwiseError
from walkwise.explorer.answers import groups_answer, order_answer, query_answer, selection_answer, walks_answer
from walkwise.explorer.cases import Case
from walkwise.files import harmless

#: The columns of the table: what a row is about, its name, its nodes in order, its α, and the number.
COLUMNS = ("kind", "name", "nodes", "alpha", "value")


def shown(
    case: Case,
    *,
    nodes: Sequence[int] = (),
    alpha: float = 0.0,
    order_alpha: float | None = None,
    groups: Mapping[str, Sequence[int]] | None = None,
    formula: str = "",
    by: str = "relevance",
    step: int | None = 0,
) -> dict[str, Any]:
    """Everything on the page as one document.

    Args:
        case: the prediction.
        nodes: the selected nodes.
        alpha: the discount of the selection.
        order_alpha: that of the greedy order; by default that of :func:`walkwise.order_nodes`.
        groups: names and their nodes.
        formula: the query; nothing where none was asked.
        by: how the walks are sorted, "relevance" or "magnitude".
        step: how many nodes of the greedy order are placed; None leaves the order out.
    """
    groups = dict(groups or {})
    return {
        "graph": {"number": case.graph, "name": case.title, "label": case.label},
        "prediction": {"explained": case.target_title, "outputs": _outputs(case)},
        "relevance": {"total": float(case.chain.input_relevance), "nodes": _nodes(case)},
        "selection": asdict(selection_answer(case, nodes, alpha)),
        "order": {} if step is None else {**asdict(order_answer(case, order_alpha)), "step": step},
        "walks": [asdict(walk) for walk in walks_answer(case, by=by)],
        "groups": groups,
        "interactions": _interactions(case, groups),
        "query": _query(case, formula, groups),
    }


def as_json(document: Mapping[str, Any]) -> str:
    """The document as text."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def as_csv(document: Mapping[str, Any]) -> str:
    """The document as a table, a row per number; see :data:`COLUMNS`. No text in it is a formula to a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(tuple(map(harmless, row)) for row in _rows(document))
    return text.getvalue()


def _rows(document: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    selection, order = document["selection"], document["order"]
    chosen = _ids(selection["nodes"])
    rows: list[tuple[Any, ...]] = [("output", c, "", "", f) for c, f in document["prediction"]["outputs"].items()]
    rows += [("node", n["name"], n["node"], "", n["relevance"]) for n in document["relevance"]["nodes"]]
    rows += [("selection", "", chosen, selection["alpha"], selection["relevance"])]
    rows += [("alpha curve", "", chosen, a, r) for a, r in zip(selection["alphas"], selection["values"], strict=True)]
    for i, value in enumerate(order.get("values", ()), 1):
        rows.append(("activation curve", f"step {i}", _ids(order["order"][:i]), order["alpha"], value))
    rows += [("walk", f"walk {i}", _ids(w["nodes"]), "", w["relevance"]) for i, w in enumerate(document["walks"], 1)]
    rows += [("group", name, _ids(nodes), "", "") for name, nodes in document["groups"].items()]
    found = document["interactions"]
    rows += [("interaction", " + ".join(t["groups"]), "", "", t["relevance"]) for t in found.get("terms", ())]
    rows += [("interaction", "all together", "", "", found["union"])] if "union" in found else []
    query = document["query"]
    return [*rows, ("query", query["formula"], "", "", query["relevance"])] if "relevance" in query else rows


def _ids(nodes: Sequence[int]) -> str:
    return " ".join(map(str, nodes))


def _outputs(case: Case) -> dict[str, float]:
    logits = case.prediction.logits.double().tolist()
    return dict(zip(case.classes[-1:] if case.one_logit else case.classes, logits, strict=True))


def _nodes(case: Case) -> list[dict[str, Any]]:
    labels = case.drawing.labels
    return [{"node": i, "name": labels[i], "relevance": r} for i, r in enumerate(case.heat.tolist())]


def _interactions(case: Case, groups: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    if not groups:
        return {}
    try:
        found = groups_answer(case, groups)
    except WalkwiseError as error:
        return {"error": str(error)}
    terms = [{"groups": list(names), "relevance": value} for names, value in found.terms.items()]
    return {"terms": terms, "union": found.union}


def _query(case: Case, formula: str, groups: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    if not formula.strip():
        return {}
    try:
        return {"formula": formula, "relevance": query_answer(case, formula, groups)}
    except WalkwiseError as error:
        return {"formula": formula, "error": str(error)}
