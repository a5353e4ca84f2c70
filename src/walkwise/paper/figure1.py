"""Figure 1: which atom types act together in a mutagenic molecule with a nitro-aromatic ring."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import torch

from walkwise.core.chain import RelevanceChain
from walkwise.errors import InputError
from walkwise.paper.bench import BenchCase, Effort
from walkwise.paper.clock import connected_sets
from walkwise.paper.exhibits import Exhibit, Finding, Workload, so_far
from walkwise.paper.figure1_drawing import draw
from walkwise.paper.tables import markdown
from walkwise.paper.units import Row, Unit
from walkwise.questions.groups import interactions
from walkwise.questions.marginals import node_relevance
from walkwise.questions.subgraphs import subgraph_relevance
from walkwise.questions.walks import enumerate_walks, walk_relevance
from walkwise.tracing import trace

ATOMS = ("C", "N", "O")
#: How many random sets of its size the group is compared with.
COMPARED = 200
#: What counts as a strong joint contribution, and as a strong indicator among those sets.
STRONG, ABOVE = 0.1, 0.95
TERMS = tuple(chosen for size in (1, 2, 3) for chosen in combinations(ATOMS, size))


def units(case: BenchCase, effort: Effort) -> list[Unit]:
    """One molecule to draw, and a summary over all that are like it."""
    return [Unit("figure1/mutagenicity", {"weights": case.digest}, partial(compute, case))]


def compute(case: BenchCase) -> list[Row]:
    """Rows of the smallest such molecule (terms, atoms, bonds), and the terms of all of them."""
    found = list(molecules(case))
    if not found:
        raise InputError(
            "No molecule of the test set has a nitro-aromatic ring and is classified as mutagenic.",
            argument="case",
            expected="a model that recognises mutagenic molecules",
        )
    shown = min(found, key=lambda molecule: len(molecule[2]))[0]
    rows: list[Row] = []
    for number, graph, symbols, group in found:
        chain = trace(case.model, graph.x.double(), graph.edge_index, target=_mutagenic(case), rule="gamma")
        terms = term_rows(chain, symbols, group)
        rows += [{"kind": "all", "molecule": number, **row} for row in terms]
        if number == shown:
            rows += [{"kind": "term", "molecule": number, **row} for row in terms]
            rows += picture_rows(chain, graph, symbols, group)
    return [{**row, "weights": case.origin} for row in rows]


def molecules(case: BenchCase) -> Iterator[tuple[int, Any, list[str], set[int]]]:
    """Test molecules that are mutagenic by label and model: number, graph, symbols, atoms of the group and ring.

    They consist of carbon, nitrogen and oxygen and have one nitro group, on a ring of six carbons.
    """
    graphs, names = case.graphs.graphs, case.graphs.node_names or ()
    for number in case.graphs.test.tolist():
        graph: Any = graphs[number]
        symbols = [names[i] for i in graph.x.argmax(dim=1).tolist()]
        if int(graph.y) != _mutagenic(case) or set(symbols) != set(ATOMS):
            continue
        found = nitro_aromatic(graph, symbols)
        batch = torch.zeros(len(symbols), dtype=torch.long)
        if len(found) == 1 and int(case.model(graph.x.double(), graph.edge_index, batch).argmax()) == _mutagenic(case):
            yield number, graph, symbols, found[0]


def _mutagenic(case: BenchCase) -> int:
    return case.graphs.class_names.index("mutagenic")


def nitro_aromatic(graph: Any, symbols: Sequence[str]) -> list[set[int]]:
    """Every nitro group on a ring of six carbons, together with the ring: N, two O that have no other neighbour, C₆.

    >>> ring = [(i, (i + 1) % 6) for i in range(6)]
    >>> edges = torch.tensor([*ring, (0, 6), (6, 7), (6, 8)]).t()
    >>> from torch_geometric.data import Data
    >>> graph = Data(torch.ones(9, 1), torch.cat([edges, edges.flip(0)], dim=1))
    >>> [sorted(found) for found in nitro_aromatic(graph, [*"CCCCCC", "N", "O", "O"])]
    [[0, 1, 2, 3, 4, 5, 6, 7, 8]]
    """
    near: list[list[int]] = [[] for _ in symbols]
    for source, target in graph.edge_index.t().tolist():
        near[source].append(target)
    found = []
    for nitrogen in (i for i, symbol in enumerate(symbols) if symbol == "N"):
        oxygens = [i for i in near[nitrogen] if symbols[i] == "O" and len(near[i]) == 1]
        carbons = [i for i in near[nitrogen] if symbols[i] == "C"]
        ring = _ring(near, symbols, (carbons[0],)) if len(oxygens) == 2 and len(carbons) == 1 else None
        if ring is not None:
            found.append({nitrogen, *oxygens, *ring})
    return found


def _ring(near: Sequence[Sequence[int]], symbols: Sequence[str], path: tuple[int, ...]) -> tuple[int, ...] | None:
    """Six carbons in a ring that begins with the path, if there are."""
    if len(path) == 6:
        return path if path[0] in near[path[-1]] else None
    for atom in near[path[-1]]:
        if atom not in path and symbols[atom] == "C":
            ring = _ring(near, symbols, (*path, atom))
            if ring is not None:
                return ring
    return None


def term_rows(chain: RelevanceChain, symbols: Sequence[str], group: set[int]) -> list[dict[str, object]]:
    """Higher- and lower-order relevance of every set of atom types, as a share of the whole graph's.

    Higher order: R↔ of walks that visit exactly these types (appendix A). Lower order: atoms have relevance of
    their own (LRP), and sets of several types none that is joint.
    """
    total = chain.input_relevance
    found = interactions(chain, _by_type(symbols))
    alone = node_relevance(chain)
    sets = connected_sets(chain.edge_index, len(symbols), len(group), COMPARED, random.Random(0))
    inside, *others = (subgraph_relevance(chain, [sorted(group), *sets]) / total).tolist()
    rank = sum(other < inside for other in others) / len(others)
    head = {"total": total, "group_share": inside, "group_rank": rank}
    rows: list[dict[str, object]] = []
    for term in TERMS:
        single = [i for i, symbol in enumerate(symbols) if (symbol,) == term]
        lower = float(alone[single].sum())
        rows.append({"term": "".join(term), "higher": found.terms[term], "lower": lower, **head})
    return rows


def _by_type(symbols: Sequence[str]) -> dict[str, list[int]]:
    return {kind: [i for i, symbol in enumerate(symbols) if symbol == kind] for kind in ATOMS}


def picture_rows(chain: RelevanceChain, graph: Any, symbols: Sequence[str], group: set[int]) -> Iterator[Row]:
    """What the molecule's heat maps show: rows of atoms, and of bonds.

    A walk's relevance is shared equally among its L + 1 positions (atoms) and among its L steps (bonds), so the
    numbers of a heat map add up to the relevance of its walks, less, for bonds, what stays in place.
    """
    walks = enumerate_walks(chain)
    relevance = walk_relevance(chain, walks)
    lower = node_relevance(chain)
    kinds = [frozenset(symbols[i] for i in walk) for walk in walks.tolist()]
    heat = {"all": _shared(walks, relevance, chain.num_nodes)}
    for term in TERMS:
        chosen = torch.tensor([kind == set(term) for kind in kinds])
        heat["".join(term)] = _shared(walks[chosen], relevance[chosen], chain.num_nodes)
    for i, symbol in enumerate(symbols):
        scores = {f"heat_{name}": float(values[i]) for name, values in heat.items()}
        yield {"kind": "atom", "atom": i, "symbol": symbol, "group": i in group, "lower": float(lower[i]), **scores}
    orders = graph.edge_attr.argmax(dim=1) + 1 if graph.edge_attr is not None else torch.ones(graph.edge_index.shape[1])
    steps = _steps(walks, relevance)
    for (source, target), order in zip(graph.edge_index.t().tolist(), orders.tolist(), strict=True):
        if source < target:
            along = steps.get((source, target), 0.0) + steps.get((target, source), 0.0)
            yield {"kind": "bond", "source": source, "target": target, "order": order, "heat_all": along}


def _shared(walks: torch.Tensor, relevance: torch.Tensor, count: int) -> torch.Tensor:
    """The atoms' shares: (M,)."""
    each = (relevance / walks.shape[1]).repeat_interleave(walks.shape[1])
    return torch.zeros(count, dtype=relevance.dtype).index_add(0, walks.flatten(), each)


