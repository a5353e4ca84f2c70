"""Models as people call them: graphs in the place of tensors, and the signatures that are met with."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GAT, GCN, LINKX, GCNConv, GINEConv, LightGCN, MessagePassing, Sequential, global_add_pool
from torch_geometric.utils import to_torch_csr_tensor

import walkwise as ww
from walkwise.errors import CoverageWarning, InputError, TraceError
from walkwise.evaluation.parts import subgraph_values
from walkwise.evaluation.predictions import predict, traced
from zoo.held import held_gru


class Two(nn.Module):
    """Two layers; the subclasses differ in what their ``forward`` takes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = GCNConv(3, 4), GCNConv(4, 2)
        self.double().eval()

    def both(self, x, edge_index, batch=None, weight=None):
        h = self.a(x, edge_index, weight).relu()
        return global_add_pool(self.b(h, edge_index, weight), batch)


class Usual(Two):
    def forward(self, x, edge_index, edge_weight=None, batch=None):
        return self.both(x, edge_index, batch, edge_weight)


class EdgesFirst(Two):
    def forward(self, edge_index, x, edge_weight=None, batch=None):
        return self.both(x, edge_index, batch, edge_weight)


class Adjacency(Two):
    def forward(self, x, adj_t, batch=None):
        return self.both(x, adj_t, batch)


class OtherNames(Two):
    def forward(self, h, edges, edge_weight, batch):
        return self.both(h, edges, batch, edge_weight)


class Encoded(Two):
    def forward(self, x, pe, edge_index, edge_weight=None, batch=None):
        return self.both(x + pe, edge_index, batch, edge_weight)


class Whole(Two):
    def forward(self, data):
        x, edge_index = data.x, data.edge_index
        data.x = None  # what a model does to its own copy
        return self.both(x, edge_index, data.batch, data.edge_weight)


class WholeBatch(Two):
    def forward(self, batch, scale=1.0):
        out = self.both(batch.x, batch.edge_index, batch.batch, batch.edge_weight)
        return scale * out[: batch.num_graphs if batch.batch is not None else 1]


@pytest.fixture
def data(graph):
    x, edge_index = graph()
    weight = torch.rand(edge_index.shape[1], dtype=torch.float64) + 0.5
    y = torch.tensor([float("nan")])  # as many data sets have it
    return Data(x=x, edge_index=edge_index, edge_weight=weight, pe=torch.zeros_like(x), y=y)


def same(ours, theirs):
    assert ours.output == pytest.approx(theirs.output)
    torch.testing.assert_close(ww.node_relevance(ours), ww.node_relevance(theirs))
    torch.testing.assert_close(ww.feature_relevance(ours), ww.feature_relevance(theirs))
    sets = [[0, 1], [2, 3, 4]]
    torch.testing.assert_close(
        ww.subgraph_relevance(ours, sets, alpha=0.3), ww.subgraph_relevance(theirs, sets, alpha=0.3)
    )


# -- graphs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Usual, EdgesFirst, OtherNames, Encoded, Whole, WholeBatch])
@pytest.mark.parametrize("count", [1, 3])
def test_a_graph_is_what_its_tensors_are(data, unchanged, kind, count):
    graph = data if count == 1 else Batch.from_data_list([data] * count)
    expected = ww.trace(
        Usual(), graph.x, graph.edge_index, edge_weight=graph.edge_weight, batch=graph.get("batch"), target=1
    )
    model, held = kind(), {name: graph[name] for name in graph.keys()}  # noqa: SIM118
    with unchanged(model, graph.x, graph.edge_weight):
        chain = ww.trace(model, graph, target=1)
    assert chain.outputs.shape == (count,)
    same(chain, expected)
    assert all(graph[name] is value for name, value in held.items())


def test_a_graph_as_a_sparse_adjacency(data):
    """The same model, whether its edges are called edge_index or adj_t, and whichever of them the graph has."""
    columns = Data(x=data.x, edge_index=data.edge_index)
    sparse = Data(x=data.x, adj_t=to_torch_csr_tensor(data.edge_index).double())
    expected = ww.trace(Usual(), columns, target=0)
    for model, given in ((Usual(), sparse), (Adjacency(), sparse), (Adjacency(), columns)):
        same(ww.trace(model, given, target=0), expected)


