"""The best subgraph of a size, against looking at all of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GIN, global_add_pool
from torch_geometric.utils import erdos_renyi_graph

import walkwise as ww
from chains import walks_of
from walkwise import reference
from walkwise.errors import InputError
from walkwise.search.best_subgraph import FoundSubgraph, TooManySubgraphsError, find_subgraph


class GraphGIN(nn.Module):
    """GIN layers and a sum over nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.gin = GIN(3, 6, 2, out_channels=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return global_add_pool(self.gin(x, edge_index), None)


def make_chain(
    seed: int, nodes: int = 8, edge_index: Tensor | None = None, directed: bool = False, alike: bool = False
):
    torch.manual_seed(seed)
    model = GraphGIN().double()
    if edge_index is None:
        edge_index = erdos_renyi_graph(nodes, 0.3, directed=directed)
    x = torch.randn(nodes, 3, dtype=torch.double)
    if alike:  # but for rounding
        x = torch.ones_like(x) + 1e-13 * x
    return ww.trace(model, x, edge_index, target=0)


def is_connected(chain, nodes) -> bool:
    pairs = {frozenset(pair) for pair in chain.edge_index.t().tolist()}
    reached = {nodes[0]}
    while more := {m for m in nodes if m not in reached and any(frozenset((m, r)) in pairs for r in reached)}:
        reached |= more
    return reached == set(nodes)


def brute_force(chain, size, connected, alpha):
    """All sets of that size, one by one."""
    edges = [tuple(pair) for pair in chain.edge_index.t().tolist()] if connected else None
    return reference.find_subgraph(walks_of(chain), range(chain.num_nodes), edges, size, alpha)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.4])
@pytest.mark.parametrize(("method", "beam"), [("exact", 1), ("beam", 10**6)])
def test_exact_and_a_wide_beam_equal_brute_force(method, beam, alpha, connected, seed):
    chain = make_chain(seed, directed=seed == 1)
    for size in (1, 2, 4):
        nodes, score, count = brute_force(chain, size, connected, alpha)
        found = find_subgraph(chain, size, connected=connected, alpha=alpha, method=method, beam=beam)
        assert found.nodes == nodes
        assert found.score == pytest.approx(score, rel=1e-10)
        assert (found.evaluated, found.total, found.exhaustive) == (count, count, True)


@pytest.mark.parametrize("method", ["beam", "greedy"])
@pytest.mark.parametrize("size", [2, 5, 7])
def test_grown_subgraphs_are_connected_and_scored(method, size):
    chain = make_chain(3, nodes=14)
    found = find_subgraph(chain, size, method=method, beam=4)
    assert len(found.nodes) == size
    assert is_connected(chain, found.nodes)
    assert found.score == pytest.approx(float(ww.subgraph_relevance(chain, [found.nodes])))
    assert found.score <= find_subgraph(chain, size, method="exact").score + 1e-12


def test_a_narrow_beam_says_that_it_did_not_look_everywhere():
    found = find_subgraph(make_chain(0, nodes=12), 4, beam=2)
    assert not found.exhaustive
    assert found.total is None


@pytest.mark.parametrize("method", ["beam", "greedy"])
def test_what_is_known_without_listing_is_said(method):
    chain = make_chain(0, nodes=9)
    assert find_subgraph(chain, 3, connected=False, method=method, beam=2).total == 84
    whole = find_subgraph(chain, 9, connected=False, method=method)
    assert (whole.evaluated, whole.total, whole.exhaustive) == (1, 1, True)


@pytest.mark.parametrize("method", ["exact", "beam", "greedy"])
@pytest.mark.parametrize("seed", range(5))
def test_of_equal_subgraphs_the_one_with_the_lowest_ids_is_taken(method, seed):
    """All paths of a ring are equal; rounding, here made certain, tells them apart."""
    ring = torch.stack([torch.arange(12), (torch.arange(12) + 1) % 12])
    chain = make_chain(seed, nodes=12, edge_index=torch.cat([ring, ring.flip(0)], dim=1), alike=True)
    for size in (1, 3, 5):
        assert find_subgraph(chain, size, method=method).nodes == tuple(range(size))
        assert find_subgraph(chain.to(dtype=torch.float32), size, method=method).nodes == tuple(range(size))


