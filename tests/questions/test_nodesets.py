"""Subgraphs in every form a caller may give them, and relevance that does not depend on the form."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GINConv, GraphConv

import walkwise as ww
from walkwise.core import rows
from walkwise.core.blocks import Blocks
from walkwise.errors import InputError
from walkwise.questions import nodesets, subgraphs
from walkwise.questions.given_subgraphs import as_node_sets

M = 6
SETS = [[0, 1, 2], [5, 3], [], [4], [0, 1, 2, 3, 4, 5]]
MASK = torch.tensor([[node in nodes for node in range(M)] for nodes in SETS])
FLAT = torch.tensor([node for nodes in SETS for node in nodes]), torch.tensor([0, 3, 5, 5, 6, 12])

node_sets = st.lists(st.sets(st.integers(0, M - 1)), max_size=9)


@pytest.fixture(scope="module")
def local(net, graph):
    """A chain for which a subgraph's own rows are enough."""
    chain = ww.trace(net("GCN"), *graph(M))
    assert chain.local
    return chain


@pytest.fixture(scope="module", params=["GCN", "SG", "GAT", "Transformer"])
def chain(request, net, graph):
    """Chains of every kind: local, reaching two hops, with heads, carried by autograd."""
    return ww.trace(net(request.param), *graph(M))


# -- forms ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "subgraphs",
    [
        tuple(map(tuple, SETS)),
        [nodes[::-1] for nodes in SETS],
        [set(nodes) for nodes in SETS],
        [torch.tensor(nodes, dtype=torch.long) for nodes in SETS],
        [torch.tensor(nodes, dtype=torch.int32) for nodes in SETS],
        [np.array(nodes, dtype=np.int64) for nodes in SETS],
        [[np.int64(node) for node in nodes] for nodes in SETS],
        [range(3), {3: "a key", 5: "another"}, (), frozenset([4]), range(6)],
        MASK,
        MASK.numpy(),
        [*MASK[:2], *MASK[2:].numpy()],
        FLAT,
        tuple(part.int() for part in FLAT),
    ],
    ids=lambda subgraphs: f"{type(subgraphs).__name__} of {type(subgraphs[0]).__name__}",
)
@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_all_forms_agree(local, subgraphs, alpha):
    result = ww.subgraph_relevance(local, subgraphs, alpha=alpha)
    assert torch.equal(result, ww.subgraph_relevance(local, SETS, alpha=alpha))
    assert result[2] == 0
    assert result[[0, 1, 3, 4]].abs().min() > 1e-6


def test_a_table_of_ids(local):
    table = torch.tensor([[0, 1], [3, 2]])
    expected = ww.subgraph_relevance(local, [[0, 1], [2, 3]])
    assert torch.equal(ww.subgraph_relevance(local, table), expected)
    assert torch.equal(ww.subgraph_relevance(local, table.numpy()), expected)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_empty_subgraphs_have_no_relevance(chain, alpha):
    assert ww.subgraph_relevance(chain, [[], []], alpha=alpha).tolist() == [0.0, 0.0]
    assert ww.subgraph_polynomial(chain, [[]]).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "none", [[], (torch.tensor([], dtype=torch.long), torch.tensor([0])), torch.zeros(0, M, dtype=torch.bool)]
)
def test_no_subgraphs(chain, none):
    for alpha in (0.0, 0.5):
        result = ww.subgraph_relevance(chain, none, alpha=alpha)
        assert result.shape == (0,)
        assert result.dtype == torch.float64
    assert ww.subgraph_relevance(chain, none, alpha=[0.0, 0.5, 1.0]).shape == (0, 3)
    assert ww.subgraph_polynomial(chain, none).shape == (0, 3)