def test_what_is_given_by_name_takes_precedence(data):
    ones = torch.ones_like(data.edge_weight)
    expected = ww.trace(Usual(), data.x, data.edge_index, edge_weight=ones, target=0)
    same(ww.trace(Usual(), data, edge_weight=ones, target=0), expected)
    plain = Data(x=data.x, edge_index=data.edge_index)
    same(ww.trace(OtherNames(), plain, edge_weight=ones, target=0), expected)  # a batch of one graph is filled in
    doubled = ww.trace(WholeBatch(), data, scale=2.0, target=0)
    assert doubled.output == pytest.approx(2 * ww.trace(WholeBatch(), data, target=0).output)


def test_tensors_find_their_names_in_any_order(data):
    expected = ww.trace(Usual(), data.x, data.edge_index, target=0)
    same(ww.trace(EdgesFirst(), data.x, data.edge_index, target=0), expected)
    same(ww.trace(Encoded(), data.x, data.edge_index, pe=data.pe, target=0), expected)


def test_a_sequential_is_called_by_its_own_names(data):
    torch.manual_seed(0)
    layers = [(GCNConv(3, 4), "x, edge_index -> h"), nn.ReLU(), (GCNConv(4, 2), "h, edge_index -> h")]
    model = Sequential("edge_index, x, batch", [*layers, (global_add_pool, "h, batch -> h")]).double()
    batch = Batch.from_data_list([data, data])
    chain = ww.trace(model, batch, target=0)
    torch.testing.assert_close(chain.outputs, model(batch.edge_index, batch.x, batch.batch)[:, 0].detach())


def test_a_model_of_torch_geometric_takes_what_it_has_parameters_for(data):
    for kind in (GCN, GAT):
        model = kind(3, 4, 2, 2).double().eval()
        chain = ww.trace(model, data, index=2, target=1)
        expected = model(data.x, data.edge_index, data.edge_weight)[2, 1]
        assert chain.output == pytest.approx(float(expected.detach()))


def test_batches_of_a_loader(data):
    other = data.clone()
    other.x = other.x.flip(0)
    batch = next(iter(DataLoader([data, other], batch_size=2)))
    chain = ww.trace(Usual(), batch, target=[0, 1])
    alone = [ww.trace(Usual(), graph, target=t) for t, graph in enumerate([data, other])]
    assert chain.outputs.tolist() == pytest.approx([c.output for c in alone])
    torch.testing.assert_close(ww.node_relevance(chain), torch.cat([ww.node_relevance(c) for c in alone]))


def test_a_sampled_subgraph(data):
    """As a NeighborLoader makes them: batch_size is how many nodes were asked for, not how many graphs there are."""
    sampled = Data(
        x=data.x, edge_index=data.edge_index, n_id=torch.arange(10, 16), input_id=torch.tensor([10, 11]), batch_size=2
    )
    model = GCN(3, 4, 2, 2, norm="GraphNorm").double().eval()
    same(ww.trace(model, sampled, index=1, target=0), ww.trace(model, data.x, data.edge_index, index=1, target=0))


class Molecules(nn.Module):
    """Atoms and bonds by their numbers, and one logit."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.atoms, self.bonds = nn.Embedding(20, 4), nn.Embedding(5, 4)
        self.conv, self.head = GINEConv(nn.Linear(4, 4)), nn.Linear(4, 1)
        self.double().eval()

    def forward(self, x, edge_index, edge_attr, batch):
        h = self.conv(self.atoms(x[:, 0]), edge_index, self.bonds(edge_attr[:, 0])).relu()
        return self.head(global_add_pool(h, batch))


@pytest.fixture
def molecule(data):
    """As from_smiles makes them: integers for atoms and bonds."""
    count = data.edge_index.shape[1]
    return Data(x=torch.arange(6).view(6, 1), edge_index=data.edge_index, edge_attr=torch.arange(count).view(-1, 1) % 5)


def test_graphs_of_integers(molecule):
    model = Molecules()
    batch = Batch.from_data_list([molecule, molecule])
    expected = model(batch.x, batch.edge_index, batch.edge_attr, batch.batch)[:, 0]
    torch.testing.assert_close(ww.trace(model, batch).outputs, expected.detach())


def test_smiles():
    pytest.importorskip("rdkit")
    from torch_geometric.utils import from_smiles

    assert ww.trace(Molecules(), from_smiles("CCO")).num_nodes == 3


class Featureless(nn.Module):
    """Nodes that are known by their numbers alone."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.nodes, self.inner = nn.Parameter(torch.randn(6, 3)), Usual()
        self.double().eval()

    def forward(self, edge_index, x=None, batch=None):
        return self.inner(self.nodes, edge_index, batch=batch)