def _steps(walks: torch.Tensor, relevance: torch.Tensor) -> Mapping[tuple[int, int], float]:
    steps: dict[tuple[int, int], float] = {}
    for walk, value in zip(walks.tolist(), relevance.tolist(), strict=True):
        for step in pairwise(walk):
            steps[step] = steps.get(step, 0.0) + value / (len(walk) - 1)
    return steps


def judge(rows: Sequence[Row]) -> Finding:
    """Whether N and O count together with their neighbours, in this molecule and in those like it."""
    terms = [row for row in rows if row["kind"] == "term"]
    every = [row for row in rows if row["kind"] == "all"]
    count = len({row["molecule"] for row in every})
    share = {row["term"]: row["higher"] / row["total"] for row in terms}
    mean = {term: sum(row["higher"] / row["total"] for row in every if row["term"] == term) / count for term in share}
    group, rank = (sum(row[name] for row in every) / len(every) for name in ("group_share", "group_rank"))
    joint, alone = (sum(mean[term] for term in chosen) for chosen in (("CN", "CO", "NO", "CNO"), ("N", "O")))
    verdict = (
        f"Over {count} such molecules, walks over several atom types carry {joint:.0%} of the relevance (C with N "
        f"{mean['CN']:.0%}, N with O {mean['NO']:.0%}), N and O by themselves {alone:.0%}; the nitro "
        f"group with its ring carries {group:.0%}, more than {rank:.0%} of random connected sets of its size."
    )
    lines = [
        [
            row["term"],
            f"{row['lower']:.3f}",
            f"{row['higher']:.3f}",
            f"{share[row['term']]:.0%}",
            f"{mean[row['term']]:.0%}",
        ]
        for row in terms
    ]
    header = ["atom types", "lower order", "higher order", "share", f"mean share over {count} molecules"]
    notes = (
        f"The molecule (number {terms[0]['molecule']}) is the smallest of the test set with one nitro group on a ring "
        "of six carbons, of C, N and O only, mutagenic by label and by the model; the paper does not say which one it "
        "shows, nor any numbers.",
        f"Model: {rows[0]['weights']}.",
    )
    claims = [min(mean["CN"], mean["NO"]) > max(STRONG, alone), rank > ABOVE]
    return Finding(so_far(claims), verdict, markdown(header, lines), notes)


EXHIBIT = Exhibit(
    "figure1",
    "Figure 1: joint contributions of atom types",
    "The nitro group with the neighbouring aromatic ring is a strong indicator of mutagenicity; C with N, and N with "
    "O, have a strong joint contribution that lower-order attribution cannot show.",
    (Workload("mutagenicity-gin3", units),),
    draw,
    judge,
    f"“Yes” asks, on average over the molecules, that C with N and N with O each carry more than {STRONG:.0%} of the "
    "relevance and more than N and O by themselves, and that the nitro group with its ring carry more than "
    f"{ABOVE:.0%} of random connected sets of its size; “in part”, one of these.",
)
