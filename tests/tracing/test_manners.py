"""What a model is called with, of a graph and of what is given beside it, whatever its ``forward`` calls it."""

import functools
import inspect

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GAE, DeepGraphInfomax, GCNConv, LabelPropagation, RGCNConv

import walkwise as ww
from walkwise.errors import InputError, TraceError
from walkwise.tracing.given.binding import given_as, of_graph
from walkwise.tracing.given.in_order import edges_first
from walkwise.tracing.given.manners import Manner

X, EDGES = torch.rand(4, 2), torch.tensor([[0, 1, 2], [1, 2, 3]])


def model_with(forward):
    model = nn.Module()
    model.forward = forward
    return model


def bound(forward, data, **beside):
    """What is to be given to a model with this ``forward``."""
    return given_as(model_with(forward), data, ..., beside)


def ran(given):
    """What a model returns, called in the manner that it takes."""
    return given.taken(lambda way: way.run(way.model))[1]


def called(forward, data, **beside):
    """What such a model returns."""
    given = bound(forward, data, **beside)
    return ran(given)


def graph(**attributes):
    return Data(x=X, edge_index=EDGES, **attributes)


def three():
    """A batch of graphs with 4, 2 and 1 nodes."""
    small = [Data(x=X[:2], edge_index=EDGES[:, :1]), Data(x=X[:1], edge_index=EDGES[:, :0])]
    return Batch.from_data_list([graph(), *small])


@pytest.mark.parametrize(
    "forward",
    [
        lambda x, edge_index: (x, edge_index),
        lambda edge_index, x: (x, edge_index),
        lambda h, adj: (h, adj),
        lambda x, adj: (x, adj),
        lambda h, edge_index: (h, edge_index),
        lambda x, *, edge_index: (x, edge_index),
        lambda scale=2, x=None, edge_index=None: (x, edge_index) if scale == 2 else None,
    ],
)
def test_features_and_edges_by_name_or_by_place(forward):
    x, edge_index = called(forward, graph())
    assert x is X
    assert edge_index is EDGES


def test_tensors_go_in_order_unless_the_names_say_otherwise():
    for forward in (
        lambda x, edge_index: (x, edge_index),
        lambda edge_index, x: (x, edge_index),
        lambda x, *, edge_index: (x, edge_index),
    ):
        given = given_as(model_with(forward), X, EDGES, {})
        assert given.run(given.model) == (X, EDGES)
    assert given_as(model_with(lambda adj, x: 0), X, EDGES, {}).manner == Manner("x", "adj", False)
    assert given_as(model_with(lambda pos, x: 0), X, EDGES, {}).manner == Manner()
    assert given_as(model_with(lambda edge_index, x: 0), X, EDGES, {}).manner == Manner("x", "edge_index", False)


def test_what_stands_in_the_place_of_features_goes_there_where_features_are_optional():
    numbers = torch.arange(4)
    for forward in (
        lambda z, edge_index, x=None: (z, edge_index, x),
        lambda z, edge_index, *, x=None: (z, edge_index, x),
    ):
        given = given_as(model_with(forward), numbers, EDGES, {})
        assert given.run(given.model) == (numbers, EDGES, None)
        given = given_as(model_with(forward), X, EDGES, {"z": numbers})
        assert given.run(given.model) == (numbers, EDGES, X)
    for forward in (lambda z, edge_index, x: 0, lambda z, pos, edge_index, x=None: 0):
        assert given_as(model_with(forward), X, EDGES, {}).manner == Manner("x", "edge_index", False)


@pytest.mark.parametrize("forward", [lambda Atoms, bonds: 0, lambda knowledge, graph: 0, lambda Attr, links: 0])
def test_features_stay_first_where_their_name_only_looks_like_edges(forward):
    assert given_as(model_with(forward), X, EDGES, {}).manner == Manner()


@pytest.mark.parametrize("name", ["A", "A_hat", "A1", "adj_t", "Adj", "full_edges", "hyperedge_index", "edge_index"])
def test_names_of_edges_that_come_first(name):
    names = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in (name, "h")]
    assert edges_first(names) == ("h", name)


