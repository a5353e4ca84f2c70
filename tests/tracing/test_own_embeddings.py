"""What a model makes of an embedding before its first layer hangs on it as what it makes afterwards does."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, LayerNorm, LightGCN, MessagePassing, SAGEConv, global_mean_pool

import walkwise as ww
from walkwise.errors import TraceError

M, F = 6, 4
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 0], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 0, 5]])
NUMBERS = torch.tensor([2, 0, 1, 2, 3, 0])
ORDER = torch.tensor([3, 0, 5, 1, 4, 2])
SETS = [[0], [1, 2], [0, 3, 4], list(range(M)), []]


class Net(nn.Module):
    """Layers on an embedding, or on its rows given as features, in one of several arrangements."""

    def __init__(self, arrangement):
        super().__init__()
        torch.manual_seed(3)
        self.arrangement = arrangement
        self.table, self.other = nn.Embedding(4, F), nn.Embedding(4, F)
        self.first, self.second = GCNConv(F, F), GCNConv(F, F)
        self.norm, self.pyg_norm, self.skip, self.head = nn.LayerNorm(F), LayerNorm(F), nn.Linear(F, F), nn.Linear(F, 2)

    def embedded(self, numbers):
        x = 0
        for table in (self.table, self.other):
            x += table(numbers)  # in place from the second on
        return x

    def forward(self, x, edge_index):
        x = x if x.is_floating_point() else self.embedded(x)
        return self.head(getattr(self, self.arrangement)(x, edge_index))

    def past_the_layer(self, x, edge_index):
        skip = self.skip(x).relu()
        return self.second(self.first(x, edge_index).relu(), edge_index) + skip

    def past_a_normalisation(self, x, edge_index):
        h = x + self.first(self.norm(x).relu(), edge_index)
        return h + self.second(self.norm(h), edge_index)

    def past_statistics(self, x, edge_index):
        return self.second(x + self.first(self.pyg_norm(x), edge_index), edge_index)

    def along_edges(self, x, edge_index):
        scores = x[edge_index[0]] - x[edge_index[1]]  # rows of edges, made before the first layer
        h = self.first(x, edge_index)
        return self.second(h.index_add(0, edge_index[1], self.skip(scores)), edge_index)

    def with_a_virtual_node(self, x, edge_index):
        whole = global_mean_pool(x, torch.zeros(len(x), dtype=torch.long))  # written into new memory
        return self.second(self.first(x, edge_index) + self.skip(whole), edge_index)

    def summed_in_place(self, x, edge_index):
        kept = torch.zeros_like(x)
        kept += self.skip(x)
        twice = kept * 2
        kept.div_(3)
        return self.second(self.first(x, edge_index).relu() + kept - twice, edge_index)

    def written_row_by_row(self, x, edge_index):
        kept = torch.ones(len(x), F, dtype=x.dtype)
        kept[2:] = self.skip(x)[2:]
        return self.second(self.first(x, edge_index).relu() + kept, edge_index)

    def by_a_factor_that_changes(self, x, edge_index):
        factor = torch.ones_like(x)
        kept = self.skip(x) * factor
        factor += 1
        return self.second(self.first(x, edge_index) + kept, edge_index)

    def written_through_a_view(self, x, edge_index):
        kept = torch.zeros_like(x)
        part = kept[:, :2]
        part += self.skip(x)[:, 2:]
        return self.second(self.first(x, edge_index) + kept, edge_index)

    def gated(self, x, edge_index):
        gate = self.skip(x).sigmoid()
        return self.second(self.first(x, edge_index) * gate, edge_index)

    def in_another_order(self, x, edge_index):
        x = x[ORDER]
        skip = self.skip(x)
        return self.second(self.first(x, ORDER.argsort()[edge_index]).relu() + skip, ORDER.argsort()[edge_index])


ARRANGEMENTS = [
    "past_the_layer", "past_a_normalisation", "past_statistics", "along_edges", "gated", "in_another_order",
    "with_a_virtual_node", "summed_in_place", "written_row_by_row", "by_a_factor_that_changes",
    "written_through_a_view",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_an_embedding_is_followed_as_features_are(arrangement, rule):
    model = Net(arrangement).double().eval()
    rows = model.embedded(NUMBERS).detach()
    ours, theirs = (ww.trace(model, x, EDGES, target=0, index=1, rule=rule) for x in (NUMBERS, rows))
    scale = abs(theirs.output)
    for alpha in (0.0, 0.3):
        asked = [ww.subgraph_relevance(chain, SETS, alpha=alpha).tolist() for chain in (ours, theirs)]
        assert asked[0] == pytest.approx(asked[1], abs=1e-12 * scale)
    nodes = [ww.node_relevance(chain, layer="start") for chain in (ours, theirs)]
    torch.testing.assert_close(*nodes)
    assert float(nodes[0].abs().max()) > 1e-6


def test_a_table_that_is_read_before_the_first_layer_loses_nothing():
    torch.manual_seed(0)
    model = LightGCN(M, F, num_layers=2).double().eval()  # linear, and without biases: all relevance arrives
    pair = torch.tensor([[0], [3]])
    data = Data(edge_index=EDGES, num_nodes=M)
    chain = ww.trace(model, data, edge_label_index=pair, target=lambda scores: scores[0], rule="zero")
    assert chain.input_relevance == pytest.approx(chain.output)


@pytest.mark.filterwarnings("ignore:Unable to accurately infer")
def test_a_table_of_more_rows_than_edges_name_asks_for_the_number_of_nodes():
    """The last items have been bought by nobody, say."""
    model, pair = LightGCN(M + 2, F, num_layers=2).double().eval(), torch.tensor([[0], [3]])
    with pytest.raises(TraceError, match=rf"its edges name {M}\. .* set data\.num_nodes = {M + 2}\."):
        ww.trace(model, Data(edge_index=EDGES), edge_label_index=pair, target=lambda scores: scores[0])
    data = Data(edge_index=EDGES, num_nodes=M + 2)
    assert ww.trace(model, data, edge_label_index=pair, target=lambda scores: scores[0]).num_nodes == M + 2


@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_what_is_written_into_before_the_first_layer_is_followed(rule):
    class Written(nn.Module):
        def __init__(self, writes):
            super().__init__()
            torch.manual_seed(3)
            self.table, self.layer, self.skip = nn.Embedding(4, F), GCNConv(F, F), nn.Linear(F, F)
            self.writes = writes

        def forward(self, x, edge_index):
            x = self.table(x)
            kept = torch.zeros(len(x), F, dtype=x.dtype)
            if self.writes:
                kept += self.skip(x)
            else:
                kept = kept + self.skip(x)
            return self.layer(x, edge_index) + kept

    ours, theirs = (
        ww.trace(Written(writes).double().eval(), NUMBERS, EDGES, target=0, index=1, rule=rule)
        for writes in (True, False)
    )
    torch.testing.assert_close(ww.node_relevance(ours), ww.node_relevance(theirs))
    sets = [[0, 1], [1], [1, 2, 3]]
    torch.testing.assert_close(ww.subgraph_relevance(ours, sets), ww.subgraph_relevance(theirs, sets))


class Embeds(MessagePassing):
    """Embeds its nodes itself, or is given them embedded."""

    def __init__(self, table=None):
        super().__init__(aggr="add")
        torch.manual_seed(5)
        self.table, self.lin, self.edge = table, nn.Linear(F, F), nn.Linear(2, F)

    def forward(self, x, edge_index, edge_attr):
        x = x if self.table is None else self.table(x)
        return self.lin(self.propagate(edge_index, x=x, edge_attr=self.edge(edge_attr))).relu() + x

    def message(self, x_j, edge_attr):
        return (x_j + edge_attr).relu()


class Stack(nn.Module):
    def __init__(self, inside):
        super().__init__()
        torch.manual_seed(7)
        self.table = nn.Embedding(4, F)
        self.inside, self.first, self.second = inside, Embeds(self.table if inside else None), GCNConv(F, 2)

    def forward(self, x, edge_index, edge_attr):
        x = x if self.inside else self.table(x)
        return self.second(self.first(x, edge_index, edge_attr), edge_index)


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("order", [None, ORDER])
def test_a_layer_may_embed_its_nodes_itself(rule, order):
    """Walks begin where they begin if the embedding stands before the layer."""
    attributes = torch.rand(EDGES.shape[1], 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x, edges = (NUMBERS, EDGES) if order is None else (NUMBERS[order], order.argsort()[EDGES])
    ours, theirs = (
        ww.trace(Stack(inside).double().eval(), x, edges, edge_attr=attributes, target=0, index=1, rule=rule)
        for inside in (True, False)
    )
    assert ours.num_layers == 2
    asked = [ww.subgraph_relevance(chain, SETS).tolist() for chain in (ours, theirs)]
    assert asked[0] == pytest.approx(asked[1], rel=1e-9)
    torch.testing.assert_close(ww.node_relevance(ours), ww.node_relevance(theirs))


def test_a_layer_that_sends_no_nodes_is_refused():
    class Counts(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, number=x).to(torch.float64)

        def message(self, number_j):
            return number_j.view(-1, 1)

    with pytest.raises(ww.errors.TraceError, match="received no floating-point node tensor"):
        ww.trace(Counts(), NUMBERS, EDGES, target=0, index=1)


class TwoTables(nn.Module):
    """Layers on two embeddings, or on their rows given as features."""

    def __init__(self, arrangement):
        super().__init__()
        torch.manual_seed(1)
        self.tables = nn.ModuleList([nn.Embedding(4, F), nn.Embedding(4, F)])
        self.first, self.second = GCNConv(F, F), GCNConv(F, F)
        self.norm, self.other_norm = nn.LayerNorm(F), nn.LayerNorm(F)
        self.arrangement = arrangement

    def looked_up(self, number, x):
        return x[:, number * F : number * F + F] if x.is_floating_point() else self.tables[number](x)

    def forward(self, x, edge_index):
        return getattr(self, self.arrangement)(x, edge_index)

    def one_after_the_other(self, x, edge_index):
        h, g = self.looked_up(0, x), self.looked_up(1, x)
        h = self.first(self.norm(h), edge_index).relu() + h
        return h + self.second(self.other_norm(g), edge_index) + g

    def columns(self, x, edge_index):
        z = torch.cat([self.looked_up(0, x), self.looked_up(1, x)], -1)
        return self.first(self.norm(z[:, :F] + z[:, F:]), edge_index) + z[:, 2 : 2 + F]

    def looked_up_again(self, x, edge_index):
        h = self.first(self.norm(self.looked_up(0, x) + self.looked_up(1, x)), edge_index)
        return self.second(h, edge_index) + self.looked_up(0, x)

    def written_into_after_a_layer(self, x, edge_index):
        h = self.looked_up(0, x) * 1.0
        h += self.first(self.norm(h), edge_index).relu()
        return self.second(h * 2, edge_index) + h


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize(
    "arrangement", ["one_after_the_other", "columns", "looked_up_again", "written_into_after_a_layer"]
)
def test_two_embeddings_have_the_relevance_of_features(arrangement, rule):
    model = TwoTables(arrangement).double().eval()
    rows = torch.cat([table(NUMBERS) for table in model.tables], -1).detach()
    ours, theirs = (ww.trace(model, x, EDGES, index=0, target=0, rule=rule) for x in (NUMBERS, rows))
    torch.testing.assert_close(ww.subgraph_relevance(ours, SETS), ww.subgraph_relevance(theirs, SETS))
    start = (ww.node_relevance(chain, layer="start") for chain in (ours, theirs))
    torch.testing.assert_close(*start)


class Attends(MessagePassing):
    """Embeds its nodes itself, and sends several tensors of them, or sends twice."""

    def __init__(self, twice):
        super().__init__()
        self.twice, self.table, self.maps = twice, nn.Embedding(4, F), nn.ModuleList(nn.Linear(F, F) for _ in range(3))

    def forward(self, x, edge_index):
        sent, query, key = (part(self.table(x)) for part in self.maps)
        if self.twice:
            again = self.propagate(edge_index, x=sent, query=sent, key=sent)
            return again + self.propagate(edge_index, x=query, query=query, key=query)
        return self.propagate(edge_index, x=sent, query=query, key=key)

    def message(self, x_j, query_i, key_j):
        return x_j * torch.sigmoid(query_i * key_j)


@pytest.mark.parametrize("twice", [False, True])
def test_a_layer_that_sends_several_tensors_of_its_own_is_refused(twice):
    with pytest.raises(ww.errors.TraceError, match="embed them before the layer"):
        ww.trace(Attends(twice), NUMBERS, EDGES, index=0, target=0)


class Super(nn.Module):
    """A row of no node, or the mean of every graph, stands beside the embedded nodes before the first layer."""

    def __init__(self, row, first=False, around=False):
        super().__init__()
        torch.manual_seed(0)
        self.tables = nn.ModuleList([nn.Embedding(4, 5), nn.Embedding(3, 5)])
        self.token, self.lin = nn.Parameter(torch.rand(1, 5)), nn.Linear(5, 5)
        self.layers, self.head = nn.ModuleList([SAGEConv(5, 5), SAGEConv(5, 5)]), nn.Linear(5, 2)
        self.row, self.first, self.around = row, first, around
        self.double().eval()

    def embedded(self, x):
        if x.is_floating_point():  # one-hot
            return sum(part @ table.weight for part, table in zip(x.split([4, 3], 1), self.tables, strict=True))
        return sum(table(x[:, i]) for i, table in enumerate(self.tables))

    def forward(self, x, edge_index):
        nodes = torch.arange(len(x))
        h = embedded = self.embedded(x)
        row = {
            "token": lambda: self.token,
            "mean": lambda: h.mean(0, keepdim=True),
            "made": lambda: self.lin(h.sum(0, keepdim=True)).relu(),
        }
        h = torch.cat([row[self.row](), h] if self.first else [h, row[self.row]()])
        other, own = (nodes * 0, nodes + 1) if self.first else (nodes * 0 + len(x), nodes)
        edges = torch.cat([own[edge_index], torch.stack([own, other]), torch.stack([other, own])], 1)
        for layer in self.layers:
            h = layer(h, edges).relu()
        h = h[1:] if self.first else h[: len(x)]
        return self.head((h + embedded if self.around else h).sum(0, keepdim=True))


@pytest.mark.parametrize("row", ["token", "mean", "made"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("around", [False, True])
def test_rows_of_no_node_beside_embedded_ones(row, first, around):
    """The same as of numbers that are one-hot."""
    numbers = torch.tensor([[0, 1], [3, 0], [1, 2], [1, 0], [2, 2]])
    hot = torch.cat([nn.functional.one_hot(numbers[:, 0], 4), nn.functional.one_hot(numbers[:, 1], 3)], 1).double()
    edge_index = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    model, subgraphs = Super(row, first, around), [[0, 1, 2, 3, 4], [0, 2], [1, 3, 4], []]
    chain, same = (ww.trace(model, x, edge_index, target=0, rule="zero") for x in (numbers, hot))
    torch.testing.assert_close(ww.subgraph_relevance(chain, subgraphs), ww.subgraph_relevance(same, subgraphs))
    torch.testing.assert_close(chain.bias_leak, same.bias_leak)


class Neighbours(MessagePassing):
    """Sends rows of its own table, as ViSNet's first layer does, or rows that it is given."""

    def __init__(self):
        super().__init__(aggr="add")
        self.table, self.lin = nn.Embedding(9, 4), nn.Linear(8, 4)

    def forward(self, h, edge_index, numbers=None, sent=None):
        sent = self.table(numbers) if sent is None else sent
        return self.lin(torch.cat([h, self.propagate(edge_index, x=sent)], 1))

    def message(self, x_j):
        return x_j