def test_relevance_of_a_model_without_features_is_at_its_embedding(data):
    model, graph = Featureless(), Data(edge_index=data.edge_index, num_nodes=6)
    chain = ww.trace(model, graph, target=0)
    expected = ww.trace(model.inner, model.nodes.detach(), data.edge_index, target=0)
    assert chain.output == pytest.approx(expected.output)
    torch.testing.assert_close(ww.node_relevance(chain), ww.node_relevance(expected))
    assert ww.trace(LightGCN(6, 4, 2), graph, index=3).num_nodes == 6


def linkx():
    torch.manual_seed(1)
    return LINKX(6, 3, 4, 2, num_layers=2).double().eval()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_layer_that_is_handed_edges_alone_begins_at_its_own_table(data, weighted):
    model = linkx()
    graph = Data(edge_index=data.edge_index, num_nodes=6)
    if weighted:
        graph.edge_weight = data.edge_weight
    chain = ww.trace(model, graph, target=0, index=1, rule="zero")
    table = model.edge_lin.weight
    (gradient,) = torch.autograd.grad(
        model(None, *([graph.edge_index, graph.edge_weight][: 1 + weighted]))[1, 0], table
    )
    expected = (table * gradient).sum(1).detach()
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(ww.node_relevance(chain), expected)


class Named(LINKX):
    """Its types are names, as in a file that imports annotations."""

    def forward(self, x: Optional[Tensor], edge_index: Tensor):  # noqa: F821
        return super().forward(x, edge_index)


class Needy(LINKX):
    def forward(self, x: Tensor, edge_index: Tensor):  # noqa: F821
        return super().forward(x, edge_index)


def test_features_that_may_be_none_are_told_by_their_type(data):
    graph = Data(edge_index=data.edge_index, num_nodes=6)
    assert ww.trace(Named(6, 3, 4, 2, num_layers=2).double().eval(), graph, target=0, index=1).num_nodes == 6
    with pytest.raises(InputError, match="needs x, which the graph does not have"):
        ww.trace(Needy(6, 3, 4, 2, num_layers=2).double().eval(), graph, target=0, index=1)


def test_features_beside_such_a_table(data):
    model, x = linkx(), torch.rand(6, 3, dtype=torch.float64)
    chain = ww.trace(model, Data(x=x, edge_index=data.edge_index), target=0, index=1, rule="zero")
    leaf = x.clone().requires_grad_()
    leaves = [leaf, model.edge_lin.weight]
    gradients = torch.autograd.grad(model(leaf, data.edge_index)[1, 0], leaves)
    of_features, of_table = ((a * g).detach() for a, g in zip(leaves, gradients, strict=True))
    torch.testing.assert_close(ww.feature_relevance(chain), of_features)
    torch.testing.assert_close(ww.node_relevance(chain), (of_features.sum(1) + of_table.sum(1)))