@pytest.mark.parametrize("edges", [EDGES, torch.eye(4), torch.eye(4).to_sparse(), torch.eye(4)[None]])
@pytest.mark.parametrize("forward", [lambda adj, x: (x, adj), lambda edges, h: (h, edges), lambda A, feat: (feat, A)])
def test_edges_may_come_first(forward, edges):
    """Where the model takes them first: in its own order, and in that of all other models."""
    x = X[None] if edges.dim() == 3 else X
    for call in ((x, edges), (edges, x)):
        given = given_as(model_with(forward), *call, {})
        assert given.x is x
        assert given.edge_index is edges
        assert all(a is b for a, b in zip(given.run(given.model), (x, edges), strict=True))


def test_a_sparse_adjacency_has_its_own_name():
    adj = torch.eye(4).to_sparse()
    data = graph(adj_t=adj)
    assert called(lambda x, adj_t: adj_t, data) is adj
    assert called(lambda x, edge_index: edge_index, data) is EDGES
    alone = Data(x=X, adj_t=adj)
    assert called(lambda x, edge_index: edge_index, alone) is adj
    assert called(lambda data: data.adj_t, alone) is adj


def test_what_a_graph_has_is_handed_on_and_the_rest_keeps_its_default():
    def forward(x, edge_index, edge_weight=None, pos=None, scale=3):
        return edge_weight, pos, scale

    weight, other = torch.rand(3), torch.rand(3)
    assert called(forward, graph()) == (None, None, 3)
    assert called(forward, graph(edge_weight=weight)) == (weight, None, 3)
    got = called(forward, graph(edge_weight=weight), edge_weight=other, scale=5)
    assert got[0] is other
    assert got[2] == 5


def test_sizes_are_known_of_every_graph():
    def forward(x, edge_index, num_nodes, num_edges, num_graphs):
        return num_nodes, num_edges, num_graphs

    assert called(forward, graph()) == (4, 3, 1)
    assert called(forward, three()) == (7, 4, 3)


def test_graphs_of_nodes():
    def forward(x, edge_index, batch):
        return batch

    assert called(forward, graph()).tolist() == [0, 0, 0, 0]
    assert called(forward, graph()).dtype == torch.long
    assert called(forward, three()).tolist() == [0, 0, 0, 0, 1, 1, 2]
    assert called(lambda x, edge_index, batch=None: batch, graph()) is None
    assert called(lambda batch: batch.num_graphs, three()) == 3  # the graph itself


def test_a_sampled_graph_has_a_batch_size_that_is_no_number_of_graphs():
    """It says how many nodes were asked for."""
    assert called(lambda x, edge_index, batch_size=None: batch_size, graph(batch_size=2)) is None
    assert called(lambda x, edge_index, batch_size: batch_size, graph(batch_size=2)) == 2  # this model asks for it
    assert called(lambda x, edge_index, batch, batch_size: batch_size, three()) == 3
    own = graph(batch=torch.zeros(4, dtype=torch.long), batch_size=1)
    assert called(lambda x, edge_index, batch_size: batch_size, own) == 1


@pytest.mark.parametrize("forward", [lambda data: data, lambda graph, scale=1: graph, lambda batch: batch])
def test_a_graph_may_be_taken_whole(forward):
    """The model gets a copy, with the features and edges that are given at that time."""
    data = graph(pos=torch.rand(4, 3))
    given = bound(forward, data)
    assert given.manner.whole is data
    assert not given.manner.ordered
    got = given.manner.call(given.model, X * 2, EDGES[:, :1], given.arguments)
    assert got is not data
    assert torch.equal(got.x, X * 2)
    assert torch.equal(got.edge_index, EDGES[:, :1])
    assert got.pos is data.pos
    assert data.x is X
    other = given.manner.call(given.model, X, EDGES, given.arguments | {"batch": torch.tensor([0, 0, 1, 1])})
    assert isinstance(other, Batch)
    assert other.batch.tolist() == [0, 0, 1, 1]