class OwnNeighbours(nn.Module):
    def __init__(self, inside):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.first, self.second = nn.Embedding(9, 4), Neighbours(), GCNConv(4, 4)
        self.head, self.inside = nn.Linear(4, 2), inside
        self.double().eval()

    def forward(self, z, edge_index):
        rows = {"numbers": z} if self.inside else {"sent": self.first.table(z)}
        h = self.first(self.embed(z), edge_index, **rows)
        return self.head(self.second(h, edge_index).relu().sum(0, keepdim=True))


@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_rows_that_a_layer_looks_up_and_sends_are_those_of_nodes(rule):
    z, edges = torch.tensor([1, 2, 3, 4]), torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    model = OwnNeighbours(True)
    chain = ww.trace(model, z, edges, target=0, rule=rule)
    walks = ww.enumerate_walks(chain)
    assert any(walk[0] != walk[1] for walk in walks.tolist())
    assert float(ww.walk_relevance(chain, walks).sum()) == pytest.approx(chain.input_relevance)
    if rule == "zero":
        own, sent = (table(z).detach().requires_grad_() for table in (model.embed, model.first.table))
        h = model.first(own, edges, sent=sent)
        gradients = torch.autograd.grad(model.head(model.second(h, edges).relu().sum(0))[0], (own, sent))
        expected = sum((gradient * rows).sum(1).detach() for gradient, rows in zip(gradients, (own, sent), strict=True))
        torch.testing.assert_close(ww.node_relevance(chain, layer="start"), expected)


def test_a_switch_is_not_handed_the_graph():
    """Of a recommender that has its tables and its edges itself, and takes nothing but how to run."""

    class Tables(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.users, self.items = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(4, 4))
            self.double().eval()

        def forward(self, perturbed=False):
            h, total = torch.cat([self.users, self.items]), 0
            for _ in range(2):
                h = torch.zeros_like(h).index_add(0, EDGES[1], h[EDGES[0]]) / 2
                h = h + 1 if perturbed else h
                total = total + h
            return total

    model = Tables()
    chain = ww.trace(
        model, Data(edge_index=EDGES, num_nodes=M), target=lambda out: (out[0] * out[3]).sum(), rule="zero"
    )
    assert chain.num_layers == 2
    out = model().detach()
    assert chain.output == pytest.approx(float((out[0] * out[3]).sum()))
