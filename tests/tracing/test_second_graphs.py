"""A graph that is given by its name beside the one that is explained: left as it is, and constant."""

import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import GCNConv, SAGEConv

import walkwise as ww
from walkwise.evaluation.predictions import predict

RING, PATH = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), torch.tensor([[0, 1, 2], [1, 2, 0]])


class Named(NamedTuple):
    x: torch.Tensor
    edge_index: torch.Tensor


@dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    edge_index: torch.Tensor


@dataclass
class Slotted:
    __slots__ = ("edge_index", "x")
    x: torch.Tensor
    edge_index: torch.Tensor


class Two(nn.Module):
    """Reads two graphs and joins what it has made of them; layers run on ``first``, then on the other one."""

    def __init__(self, join, first="mol", width=4):
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleDict({"mol": GCNConv(3, 4), "pro": GCNConv(width, 4)})
        self.again, self.last = GCNConv(4, 4), nn.Linear(8 if join == "cat" else 4, 1)
        self.join, self.order = join, [first, *({"mol", "pro"} - {first})]
        self.double().eval()

    def forward(self, mol, pro):
        made = {}
        for name in self.order:
            graph = {"mol": mol, "pro": pro}[name]
            h = self.convs[name](graph.x, graph.edge_index).relu()
            made[name] = self.again(h, graph.edge_index).mean(0, keepdim=True)
        pair = made["mol"], made["pro"]
        return self.last(torch.cat(pair, 1) if self.join == "cat" else pair[0] * pair[1])


def graphs(nodes=3, width=4):
    torch.manual_seed(1)
    mol = Data(x=torch.randn(4, 3).double(), edge_index=RING)
    return mol, Data(x=torch.randn(nodes, width).double(), edge_index=PATH)


def gradient_times_input(model, explained, other):
    x = explained.x.clone().requires_grad_()
    with_x = explained.clone()
    with_x.x = x
    model(*((with_x, other) if explained.x.shape[1] == 3 else (other, with_x))).sum().backward()
    return (x.grad * x).sum(1).detach()


@pytest.mark.parametrize("first", ["mol", "pro"])
@pytest.mark.parametrize("join", ["cat", "product"])
@pytest.mark.parametrize("nodes", [3, 4])
def test_what_a_model_makes_of_another_graph_is_constant(nodes, join, first):
    """Of as many nodes, too; a product with it is one with a weight, and its layers are none of the chain."""
    (mol, pro), model = graphs(nodes), Two(join, first)
    chain = ww.trace(model, mol, pro=pro, target=0, rule="zero")
    expected = gradient_times_input(model, mol, pro)
    torch.testing.assert_close(ww.node_relevance(chain), expected)
    walks = ww.enumerate_walks(chain)
    torch.testing.assert_close(ww.walk_relevance(chain, walks).sum(), expected.sum())
    assert [layer.name for layer in chain.layers] == ["convs.mol", "again"]
    assert torch.equal(chain.edge_index, RING)
    assert [note.split(":")[0] for note in chain.notes if "input" in note or "graph" in note] == [
        "pro is a second graph, not the explained one"
    ]


@pytest.mark.parametrize("nodes", [3, 4])
def test_the_graph_that_a_model_takes_second_is_explained(nodes):
    (mol, pro), model = graphs(nodes), Two("product")
    chain = ww.trace(model, pro, mol=mol, target=0, rule="zero")
    torch.testing.assert_close(ww.node_relevance(chain), gradient_times_input(model, pro, mol))
    assert chain.num_nodes == nodes
    assert torch.equal(chain.edge_index, PATH)
    assert any(note.startswith("mol is a second graph") for note in chain.notes)


class Writing(Two):
    """Writes into both graphs, into their tensors and in the place of them."""

    def forward(self, mol, pro):
        other = pro[0] if isinstance(pro, list) else pro
        x, edges = (other["x"], other["edge_index"]) if isinstance(other, dict) else (other.x, other.edge_index)
        output = super().forward(mol, Data(x=x, edge_index=edges.clone()))
        mol.x = self.convs["mol"](mol.x, mol.edge_index)
        x.mul_(3)
        edges.zero_()
        if isinstance(pro, list):
            pro.clear()
        elif isinstance(other, dict):
            other["x"] = x[:1]
        elif isinstance(other, (Data, SimpleNamespace, Slotted)):
            other.x = x[:1]
        return output


FORMS = {
    "Data": lambda data: data,
    "Batch": lambda data: Batch.from_data_list([data, data]),
    "namespace": lambda data: SimpleNamespace(x=data.x, edge_index=data.edge_index),
    "dictionary": lambda data: {"x": data.x, "edge_index": data.edge_index},
    "named tuple": lambda data: Named(data.x, data.edge_index),
    "frozen": lambda data: Frozen(data.x, data.edge_index),
    "slots": lambda data: Slotted(data.x, data.edge_index),
    "list": lambda data: [data],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [4, 5])
