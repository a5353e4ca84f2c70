"""Walks sorted by the groups of nodes they visit: interactions, and queries about visiting and avoiding groups."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import overload

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.core.node_types import NodeTypes
from walkwise.display import html_box, html_table
from walkwise.errors import Described, InputError, as_count
from walkwise.questions.formulas import Holds, parse
from walkwise.questions.given_subgraphs import as_node_sets
from walkwise.questions.graphs import as_graphs
from walkwise.questions.parts import asked_of_part, groups_within
from walkwise.questions.subgraphs import subgraph_relevance
from walkwise.questions.walk_tables import WalkTable, table_of_few

#: The most subgraphs that one question may ask for.
_MOST_SUBGRAPHS = 1 << 16
#: The most names in a formula: it asks for up to 2 to the power of that many subgraphs.
_MOST_NAMES = 12
#: The most groups that fit into the bits of a number.
_MOST_BITS = 60
#: Stands for the nodes in no group; a group that is called so must be just that.
REST = "rest"


class UnknownGroupError(InputError, KeyError):
    """There is no such term: a group was not given, or the terms have fewer groups."""

    __str__ = Exception.__str__  # that of a KeyError is in quotes


@dataclass(frozen=True)
class Interactions:
    """The relevance of the walks that visit exactly a set of groups and nothing else, for every such set."""

    groups: tuple[str, ...]
    terms: Mapping[tuple[str, ...], float]  # names in the order of the groups
    union: float  # R of all groups together
    route: str = field(default="", compare=False)  # how they were found, in words

    def __getitem__(self, names: str | tuple[str, ...]) -> float:
        """The term of one group or several, in any order."""
        wanted = {names} if isinstance(names, str) else set(names)
        key = tuple(name for name in self.groups if name in wanted)
        if len(key) != len(wanted) or key not in self.terms:
            raise self._missing(wanted)
        return self.terms[key]

    def _missing(self, wanted: set[str]) -> InputError:
        """The error for names that have no term."""
        listed = ", ".join(map(repr, self.groups)) or "none"
        if unknown := [name for name in wanted if name not in self.groups]:
            return UnknownGroupError(
                f"No group is called {unknown[0]!r}; the groups are {listed}.",
                argument="names",
                expected=f"of {listed}",
                got=unknown[0],
                remedy="A pattern without a match makes no group: smarts.groups leaves it out.",
            )
        most = max(map(len, self.terms), default=0)
        return UnknownGroupError(
            f"There is no term of {len(wanted)} groups: walks do not visit that many, or max_order leaves it out.",
            argument="names",
            expected=f"at most {most} groups",
            got=Described(", ".join(map(repr, sorted(wanted)))),
        )

    @property
    def remainder(self) -> float:
        """The part of the union that the terms leave out: the orders that were not asked for."""
        return self.union - sum(self.terms.values())

    def _repr_html_(self) -> str:
        """A table for notebooks: the largest terms first within an order, and what they sum to."""
        ranked = sorted(self.terms, key=lambda names: (len(names), -abs(self.terms[names])))
        rows = [(" + ".join(names), self.terms[names]) for names in ranked]
        if abs(self.remainder) > 1e-5 * abs(self.union):
            rows.append(("higher orders", self.remainder))
        rows.append(("all of these", self.union))
        note = "Each of these walks visits every named group, and no other node."
        return html_box(html_table(["groups", ">relevance"], rows, title="Interactions", note=note))


@overload
def interactions(
    chain: RelevanceChain,
    groups: Mapping[str, Sequence[int]],
    *,
    max_order: int | None = ...,
    graphs: None = ...,
) -> Interactions: ...


@overload
def interactions(
    chain: RelevanceChain, groups: Mapping[str, Sequence[int]], *, max_order: int | None = ..., graphs: Tensor
) -> list[Interactions]: ...


@without_gradients
@asked_of_part(groups=groups_within)
def interactions(
    chain: RelevanceChain,
    groups: Mapping[str, Sequence[int]],
    *,
    max_order: int | None = None,
    graphs: Tensor | None = None,
) -> Interactions | list[Interactions]:
    """The interaction relevance R↔ of every set T of groups (appendix A).

    The walks that visit every group of T, and no node outside them, together have the relevance

        R↔(T) = Σ over U ⊆ T of (−1)^(|T| − |U|) · R(∪U),

    the Möbius transform of subgraph relevance. The terms of all orders sum to R of the groups' union.
    A walk visits at most L + 1 nodes, so terms of more than L + 1 groups are zero and left out.

    Args:
        chain: the traced prediction.
        groups: names and their nodes. Groups must not overlap: a walk at a shared node would lie inside both groups,
            and "exactly these groups" would have no meaning. (:func:`query` allows overlaps.) A group called ``rest``
            must hold exactly the nodes in no other group, as the name means in :func:`query`.
        max_order: the largest number of groups in a term; by default, every order that can be non-zero.
        graphs: for a chain of several graphs, the graph of every node (``batch`` in PyG), (M,). Then the answer is a
            list with the terms of each graph, of those groups that have nodes in it.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> found = interactions(chain, {"left": [0], "middle": [1], "right": [2]})
    >>> list(found.terms)[:4]
    [('left',), ('middle',), ('right',), ('left', 'middle')]
    >>> abs(sum(found.terms.values()) - chain.input_relevance) < 1e-6
    True
    """
    masks = _masks(chain, groups)
    _check_disjoint(masks, chain.types)
    if max_order is not None:
        max_order = as_count(max_order, "max_order", "the number of groups in the largest terms")
    separate = as_graphs(chain, graphs)
    if graphs is None:
        return _interactions(chain, masks, max_order)
    found = []
    for g in range(len(separate)):
        here = torch.zeros(chain.num_nodes, dtype=torch.bool, device=chain.device)
        here[torch.from_numpy(separate.members(g)).to(chain.device)] = True
        there = {name: mask & here for name, mask in masks.items()}
        found.append(_interactions(chain, {name: mask for name, mask in there.items() if bool(mask.any())}, max_order))
    return found


def _interactions(chain: RelevanceChain, masks: Mapping[str, Tensor], max_order: int | None) -> Interactions:
    """The terms of groups that do not overlap: from a table of all walks, or from unions of groups as subgraphs."""
    names = tuple(masks)
    order = min(len(names), chain.num_layers + 1, max_order or len(names))
    count = sum(comb(len(names), size) for size in range(1, order + 1))
    if count > _MOST_SUBGRAPHS:
        raise InputError(
            f"{len(names)} groups have {count} sets of up to {order}; the limit is {_MOST_SUBGRAPHS}.",
            argument="groups",
            expected=f"so few that there are at most {_MOST_SUBGRAPHS} sets of up to {order}",
            got=len(names),
            remedy="Give fewer groups, or a smaller max_order.",
        )
    sets = [chosen for size in range(1, order + 1) for chosen in itertools.combinations(names, size)]
    table = table_of_few(chain, "nodes", questions=count) if len(names) <= _MOST_BITS else None
    if table is not None:
        return _terms_in(table, masks, sets, chain.num_nodes)
    inside = dict(zip(sets, _relevance(chain, masks, sets), strict=True))
    terms: dict[tuple[str, ...], float] = {}
    for chosen in sets:
        smaller = (t for size in range(1, len(chosen)) for t in itertools.combinations(chosen, size))
        terms[chosen] = inside[chosen] - sum(terms[t] for t in smaller)
    union = inside[names] if names in inside else sum(_relevance(chain, masks, [names]))
    return Interactions(names, terms, union, f"{count:,} subgraphs")


def _terms_in(
    table: WalkTable, masks: Mapping[str, Tensor], sets: Sequence[tuple[str, ...]], num_nodes: int
) -> Interactions:
    """The terms as sums over a table of all walks; the groups that a walk visits are the bits of a number."""
    bit = {name: 1 << i for i, name in enumerate(masks)}
    beyond = 1 << len(bit)  # a node in no group
    of_node = np.zeros(num_nodes + 1, dtype=np.int64)  # the last for node -1
    for name, mask in masks.items():
        of_node[:-1] += bit[name] * mask.cpu().numpy()
    of_node[:-1][of_node[:-1] == 0] = beyond
    visited = np.bitwise_or.reduce(of_node[table.visits], axis=1)  # (T,)
    found, which = np.unique(visited, return_inverse=True)
    sums = dict(zip(found.tolist(), np.bincount(which, table.relevance, len(found)).tolist(), strict=True))
    terms = {chosen: sums.get(sum(bit[name] for name in chosen), 0.0) for chosen in sets}
    union = sum((value for groups, value in sums.items() if groups < beyond), 0.0)
    return Interactions(tuple(masks), terms, union, f"all walks listed, in {len(table.relevance):,} entries")


@asked_of_part(groups=groups_within)
def query(chain: RelevanceChain, formula: str, groups: Mapping[str, Sequence[int]]) -> float:
    """The relevance of the walks that satisfy a formula over groups of nodes.

    A name means "visits at least one node of that group", ``~`` not, ``&`` and, ``|`` or; ``rest`` stands for
    the nodes in no group. Otherwise walks may go anywhere. Let G be the groups in the formula, and a(U) = R of the
    graph without the groups U, which sums the walks that avoid all of U. The walks that visit exactly the groups T of G
    have

        Σ over U with G∖T ⊆ U ⊆ G of (−1)^(|U| − |G∖T|) · a(U),

    summed over all T that satisfy the formula: one batch of subgraphs. Groups may overlap.

    Args:
        chain: the traced prediction.
        formula: as in ``"ring & NO2 & ~Cl"``; put names with characters other than letters, digits and _ in quotes.
        groups: names and their nodes; only a group of the nodes in no other group may be called ``rest``.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> groups = {"left": [0], "middle": [1]}
    >>> both = query(chain, "left & middle & ~rest", groups)
    >>> abs(both - interactions(chain, groups)["left", "middle"]) < 1e-6
    True
    >>> query(chain, "left & wing", groups)
    Traceback (most recent call last):
        ...
    walkwise.errors.InputError: In the formula, at character 8: no group is called 'wing'; the names are 'left', ...
    """
    if not isinstance(formula, str):
        raise InputError(argument="formula", expected='a text such as "ring & NO2 & ~Cl"', got=formula)
    masks = _masks(chain, groups)
    masks[REST] = _rest(chain, masks)
    parsed = parse(formula, list(masks))
    if len(parsed.names) > _MOST_NAMES:
        raise InputError(
            f"The formula names {len(parsed.names)} groups; the limit is {_MOST_NAMES}, since every subset of them "
            "needs a subgraph.",
            argument="formula",
            expected=f"a formula of at most {_MOST_NAMES} groups",
            got=formula,
            remedy="Merge groups that you need not distinguish.",
        )
    coefficients = _coefficients(parsed.names, parsed.holds)
    whole = torch.ones(chain.num_nodes, dtype=torch.bool, device=chain.device)
    without = [whole & ~_union(masks, avoided, whole) for avoided in coefficients]
    if not without:
        return 0.0
    relevance = subgraph_relevance(chain, torch.stack(without)).double()
    return float(relevance @ torch.tensor(list(coefficients.values()), dtype=torch.float64, device=chain.device))


def _coefficients(names: tuple[str, ...], holds: Holds) -> dict[tuple[str, ...], float]:
    """The coefficient of each set of avoided groups; those that cancel are left out."""
    total: dict[tuple[str, ...], float] = {}
    for size in range(len(names) + 1):
        for missed in itertools.combinations(names, size):
            visited = tuple(name for name in names if name not in missed)
            if holds(frozenset(visited)):
                for more in range(len(visited) + 1):
                    for extra in itertools.combinations(visited, more):
                        avoided = tuple(name for name in names if name in missed or name in extra)
                        total[avoided] = total.get(avoided, 0.0) + (-1.0) ** more
    return {avoided: coefficient for avoided, coefficient in total.items() if coefficient}


def _masks(chain: RelevanceChain, groups: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Check that names are text and ids in range, and return the groups as masks.  # {name: (M,)}"""
    if not isinstance(groups, Mapping) or not all(isinstance(name, str) for name in groups):
        expected = 'a dictionary from names to lists of node ids, such as {"ring": [0, 1, 2]}'
        raise InputError(argument="groups", expected=expected, got=groups)
    for name, nodes in groups.items():
        if isinstance(nodes, (str, bytes)) or not hasattr(nodes, "__iter__") or getattr(nodes, "ndim", 1) == 0:
            raise InputError(
                argument=f"groups[{name!r}]",
                expected="a list of node ids",
                got=nodes,
                remedy="For a single node write [0].",
            )
    try:
        as_given = [n if isinstance(n, Mapping) or hasattr(n, "dtype") else list(n) for n in groups.values()]
        mask = as_node_sets(chain, as_given).mask()
    except InputError as error:
        raise error.advised(f"(Subgraph i is the i-th group, from 0: {', '.join(groups)}.)") from None
    masks = {name: mask[:, i] for i, name in enumerate(groups)}
    if REST in masks and not torch.equal(masks[REST], left := _rest(chain, masks)):
        raise InputError(
            f"In formulas {REST!r} stands for the nodes in no group, here {_few(left, chain.types)}; the group of that "
            f"name has {_few(masks[REST], chain.types)}.",
            argument="groups",
            expected=f"without a group called {REST!r}",
            got=REST,
            remedy="Call it something else, or leave it out.",
        )
    return masks