def test_the_work_is_that_of_the_subgraphs_there_are():
    """A tree has few connected subgraphs of almost all its nodes, and many ways that do not lead to one."""
    child = torch.arange(1, 60)
    tree = torch.stack([child, (child - 1) // 2])
    chain = make_chain(0, nodes=60, edge_index=torch.cat([tree, tree.flip(0)], dim=1))
    leaves = 30
    assert find_subgraph(chain, 60, method="exact", max_subgraphs=1).total == 1
    assert find_subgraph(chain, 59, method="exact", max_subgraphs=leaves).total == leaves
    with pytest.raises(TooManySubgraphsError, match="more than 400"):
        find_subgraph(chain, 58, method="exact", max_subgraphs=400)


def test_subgraphs_may_be_larger_than_python_recurses():
    path = torch.stack([torch.arange(1199), torch.arange(1, 1200)])
    chain = make_chain(0, nodes=1200, edge_index=torch.cat([path, path.flip(0)], dim=1))
    assert find_subgraph(chain, 1200, method="exact").nodes == tuple(range(1200))


def test_growing_starts_where_there_is_room():
    path = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 0, 3, 2, 5, 4]])
    path = torch.cat([path, torch.tensor([[4, 6], [6, 4]])], dim=1)  # pairs 0-1 and 2-3, and the path 5-4-6
    for seed in range(5):
        chain = make_chain(seed, nodes=7, edge_index=path)
        assert find_subgraph(chain, 3, method="greedy").nodes == (4, 5, 6)


@pytest.mark.parametrize("method", ["exact", "beam", "greedy"])
def test_no_node_one_node_and_all_nodes(method):
    ring = torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6])
    chain = make_chain(1, nodes=6, edge_index=torch.cat([ring, ring.flip(0)], dim=1))
    assert find_subgraph(chain, 0, method=method) == FoundSubgraph((), 0.0, 1, 1)
    alone = ww.subgraph_relevance(chain, [[m] for m in range(6)])
    assert find_subgraph(chain, 1, method=method).nodes == (int(alone.argmax()),)
    whole = find_subgraph(chain, 6, method=method, beam=2)
    assert whole.nodes == tuple(range(6))
    assert whole.score == pytest.approx(chain.input_relevance)
    assert (whole.evaluated, whole.total, whole.exhaustive) == (1, 1, True)


def test_too_many_subgraphs_are_counted_not_searched():
    chain = make_chain(0, nodes=14)
    with pytest.raises(TooManySubgraphsError, match="3003"):
        find_subgraph(chain, 6, connected=False, method="exact", max_subgraphs=3000)
    with pytest.raises(TooManySubgraphsError, match="more than 10"):
        find_subgraph(chain, 6, method="exact", max_subgraphs=10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 9}, "0 to 8"),
        ({"size": -1}, "0 to 8"),
        ({"size": 2.5}, "2.5"),
        ({"size": 2, "method": "best"}, "'beam', 'greedy', 'exact'"),
        ({"size": 2, "beam": 0}, "at least 1"),
        ({"size": 2, "beam": "x"}, "at least 1, got 'x'"),
        ({"size": 2, "alpha": 2.0}, "between 0 and 1"),
    ],
)
def test_errors_say_what_is_wrong(arguments, message):
    with pytest.raises(InputError, match=message):
        find_subgraph(make_chain(0), **arguments)


def test_no_connected_subgraph_of_that_size():
    alone = torch.empty(2, 0, dtype=torch.long)
    with pytest.raises(InputError, match="connected component has 1"):
        find_subgraph(make_chain(0, edge_index=alone), 2)
    assert len(find_subgraph(make_chain(0, edge_index=alone), 2, connected=False).nodes) == 2