def test_a_forward_that_names_nothing_is_given_the_graph_if_that_has_more_than_features_and_edges():
    weighted = graph(edge_attr=torch.rand(EDGES.shape[1], 1))
    assert bound(lambda *argv: argv, weighted).manner.whole is weighted
    assert called(lambda *argv: argv, graph()) == (X, EDGES)
    assert called(lambda *argv: (argv[0], argv[1]), graph(batch=torch.zeros(4, dtype=torch.long))) == (X, EDGES)
    with pytest.raises(IndexError):  # which graph a node is in would be lost
        called(lambda *argv: (argv[0], argv[1]), graph(batch=torch.tensor([0, 0, 0, 1])))


def of_a_library(*args, **named):
    """Takes a graph as data=..., or two or three tensors in order, or those by name."""
    if "data" in named:
        return named["data"].x, named["data"].edge_index, named["data"].batch
    if not args:
        return named["x"], named["edge_index"], named["batch"]
    if len(args) not in (2, 3):
        raise ValueError(len(args))
    return (*args, None)[:3]


def by_object(*args, **named):
    data = named.get("data")
    return data.x, data.edge_index, data.batch


def by_the_only_object(*args, **named):
    (data,) = args
    return data.x, data.edge_index, data.batch


def strict(*args, **named):
    def inner(x, edge_index, batch):
        return x, edge_index, batch

    return inner(*args, **named)


@pytest.mark.parametrize("forward", [of_a_library, by_object, by_the_only_object, strict])
def test_a_forward_that_takes_anything_is_given_all_that_most_models_read(forward):
    """No graph of a batch is lost because a model did not name its arguments."""
    data = three()
    data.y = torch.zeros(3)
    x, edge_index, batch = called(forward, data)
    assert torch.equal(x, data.x)
    assert torch.equal(edge_index, data.edge_index)
    assert torch.equal(batch, data.batch)


@pytest.mark.parametrize("typed", [False, True])
def test_kinds_of_edges_are_handed_on_where_they_are_taken(typed):
    """GAE hands all on to its encoder."""

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(4, 6))
            self.conv = RGCNConv(6, 6, 2) if typed else GCNConv(6, 6)

        def forward(self, *given, **named):
            return self._typed(*given, **named) if typed else self._plain(*given, **named)

        def _typed(self, edge_index, edge_type):
            return self.conv(self.table, edge_index, edge_type)

        def _plain(self, edge_index):
            return self.conv(self.table, edge_index)

    model, edges = GAE(Encoder(), nn.Module()).eval(), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    data = Data(edge_index=edges, edge_type=torch.tensor([0, 1, 0, 1]), num_nodes=4)
    chain = ww.trace(model, data, target=lambda z: z[2, 1], rule="zero")
    assert chain.output == pytest.approx(float(model(edges, *([data.edge_type] if typed else []))[2, 1]))


def test_tensors_for_a_forward_that_takes_anything_have_names():
    batch = torch.tensor([0, 0, 1, 1])
    given = given_as(model_with(of_a_library), X, EDGES, {"batch": batch})
    assert ran(given)[2] is batch
    given = given_as(model_with(lambda *args, **named: (*args, named["batch"])), X, EDGES, {"batch": batch})
    assert ran(given) == (batch,)
    given = given_as(model_with(lambda *args, **named: args[0]), X, EDGES, {})
    assert ran(given) is X


def test_what_is_wrapped_is_called_by_its_names():
    def inner(self, x, edge_index, edge_attr, batch):
        return x, edge_index, edge_attr, batch

    @functools.wraps(inner)
    def forward(*args, **named):
        if len(args) != 1 or len(named) != 4:
            raise RuntimeError
        return inner(*args, **named)

    model = type("Wrapped", (nn.Module,), {"forward": forward})()
    weight = torch.rand(EDGES.shape[1])
    for given in (
        given_as(model, graph(edge_attr=weight, y=torch.ones(1)), ..., {}),
        given_as(model, X, EDGES, {"edge_attr": weight, "batch": torch.zeros(4)}),
    ):
        x, edge_index, edge_attr, batch = given.run(model)
        assert (x is X, edge_index is EDGES, edge_attr is weight) == (True, True, True)
        assert batch.tolist() == [0, 0, 0, 0]


