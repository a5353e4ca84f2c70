"""Heterogeneous graphs: one node set over all types, against hooks that tell types apart."""

import copy
import itertools

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explainer, HeteroExplanation

import walkwise as ww
from walkwise import hooks
from walkwise.errors import InputError, TargetError
from walkwise.evaluation.predictions import predict

RATES, RATED, KNOWS = ("user", "rates", "item"), ("item", "rated_by", "user"), ("user", "knows", "user")
SETS = [
    {"user": [0, 1], "item": [1]},
    {"user": [2]},
    {"item": [0, 1, 2, 3]},
    {"user": [0, 1, 2, 3], "item": [0, 1, 2, 3]},
]


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(4)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def data():
    """As many users as items: they must not be taken for one another."""
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(4, 3), torch.randn(4, 5)
    data[RATES].edge_index = torch.tensor([[0, 0, 1, 2, 3], [0, 1, 1, 2, 3]])
    data[RATED].edge_index = data[RATES].edge_index.flip(0)
    data[KNOWS].edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 1]])
    return data


class Convs(nn.Module):
    """Two HeteroConvs; which layers they hold is up to the caller."""

    def __init__(self, kind=pyg.SAGEConv, aggr="sum"):
        super().__init__()
        widths = {"user": 3, "item": 5}
        kinds = (RATES, RATED, KNOWS)
        self.first = pyg.HeteroConv({k: kind((widths[k[0]], widths[k[2]]), 4) for k in kinds}, aggr)
        self.second = pyg.HeteroConv({k: pyg.SAGEConv((4, 4), 4) for k in kinds}, aggr)
        self.head = nn.Linear(4, 2)

    def forward(self, x_dict, edge_index_dict):
        h = {name: h.relu() for name, h in self.first(x_dict, edge_index_dict).items()}
        return self.head(self.second(h, edge_index_dict)["user"])


def hooked(model, data, weights, row, column):
    """Σ over walks of their nodes' weights times relevance: gradients are weighed by type wherever walks stand."""
    leaves = {name: x.clone().requires_grad_(True) for name, x in data.x_dict.items()}

    def weigh(tensor, name):
        tensor.register_hook(lambda g: g * weights[name].view(-1, 1))

    def before(module, args):
        hidden = {name: h * 1 for name, h in args[0].items()}
        for name, h in hidden.items():
            weigh(h, name)
        return (hidden, *args[1:])

    handles = [model.second.register_forward_pre_hook(before)]
    for key, conv in model.second.convs.items():
        handles.append(conv.register_forward_hook(lambda m, a, out, name=key[2]: weigh(out, name)))
    output = model(leaves, data.edge_index_dict)[row, column]
    gradients = torch.autograd.grad(output, list(leaves.values()))
    for handle in handles:
        handle.remove()
    return sum(
        float((weights[name].view(-1, 1) * g * leaves[name].detach()).sum())
        for name, g in zip(leaves, gradients, strict=True)
    )


@pytest.mark.parametrize("kind", [pyg.SAGEConv, pyg.GraphConv], ids=["SAGE", "GraphConv"])
@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_subgraphs_against_hooks(data, kind, aggr):
    model = Convs(kind, aggr)
    chain = ww.trace(model, data, index=1, target=0, rule="zero")
    assert chain.num_layers == 2
    for alpha in (0.0, 0.3):
        ours = ww.subgraph_relevance(chain, SETS, alpha=alpha).tolist()
        for nodes, relevance in zip(SETS, ours, strict=True):
            inside = {
                n: torch.zeros(4).index_fill(0, torch.tensor(nodes.get(n, []), dtype=torch.long), 1.0)
                for n in ("user", "item")
            }
            outside = {n: alpha * (1 - w) for n, w in inside.items()}
            both = {n: inside[n] + outside[n] for n in inside}
            expected = hooked(model, data, both, 1, 0) - hooked(model, data, outside, 1, 0)
            assert relevance == pytest.approx(expected)