def test_another_graph_is_left_as_it_is(form, width):
    model = Writing("cat", width=width)
    mol, pro = graphs(width=width)
    given, kept = FORMS[form](pro), copy.deepcopy(FORMS[form](pro))
    expected = float(Writing.forward(model, mol.clone(), copy.deepcopy(given)))
    for _ in range(2):
        chain = ww.trace(model, mol, pro=given, target=0)
        assert chain.output == pytest.approx(expected)
        assert any(note.startswith("pro is a second graph") for note in chain.notes)
    now, before = (item[0] if form == "list" else item for item in (given, kept))
    for name in ("x", "edge_index"):
        a, b = ((item[name] if isinstance(item, dict) else getattr(item, name)) for item in (now, before))
        assert torch.equal(a, b)
    assert mol.x.shape == (4, 3)


def test_an_object_that_holds_tensors_is_left_as_it_is():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(3, 2)

        def forward(self, x, edge_index, settings, steps):
            settings.scale.mul_(2)
            settings.seen = x
            steps[0] += 1
            return self.conv(x * settings.scale, edge_index)

    settings, steps = SimpleNamespace(scale=torch.ones(1), name="a"), [torch.zeros(1), 3]
    torch.manual_seed(0)
    chains = [
        ww.trace(Scaled(), torch.ones(4, 3), RING, settings=settings, steps=steps, index=0, target=0) for _ in range(2)
    ]
    assert settings == SimpleNamespace(scale=torch.ones(1), name="a")
    assert steps == [torch.zeros(1), 3]
    assert not any("a second graph" in note for note in chains[0].notes)


def test_a_layer_between_two_graphs_hands_relevance_to_the_explained_one_alone():
    class Between(Two):
        def __init__(self):
            super().__init__("product")
            self.between = SAGEConv((4, 4), 4).double()

        def forward(self, mol, pro):
            pair = tuple(self.convs[n](g.x, g.edge_index).relu() for n, g in (("pro", pro), ("mol", mol)))
            return self.last(self.between(pair, torch.tensor([[0, 1, 2], [0, 2, 3]])).relu().mean(0, keepdim=True))

    for nodes in (3, 4):
        (mol, pro), model = graphs(nodes), Between().eval()
        chain = ww.trace(model, mol, pro=pro, target=0, rule="zero")
        expected = gradient_times_input(model, mol, pro)
        torch.testing.assert_close(ww.node_relevance(chain), expected)
        torch.testing.assert_close(ww.walk_relevance(chain, ww.enumerate_walks(chain)).sum(), expected.sum())
        assert not any("around" in note or "clusters" in note for note in chain.notes)


def test_a_graph_without_types_beside_one_with_types():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.own, self.other = SAGEConv(3, 2), GCNConv(4, 2)

        def forward(self, other, data):
            edges = data["a", "to", "a"].edge_index
            scale = self.other(other.x, other.edge_index).mean(0)
            other.x = scale
            return self.own(data["a"].x, edges) * scale

    data = HeteroData()
    data["a"].x, data["a", "to", "a"].edge_index = torch.ones(4, 3), RING
    other = Data(x=torch.ones(4, 4), edge_index=RING)
    model = Both()
    chain = ww.trace(model, data, other=other, index=0, target=1)
    assert chain.output == pytest.approx(float(model(other.clone(), data)[0, 1]))
    assert [layer.name for layer in chain.layers] == ["own"]
    assert other.x.shape == (4, 4)