def test_what_no_way_of_giving_a_graph_helps_against_is_told_as_it_came_first():
    def forward(*args, **named):
        raise ValueError(len(args), sorted(named))

    with pytest.raises(ValueError, match="'edge_index', 'x'"):
        called(forward, graph())


def test_what_is_given_beside_a_whole_graph_stays_beside_it():
    flag = torch.rand(2)
    got, beside = called(lambda data, flag: (data, flag), graph(), flag=flag)
    assert beside is flag
    assert "flag" not in got
    assert bound(lambda data, flag: 0, graph(), flag=flag).manner.beside == {"flag"}


def test_a_graph_is_not_taken_whole_where_its_parts_have_the_names():
    numbers = torch.arange(4)
    data = graph(z=numbers)
    assert called(lambda z, edge_index: z, data) is numbers
    assert called(lambda z, pos=None: z, data) is numbers
    assert called(lambda first, second: first, graph(), first=7, second=8) == 7


def test_what_is_missing_is_named():
    with pytest.raises(InputError, match=r"needs pos, which the graph does not have; it has edge_index, x\.") as error:
        bound(lambda x, edge_index, pos: 0, graph())
    assert error.value.argument == "pos"
    assert "Set data.pos" in str(error.value)
    with pytest.raises(InputError, match=r"needs x.*torch\.ones\(data\.num_nodes, 1\)"):
        bound(lambda x, edge_index: 0, Data(edge_index=EDGES, num_nodes=4))
    with pytest.raises(InputError, match="graph must be"):
        of_graph(model_with(lambda x: 0), {"x": X}, {})


def test_a_model_without_features_is_given_edges():
    given = bound(lambda edge_index: edge_index, Data(edge_index=EDGES, num_nodes=4))
    assert given.run(given.model) is EDGES
    assert given.x is None
    assert given.num_nodes == 4
    assert given.features == {}


def test_calls_that_do_not_fit_are_told_from_models_that_fail():
    given = given_as(model_with(lambda x, edge_index: 0), X, EDGES, {"pos": X})
    with pytest.raises(InputError, match=r"pos, which does not fit.*with the names of its parameters"):
        given.run(given.model)
    whole = given_as(model_with(lambda data: 0), X, EDGES, {})
    with pytest.raises(InputError, match=r"takes one object: write ww\.trace\(model, data\)"):
        whole.run(whole.model)

    def failing(x, edge_index):
        raise TypeError("of its own")

    with pytest.raises(TypeError, match="of its own"):
        called(failing, graph())


def test_numbers_of_graphs():
    def forward(x, edge_index, batch=None):
        return None

    assert bound(forward, graph()).num_graphs == 1
    assert bound(forward, three()).num_graphs == 3
    model = model_with(forward)
    assert given_as(model, X, EDGES, {"batch": torch.tensor([0, 0, 1, 2])}).num_graphs == 3
    assert given_as(model, X, EDGES, {"batch": None}).num_graphs == 1
    assert given_as(model, X[:0], EDGES[:, :0], {"batch": torch.zeros(0, dtype=torch.long)}).num_graphs == 1
    assert bound(lambda x, edge_index: 0, graph(batch=torch.tensor([0, 1, 1, 1]))).num_graphs == 2


