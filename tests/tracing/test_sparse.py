"""Layers that are handed a sparse adjacency have the relevance that they have on its edges."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import walkwise as ww

M = 6
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 5, 5, 2], [1, 0, 2, 1, 2, 3, 4, 0, 5]])
SETS = [[0, 1, 2], [0], [2, 3, 4, 5]]
LAYERS = {
    "gated": lambda: pyg.GatedGraphConv(4, 2),
    "gated mean": lambda: pyg.GatedGraphConv(4, 2, aggr="mean"),
    "simple mean": lambda: pyg.SimpleConv(aggr="mean"),
    "simple max": lambda: pyg.SimpleConv(aggr="max"),
    "light": lambda: pyg.LGConv(),
    "sage": lambda: pyg.SAGEConv(4, 4),
}


class Model(nn.Module):
    def __init__(self, layer):
        super().__init__()
        torch.manual_seed(1)
        self.encoder, self.layer, self.head = nn.Linear(4, 4), layer(), nn.Linear(4, 2)

    def forward(self, x, adj_t):
        return self.head(self.layer(self.encoder(x), adj_t).relu())


def compare(layer, adjacency, rule):
    x = torch.rand(M, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 0.2
    model = Model(layer).double().eval()
    ours, theirs = (ww.trace(model, x, edges, index=0, target=0, rule=rule) for edges in (adjacency, EDGES))
    torch.testing.assert_close(ours.outputs, theirs.outputs)
    torch.testing.assert_close(ww.subgraph_relevance(ours, SETS), ww.subgraph_relevance(theirs, SETS))
    assert not any("no rule" in note for note in ours.notes)
    assert float(ww.subgraph_relevance(ours, SETS).abs().max()) > 1e-4


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("layout", ["to_sparse_csr", "to_sparse_coo"])
@pytest.mark.parametrize("name", LAYERS)
def test_layouts_of_torch(name, layout, rule):
    dense = torch.zeros(M, M, dtype=torch.float64).index_put_((EDGES[1], EDGES[0]), torch.tensor(1.0).double())
    compare(LAYERS[name], getattr(dense, layout)(), rule)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("name", [*LAYERS, "stacks"])
def test_adjacencies_of_torch_sparse(name, rule):
    """They leave out what a gradient would need, where nothing asks for one."""
    torch_sparse = pytest.importorskip("torch_sparse")
    adjacency = torch_sparse.SparseTensor.from_edge_index(EDGES.flip(0), sparse_sizes=(M, M))
    layers = LAYERS | {"stacks": lambda: pyg.ARMAConv(4, 4, num_stacks=2)}
    compare(layers[name], adjacency, rule)


def test_the_mean_counts_parallel_edges_one_by_one():
    """As torch.sparse.mm does: without biases nothing is absorbed, and walks sum to what the model gives."""

    class Mean(pyg.MessagePassing):
        def forward(self, x, adjacency):
            return torch.sparse.mm(adjacency, x, "mean")

    offsets, columns = torch.tensor([0, 3, 4, 4]), torch.tensor([1, 1, 2, 0])
    adjacency = torch.sparse_csr_tensor(offsets, columns, torch.ones(4, dtype=torch.float64), (3, 3))
    x = torch.rand(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    chain = ww.trace(Mean(), x, adjacency, index=0, target=0, rule="zero")
    torch.testing.assert_close(ww.node_relevance(chain), torch.stack([x[0, 0] * 0, x[1, 0] * 2, x[2, 0]]) / 3)


def repeated(M=3):
    """An adjacency that has one entry twice, which torch adds up, and is not marked as added up."""
    entries = torch.tensor([[2, 0, 0, 1], [0, 1, 1, 2]])
    return torch.sparse_coo_tensor(entries, torch.ones(4, dtype=torch.float64), (M, M), check_invariants=True)


@pytest.mark.parametrize("aggr", ["mean", "sum"])
def test_an_adjacency_with_an_entry_twice_is_read_and_not_changed(aggr):
    torch.manual_seed(0)
    layer, x, adjacency = pyg.SAGEConv(2, 2, aggr=aggr).double(), torch.rand(3, 2).double(), repeated()
    chain = ww.trace(layer, x, adjacency, index=0, target=0)
    assert not adjacency.is_coalesced()
    assert chain.output == pytest.approx(float(layer(x, repeated())[0, 0]))


def test_an_adjacency_by_type_with_an_entry_twice_is_read_and_not_changed():
    torch.manual_seed(0)
    kind = ("user", "knows", "user")
    layer = pyg.HeteroConv({kind: pyg.SAGEConv(2, 2, aggr="sum")}).double()
    x, adjacency = {"user": torch.rand(3, 2).double()}, repeated()
    chain = ww.trace(layer, x, {kind: adjacency}, index=("user", 0), target=0)
    assert not adjacency.is_coalesced()
    assert chain.output == pytest.approx(float(layer(x, {kind: repeated()})["user"][0, 0]))
    assert chain.edge_index.tolist() == [[1, 2, 0], [0, 1, 2]]  # the entry is one edge