@pytest.mark.parametrize(
    ("subgraphs", "words"),
    [
        ([[0], [1, 6]], "Subgraph 1 names node 6, .* nodes 0 to 5"),
        ([[0, -1]], "Subgraph 0 names node -1"),
        ([[0], [1, 2, 1]], "Subgraph 1 names node 1 more than once"),
        ([0, 1, 2], r"subgraphs\[0\] must be a list of node ids, got 0.*\[\[0, 1, 2\]\]"),
        (torch.tensor([0, 1, 2]), r"list of lists.*int64 of shape \(3,\)"),
        (np.array([0, 1, 2]), "list (of lists )?of node ids"),
        (3, "list of lists of node ids.*got 3"),
        ("012", "list of lists of node ids.*got '012'"),
        (["01"], r"subgraphs\[0\] must be .* got '01'"),
        ([[0.0, 1.0]], "must be integers"),
        ([[0, 1.5]], "must be integers"),
        (torch.tensor([[0.0, 1.0]]), "float32"),
        ([[0, "a"]], "must be integers, got 'a' among them"),
        (torch.ones(M, dtype=torch.bool), r"must have shape \(B, 6\).*For one subgraph write \[mask\]"),
        (torch.ones(2, M, dtype=torch.long), r"more than once.*as a boolean mask \(B, M\)"),
        ([[None]], "must be integers"),
        ([[[0, 1]]], "must be integers"),
        ([[0], [True, False]], r"must be integers, and subgraph 1 is a list of 2 truth values.*torch\.tensor\(mask\)"),
        ([[3], [True] + 5 * [False]], "subgraph 1 is a list of 6 truth values"),
        ([torch.ones(M + 1, dtype=torch.bool)], "7 truth values"),
        ([[2**80]], "must be integers"),
        ((torch.tensor([0, 1, 6]), torch.tensor([0, 1, 3])), "Subgraph 1 names node 6, .* nodes 0 to 5"),
        ((torch.tensor([0, 1, 1]), torch.tensor([0, 1, 3])), "Subgraph 1 names node 1 more than once"),
        ((torch.tensor([0, 1]), torch.tensor([0, 1])), r"from 0 to the number of ids, 2, got \[0, 1\].*\[a, b\]"),
        ((torch.tensor([0, 1]), torch.tensor([1, 2])), r"from 0 to the number of ids, 2, got \[1, 2\]"),
        ((torch.tensor([0, 1]), torch.tensor([0, 2, 1, 2])), "must ascend from 0"),
        ((torch.tensor([0, 1]), torch.tensor([], dtype=torch.long)), "must ascend from 0"),
        ((torch.tensor([0.0]), torch.tensor([0, 1])), r"two integer tensors.*float32 of shape \(1,\)"),
        ((torch.tensor([[0]]), torch.tensor([0, 1])), r"two integer tensors.*int64 of shape \(1, 1\)"),
        (torch.tensor([[0, 1], [2, 2]]), "Subgraph 1 names node 2 more than once"),
        (torch.ones(M, dtype=torch.bool), r"shape \(B, 6\).*got \(6,\)"),
        (torch.ones(2, M + 1, dtype=torch.bool), r"shape \(B, 6\).*got \(2, 7\)"),
    ],
)
def test_what_is_no_subgraph(local, subgraphs, words):
    for alpha in (0.0, 0.5):
        with pytest.raises(InputError, match=words):
            ww.subgraph_relevance(local, subgraphs, alpha=alpha)
    with pytest.raises(InputError, match=words):
        ww.subgraph_polynomial(local, subgraphs)


# -- discounts --------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan"), float("inf"), [0.5, -1.0], np.array([2.0]), "half", None])
def test_what_is_no_discount(local, alpha):
    with pytest.raises(InputError, match="alpha must be a discount between 0 and 1"):
        ww.subgraph_relevance(local, SETS, alpha=alpha)


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_several_discounts(chain, kind):
    alphas = [1.0, 0.0, 0.25, 0.25]
    result = ww.subgraph_relevance(chain, SETS, alpha=kind(alphas))
    assert result.shape == (5, 4)
    for column, alpha in zip(result.t(), alphas, strict=True):
        assert torch.allclose(column, ww.subgraph_relevance(chain, SETS, alpha=alpha))


def test_one_or_no_discount_in_a_list(local):
    assert ww.subgraph_relevance(local, SETS, alpha=[0.5]).shape == (5, 1)
    none = ww.subgraph_relevance(local, SETS, alpha=[])
    assert none.shape == (5, 0)
    assert none.dtype == local.dtype


def test_the_polynomial_is_every_discount(chain):
    coefficients = ww.subgraph_polynomial(chain, SETS)
    for alpha in (0.0, 0.3, 1.0):
        powers = torch.tensor([1.0, alpha, alpha**2], dtype=torch.float64)
        assert torch.allclose(coefficients @ powers, ww.subgraph_relevance(chain, SETS, alpha=alpha))


# -- properties -------------------------------------------------------------------------------


@given(node_sets, st.integers(1, 4), st.integers(1, 12))
def test_batches_are_consecutive_pieces(local, sets, most_sets, most_rows):
    whole = as_node_sets(local, sets)
    pieces = list(whole.batches(most_sets, most_rows))
    firsts = [sum(piece.count for piece in pieces[:i]) for i in range(len(pieces))]
    assert sum(piece.count for piece in pieces) == whole.count == len(sets)
    assert all(1 <= piece.count <= most_sets for piece in pieces)
    assert all(piece.count == 1 or len(piece.nodes) <= most_rows for piece in pieces)
    if pieces:
        assert torch.equal(torch.cat([p.nodes for p in pieces]), whole.nodes)
        assert torch.equal(torch.cat([p.owner + f for p, f in zip(pieces, firsts, strict=True)]), whole.owner)