def test_an_input_is_copied_and_its_copies_agree():
    """Dense numbers that a model may write into are new; what it reads indices from, and sparse matrices, are not."""
    weight, sparse, half = torch.rand(3), torch.eye(4).to_sparse(), torch.rand(4).half()
    arguments = {"again": X, "weight": weight, "sparse": sparse, "half": half, "batch": EDGES[0], "flag": True}
    given = given_as(model_with(lambda x, edge_index, **other: 0), X, EDGES, arguments)
    copy = given.copied()
    assert copy.x is copy.arguments["again"]
    assert copy.x.data_ptr() != X.data_ptr()
    assert torch.equal(copy.x, X)
    assert copy.edge_index is EDGES
    for name, value in arguments.items():
        assert (copy.arguments[name] is value) == (name in ("sparse", "batch", "flag"))
    assert copy.arguments["half"].dtype == torch.float16
    wide = given.copied(torch.float32)
    assert wide.arguments["half"].dtype == torch.float32
    assert torch.equal(wide.arguments["half"], half.float())
    assert wide.arguments["weight"].dtype == torch.float32
    assert torch.equal(wide.x, X)
    assert wide.x.data_ptr() != X.data_ptr()


def test_features_are_of_floating_point_numbers():
    model = model_with(lambda x, edge_index: 0)
    assert list(given_as(model, X, EDGES, {}).features) == ["x"]
    assert given_as(model, EDGES[0], EDGES, {}).features == {}


def test_the_tensors_that_a_model_computes_with():
    data = graph(pos=torch.rand(4, 3), y=torch.rand(1))
    assert set(bound(lambda data: 0, data).tensors()) == {"x", "edge_index", "pos"}  # a label is not read
    assert set(bound(lambda data, y: 0, data, y=data.y).tensors()) == {"x", "edge_index", "pos", "y"}
    assert set(bound(lambda x, edge_index, y: 0, data).tensors()) == {"x", "edge_index", "y"}


def test_the_tensors_of_a_graph_by_type():
    """Dense ones; what is sparse, missing or no tensor is left to the model."""
    kind = ("user", "rates", "item")
    sparse = torch.eye(4).to_sparse()
    beside = {"edge_weight": {kind: None}, "adj": {kind: sparse}, "pos": {"user": X}, "flag": True}
    model = model_with(lambda x_dict, edge_index_dict, **other: 0)
    given = given_as(model, {"user": X, "item": X[:2]}, {kind: EDGES[:, :1]}, beside)
    assert set(given.tensors()) == {"x['user']", "x['item']", f"edge_index[{kind!r}]", "pos['user']"}


