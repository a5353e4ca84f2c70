"""Greedy node orders: which node to add, or to remove, next (section 7.2.1 of the paper)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import ExplainedNumber, RelevanceChain, without_gradients
from walkwise.core.node_types import NodeTypes, TypedNode
from walkwise.core.sending import sent
from walkwise.errors import InputError
from walkwise.questions.graphs import as_graphs
from walkwise.questions.neighbours import Ints, as_array, step_neighbours
from walkwise.questions.parts import check_chain_given, of_one_node, part_of
from walkwise.questions.progress import shown
from walkwise.questions.subgraphs import as_discount
from walkwise.questions.ties import rounding
from walkwise.questions.walk_tables import Detail, ListedWalks, listed_walks
from walkwise.search.contributions import QueryContributions, from_table
from walkwise.search.greedy import Contributions, Criterion, as_mode, greedy_orders
from walkwise.search.idle import IdleNodes
from walkwise.search.local_contributions import LocalContributions, radius
from walkwise.search.table_orders import orders_from_table, pays

#: What one pass over the operators of a layer costs besides its arithmetic, in messages of one node.
_ROWS_PER_CALL = 1000
#: The most messages that are worth following to list all walks, for one graph and for several together.
_MOST_ROWS = 24_000_000
_MOST_TOGETHER = 4_000_000
#: How many node ids a list of walks may have: with what is kept beside them, about a gigabyte.
_MOST_NUMBERS = 12_000_000


class NodeOrder(Tensor):
    """Node ids in order, with the route by which they were found; tensors computed from it are ordinary ones.

    If it holds several orders, (A, M), each of them is a NodeOrder, too: ``orders[0]``, ``for order in orders``.
    """

    route: str
    types: NodeTypes | None
    explained: ExplainedNumber | None  # by the chain that was asked
    __torch_function__ = torch.nn.Parameter.__torch_function__  # which leaves subclasses alone

    @staticmethod
    def of(
        order: Tensor, route: str, types: NodeTypes | None = None, explained: ExplainedNumber | None = None
    ) -> NodeOrder:
        """Make an order with its route, the node types of a heterogeneous graph, and what the chain explains."""
        made = order.as_subclass(NodeOrder)
        made.route, made.types, made.explained = route, types, explained
        return made

    def __getitem__(self, key: Any) -> Tensor:
        """A part of it; one of several orders is an order itself."""
        found: Tensor = super().__getitem__(key)
        one = self.dim() == 2 and isinstance(key, int)
        return NodeOrder.of(found, self.route, self.types, self.explained) if one else found

    def __iter__(self) -> Iterator[Tensor]:
        """Each of several orders, or each node."""
        return (self[i] for i in range(len(self))) if self.dim() == 2 else iter(self.unbind())

    @property
    def named(self) -> list[TypedNode | None]:
        """The order of a heterogeneous graph's nodes by their types: (type, i)."""
        return [] if self.types is None else self.types.walk(self)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"NodeOrder({self.tolist() if self.types is None or self.dim() > 1 else self.named}; {self.route})"

    def __deepcopy__(self, memo: Any) -> Tensor:
        """Copies are ordinary tensors."""
        return self.clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies are ordinary tensors."""
        return self.as_subclass(Tensor).__reduce_ex__(protocol)  # type: ignore[no-untyped-call]


#: The default α of an order: of six, the best on validation tasks with known truth (benchmarks/quality).
DISCOUNTS = {"activation": 0.5, "pruning": 0.0}


@overload
def order_nodes(
    chain: RelevanceChain,
    *,
    mode: str = ...,
    alpha: float | Sequence[float] | None = ...,
    graphs: None = ...,
    tolerance: float | None = ...,
    progress: bool | None = ...,
) -> NodeOrder: ...


@overload
def order_nodes(
    chain: RelevanceChain,
    *,
    mode: str = ...,
    alpha: float | Sequence[float] | None = ...,
    graphs: Tensor,
    tolerance: float | None = ...,
    progress: bool | None = ...,
) -> list[NodeOrder]: ...


@without_gradients
def order_nodes(
    chain: RelevanceChain,
    *,
    mode: str = "activation",
    alpha: float | Sequence[float] | None = None,
    graphs: Tensor | None = None,
    tolerance: float | None = None,
    progress: bool | None = None,
) -> NodeOrder | list[NodeOrder]:
    r"""The nodes in greedy order, most relevant first (activation) or last (pruning): (M,).

    Each node is the best one given those before it (section 7.2.1):

    activation: m⁽ⁱ⁾ = argmax_m R_α({m⁽¹⁾, …, m⁽ⁱ⁻¹⁾, m}),
    pruning: m⁽ⁱ⁾ = argmin_m |R_α(G \ {m⁽¹⁾, …, m⁽ⁱ⁻¹⁾, m}) − R(G)|.

    Of equal candidates the lowest index comes first. Floating-point arithmetic gives nodes that are equal by symmetry
    slightly different values; within the tolerance they count as equal, so that rounding does not decide the order.

    All walks are listed once, grouped by the nodes they visit, and choosing a node updates only the nodes that share a
    walk with it; further orders of the same chain reuse a list that is not too long. If there are too many walks for
    that (more than about 24 million messages, or a gigabyte), every step recomputes the candidates that can have
    changed, from their surroundings, or, if walks may lead anywhere, as one batch of subgraphs; large graphs with hubs
    may then take minutes. ``route`` of the order says which way was taken.

    Args:
        chain: the traced prediction.
        mode: "activation" or "pruning".
        alpha: the discount of the generalized relevance, or several: (A, M). By default 0.5 for activation and 0 for
            pruning, which find known motifs best on average (see the page on ground truth).
        graphs: for a chain of several graphs, the graph of every node (``batch`` in PyG), (M,). Then the answer is a
            list with the order within each graph, (M_g,) or (A, M_g), in the chain's node ids.
        tolerance: candidates that fall short of the best by no more than this, relative to the largest change
            of R_α met so far, count as equal to it; by default 1e-9 in float64 and 1e-6 in float32. So do those within
            the rounding of R_α itself, where changes are differences of it. With 0, rounding decides, as in a plain
            argmax.
        progress: show how much of the list of walks is done, or how many nodes have been chosen; by default only if
            that takes more than two seconds.

    >>> import torch, walkwise as ww
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.search.orders import order_nodes
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> chain = ww.trace(model, torch.ones(3, 2), edge_index, index=1)
    >>> sorted(order_nodes(chain).tolist())
    [0, 1, 2]
    >>> order_nodes(chain, mode="pruning", alpha=[0.0, 0.5]).shape
    torch.Size([2, 3])
    """
    check_chain_given(chain)
    mode = as_mode(mode)
    alpha = DISCOUNTS[mode] if alpha is None else alpha
    several = isinstance(alpha, Sequence) or getattr(alpha, "ndim", 0) > 0
    given: Any = alpha if several else [alpha]
    if tolerance is None:
        tolerance = rounding(chain.dtype)
    if not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 1:
        raise InputError(argument="tolerance", expected="a fraction from 0 to below 1", got=tolerance)
    alphas = tuple(as_discount(a) for a in given)
    chain, idle = _with_idle(chain, graphs)
    criterion = Criterion(mode, alphas, as_graphs(chain, graphs, level=4), tolerance)
    found = _orders(chain, criterion, idle, progress)
    together = sent(np.concatenate([order for order, _ in found], axis=1), chain.device)  # (A, M)
    parts = torch.split(together, [order.shape[1] for order, _ in found], dim=1)
    kept = torch.clone if chain.device.type == "cpu" else Tensor.contiguous  # on an accelerator copies take their time
    of = chain.types, chain.explained
    orders = [
        NodeOrder.of(kept(part if several else part[0], memory_format=torch.contiguous_format), route, *of)
        for part, (_, route) in zip(parts, found, strict=True)
    ]
    return orders[0] if graphs is None else orders


def _with_idle(chain: RelevanceChain, graphs: Any) -> tuple[RelevanceChain, IdleNodes | None]:
    """The chain whose nodes are chosen one by one, and the nodes that are on no walk of it."""
    if chain.part is None:
        return chain, None
    if graphs is not None:
        raise of_one_node()
    part, origin = part_of(chain)
    return part, IdleNodes(as_array(origin.nodes), chain.num_nodes)


def _orders(
    chain: RelevanceChain, criterion: Criterion, idle: IdleNodes | None, progress: bool | None
) -> list[tuple[Ints, str]]:
    """The order within every graph, (A, M_g), and its route."""
    sizes = criterion.graphs.sizes.tolist()
    if not criterion.alphas or not chain.num_nodes:
        sizes = sizes if idle is None else [idle.num_nodes]
        return [(np.zeros((len(criterion.alphas), size), dtype=np.int64), "nothing to order") for size in sizes]
    near = step_neighbours(chain)
    if near is None:
        return _step_by_step(chain, criterion, idle, progress)
    orders: list[tuple[Ints, str]] = []
    graphs = criterion.graphs
    for some in [graphs] if len(graphs) == 1 else graphs.parts(near.ways(chain.num_layers), _MOST_TOGETHER):
        part = replace(criterion, graphs=some)
        listed = _table(chain, part, progress)
        if listed is None:
            orders += _step_by_step(chain, part, idle, progress)
        else:
            route = f"all walks listed, in {len(listed):,} entries"
            if chain.device.type != "cpu" and idle is None and pays(listed, part):
                orders += [(order, route) for order in orders_from_table(listed, part, chain.device)]
                continue
            steps = functools.partial(_shown, progress=False, desc=route)
            orders += [(order, route) for order in _chosen(from_table(listed.here, part), part, idle, steps)]
    return orders


def _chosen(
    contributions: Contributions, criterion: Criterion, idle: IdleNodes | None, shown: Callable[[int], Iterable[int]]
) -> list[Ints]:
    """The orders of the graphs, with idle nodes among them."""
    if idle is not None:
        return [idle.order(contributions, criterion, shown)]
    return greedy_orders(contributions, criterion, shown(criterion.graphs.width))


def _table(chain: RelevanceChain, criterion: Criterion, progress: bool | None = None) -> ListedWalks | None:
    """The walks of the graphs, if listing them is worth it."""
    nodes = criterion.graphs.nodes
    ends = nodes if len(nodes) < chain.num_nodes else None
    detail: Detail = "visits" if any(criterion.alphas) else "nodes"
    limits = {"max_rows": _worth(chain, criterion), "max_numbers": _MOST_NUMBERS}
    return listed_walks(chain, detail, **limits, ends=ends, progress=progress)


def _worth(chain: RelevanceChain, criterion: Criterion) -> int:
    """How many messages the list of all walks may take before asking step by step is cheaper."""
    sizes = criterion.graphs.sizes.tolist()
    near = step_neighbours(chain)
    assert near is not None
    # A candidate carries its surroundings, without a discount just those chosen; and all nodes are passed both ways.
    ball = float(near.ways(chain.num_layers // 2).mean())
    carried = [4 + min(size if any(criterion.alphas) else size / 3, ball) for size in sizes]
    queries = sum(size**2 / 2 * rows for size, rows in zip(sizes, carried, strict=True))
    by_steps = len(criterion.alphas) * (_ROWS_PER_CALL * max(sizes) + queries)
    return int(min(_MOST_ROWS, by_steps * chain.num_layers))


def _step_by_step(
    chain: RelevanceChain, criterion: Criterion, idle: IdleNodes | None, progress: bool | None
) -> list[tuple[Ints, str]]:
    """Orders that ask the chain at every step, about surroundings if walks lead from neighbour to neighbour."""
    near = step_neighbours(chain)
    kind = QueryContributions if near is None else LocalContributions
    route = "every step one batch of subgraphs"
    if near is not None:
        route = f"every step from the surroundings of {radius(chain)} {'steps' if chain.local else 'hops'}"
    steps = functools.partial(_shown, progress=progress, desc=route)
    return [(order, route) for order in _chosen(kind(chain, criterion, near), criterion, idle, steps)]


def _shown(count: int, progress: bool | None, desc: str) -> Iterable[int]:
    return shown(range(count), progress, desc=desc, unit="node")