def _rest(chain: RelevanceChain, masks: Mapping[str, Tensor]) -> Tensor:
    """The nodes in no group, but for one that is called so.  # (M,)"""
    whole = torch.ones(chain.num_nodes, dtype=torch.bool, device=chain.device)
    return whole & ~_union(masks, [name for name in masks if name != REST], whole)


def _few(mask: Tensor, types: NodeTypes | None) -> str:
    """Nodes in words, a few of them where there are many."""
    ids = mask.nonzero()[:, 0].tolist()
    nodes = list(map(str, ids)) if types is None else types.written(ids)
    return ", ".join(nodes[:8]) + (f", … ({len(nodes)} nodes)" if len(nodes) > 8 else "") or "none"


def _check_disjoint(masks: Mapping[str, Tensor], types: NodeTypes | None) -> None:
    for (one, a), (other, b) in itertools.combinations(masks.items(), 2):
        if bool((a & b).any()):
            shared = (a & b).nonzero()[0].tolist()
            node = f"node {shared[0]}" if types is None else types.written(shared)[0]
            raise InputError(
                f"Groups {one!r} and {other!r} share {node}, and interactions need groups that do not overlap.",
                argument="groups",
                expected="groups that do not overlap",
                got=Described(f"{one!r} and {other!r}, which share {node}"),
                remedy="Take the node out of one, or ask query, which allows it.",
            )


def _union(masks: Mapping[str, Tensor], names: Sequence[str], like: Tensor) -> Tensor:
    joined = torch.zeros_like(like)
    for name in names:
        joined = joined | masks[name]
    return joined


def _relevance(chain: RelevanceChain, masks: Mapping[str, Tensor], sets: Sequence[Sequence[str]]) -> list[float]:
    """R of the union of each set of groups."""
    if not sets:
        return []
    blank = torch.zeros(chain.num_nodes, dtype=torch.bool, device=chain.device)
    values: list[float] = subgraph_relevance(chain, torch.stack([_union(masks, s, blank) for s in sets])).tolist()
    return values