class ReadsOutside(nn.Module):
    """Takes nothing: its graph is a variable outside, as in many examples."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = GCNConv(4, 4), GCNConv(4, 2)

    def forward(self):
        return self.b(self.a(outside.x, outside.edge_index).relu(), outside.edge_index)  # noqa: F821  (set by tests)


class Taking(ReadsOutside):
    def forward(self, x, edge_index):
        return self.b(self.a(x, edge_index).relu(), edge_index)


def _outside():
    return Data(torch.arange(12.0).view(3, 4) / 10, torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))


def test_a_graph_is_read_from_a_variable_outside(monkeypatch):
    data = _outside()
    monkeypatch.setitem(globals(), "outside", data)
    model, x = ReadsOutside().eval(), data.x
    chain = ww.trace(model, data, index=1, target=0)
    expected = ww.trace(Taking().eval(), data, index=1, target=0)
    torch.testing.assert_close(ww.feature_relevance(chain), ww.feature_relevance(expected))
    assert data.x is x
    assert "forward" not in model.__dict__


def test_a_graph_is_read_from_a_variable_that_forward_closes_over():
    data = _outside()

    class Closes(ReadsOutside):
        def forward(self):
            return self.b(self.a(data.x, data.edge_index).relu(), data.edge_index)

    chain = ww.trace(Closes().eval(), data, index=1, target=0)
    expected = ww.trace(Taking().eval(), data, index=1, target=0)
    torch.testing.assert_close(ww.feature_relevance(chain), ww.feature_relevance(expected))


def test_another_graph_than_the_one_that_is_read_is_refused(monkeypatch):
    monkeypatch.setitem(globals(), "outside", _outside())
    with pytest.raises(InputError, match=r"It takes no arguments.*pass that very object, ww.trace\(model, data\)"):
        ww.trace(ReadsOutside().eval(), _outside(), index=1, target=0)


def test_a_layer_that_is_handed_the_graph_itself_is_no_refusal_while_other_ways_are_left():
    """Deep Graph Infomax hands on what it is given; a corruption with names of its own takes it in order alone."""
    torch.manual_seed(0)
    model = DeepGraphInfomax(4, GCNConv(4, 4), lambda z, *_: z.mean(0), lambda x, e: (x.flip(0), e)).eval()
    data = _outside()
    chain = ww.trace(model, data, target=lambda out: out[0][1].sum())
    expected = ww.trace(model, data.x, data.edge_index, target=lambda out: out[0][1].sum())
    torch.testing.assert_close(ww.feature_relevance(chain), ww.feature_relevance(expected))


def test_what_is_wrong_with_a_model_is_said_and_not_which_ways_it_was_tried_in():
    data = _outside()
    with pytest.raises(TraceError, match=r"\(LabelPropagation\) received node features"):
        ww.trace(LabelPropagation(2, 0.5), data, target=0, index=1)


def test_nothing_is_kept_of_a_way_that_fails():
    """A model that runs a layer before it finds that it was called in another way than it takes."""

    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = GCNConv(3, 4), GCNConv(3, 2)

        def forward(self, *args, **kwargs):
            if "x" in kwargs:
                self.first(kwargs["x"], kwargs["edge_index"])
                return self.second(args[0].x, args[0].edge_index)  # an IndexError
            data = kwargs.get("data") or args[0]
            return self.second(data.x, data.edge_index).sum(0, keepdim=True)

    data = Data(torch.rand(3, 3), torch.tensor([[0, 1, 2], [1, 2, 0]]))
    chains = ww.trace(Picky().eval(), data, target=0), ww.explain(Picky().eval(), data, target=0).chain
    for chain in chains:
        assert [layer.name.removeprefix("model.") for layer in chain.layers] == ["second"]
        assert not any("ran, but" in note for note in chain.notes)


GRAPH = Data(torch.rand(3, 3), torch.tensor([[0, 1, 2], [1, 2, 0]]))


def test_a_graph_that_several_methods_read_from_outside_is_refused():
    """One of them would see the graph that is not followed."""

    class Helped(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(3, 2)

        def encoded(self):
            return GRAPH.x.relu()

        def forward(self):
            return self.conv(self.encoded(), GRAPH.edge_index)

    with pytest.raises(InputError, match="It takes no arguments"):
        ww.trace(Helped(), GRAPH, index=0, target=0)


def test_a_model_may_be_made_for_the_graph_that_it_reads_from_outside():
    class Sized(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(GRAPH.num_features, 2)

        def forward(self):
            return self.conv(GRAPH.x, GRAPH.edge_index)

    model = Sized().eval()
    chain = ww.trace(model, GRAPH, index=0, target=0)
    assert chain.output == pytest.approx(float(model()[0, 0]), abs=1e-6)


class Atoms(nn.Module):
    """Looks atoms up by their numbers, or takes what it is given for features."""

    def __init__(self, *, embeds=True):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.conv = nn.Embedding(9, 2) if embeds else nn.Identity(), GCNConv(2, 2)

    def forward(self, z, pos, edge_index):
        return self.conv(self.table(z), edge_index).sum(0, keepdim=True)


class Looked(Atoms):
    def forward(self, z, edge_index):
        return self.conv(self.table.weight[z], edge_index).sum(0, keepdim=True)


PLACES = torch.rand(4, 3)


@pytest.mark.parametrize("ask", [ww.trace, ww.explain])
def test_features_in_the_place_of_atom_numbers_are_told(ask):
    numbers = torch.tensor([1, 6, 8, 1])
    given = [(Atoms(), numbers), (Looked(), numbers), (Atoms(embeds=False), X)]
    for model, x in given:
        found = ask(model, Data(x=x, edge_index=EDGES, pos=PLACES))
        assert [note for note in found.notes if "the graph has no z" in note and "set data.z" in note]
        named = Data(x=X, z=x, edge_index=EDGES, pos=PLACES)
        assert not [note for note in ask(model, named).notes if "has no z" in note]
    for model in (Atoms(), Looked()):
        with pytest.raises(InputError, match=r"The graph has no z.*data\.z = data\.x\.view\(-1\)\.long\(\)") as caught:
            ask(model, Data(x=X, edge_index=EDGES, pos=PLACES))
        assert (caught.value.argument, caught.value.got) == ("z", torch.float32)


def test_features_by_another_name_are_features():
    chain = ww.trace(GCNConv(2, 2), graph(), index=0)
    assert not chain.notes
    assert bound(lambda h, edge_index: h, graph()).missed is None
    assert bound(lambda z, edge_index: z, graph()).missed == "z"


def test_numbers_of_categories_that_are_no_whole_numbers():
    class Named(Atoms):
        def forward(self, x, edge_index):
            return self.conv(self.table(x), edge_index).sum(0, keepdim=True)

    with pytest.raises(InputError, match=r"looks x of torch.float32 up in a table.*data\.x = data\.x\.long\(\)"):
        ww.trace(Named(), graph())


def test_two_graphs_may_be_given_in_order():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.head = GCNConv(2, 4), nn.Linear(8, 2)

        def forward(self, data1, data2):
            return self.head(torch.cat([self.conv(d.x, d.edge_index).sum(0, keepdim=True) for d in (data1, data2)], 1))

    model, other = Pair(), Data(x=torch.rand(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    ours, theirs = (ww.trace(model, graph(), *a, target=0, **k) for a, k in (((other,), {}), ((), {"data2": other})))
    torch.testing.assert_close(ww.node_relevance(ours), ww.node_relevance(theirs))
    assert any("data2 is a second graph" in note for note in ours.notes)


@pytest.mark.parametrize("dense", [False, True])
def test_edges_may_be_given_by_their_own_name(dense):
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.inner = nn.Linear(2, 2) if dense else GCNConv(2, 2)

        def forward(self, x, adj):
            return adj @ self.inner(x) if dense else self.inner(x, adj)

    edges = graph().edge_index
    adj = torch.eye(4).index_put((edges[1], edges[0]), torch.tensor(1.0)) if dense else edges
    ours, theirs = (
        ww.trace(Layers(), *given, index=2, target=0, **named)
        for given, named in (((), {"x": X, "adj": adj}), ((X, adj), {}))
    )
    torch.testing.assert_close(ww.node_relevance(ours), ww.node_relevance(theirs))


@pytest.mark.parametrize(
    "given", [{"edge_index": EDGES, "edges": EDGES[:, :2]}, {"x": EDGES, "edge_index": EDGES[:, :2]}]
)
def test_what_to_write_for_a_model_without_features(given):
    model = model_with(lambda edge_index, edges: 0)
    with pytest.raises(InputError, match=r"For a model without features, write ww\.trace\(model, Data\(edge_index="):
        ww.trace(model, **given)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("takes", [("edge_type",), ("edge_attr",), ("edge_attr", "edge_type"), ()])
def test_what_a_graph_has_goes_to_a_forward_that_takes_more_by_name(takes, named):
    """All of it, or as much as the model takes."""

    class More(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv = GCNConv(2, 2)

        def compute(self, x, edge_index, **beside):
            assert beside.keys() == set(takes)
            return self.conv(x, edge_index)

        def forward(self, x, edge_index, **beside):
            if set(beside) - set(takes):
                raise TypeError(f"unexpected {sorted(beside)}")
            return self.compute(x, edge_index, **beside)

    class Anything(More):
        def forward(self, *given, **beside):
            return super().forward(*given, **beside)

    data = graph(edge_type=torch.tensor([0, 1, 0]), edge_attr=torch.rand(3, 1))
    if takes == ("edge_type",):
        del data.edge_attr
    chain = ww.trace((More if named else Anything)(), data, index=2, target=0)
    assert chain.num_layers == 1