def answers_agree(chain):
    """Walks name types, follow edges, and sum to everything else that is asked."""
    walks = ww.enumerate_walks(chain)
    relevance = ww.walk_relevance(chain, walks)
    assert float(relevance.sum()) == pytest.approx(chain.input_relevance)
    named = [chain.types.walk(walk) for walk in walks]
    torch.testing.assert_close(ww.walk_relevance(chain, named), relevance)
    starts = {name: torch.zeros(count) for name, count in chain.types.counts.items()}
    edges = {tuple(edge) for edge in chain.edge_index.t().tolist()}
    for walk, ids, value in zip(named, walks.tolist(), relevance.tolist(), strict=True):
        name, i = next(node for node in walk if node is not None)
        starts[name][i] += value
        path = [node for node in ids if node >= 0]
        assert all(a == b or (a, b) in edges for a, b in itertools.pairwise(path))
    at_start = ww.node_relevance(chain, layer="start")
    for name, expected in starts.items():
        torch.testing.assert_close(at_start[name], expected)
    for nodes, relevance_of in zip(SETS, ww.subgraph_relevance(chain, SETS).tolist(), strict=True):
        members = {(name, i) for name, ids in nodes.items() for i in ids}
        inside = [v for walk, v in zip(named, relevance.tolist(), strict=True) if {n for n in walk if n} <= members]
        assert relevance_of == pytest.approx(sum(inside), abs=1e-12)


class Typed(nn.Module):
    """Layers that take and return dictionaries."""

    def __init__(self, kind, metadata):
        super().__init__()
        self.lin = nn.ModuleDict({"user": nn.Linear(3, 4), "item": nn.Linear(5, 4)})
        self.convs = nn.ModuleList([kind(4, 4, metadata, heads=2) for _ in range(2)])
        self.head = nn.Linear(4, 2)

    def forward(self, x_dict, edge_index_dict):
        h = {name: self.lin[name](x).relu() for name, x in x_dict.items()}
        for conv in self.convs:
            h = conv(h, edge_index_dict)
        return self.head(h["user"])


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = pyg.SAGEConv((-1, -1), 4), pyg.GraphConv((-1, -1), 4), pyg.Linear(-1, 2)

    def forward(self, x, edge_index):
        return self.head(self.second(self.first(x, edge_index).relu(), edge_index))


class Embedded(nn.Module):
    """Items have no features but a vector of their own, and there are as many as users."""

    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(4, 5)
        self.convs = Convs()

    def forward(self, x_dict, edge_index_dict):
        return self.convs({"user": x_dict["user"], "item": self.items.weight}, edge_index_dict)


MODELS = {
    "HeteroConv": lambda data: Convs(),
    "attention": lambda data: Convs(lambda widths, out: pyg.GATConv(widths, out, add_self_loops=False)),
    "HGT": lambda data: Typed(pyg.HGTConv, data.metadata()),
    "HAN": lambda data: Typed(pyg.HANConv, data.metadata()),
    "to_hetero": lambda data: lazily(pyg.to_hetero(Plain(), data.metadata()), data),
    "embedding": lambda data: Embedded(),
}


def lazily(model, data):
    model(data.x_dict, data.edge_index_dict)
    return model


@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("name", MODELS)
def test_answers_agree_with_one_another(data, name, rule):
    chain = ww.trace(MODELS[name](data), data.x_dict, data.edge_index_dict, index=("user", 2), target=0, rule=rule)
    assert chain.num_layers == 2
    answers_agree(chain)


@pytest.mark.parametrize("name", ["HeteroConv", "to_hetero"])
def test_features_get_gradient_times_input(data, name):
    model = MODELS[name](data)
    chain = ww.trace(model, data, index=("user", 2), target=0, rule="zero")
    leaves = {key: x.clone().requires_grad_(True) for key, x in data.x_dict.items()}
    output = model(leaves, data.edge_index_dict)
    output = output["user"] if isinstance(output, dict) else output
    gradients = torch.autograd.grad(output[2, 0], list(leaves.values()))
    features = ww.feature_relevance(chain)
    assert list(features) == ["user", "item"]
    for (key, x), gradient in zip(leaves.items(), gradients, strict=True):
        torch.testing.assert_close(features[key], (gradient * x).detach())


