"""The demo's findings: motifs in newly generated graphs, and molecules, by the two bundled models."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from walkwise import smarts
from walkwise.cli.names import BUNDLED, MOLECULES
from walkwise.cli.predictions import TracedPrediction, ask
from walkwise.cli.sources import NamedGraphs, Subject, load_graphs, load_model, truth_of
from walkwise.datasets.ba2motif import CLASSES, generate
from walkwise.evaluation import motif_auroc
from walkwise.explanation import Check, check_subgraph
from walkwise.questions.groups import Interactions, interactions
from walkwise.questions.marginals import node_relevance
from walkwise.questions.subgraphs import subgraph_polynomial
from walkwise.search.best_subgraph import FoundSubgraph, find_subgraph
from walkwise.search.best_walks import TopWalks, top_walks

ALPHAS = (0.0, 0.3, 1.0)
WALKS = 12
_MOLECULE_WALKS = 12
_RANDOM_SETS = 300

#: The same group in two places, which a model may tell apart.
_NITRO = {"NO2_on_ring": "[N;$(Na)](~[O;X1])~[O;X1]", "NO2_on_chain": "[N;$(N[CX4])](~[O;X1])~[O;X1]"}


@dataclass(frozen=True, eq=False)
class Motif:
    """One prediction of a graph with a known motif, explained."""

    traced: TracedPrediction
    truth: list[int]
    found: FoundSubgraph  # as many nodes as the motif has, connected
    others: list[list[int]]  # random connected sets of that size, never the motif itself
    polynomials: Tensor  # (B, L + 1) of the motif, what was found, the whole graph, and the others
    walks: TopWalks

    def relevance(self, alphas: Sequence[float]) -> Tensor:
        """R_α of the same sets for these α, from their polynomials: (B, A)."""
        powers = torch.tensor(alphas) ** torch.arange(self.polynomials.shape[1])[:, None]  # (L + 1, A)
        return self.polynomials @ powers

    @property
    def rank(self) -> float:
        """The share of the random sets that have less relevance than the motif (α = 0)."""
        inside = self.polynomials[:, 0]
        return float((inside[3:] < inside[0]).double().mean())

    @property
    def hits(self) -> int:
        """How many nodes of the motif were found."""
        return len(set(self.truth) & set(self.found.numbers))


@dataclass(frozen=True)
class Tally:
    """How well the motif was found over all graphs of a class that the model classifies rightly."""

    class_name: str
    graphs: int
    right: int  # classified rightly
    exact: int  # of these, found to the node
    mean_hits: float  # nodes of the motif found, of 5
    mean_auroc: float  # of single nodes' relevance
    mean_rank: float  # the share of random connected sets that have less relevance than the motif


@dataclass(frozen=True, eq=False)
class Molecule:
    """One molecule's prediction, explained: mutagenic against non-mutagenic."""

    traced: TracedPrediction
    groups: dict[str, list[int]]  # functional groups and rings, the one to remove first
    terms: Interactions
    walks: TopWalks
    check: Check  # the model asked on the first group alone, and without it

    @property
    def name(self) -> str:
        """What the molecule is called."""
        return self.traced.subject.names[self.traced.number]

    @property
    def group(self) -> str:
        """The group that is removed."""
        return next(iter(self.groups))

    @property
    def relevance(self) -> float:
        """The relevance of the walks that visit the group, whatever else they visit."""
        return sum(value for names, value in self.terms.terms.items() if self.group in names)


def motifs(count: int, seed: int) -> tuple[list[Motif], list[Tally]]:
    """Every graph that is classified rightly, explained; and a line per class.

    Args:
        count: how many graphs are made.
        seed: of the graphs and of the random sets.
    """
    graphs = generate(count, seed=seed)
    names = tuple(f"graph {number}" for number in range(count))
    data = NamedGraphs(graphs, BUNDLED["ba2motif"], names, CLASSES, (), tuple(range(count)))
    subject = Subject(load_model("ba2motif"), "ba2motif", data)
    chance = random.Random(seed)
    traced = [ask(subject, number, target=None, index=None, rule="auto") for number in range(count)]
    right = [one for one in traced if one.target == int(one.data.y[0])]
    found = [_motif(one, chance) for one in right]
    return found, [_tally(label, graphs, found) for label in range(len(CLASSES))]


def _motif(traced: TracedPrediction, chance: random.Random) -> Motif:
    chain, truth = traced.chain, truth_of(traced.data)
    found = find_subgraph(chain, len(truth))
    drawn = random_sets(traced.data, len(truth), _RANDOM_SETS, chance)
    others = [nodes for nodes in drawn if set(nodes) != set(truth)]
    sets = [truth, list(found.numbers), list(range(chain.num_nodes)), *others]
    return Motif(traced, truth, found, others, subgraph_polynomial(chain, sets), top_walks(chain, WALKS))


def random_sets(data: Data, size: int, count: int, chance: random.Random) -> list[list[int]]:
    """Connected sets, each grown from a random node by random neighbours.

    >>> path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
    >>> sorted(random_sets(path, 3, 1, random.Random(0))[0])
    [0, 1, 2]
    """
    near: list[list[int]] = [[] for _ in range(int(data.num_nodes or 0))]
    for source, target in data["edge_index"].t().tolist():
        near[source].append(target)
    sets = [[chance.randrange(len(near))] for _ in range(count)]
    for nodes in sets:
        while len(nodes) < size:
            nodes.append(chance.choice([v for u in nodes for v in near[u] if v not in nodes]))
    return sets


def _tally(label: int, graphs: Sequence[Data], found: Sequence[Motif]) -> Tally:
    own = [motif for motif in found if motif.traced.target == label]
    aurocs = [motif_auroc(node_relevance(motif.traced.chain), motif.truth) for motif in own]

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values) if values else float("nan")

    return Tally(
        CLASSES[label],
        sum(int(data.y[0]) == label for data in graphs),  # type: ignore[index]
        len(own),
        sum(motif.hits == len(motif.truth) for motif in own),
        mean([motif.hits for motif in own]),
        mean(aurocs),
        mean([motif.rank for motif in own]),
    )


def molecules() -> list[Molecule]:
    """The bundled molecules, explained for "mutagenic" against "non-mutagenic". Needs the extra ``chem``."""
    data = load_graphs("molecules", hydrogens=True)
    subject = Subject(load_model("mutagenicity"), "mutagenicity", data)
    traced = [ask(subject, i, target=1, against=0, index=None, rule="auto") for i in range(len(MOLECULES))]
    return [_molecule(one) for one in traced]


def _molecule(traced: TracedPrediction) -> Molecule:
    chain = traced.chain
    nitro = smarts.groups(traced.data, **_NITRO)
    groups = nitro if len(nitro) > 1 else smarts.functional_groups(traced.data)
    taken = {atom for atoms in groups.values() for atom in atoms}
    rings = [atom for atom in smarts.groups(traced.data, ring="[R]").get("ring", []) if atom not in taken]
    groups = {**groups, **({"ring": rings} if rings else {})}
    rest = [atom for atom in range(chain.num_nodes) if all(atom not in atoms for atoms in groups.values())]
    groups = {**groups, **({"chain": rest} if rest else {})}
    check = check_subgraph(traced.prediction, next(iter(groups.values())), traced.subject.data.class_names)
    return Molecule(traced, groups, interactions(chain, groups), top_walks(chain, _MOLECULE_WALKS), check)