@given(node_sets, st.integers(1, 2000))
def test_relevance_does_not_depend_on_the_batches(chain, sets, budget):
    whole = ww.subgraph_relevance(chain, sets, alpha=[0.0, 0.5]), ww.subgraph_polynomial(chain, sets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(nodesets._BUDGET, "cpu", budget)
        split = ww.subgraph_relevance(chain, sets, alpha=[0.0, 0.5]), ww.subgraph_polynomial(chain, sets)
    assert all(torch.allclose(a, b, rtol=1e-10) for a, b in zip(whole, split, strict=True))


@given(st.permutations(range(M)), node_sets, st.sampled_from(["GCN", "GAT", "SG", "Transformer"]))
def test_relabelling_the_nodes_relabels_the_relevance(net, graph, order, sets, kind):
    model, (x, edge_index) = net(kind), graph(M)
    new = torch.tensor(order)  # node i becomes node new[i]
    moved = torch.empty_like(x)
    moved[new] = x
    before = ww.trace(model, x, edge_index, target=0)
    after = ww.trace(model, moved, new[edge_index], target=0)
    renamed = [{order[node] for node in nodes} for nodes in sets]
    assert torch.allclose(
        ww.subgraph_relevance(before, sets, alpha=[0.0, 0.3, 1.0]),
        ww.subgraph_relevance(after, renamed, alpha=[0.0, 0.3, 1.0]),
    )
    assert torch.allclose(ww.edge_relevance(before), ww.edge_relevance(after))


@pytest.mark.parametrize("kind", ["sum", "mean", "weighted"])
def test_one_set_of_a_larger_graph_is_looked_up_among_its_edges(kind, monkeypatch):
    """One set by the rows it has, against the same set carried with all nodes; edges point one way."""
    torch.manual_seed(1)
    M, conv = 120, {"sum": GINConv, "mean": partial(GINConv, aggr="mean")}.get(kind)
    make = (lambda i, o: GraphConv(i, o)) if conv is None else (lambda i, o: conv(nn.Linear(i, o), eps=0.3))
    model = Stack(make(3, 6), make(6, 2)).double()
    edge_index = torch.randint(M, (2, 700))
    extra = {"edge_weight": torch.rand(700, dtype=torch.float64)} if kind == "weighted" else {}
    chain = ww.trace(model, torch.randn(M, 3, dtype=torch.float64), edge_index, target=0, **extra)
    chosen = sorted(torch.randperm(M)[:40].tolist())
    everyone = ww.subgraph_relevance(chain, [chosen])
    monkeypatch.setattr(subgraphs, "_FEW_ROWS", 0)
    assert chain.local
    own = ww.subgraph_relevance(chain, [chosen])
    torch.testing.assert_close(own, everyone, rtol=1e-11, atol=1e-12)
    monkeypatch.setattr(rows, "_FEW_EDGES", 0)  # and by sorted edges
    torch.testing.assert_close(ww.subgraph_relevance(chain, [chosen]), everyone, rtol=1e-11, atol=1e-12)


class Stack(nn.Module):
    """Two layers, a ReLU and a sum."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edge_index, **given):
        return self.second(self.first(x, edge_index, **given).relu(), edge_index, **given).sum(0, keepdim=True)


@given(sets=node_sets, kind=st.sampled_from(["GCN", "GIN", "GAT"]))
def test_blocks_of_rows_give_the_same_relevance(net, graph, sets, kind):
    chain = ww.trace(net(kind), *graph(M))
    plain = as_node_sets(chain, [sorted(nodes) for nodes in sets])
    lengths = [len(nodes) for nodes in sets] or [0]
    known = nodesets.NodeSets(M, plain.count, plain.keys, chain.device, (min(lengths), max(lengths)))
    laid_out = known.rows()
    filled = 0 < len(sets) * max(lengths) <= 2 * sum(lengths)
    assert isinstance(laid_out, Blocks if filled else rows.OwnRows)
    if sum(lengths):
        expected = subgraphs.contract(chain, plain.rows(), subgraphs.unweighted)
        torch.testing.assert_close(subgraphs.contract(chain, laid_out, subgraphs.unweighted), expected)
    most = [list(map(int, batch.keys)) for batch in known.batches(2, 4)]
    assert most == [list(map(int, batch.keys)) for batch in plain.batches(2, 4)]