def test_edges_groups_orders_and_best_walks_by_type(data):
    chain = ww.trace(Convs(), data, index=1, target=0)
    by_type = ww.edge_relevance(chain)
    assert {key: tuple(value.shape) for key, value in by_type.items()} == {RATES: (5,), RATED: (5,), KNOWS: (4,)}
    every = ww.edge_relevance(chain, edge_index=chain.edge_index)
    torch.testing.assert_close(torch.cat(list(by_type.values())), every)
    terms = ww.interactions(chain, {"people": {"user": range(4)}, "goods": {"item": range(4)}})
    assert terms.union == pytest.approx(chain.input_relevance)
    order = ww.order_nodes(chain, mode="activation")
    assert sorted(chain.types.walk(order)) == [(name, i) for name in ("item", "user") for i in range(4)]
    best = ww.top_walks(chain, 2)
    assert "('user'" in repr(best) or "('item'" in repr(best)


def test_a_model_that_takes_the_graph_itself(data):
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Convs()

        def forward(self, data):
            return self.inner(data.x_dict, data.edge_index_dict)

    model = Whole()
    ours, theirs = ww.trace(model, data, index=0, target=1), ww.trace(model.inner, data, index=0, target=1)
    a, b = (ww.subgraph_relevance(chain, SETS) for chain in (ours, theirs))
    torch.testing.assert_close(a, b)
    assert data["user"].x.grad is None


def test_a_model_that_takes_the_graph_and_more_by_name(data):
    """As models for relational databases do: ``forward(batch, entity_table)``."""

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Convs()

        def forward(self, batch, sign, also=None):
            return sign * self.inner(batch.x_dict, batch.edge_index_dict)

    model = Whole()
    ours = ww.trace(model, data, sign=-1, index=0, target=1)
    theirs = ww.trace(model.inner, data, index=0, target=1)
    torch.testing.assert_close(-ww.subgraph_relevance(ours, SETS), ww.subgraph_relevance(theirs, SETS))


def test_calls_that_do_not_fit(data):
    model = lazily(pyg.to_hetero(Plain(), data.metadata()), data)
    with pytest.raises(TargetError, match=r"a dict \('user', 'item'\).*index=\(type, i\)"):
        ww.trace(model, data, index=1)
    with pytest.raises(InputError, match="dictionaries by type"):
        ww.trace(model, data.x_dict, data[KNOWS].edge_index)
    wrong = dict(data.edge_index_dict) | {KNOWS: torch.tensor([[0, 9], [1, 2]])}
    with pytest.raises(InputError, match=r"names user nodes 0 to 9, but there are 4"):
        ww.trace(model, data.x_dict, wrong, index=("user", 1))
    with pytest.raises(InputError, match=r"computes with tensors.*data\.to_homogeneous\(\)"):
        ww.trace(pyg.GCN(3, 4, 2), data, index=("user", 1))
    chain = ww.trace(model, data, index=("user", 1))
    with pytest.raises(InputError, match="no node 7 of type 'user'"):
        ww.subgraph_relevance(chain, [{"user": [7]}])
    with pytest.raises(InputError, match="a type of 'user', 'item'"):
        ww.subgraph_relevance(chain, [{"shop": [0]}])


@pytest.mark.parametrize(
    ("attribute", "change", "words"),
    [
        ("x", lambda x: x.numpy(), r"x\['user'\] must be a tensor with one row per node, got float64"),
        ("x", lambda x: x.long(), r"x\['user'\] of torch\.int64 .*data\['user'\]\.x = data\['user'\]\.x\.float\(\)"),
        ("edge_index", lambda edges: edges.numpy(), r"a NumPy array .*torch\.as_tensor\(edge_index\[\('user', 'knows'"),
        ("edge_index", lambda edges: edges.double(), r"must be node ids, of torch\.long, got torch\.float64"),
        ("edge_index", lambda edges: edges.bool(), r"must be node ids, of torch\.long, got torch\.bool"),
    ],
)
def test_what_is_not_of_the_right_kind(data, attribute, change, words):
    model, place = lazily(pyg.to_hetero(Plain(), data.metadata()), data), "user" if attribute == "x" else KNOWS
    wrong = copy.copy(data)
    wrong[place][attribute] = change(data[place][attribute])
    with pytest.raises(InputError, match=words):
        ww.trace(model, wrong, index=("user", 1), target=0)