class Pair(nn.Module):
    """Takes both graphs as tensors, runs the same layers on them, and multiplies what it has made of them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.again = GCNConv(3, 4), GCNConv(4, 4)
        self.double().eval()

    def read(self, x, edge_index):
        return self.again(self.first(x, edge_index).relu(), edge_index).mean(0, keepdim=True)

    def forward(self, x, edge_index, x_t, edge_index_t):
        return (self.read(x, edge_index) * self.read(x_t, edge_index_t)).sum(1, keepdim=True)


class PairByOtherNames(Pair):
    def forward(self, x, edge_index, protein, bonds):
        return super().forward(x, edge_index, protein, bonds)


class PairInOne(Pair):
    def forward(self, data):
        return super().forward(data.x, data.edge_index, data.x_t, data.edge_index_t)


def as_tensors(model, mol, pro, x):
    names = ("protein", "bonds") if isinstance(model, PairByOtherNames) else ("x_t", "edge_index_t")
    given = dict(zip(names, (pro.x, pro.edge_index), strict=True))
    if isinstance(model, PairInOne):
        return (Data(x=x, edge_index=mol.edge_index, **given),), {}
    return (x, mol.edge_index), given


@pytest.mark.parametrize("kind", [Pair, PairInOne, PairByOtherNames])
@pytest.mark.parametrize("nodes", [4, 5])
def test_a_graph_that_is_given_as_tensors_is_constant(kind, nodes):
    """Of as many nodes, too, where its features and edges have names that belong together."""
    (mol, pro), model = graphs(5 if kind is PairByOtherNames else nodes, 3), kind()
    given, named = as_tensors(model, mol, pro, mol.x)
    chain = ww.trace(model, *given, target=0, rule="zero", **named)
    x = mol.x.clone().requires_grad_()
    model(*as_tensors(model, mol, pro, x)[0], **named).sum().backward()
    torch.testing.assert_close(ww.node_relevance(chain), (x.grad * x).sum(1).detach())
    assert [layer.name for layer in chain.layers] == ["first", "again"]
    names = "protein with bonds" if kind is PairByOtherNames else "x_t with edge_index_t"
    assert any(note.startswith(f"{names} is a second graph") for note in chain.notes)


def test_the_same_edges_twice_are_one_graph():
    """Another step in time, or another view of the nodes: relevance goes to its rows."""
    mol, _ = graphs(4, 3)
    chain = ww.trace(Pair(), mol.x, mol.edge_index, target=0, rule="zero", x_t=mol.x * 2, edge_index_t=mol.edge_index)
    assert len(chain.layers) == 4
    assert not any("second graph" in note for note in chain.notes)


def test_the_same_features_twice_are_one_graph():
    """On other edges, too (those that are near, say), in the trace and on parts of the graph."""
    mol, _ = graphs(4, 3)
    other = torch.tensor([[0, 2], [2, 0]])
    given = {"x_t": mol.x, "edge_index_t": other}
    chain = ww.trace(Pair(), mol.x, mol.edge_index, target=0, rule="zero", **given)
    assert not any("second graph" in note for note in chain.notes)
    x = mol.x.clone().requires_grad_()
    Pair()(x, mol.edge_index, x, other).sum().backward()
    expected = (x.grad * x).sum(1).detach() / 2  # each factor of the product gets half
    torch.testing.assert_close(ww.node_relevance(chain, layer="start"), expected)
    assert not predict(Pair(), mol.x, mol.edge_index, target=0, **given).beside


class Pairs(Pair):
    def forward(self, x, edge_index, table, edge_label_index):
        h = self.again(self.first(x, edge_index).relu(), edge_index)
        left, right = edge_label_index
        return (h[left] * h[right] * table[:1]).sum(1, keepdim=True)


def test_pairs_of_nodes_and_a_table_are_no_other_graph():
    mol, _ = graphs(4, 3)
    given = {"table": torch.rand(9, 4).double(), "edge_label_index": torch.tensor([[0, 1], [2, 3]])}
    chain = ww.trace(Pairs(), mol, index=1, target=0, **given)
    assert not any("second graph" in note for note in chain.notes)


class Query(Pair):
    """Compares the graph with one that it has itself."""

    def __init__(self, held, query):
        super().__init__()
        self.register_buffer("template", query.x if held == "buffers" else None)
        self.register_buffer("bonds", query.edge_index if held == "buffers" else None)
        self.query = query if held == "a graph" else None
        self.by_name = {"x": query.x, "bonds": query.edge_index} if held == "a dictionary" else {}
        self.find = {
            "buffers": lambda model: (model.template, model.bonds),
            "a graph": lambda model: (model.query.x, model.query.edge_index),
            "a dictionary": lambda model: (model.by_name["x"], model.by_name["bonds"]),
            "outside": lambda model: (query.x, query.edge_index),
        }[held]

    def forward(self, x, edge_index):
        return super().forward(x, edge_index, *self.find(self))


@pytest.mark.parametrize(
    ("held", "nodes"),
    [("buffers", 4), ("buffers", 5), ("a graph", 4), ("a graph", 5), ("a dictionary", 5), ("outside", 5)],
)
def test_a_graph_that_the_model_holds_is_constant(held, nodes):
    (mol, pro), expected = graphs(nodes, 3), Pair()
    ours = ww.trace(Query(held, pro), mol.x, mol.edge_index, target=0, rule="zero")
    theirs = ww.trace(expected, mol.x, mol.edge_index, target=0, rule="zero", x_t=pro.x, edge_index_t=pro.edge_index)
    torch.testing.assert_close(ww.node_relevance(ours), ww.node_relevance(theirs))
    assert [layer.name for layer in ours.layers] == [layer.name for layer in theirs.layers]
    name = {"buffers": "the model's template", "a graph": "the model's query"}.get(held, "a graph that the model has")
    told = [note for note in ours.notes if "is a second graph" in note]
    assert len(told) == 1
    assert told[0].startswith(name)


@pytest.mark.parametrize(("held", "times"), [("buffers", 2), ("a graph", 1), ("a graph", 2)])
def test_the_graph_itself_may_be_held_too(held, times):
    mol, _ = graphs(4, 3)
    chain = ww.trace(Query(held, mol), mol.x * times, mol.edge_index, target=0, rule="zero")
    assert len(chain.layers) == 4
    assert not any("second graph" in note for note in chain.notes)
