"""What is read of embeddings, tables and places around the first layer counts as it does with features."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, LGConv, LightGCN, PointNetConv, SAGEConv

import walkwise as ww

M = 6
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 2, 5], [1, 0, 2, 1, 4, 3, 5, 2]])
NUMBERS = torch.tensor([3, 1, 0, 3, 2, 4])


class Net(nn.Module):
    """Features, an embedding of numbers, or a table; then two layers, put together in some way."""

    def __init__(self, kind, run):
        super().__init__()
        self.kind, self.run = kind, run
        self.embedding, self.table = nn.Embedding(5, 4), nn.Parameter(torch.randn(M, 4))
        self.numbers = nn.ModuleList(nn.Embedding(5, 4) for _ in range(2))
        self.norm, self.skip, self.head = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.a, self.b = GCNConv(4, 4), GCNConv(4, 4)

    def begun(self, x):
        if self.kind == "table":
            return self.table
        return self.numbers[0](x) + self.numbers[1](4 - x) if self.kind == "sum" else self.embedding(x)

    def forward(self, x, edge_index):
        h = x if x.is_floating_point() else self.begun(x)
        return self.head(self.run(self, h, edge_index))


def pre_normed(m, h, e):
    h = h + m.a(m.norm(h), e)
    return h + m.b(m.norm(h), e)


def skipped_before(m, h, e):
    skipped = m.skip(h)
    return m.b(m.a(h, e).relu(), e) + skipped


def gated(m, h, e):
    return m.b(m.a(F.dropout(h, training=m.training) * 2, e).relu(), e) + h


def weighed(m, h, e):
    total = h * 0.3
    for conv in (m.a, m.b):
        h = conv(h, e)
        total = total + h * 0.3
    return total


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("run", [pre_normed, skipped_before, gated, weighed])
@pytest.mark.parametrize("kind", ["embedding", "sum", "table"])
def test_walks_are_those_of_the_same_model_that_is_given_features(kind, run, rule):
    torch.manual_seed(0)
    model = Net(kind, run).double().eval()
    chain = ww.trace(model, NUMBERS, EDGES, index=1, target=0, rule=rule)
    given = ww.trace(model, model.begun(NUMBERS).detach(), EDGES, index=1, target=0, rule=rule)
    walks = ww.enumerate_walks(given)
    assert torch.equal(ww.enumerate_walks(chain), walks)
    torch.testing.assert_close(ww.walk_relevance(chain, walks), ww.walk_relevance(given, walks), rtol=1e-9, atol=1e-12)
    assert ww.feature_relevance(chain).shape == (M, 4)


def test_rows_in_another_order_are_followed_from_there():
    torch.manual_seed(0)
    order = torch.tensor([4, 2, 0, 1, 3, 5])
    back = order.argsort()

    class Reordered(Net):
        def begun(self, x):
            return self.embedding(x[order])

        def forward(self, x, edge_index):
            out = super().forward(x, back[edge_index])
            return out if x.is_floating_point() else out[back]

    model = Reordered("embedding", pre_normed).double().eval()
    chain = ww.trace(model, NUMBERS, EDGES, index=1, target=0)
    plain = Net("embedding", pre_normed).double().eval()
    plain.load_state_dict(model.state_dict())
    walks = ww.enumerate_walks(chain)
    expected = ww.trace(plain, NUMBERS, EDGES, index=1, target=0)
    torch.testing.assert_close(ww.walk_relevance(chain, walks), ww.walk_relevance(expected, walks))


def test_what_light_gcn_takes_of_its_table_itself_counts():
    torch.manual_seed(0)
    model = LightGCN(M, 4, num_layers=2).double().eval()
    pair = torch.tensor([[1], [4]])

    class Given(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = LGConv(), LGConv()

        def forward(self, x, edge_index):
            first = self.a(x, edge_index)
            z = (x + first + self.b(first, edge_index)) / 3
            return (z[pair[0]] * z[pair[1]]).sum(-1)

    chain = ww.trace(model, Data(edge_index=EDGES, num_nodes=M), edge_label_index=pair, index=0)
    given = ww.trace(Given(), model.embedding.weight.detach(), EDGES, index=0)
    assert chain.input_relevance == pytest.approx(chain.output)  # there is no bias that could absorb any
    assert chain.input_relevance == pytest.approx(given.input_relevance)


def test_points_that_are_picked_before_the_first_layer_are_nodes():
    torch.manual_seed(0)
    picked = torch.tensor([0, 2, 5])

    class Points(nn.Module):
        """Set abstraction of places alone, as in PointNet++."""

        def __init__(self):
            super().__init__()
            self.a, self.b = (PointNetConv(nn.Linear(n, 4), add_self_loops=False) for n in (3, 7))

        def forward(self, data):
            pos, near = data.pos, torch.tensor([[0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2]])
            x = self.a((None, None), (pos, pos[picked]), near)
            pos = pos[picked]
            return self.b((x, x), (pos, pos), torch.tensor([[0, 1, 2], [1, 2, 0]])).sum(0, keepdim=True)

    chain = ww.trace(Points().double().eval(), Data(pos=torch.rand(M, 3, dtype=torch.float64)), target=0)
    assert chain.num_layers == 2
    walks = ww.enumerate_walks(chain)
    assert set(walks[:, 1].tolist()) <= {-1, *picked.tolist()}
    assert float(ww.walk_relevance(chain, walks).sum()) == pytest.approx(chain.input_relevance)


def test_two_tables_beside_one_another_are_both_followed():
    torch.manual_seed(0)

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = (nn.Parameter(torch.randn(M // 2, 4)) for _ in range(2))
            self.a, self.b = SAGEConv(4, 4), SAGEConv(4, 2)

        def forward(self, edge_index):
            h = torch.cat([self.left, self.right])
            return self.b(h + self.a(h.tanh(), edge_index), edge_index)

    model = Two().double().eval()
    chain = ww.trace(model, Data(edge_index=EDGES, num_nodes=M), index=1, target=0)

    class Given(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = model.a, model.b

        def forward(self, x, edge_index):
            return self.b(x + self.a(x.tanh(), edge_index), edge_index)

    given = ww.trace(Given(), torch.cat([model.left, model.right]).detach(), EDGES, index=1, target=0)
    assert chain.input_relevance == pytest.approx(given.input_relevance)