@pytest.mark.parametrize("node_mask", ["object", "attributes", "common_attributes"])
def test_the_explainer_gives_masks_by_type(data, node_mask):
    model = Convs()
    explainer = Explainer(
        model,
        algorithm=ww.SubgraphLRPExplainer(rule="zero"),
        explanation_type="model",
        node_mask_type=node_mask,
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    explanation = explainer(data.x_dict, data.edge_index_dict, index=1)
    assert isinstance(explanation, HeteroExplanation)
    assert explanation.chain.types.counts == {"user": 4, "item": 4}
    widths = {"object": (1, 1), "attributes": (3, 5), "common_attributes": (3, 5)}[node_mask]
    rows = 1 if node_mask == "common_attributes" else 4
    assert [explanation[n].node_mask.shape for n in ("user", "item")] == [(rows, widths[0]), (rows, widths[1])]
    assert explanation[RATES].edge_mask.shape == (5,)
    largest = max(float(explanation[kind].edge_mask.max()) for kind in (RATES, RATED, KNOWS))
    assert largest == 1
    torch.testing.assert_close(explanation["item"].node_relevance, ww.node_relevance(explanation.chain)["item"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(data, dtype):
    model = Convs().eval().to(dtype)
    halves = {name: x.to(dtype) for name, x in data.x_dict.items()}
    chain = ww.trace(model, halves, data.edge_index_dict, index=1, target=0)
    exact = ww.trace(
        model.double(), {name: x.double() for name, x in halves.items()}, data.edge_index_dict, index=1, target=0
    )
    assert any("was run, and its relevance computed, in torch.float32" in note for note in chain.notes)
    for name, relevance in ww.node_relevance(chain).items():
        torch.testing.assert_close(relevance.double(), ww.node_relevance(exact)[name], rtol=1e-4, atol=1e-5)


def test_a_models_other_arguments_come_from_the_graph_by_name(data):
    """By type under ``…_dict``, as they are under their own name; what the graph does not hold keeps its default."""

    class Named(Convs):
        def forward(self, x_dict, edge_index_dict, scale_dict=None, times=1.0, missing=3.0):
            seen = {name: x * scale_dict[name] for name, x in x_dict.items()}
            return times * missing * super().forward(seen, edge_index_dict)

    data["user"].scale, data["item"].scale = torch.rand(4, 1) + 0.5, torch.rand(4, 1) + 0.5
    data.times = torch.tensor(2.0)
    model = Named()
    chain = ww.trace(model, data, index=1, target=0, rule="zero")
    expected = model(data.x_dict, data.edge_index_dict, data.scale_dict, 2.0).detach()[1, 0]
    assert chain.output == pytest.approx(float(expected))
    kept = data.scale_dict["user"].clone()
    again = ww.trace(model, data, index=1, target=0, rule="zero", times=torch.tensor(4.0))
    assert again.output == pytest.approx(2 * chain.output)
    assert torch.equal(data.scale_dict["user"], kept)


def test_features_by_type_are_left_as_they_are(data):
    class Writing(Convs):
        def forward(self, x_dict, edge_index_dict):
            for x in x_dict.values():
                x.mul_(2)
            return super().forward(x_dict, edge_index_dict)

    kept = {name: x.clone() for name, x in data.x_dict.items()}
    chain = ww.trace(Writing(), data, index=1, target=0, rule="zero")
    assert all(torch.equal(data[name].x, x) for name, x in kept.items())
    assert chain.num_nodes == 8


def test_what_one_type_has_is_given_by_its_name():
    """Pairs to score lie at their edge type, where RandomLinkSplit puts them; the graph stays as it was."""
    torch.manual_seed(0)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(3, 4), torch.randn(2, 4)
    data["user", "rates", "item"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 1]])
    data["item", "rated", "user"].edge_index = torch.tensor([[0, 1, 1], [0, 1, 2]])
    data["user", "rates", "item"].edge_label_index = torch.tensor([[0, 2], [1, 0]])

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.HeteroConv({kind: pyg.SAGEConv(4, 4) for kind in data.edge_types})

        def forward(self, x_dict, edge_index_dict, edge_label_index):
            z, (first, second) = self.conv(x_dict, edge_index_dict), edge_label_index
            return (z["user"][first] * z["item"][second]).sum(-1)

    model, types = Pairs(), data.node_types
    chain = ww.trace(model, data, index=1)
    expected = model(data.x_dict, data.edge_index_dict, data["user", "rates", "item"].edge_label_index)[1]
    torch.testing.assert_close(chain.outputs[0], expected.detach())
    assert data.node_types == types


class OfEdges(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = pyg.GATConv((3, 3), 2, edge_dim=2, add_self_loops=False)

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, edge_attr)


@pytest.mark.parametrize("kinds", [1, 2])
def test_a_model_that_to_hetero_has_made_takes_features_of_edges_by_type(kinds):
    torch.manual_seed(0)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(3, 3), torch.randn(2, 3)
    ends = {("item", "back", "user"): [[0, 0, 1], [0, 1, 2]], ("user", "rates", "item"): [[0, 1, 2], [0, 0, 1]]}
    for kind in list(ends)[:kinds]:
        data[kind].edge_index, data[kind].edge_attr = torch.tensor(ends[kind]), torch.rand(3, 2)
    model = pyg.to_hetero(OfEdges(), data.metadata())
    chain = ww.trace(model, data, index=("user", 1), target=0)
    expected = model(data.x_dict, data.edge_index_dict, data.edge_attr_dict)["user"][1, 0]
    assert chain.output == pytest.approx(float(expected))


class Emptied(nn.Module):
    """Two layers on users and items, those of items or not; the classes of users."""

    def __init__(self, kinds):
        super().__init__()
        self.kinds = kinds
        for name in ("a", "b"):
            torch.manual_seed(ord(name))
            convs = {kind: pyg.SAGEConv((4, 4), 4) for kind in (("u", "of", "u"), ("u", "to", "i"), ("i", "to", "u"))}
            self.add_module(name, pyg.HeteroConv({kind: convs[kind] for kind in kinds}))

    def forward(self, x_dict, edge_index_dict):
        h = {name: h.relu() for name, h in self.a(x_dict, edge_index_dict).items()}
        return self.b(h, edge_index_dict)["u"]


@pytest.mark.parametrize("rule", ["zero", "auto"])
def test_a_type_without_nodes_sends_nothing(rule):
    data, (of, to, back) = HeteroData(), (("u", "of", "u"), ("u", "to", "i"), ("i", "to", "u"))
    data["i"].x, data["u"].x = torch.zeros(0, 4), torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    data[of].edge_index = torch.tensor([[0, 1], [1, 2]])
    data[to].edge_index = data[back].edge_index = torch.zeros(2, 0, dtype=torch.long)
    model = Emptied([of, to, back])
    chain = ww.trace(model, data, target=1, index=("u", 2), rule=rule)
    assert [note for note in chain.notes if "does not depend on it" not in note] == []
    walks = ww.enumerate_walks(chain)
    assert float(ww.walk_relevance(chain, walks).sum()) == pytest.approx(chain.input_relevance)
    expected = hooks.subgraph_relevance(model, data, nodes={"u": [1, 2]}, target=1, index=("u", 2), rule=rule)
    assert float(ww.subgraph_relevance(chain, [{"u": [1, 2]}])[0]) == pytest.approx(expected)
    at = data["u"].x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model({"i": data["i"].x, "u": at}, data.edge_index_dict)[2, 1], at)
    found = ww.feature_relevance(chain)
    assert found["i"].shape == (0, 4)
    if rule == "zero":
        torch.testing.assert_close(found["u"], gradient * data["u"].x)
    assert len(ww.order_nodes(chain)) == 3