class NoTable(MessagePassing):
    """It is handed edges alone, and has a matrix of as many rows as there are nodes, which are no nodes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6, 6, dtype=torch.float64))

    def forward(self, edge_index):
        ones = torch.ones(6, 6, dtype=torch.float64)
        return self.propagate(edge_index, x=ones) @ self.weight


class Degrees(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = NoTable()

    def forward(self, x, edge_index):
        return self.layer(edge_index) + x.sum(1, keepdim=True)


def test_a_matrix_that_is_not_propagated_is_no_table(data):
    with pytest.raises(TraceError, match=r"'layer' \(NoTable\) received no floating-point node tensor.*Give it node"):
        ww.trace(Degrees(), data.x, data.edge_index, index=1, target=0)


# -- what does not fit --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "change", "arguments", "words"),
    [
        (
            Encoded,
            {"pe": None},
            {},
            r"forward\(x, pe, edge_index, .* needs pe, .* it has edge_index, .*, x, y\..*pe=\.\.\.",
        ),
        (Usual, {"x": None}, {}, r"needs x, which the graph does not have.*data\.x = torch\.ones"),
        (Usual, {}, {"weight": 1}, r"Usual\.forward\(x, edge_index, .* unexpected keyword argument 'weight'"),
        (Whole, {}, {"weight": 1}, r"Whole\.forward\(data\) was given the graph, weight, .* unexpected keyword"),
    ],
)
def test_a_graph_that_does_not_fit(data, unchanged, kind, change, arguments, words):
    model = kind()
    for name, value in change.items():
        data[name] = value
    with unchanged(model), pytest.raises(InputError, match=words):
        ww.trace(model, data, **arguments)


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        (Whole, {}, r"Whole\.forward\(data\) was given x, edge_index.*write ww\.trace\(model, data\)"),
        (Encoded, {}, r"forward\(x, pe, edge_index, .*missing a required argument: 'pe'.*names of its parameters"),
        (Usual, {"edge_attr": torch.ones(1)}, r"forward\(x, edge_index, edge_weight=None, .*'edge_attr'"),
    ],
)
def test_tensors_that_do_not_fit(data, kind, arguments, words):
    with pytest.raises(InputError, match=words):
        ww.trace(kind(), data.x, data.edge_index, target=0, **arguments)


def test_a_type_error_of_the_model_itself_comes_through(data):
    class Broken(Two):
        def forward(self, x, edge_index):
            return self.both(x, edge_index) + len(3)

    with pytest.raises(TypeError, match="has no len"):
        ww.trace(Broken(), data)


def test_integers_where_numbers_are_wanted(data, molecule):
    class Linear(Usual):
        def forward(self, x, edge_index):
            return super().forward(nn.functional.linear(x, torch.eye(3, 1).double()), edge_index)

    with pytest.raises(InputError, match=r"x of torch\.int64.*data\.x = data\.x\.float\(\)"):
        ww.trace(Linear(), molecule)


class Embeds(MessagePassing):
    """A layer that is handed the numbers of atoms and embeds them itself, or their embedding, and what edges have."""

    def __init__(self, itself):
        super().__init__()
        torch.manual_seed(0)
        self.itself, self.atoms = itself, nn.Embedding(7, 2)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=self.atoms(x) if self.itself else x, edge_attr=edge_attr)

    def message(self, x_j, edge_attr):
        return x_j * edge_attr


@pytest.mark.parametrize("by_name", [False, True])
def test_what_edges_have_is_not_taken_for_nodes_of_which_there_are_as_many(by_name):
    class Model(nn.Module):
        def __init__(self, itself):
            super().__init__()
            self.conv = Embeds(itself)

        def forward(self, x, edge_index, edge_attr):
            x = x if self.conv.itself else self.conv.atoms(x)
            if by_name:
                return self.conv(x=x, edge_index=edge_index, edge_attr=edge_attr)
            return self.conv(x, edge_index, edge_attr)

    ring, edge_attr = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), torch.rand(4, 2)
    ours, theirs = (
        ww.trace(Model(itself), torch.arange(4), ring, edge_attr=edge_attr, index=0, target=0)
        for itself in (True, False)
    )
    torch.testing.assert_close(ww.node_relevance(ours), ww.node_relevance(theirs))
    assert ww.node_relevance(ours).nonzero().flatten().tolist() == [3]  # the one that sends to node 0


class WeightFirst(MessagePassing):
    """A layer that is handed its weight, too, and before its nodes."""

    def forward(self, weight, x, edge_index):
        return self.propagate(edge_index, x=x @ weight)


@pytest.mark.parametrize("width", [4, 6])
@pytest.mark.parametrize("by_nodes", [False, True], ids=["of weights", "of nodes"])
def test_a_weight_is_not_taken_for_nodes_of_which_there_are_as_many(data, width, by_nodes):
    class Evolved(nn.Module):
        """Its weight is what a recurrent cell makes of the one before."""

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.begun = nn.Parameter(torch.randn(width, width))
            self.cell, self.conv = nn.GRUCell(width, width), WeightFirst()

        def forward(self, x, edge_index):
            given = x[:width] if by_nodes else self.begun
            return self.conv(self.cell(given, self.begun), x, edge_index)

    model, x = Evolved().double(), torch.randn(6, width, dtype=torch.float64)
    chain = ww.trace(model, x, data.edge_index, index=0, target=0, rule="zero")
    leaf = x.clone().requires_grad_()
    cell, given = model.cell, leaf[:width] if by_nodes else model.begun
    weight = held_gru(given, model.begun, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
    outputs = [model.conv(weight.detach(), leaf, data.edge_index), model.conv(weight, leaf.detach(), data.edge_index)]
    total = sum(outputs) / 2 if by_nodes else outputs[0]  # of two factors that nodes have made, each gets half
    (gradient,) = torch.autograd.grad(total[0, 0], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)


@pytest.mark.parametrize("graph", [HeteroData(), Batch.from_data_list([HeteroData()])])
def test_heterogeneous_graphs_without_nodes_are_refused(graph):
    with pytest.raises(InputError, match="has no nodes"):
        ww.trace(Usual(), graph)


# -- predictions --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EdgesFirst, OtherNames, Encoded, Whole, WholeBatch])
def test_predictions_call_the_model_in_the_same_way(data, kind):
    expected = predict(Usual(), data, target=1)
    prediction = predict(kind(), data, target=1)
    masks = torch.tensor([[True] * 6, [True, True, True, False, False, False], [False] * 5 + [True]])
    assert prediction.value() == pytest.approx(expected.value())
    ours, theirs = subgraph_values(prediction, masks), subgraph_values(expected, masks)
    torch.testing.assert_close(ours.values, theirs.values)
    assert ours.route == theirs.route == "batched"
    same(traced(prediction), traced(expected))


def test_the_usual_call_needs_no_adapter(data):
    model = Usual()
    assert predict(model, data).model is model
    assert predict(model, data.x, data.edge_index).model is model


class OfGraph(MessagePassing):
    """A layer that takes a graph, writes what it makes into it, and returns it."""

    def __init__(self):
        super().__init__()
        self.lin, self.edge = nn.Linear(4, 4), nn.Linear(3, 4)

    def forward(self, graph):
        graph.x = self.lin(graph.x + self.propagate(graph.edge_index, x=graph.x, e=self.edge(graph.edge_attr))).relu()
        return graph

    def message(self, x_j, e):
        return (x_j + e).relu()


class OfTensors(OfGraph):
    """The same layer."""

    def forward(self, x, edge_index, edge_attr):
        return self.lin(x + self.propagate(edge_index, x=x, e=self.edge(edge_attr))).relu()


class Stack(MessagePassing):
    """It is a layer by name, and runs those that it holds."""

    def __init__(self, layer):
        super().__init__()
        torch.manual_seed(3)
        self.layers, self.head = nn.ModuleList([layer(), layer()]), nn.Linear(4, 2)
        self.double()

    def forward(self, x, edge_index, edge_attr):
        given = Data(x=x, edge_index=edge_index, edge_attr=edge_attr) if type(self.layers[0]) is OfGraph else x
        for layer in self.layers:
            given = layer(given) if type(layer) is OfGraph else layer(given, edge_index, edge_attr)
        return self.head(given.x if isinstance(given, Data) else given).sum(0, keepdim=True)


@pytest.mark.parametrize("held", [False, True])
def test_layers_that_take_a_graph_and_layers_that_hold_others(data, held):
    class Held(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.stack = Stack(layer)

        def forward(self, x, edge_index, edge_attr):
            return self.stack(x, edge_index, edge_attr)

    x = torch.rand(6, 4, dtype=torch.float64)
    attributes = torch.rand(data.edge_index.shape[1], 3, dtype=torch.float64)
    models = [(Held if held else Stack)(kind) for kind in (OfGraph, OfTensors)]
    ours, theirs = (ww.trace(m, x, data.edge_index, edge_attr=attributes, target=0, rule="zero") for m in models)
    assert [layer.name.split(".")[-1] for layer in ours.layers] == ["0", "1"]
    walks = ww.enumerate_walks(theirs)
    assert torch.equal(ww.enumerate_walks(ours), walks)
    torch.testing.assert_close(ww.walk_relevance(ours, walks), ww.walk_relevance(theirs, walks), rtol=1e-9, atol=1e-12)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(models[1](leaf, data.edge_index, attributes)[0, 0], leaf)
    torch.testing.assert_close(ww.feature_relevance(ours), gradient * x)


class Merging(nn.Linear):
    """Does something of its own when it is put into another mode."""

    def train(self, mode=True):
        self.merged = not mode
        return super().train(mode)


def test_a_mode_that_does_more_than_its_name_is_said():
    model = nn.Sequential()
    model.conv, model.lin = GCNConv(2, 2), Merging(2, 1)
    model.forward = lambda x, edge_index: model.lin(model.conv(x, edge_index)).sum(0, keepdim=True)
    given = torch.rand(3, 2), torch.tensor([[0, 1, 2], [1, 2, 0]])
    with pytest.warns(
        CoverageWarning, match=r"'lin' \(Merging\) may do something special .* call model.eval\(\) first"
    ):
        chain = ww.trace(model.train(), *given, target=0)
    assert any("Merging" in note for note in chain.notes)
    assert not any("Merging" in note for note in ww.trace(model.eval(), *given, target=0).notes)
