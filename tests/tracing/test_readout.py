"""Read-outs: what they read, and the gradients that arrive there."""

import pytest
import torch
from torch import nn
from torch.nn.functional import linear
from torch_geometric.nn import GCNConv, global_add_pool, global_mean_pool

import walkwise as ww

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
BATCH = torch.tensor([0, 0, 0, 1, 1])


class Model(nn.Module):
    def __init__(self, readout):
        super().__init__()
        self.first, self.second, self.readout = GCNConv(3, 6), GCNConv(6, 6), readout
        self.head = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))

    def forward(self, x, edge_index, batch=None):
        early = self.first(x, edge_index).relu()
        late = self.second(early, edge_index).relu()
        return self.readout(self.head, early, late, batch)


READOUTS = {
    "sum": lambda head, early, late, batch: head(late.sum(dim=0, keepdim=True)),
    "mean": lambda head, early, late, batch: head(late.mean(0)).view(1, -1),
    "scaled": lambda head, early, late, batch: head(late.sum(0, keepdim=True) / 3 * 2),
    "pooled": lambda head, early, late, batch: head(global_add_pool(late, batch)),
    "averaged": lambda head, early, late, batch: head(global_mean_pool(late, batch)),
    "early too": lambda head, early, late, batch: head((early + late).sum(dim=0, keepdim=True)),
    "nodes first": lambda head, early, late, batch: global_add_pool(head(late), batch),
    "twice": lambda head, early, late, batch: head((late + late).sum(dim=0, keepdim=True)),
    "vector": lambda head, early, late, batch: linear(late, head[0].weight[1]).view(1, -1),
}


@pytest.mark.parametrize("name", READOUTS)
def test_seeds_are_the_gradients_of_the_read_out(name):
    torch.manual_seed(1)
    model = Model(READOUTS[name]).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    x = torch.randn(5, 3, dtype=torch.float64)
    batch = {"batch": BATCH} if name in ("pooled", "averaged", "nodes first") else {}
    edges = EDGES[:, BATCH[EDGES[0]] == BATCH[EDGES[1]]] if batch else EDGES
    columns = [1, 0] if batch else [1]
    chain = ww.trace(model, x, edges, target=columns, **batch)
    early = model.first(x, edges).relu().detach().requires_grad_(True)
    late = model.second(early, edges).relu().detach().requires_grad_(True)  # walks end here: the ReLU is the layer's
    output = model.readout(model.head, early, late, batch.get("batch"))
    scalar = sum(row[column] for row, column in zip(output, columns, strict=True))
    expected = torch.autograd.grad(scalar, [early, late], allow_unused=True)
    found = [(value, seed) for (_, seed), (_, value) in zip(chain.seeds, chain.readout, strict=True)]
    read = [
        (tensor, gradient) for tensor, gradient in zip((early, late), expected, strict=True) if gradient is not None
    ]
    assert len(found) == len(read)
    for tensor, gradient in read:
        (seed,) = [seed for value, seed in found if torch.allclose(value, tensor)]
        torch.testing.assert_close(seed, gradient, rtol=1e-12, atol=1e-14)


def test_a_constant_of_another_type_leaves_the_chain_in_its_own():
    model = Model(lambda head, early, late, batch: head(late.sum(0, keepdim=True)) + torch.ones(1, 2).double())
    chain = ww.trace(model, torch.randn(5, 3), EDGES, target=1)
    assert {seed.dtype for _, seed in chain.seeds} == {torch.float32}
    ww.subgraph_relevance(chain, [[0, 1]])


def test_a_bias_that_is_followed():
    def readout(head, early, late, batch):
        return linear(late.sum(0, keepdim=True), head[0].weight, head[0](early.sum(0)))

    def plain(head, early, late, batch):
        return linear(late.sum(0, keepdim=True), head[0].weight) + head[0](early.sum(0))

    torch.manual_seed(0)
    model, x = Model(readout).double(), torch.randn(5, 3).double()
    with pytest.warns(ww.errors.CoverageWarning, match="linear"):
        chain = ww.trace(model, x, EDGES, target=1)
    model.readout = plain
    expected = ww.trace(model, x, EDGES, target=1)
    torch.testing.assert_close(ww.node_relevance(chain), ww.node_relevance(expected))


SHORT = torch.zeros(3, 6, dtype=torch.long)


@pytest.mark.parametrize("name", ["scatter_add", "scatter_add_"])
def test_a_sum_over_some_of_the_nodes_is_left_to_torch(name):
    """Torch has no gradient of a sum whose index is shorter than what is summed."""
    model = Model(lambda head, early, late, batch: head(getattr(late.new_zeros(1, 6), name)(0, SHORT, late)))
    with pytest.raises(ww.errors.TraceError, match="torch cannot differentiate the read-out"):
        ww.trace(model, torch.randn(5, 3), EDGES, target=1)


ROUNDED = {
    "floor": lambda h: h.div(2, rounding_mode="floor"),
    "trunc": lambda h: torch.div(h, 2, rounding_mode="trunc"),
    "in place": lambda h: h.div_(2, rounding_mode="floor"),
    "floor divide": lambda h: h // 2,
}


@pytest.mark.parametrize("rounded", ROUNDED.values(), ids=ROUNDED)
def test_a_division_that_rounds_is_constant(rounded):
    model = Model(lambda head, early, late, batch: rounded(head(late.sum(0, keepdim=True))))
    with pytest.raises(ww.errors.TargetError, match="rounds it"):
        ww.trace(model, torch.randn(5, 3), EDGES, target=1)
    model.readout = lambda head, early, late, batch: head(late.sum(0, keepdim=True)) + rounded(early.sum(0, True)).sum()
    beside = ww.trace(model, x := torch.randn(5, 3), EDGES, target=1)
    model.readout = lambda head, early, late, batch: head(late.sum(0, keepdim=True))
    torch.testing.assert_close(ww.node_relevance(beside), ww.node_relevance(ww.trace(model, x, EDGES, target=1)))