class Joined(nn.Module):
    """Users and items as one kind of nodes inside, in some order, and one tensor for all of them."""

    def __init__(self, order=("user", "item")):
        super().__init__()
        torch.manual_seed(0)
        self.order = order
        self.lin = nn.ModuleDict({"user": nn.LazyLinear(5), "item": nn.LazyLinear(5)})
        self.conv = pyg.SAGEConv(5, 3)

    def forward(self, x_dict, edge_index_dict):
        x = torch.cat([self.lin[name](x_dict[name]) for name in self.order]).relu()
        first = dict(zip(self.order, (0, len(x_dict[self.order[0]])), strict=True))
        edges = [e + torch.tensor([[first[k[0]]], [first[k[2]]]]) for k, e in edge_index_dict.items()]
        return self.conv(x, torch.cat(edges, 1))


def test_a_node_by_type_in_an_output_of_all_types(data):
    model = lazily(Joined(), data)
    users, output = data["user"].num_nodes, model(data.x_dict, data.edge_index_dict).detach()
    for node, row in (("user", 1), 1), (("item", 1), users + 1):
        chain = ww.trace(model, data, index=node, target=0)
        torch.testing.assert_close(chain.outputs[0], output[row, 0])
        torch.testing.assert_close(predict(model, data, index=node, target=0).output[row], output[row])
    turned = lazily(Joined(("item", "user")), data)
    row = data["item"].num_nodes + 1
    with pytest.raises(TargetError, match=rf"is node \('item', 1\), not \('user', 1\).*index={row}\."):
        ww.trace(turned, data, index=("user", 1), target=0)
    torch.testing.assert_close(
        ww.trace(turned, data, index=row, target=0).outputs[0],
        turned(data.x_dict, data.edge_index_dict).detach()[row, 0],
    )


class OfItems(Joined):
    """Items alone, or pairs of them."""

    def __init__(self, pairs):
        super().__init__()
        self.pairs = pairs

    def forward(self, x_dict, edge_index_dict):
        items = super().forward(x_dict, edge_index_dict)[len(x_dict["user"]) :]
        return items[self.pairs[0]] * items[self.pairs[1]] if self.pairs is not None else items


def test_a_node_by_type_in_an_output_of_other_rows_is_refused(data):
    model = lazily(OfItems(None), data)
    output = model(data.x_dict, data.edge_index_dict).detach()
    torch.testing.assert_close(ww.trace(model, data, index=("item", 1), target=0).outputs[0], output[1, 0])
    with pytest.raises(TargetError, match=r"Row 1 of the output is node \('item', 1\), not \('user', 1\)"):
        ww.trace(model, data, index=("user", 1), target=0)
    with pytest.raises(InputError, match="no node 99"):
        ww.trace(model, data, index=("item", 99), target=0)
    for count in (3, 4):
        pairs = lazily(OfItems(torch.tensor([[0] * count, [1] * count])), data)
        with pytest.raises(TargetError, match="Row 1 of the output belongs to no node that can be identified"):
            ww.trace(pairs, data, index=("item", 1), target=0)


class Hub(nn.Module):
    """Attention from many nodes to the only one of its type, and back."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(3)
        types = [("user", "in", "hub"), ("hub", "to", "user")]
        self.first = pyg.HeteroConv({each: pyg.SAGEConv((3, 3), 4) for each in types})
        self.second = pyg.HeteroConv({each: kind((4, 4), 2) for each in types})
        self.double()

    def forward(self, x_dict, edge_index_dict):
        h = {name: x.relu() for name, x in self.first(x_dict, edge_index_dict).items()}
        return self.second(h, edge_index_dict)


ATTENTION = {
    "GAT": lambda *a: pyg.GATConv(*a, heads=2, add_self_loops=False),
    "GATv2": lambda *a: pyg.GATv2Conv(*a, add_self_loops=False),
    "Transformer": lambda *a: pyg.TransformerConv(*a, heads=2),
}


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("kind", ATTENTION)
def test_a_type_may_have_one_node(kind):
    generator = torch.Generator().manual_seed(0)
    x = {
        name: torch.randn(count, 3, generator=generator, dtype=torch.float64)
        for name, count in (("user", 4), ("hub", 1))
    }
    there = torch.tensor([[0, 1, 2, 3], [0, 0, 0, 0]])
    edges = {("user", "in", "hub"): there, ("hub", "to", "user"): there.flip(0)}
    model, sets = Hub(ATTENTION[kind]).eval(), [{"user": [0, 2], "hub": [0]}, {"user": [1]}, {"hub": [0]}]
    chain = ww.trace(model, x, edges, index=("hub", 0), target=0, rule="zero")
    walks = ww.enumerate_walks(chain)
    assert float(ww.walk_relevance(chain, walks).sum()) == pytest.approx(chain.input_relevance)
    theirs = [
        hooks.subgraph_relevance(model, x, edges, nodes, index=("hub", 0), target=0, rule="zero") for nodes in sets
    ]
    assert ww.subgraph_relevance(chain, sets).tolist() == pytest.approx([float(value) for value in theirs])


class Sage(nn.Module):
    """Users and items, two layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        types = [("user", "to", "item"), ("item", "back", "user")]
        self.layers = nn.ModuleList(pyg.HeteroConv({each: pyg.SAGEConv((3, 3), 3) for each in types}) for _ in range(2))
        self.double()

    def forward(self, x_dict, edge_index_dict):
        h = {name: x.relu() for name, x in self.layers[0](x_dict, edge_index_dict).items()}
        return self.layers[1](h, edge_index_dict)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
def test_as_many_nodes_of_one_type_as_of_another_keep_their_types():
    """Steps keep to neighbours then, too, and one more node that nothing leads to changes nothing."""
    generator = torch.Generator().manual_seed(0)
    x = {name: torch.randn(7, 3, generator=generator, dtype=torch.float64) for name in ("user", "item")}
    there = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 1, 0, 3, 5, 4, 5, 5]])
    edges = {("user", "to", "item"): there, ("item", "back", "user"): there.flip(0)}
    sets = [
        {"user": [0, 2], "item": [5]},
        {"user": [1], "item": [1]},
        {"item": [0, 5]},
        {"user": [0, 1, 2], "item": [1, 5]},
    ]
    found = []
    for count in (6, 7):
        nodes = {"user": x["user"][:count], "item": x["item"][:6]}
        chain = ww.trace(Sage().eval(), nodes, edges, index=("user", 0), target=0)
        assert chain.local
        answers_agree(chain)
        found.append(ww.subgraph_relevance(chain, sets, alpha=[0.0, 0.4]))
    torch.testing.assert_close(*found)
    assert float(found[0].abs().sum()) > 0.01


class SentByHand(nn.Module):
    """Items send to users in the code before, between or after the layers."""

    def __init__(self, where):
        super().__init__()
        self.into = nn.ModuleDict({"user": nn.Linear(3, 4), "item": nn.Linear(5, 4)})
        self.first, self.second, self.out = pyg.SAGEConv((4, 4), 4), pyg.SAGEConv((4, 4), 4), nn.Linear(4, 2)
        self.where = where

    def forward(self, x_dict, edge_index_dict):
        h = {name: self.into[name](x).relu() for name, x in x_dict.items()}
        item, user = edge_index_dict[RATED]

        def sent(to):
            return torch.zeros_like(h[to]).index_add(0, user, h["item"][item])

        if self.where == "before":
            h["user"] = sent("user")
        h["item"] = self.first((h["user"], h["item"]), edge_index_dict[RATES]).tanh()
        if self.where == "between":
            h["user"] = sent("user")
        if self.where == "added":
            h["user"] = h["user"] + sent("user")
        h["user"] = self.second(h["user"], edge_index_dict[KNOWS])
        return self.out(sent("user") if self.where == "after" else h["user"])


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("where", ["before", "between", "added", "after"])
def test_rows_that_another_type_sends_by_hand_are_the_receivers(where):
    """Of one item each, or, beside another graph, of several; a note says so unless walks begin there."""

    def graph(more):
        torch.manual_seed(7)
        x, y = torch.randn(8, 3), torch.randn(6, 5)
        data, users, items = HeteroData(), 5 + 3 * more, 3 + 3 * more
        data["user"].x, data["item"].x = x[:users], y[:items]
        rated = torch.tensor([[0, 0, 1, 2, 2, 3, 4, 5, 3], [1, 0, 3, 2, 4, 5, 5, 5, 6]])[:, : 5 + 4 * more]
        data[RATED].edge_index, data[RATES].edge_index = rated, rated.flip(0)
        data[KNOWS].edge_index = torch.tensor([[0, 1, 2, 3, 4, 4, 5, 6], [1, 2, 0, 4, 2, 1, 6, 7]])[:, : 6 + 2 * more]
        return data

    model = SentByHand(where)
    alone, beside = (ww.trace(model, graph(more), index=("user", 1), target=0) for more in (False, True))
    for layer in range(alone.num_layers + 1):
        ours, theirs = (ww.node_relevance(chain, layer=layer) for chain in (alone, beside))
        for name, relevance in ours.items():
            torch.testing.assert_close(relevance, theirs[name][: len(relevance)])
            assert not theirs[name][len(relevance) :].any()
    for chain in (alone, beside) if where != "before" else ():
        assert any("index_add adds up rows of nodes outside" in note for note in chain.notes)
    torch.testing.assert_close(*(ww.subgraph_relevance(chain, SETS[:2]) for chain in (alone, beside)))
