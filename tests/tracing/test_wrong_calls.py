"""Calls that cannot be meant as they stand, and the words in which they are refused."""

import itertools

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.ao.quantization import quantize_dynamic
from torch_geometric.data import Data
from torch_geometric.explain import Explainer

import walkwise as ww
from walkwise.errors import CoverageWarning, InputError, TargetError, TraceError

X, EDGES = torch.randn(4, 3), torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 3, 0]])


class Net(nn.Module):
    def __init__(self, change=lambda h: h, last=lambda h: h.mean(0, keepdim=True)):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = pyg.GCNConv(3, 4), pyg.GCNConv(4, 4)
        self.change, self.last = change, last

    def forward(self, x, edge_index, edge_weight=None):
        return self.last(self.second(self.change(self.first(x, edge_index, edge_weight).relu()), edge_index))


@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        ((X, EDGES, torch.ones(5)), {}, r"given by name, got 1 more in order .*shape \(5,\).*edge_weight=\.\.\."),
        ((), {"data": Data(X, EDGES)}, r"x was left out\. data was given by name\..*ww\.trace\(model, data\)"),
        ((EDGES, X), {}, r"are swapped.*ww\.trace\(model, x, edge_index\)"),
        ((X.long(), EDGES), {}, r"int64.*x\.float\(\)"),
        ((X > 0, EDGES), {}, r"torch\.bool.*x\.float\(\)"),
        ((X, EDGES.bool()), {}, r"edge_index must be node ids, of torch\.long, got torch\.bool"),
        ((X, EDGES.numpy()), {}, r"edge_index, a NumPy array .*torch\.as_tensor\(edge_index\)"),
        ((X, None), {}, r"edge_index must be the edges, \(2, E\), or a sparse adjacency, got None"),
        ((X, EDGES.tolist()), {}, r"edge_index, a list of numbers .*torch\.as_tensor\(edge_index\)"),
    ],
    ids=["in order", "by name", "swapped", "integers", "truth values", "true edges", "array", "none", "list"],
)
def test_arguments(arguments, named, words):
    with pytest.raises((InputError, TraceError), match=words):
        ww.trace(Net(), *arguments, **named)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (torch.zeros(4), r"whole numbers, one for each node, of shape \(4,\), got torch\.float32 of shape \(4,\)"),
        (torch.zeros(3, dtype=torch.long), r"of shape \(4,\), got torch\.int64 of shape \(3,\)"),
        ([0, 0, 0, 0], r"batch, a list of numbers .*torch\.as_tensor\(batch\)"),
    ],
)
def test_graphs_of_nodes(batch, words):
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.GCNConv(3, 4)

        def forward(self, x, edge_index, batch):
            return pyg.global_mean_pool(self.conv(x, edge_index), batch)

    with pytest.raises(InputError, match=words):
        ww.trace(Pooled(), X, EDGES, batch=batch)


@pytest.mark.parametrize("conv", [pyg.GCNConv, pyg.GraphConv])
def test_weights_of_edges(conv):
    with pytest.raises(
        InputError, match=r"edge_weight must have a row for each of the \d+ edges, got torch.float32 of shape"
    ):
        ww.trace(conv(3, 4), X, EDGES, edge_weight=torch.ones(2), index=0)


def test_a_number_beyond_a_table_is_in_the_note():
    class Looked(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.conv = nn.Embedding(3, 4), pyg.GCNConv(4, 2)

        def forward(self, x, edge_index):
            return self.conv(self.table(x), edge_index)

    with pytest.raises(IndexError) as raised:
        ww.trace(Looked(), torch.tensor([0, 1, 7, 2]), EDGES, index=0)
    assert "x (4,) of 0 to 7" in raised.value.__notes__[0]


@pytest.mark.parametrize("kind", [RuntimeError, TypeError, AssertionError, AttributeError, KeyError])
def test_a_models_own_error_comes_through(kind):
    def broken(h):
        raise kind("mine")

    with pytest.raises(kind, match="mine") as raised:
        ww.trace(Net(last=broken), X, EDGES)
    assert getattr(raised.value, "__notes__", ["Raised by the model"])[0].startswith("Raised by the model")


def test_arguments_of_another_precision_are_named():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.TransformerConv(3, 4, edge_dim=2)

        def forward(self, x, edge_index, edge_attr):
            return self.conv(x, edge_index, edge_attr)

    with pytest.raises(InputError, match=r"edge_attr is torch\.float64 but the model's weights are torch\.float32"):
        ww.trace(Net(), X, EDGES, edge_attr=torch.rand(5, 2).double(), index=0, target=0)


def test_one_weight_may_be_that_of_all_edges():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv = pyg.GraphConv(3, 4)

        def forward(self, x, edge_index, edge_weight):
            return self.conv(x, edge_index, edge_weight)

    one, each = (
        ww.trace(Net(), X, EDGES, edge_weight=w, index=0, target=0) for w in (torch.tensor(2.0), 2 + torch.zeros(5))
    )
    torch.testing.assert_close(ww.node_relevance(one), ww.node_relevance(each))


@pytest.mark.parametrize(
    ("target", "words"),
    [("foo", "target must be a column of the output, 0 to 3, got 'foo'"), (-1, "counted from 0, not from the end")],
)
def test_targets(target, words):
    with pytest.raises(TargetError, match=words):
        ww.trace(Net(), X, EDGES, target=target)


def test_as_many_classes_as_nodes():
    with pytest.raises(TargetError, match=r"as many nodes.*index=.*target=lambda"):
        ww.trace(Net(last=lambda h: h.mean(0)), X, EDGES, target=1)
    assert ww.trace(Net(last=lambda h: h.mean(0)), X, EDGES, target=lambda out: out[1]).num_nodes == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h + h.abs().max().item(), "through NumPy or Python"),
        (lambda h: h + float(h.abs().max()), "through NumPy or Python"),
    ],
    ids=["item", "float"],
)
def test_numbers_that_drop_out_of_sight_are_noted(change, words):
    with pytest.warns(CoverageWarning, match=words):
        chain = ww.trace(Net(change), X, EDGES, target=1)
    assert any(words in note for note in chain.notes)


def test_operations_that_only_feed_a_gate_or_a_divisor_are_not_named():
    """Softmax as a gate turns no sign, and what is held constant has no rule to lack."""
    gated = ww.trace(Net(lambda h: h * h.softmax(-1)), X, EDGES, target=1)
    divided = ww.trace(Net(lambda h: h / (1 + torch.logsumexp(h, 1, keepdim=True))), X, EDGES, target=1)
    for chain in (gated, divided):
        assert not [note for note in chain.notes if "no rule" in note or "flips the sign" in note]
    with pytest.warns(CoverageWarning, match="logsumexp"):
        ww.trace(Net(lambda h: h + torch.logsumexp(h, 1, keepdim=True)), X, EDGES, target=1)
    squashed = ww.trace(Net(last=lambda h: h.mean(0, keepdim=True).softmax(-1)), X, EDGES, target=1)
    assert any("flips the sign" in note and "log_softmax" in note for note in squashed.notes)


def test_the_logit_behind_a_sigmoid_is_explained_as_the_note_says():
    plain, squashed = Net(), Net(last=lambda h: h.mean(0, keepdim=True).sigmoid())
    assert any("target=lambda output: output.logit()" in note for note in ww.trace(squashed, X, EDGES, target=1).notes)
    for column in range(4):
        chain = ww.trace(squashed, X, EDGES, target=lambda output, c=column: output.logit()[0, c])
        assert not chain.notes
        wanted = ww.node_relevance(ww.trace(plain, X, EDGES, target=column))
        torch.testing.assert_close(ww.node_relevance(chain), wanted, rtol=1e-4, atol=1e-6)


class Placed(Net):
    def forward(self, z, pos, edge_index, batch=None):
        return super().forward(z, edge_index)


@pytest.mark.parametrize(
    ("kind", "rest", "words"),
    [
        (Net, 1, r"ww\.trace\(model, x, edge_index, edge_weight=\.\.\.\)"),
        (Net, 2, r"ww\.trace\(model, x, edge_index, name=\.\.\.\)"),
        (Placed, 1, r"ww\.trace\(model, Data\(z=\.\.\., pos=\.\.\., edge_index=\.\.\.\)\)"),
        (Placed, 2, r"Data\(z=\.\.\., pos=\.\.\., edge_index=\.\.\., batch=\.\.\.\)"),
        (
            lambda: pyg.Sequential("x, edge_index, batch", [(pyg.GCNConv(3, 2), "x, edge_index -> x")]),
            1,
            r"batch=\.\.\.\)",
        ),
    ],
)
def test_what_is_given_in_order_is_called_by_its_name(kind, rest, words):
    with pytest.raises(InputError, match=words):
        ww.trace(kind(), X, EDGES, *[torch.ones(4)] * rest)
    with pytest.raises(InputError, match=words.replace(r"ww\.trace\(", r"\(")):
        ww.explain(kind(), X, EDGES, *[torch.ones(4)] * rest)


def test_what_is_given_in_order_beside_a_graph_has_a_name():
    with pytest.raises(InputError, match=r"ww\.trace\(model, data, name=\.\.\.\)"):
        ww.trace(Net(), Data(X, EDGES), torch.ones(4), torch.ones(4))


@pytest.mark.parametrize("given", [(X, EDGES), (Data(X, EDGES),)], ids=["tensors", "graph"])
@pytest.mark.parametrize(
    "script", [lambda: torch.jit.script(nn.Linear(3, 2)), lambda: torch.jit.trace(Net(), (X, EDGES))]
)
def test_scripted_models_are_named_so(script, given):
    with pytest.raises(TraceError, match=r"is TorchScript.*scripted from"):
        ww.trace(script(), *given)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:quantized")
@pytest.mark.parametrize("after", [False, True])
def test_what_torch_does_not_differentiate_is_named(after):
    """Quantised operations say that they can be differentiated."""
    quantised = quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), dtype=torch.qint8)
    model = Net(last=lambda h: quantised(h).mean(0, keepdim=True)) if after else Net(change=quantised)
    with pytest.raises(TraceError, match=r"cannot differentiate linear_dynamic.*quantised model"):
        ww.trace(model, X, EDGES, target=0)


def test_several_matrices_of_parts_of_the_nodes_are_refused():
    model = Net(last=lambda h: h.mean((0, 1))[None])
    with pytest.raises(TraceError, match=r"shape \(2, 2, 3\).*static graph"):
        ww.trace(Shaped(model), X, EDGES[:, :2])


class Shaped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, edge_index):
        return self.inner(x.view(2, 2, 3), edge_index)


def test_reversible_layers_are_traced_without_their_memory_trick():
    class Reversible(nn.Module):
        def __init__(self, disable):
            super().__init__()
            torch.manual_seed(0)
            self.lin, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
            self.conv = pyg.GroupAddRev(pyg.SAGEConv(2, 2), num_groups=2)
            self.conv.disable = disable

        def forward(self, x, edge_index):
            return self.head(self.conv(self.lin(x), edge_index)).sum(0, keepdim=True)

    model = Reversible(False)
    ours, theirs = (ww.trace(m, X, EDGES, target=1) for m in (model, Reversible(True)))
    torch.testing.assert_close(ww.node_relevance(ours), ww.node_relevance(theirs))
    assert model.conv.disable is False


@pytest.mark.parametrize("sign", [1, -1])
def test_a_regression_that_everything_makes_negative_has_a_mask(sign):
    class Signed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.SimpleConv()

        def forward(self, x, edge_index):
            return sign * self.conv(x.abs(), edge_index).sum().view(1, 1)

    model = Signed()
    explainer = Explainer(
        model,
        algorithm=ww.SubgraphLRPExplainer(rule="zero"),
        explanation_type="model",
        node_mask_type="object",
        model_config={"mode": "regression", "task_level": "graph"},
    )
    explanation = explainer(X, EDGES)
    assert float(explanation.node_mask.max()) == 1
    relevance = sign * explanation.node_relevance
    torch.testing.assert_close(explanation.node_mask[:, 0], relevance / relevance.max())


def test_a_mask_of_nothing_is_warned_about():
    class Against(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv = pyg.SimpleConv()

        def forward(self, x, edge_index):
            total = self.conv(x.abs(), edge_index).sum(1, keepdim=True)
            return torch.cat([-total, -2 * total], 1)

    explainer = Explainer(
        Against(),
        algorithm=ww.SubgraphLRPExplainer(rule="zero"),
        explanation_type="model",
        node_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    with pytest.warns(CoverageWarning, match="a mask that is zero everywhere"):
        explanation = explainer(X, EDGES, index=1)
    assert float(explanation.node_mask.abs().max()) == 0


class Summed(nn.Module):
    """Neighbours and edges added up by index, and edges that change."""

    def __init__(self):
        super().__init__()
        self.edge, self.node = nn.Linear(8, 2), nn.Linear(5, 3)

    def forward(self, x, edge_index, edge_attr, u=None, batch=None):
        e = self.edge(torch.cat([x[edge_index[0]], x[edge_index[1]], edge_attr], dim=1)).relu()
        sums = torch.zeros(len(x), 2, dtype=x.dtype).index_add(0, edge_index[1], e)
        return self.node(torch.cat([x, sums], dim=1)), e, u


class Blocks(nn.Module):
    def __init__(self, meta):
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.ModuleList(self.as_meta(Summed()) if meta else Summed() for _ in range(2)).double()

    @staticmethod
    def as_meta(block):
        def edges(source, target, e, u, batch):
            return block.edge(torch.cat([source, target, e], dim=1)).relu()

        def nodes(x, edge_index, e, u, batch):
            return block.node(torch.cat([x, torch.zeros(len(x), 2, dtype=x.dtype).index_add(0, edge_index[1], e)], 1))

        layer = pyg.MetaLayer(edges, nodes)
        layer.block = block
        return layer

    def forward(self, x, edge_index, edge_attr):
        for layer in self.layers:
            x, edge_attr, _ = layer(x, edge_index, edge_attr)
        return x.sum(0, keepdim=True)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("meta", [False, True], ids=["by hand", "MetaLayer"])
def test_modules_that_add_up_neighbours_are_layers(meta):
    edges, x = torch.tensor([[0, 1, 2, 3, 3], [1, 2, 3, 0, 1]]), torch.randn(4, 3, dtype=torch.float64)
    attributes = torch.randn(5, 2, dtype=torch.float64)
    model = Blocks(meta)
    chain = ww.trace(model, x, edges, edge_attr=attributes, target=0, rule="zero")
    assert chain.num_layers == 2
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf, edges, attributes)[0, 0], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)
    walks = ww.enumerate_walks(chain)
    assert float(ww.walk_relevance(chain, walks).sum()) == pytest.approx(chain.input_relevance)


class Sums(pyg.MessagePassing):
    """A layer of somebody's own."""

    def forward(self, x, edge_index, size=None):
        return self.propagate(edge_index, x=x if size is None else (x, None), size=size)


class OwnLayer(nn.Module):
    """Nodes send to each other; with hyperedges, to those, which send to their nodes."""

    def __init__(self, hyperedges=None):
        super().__init__()
        self.out, self.back, self.hyperedges = Sums(), Sums(), hyperedges

    def forward(self, x, edge_index):
        if self.hyperedges is None:
            return self.out(x, edge_index).sum(0, keepdim=True)
        there = torch.stack([edge_index[0], edge_index[1] - len(x)])
        h = self.out(x, there, (len(x), self.hyperedges))
        return self.back(h, there.flip(0), (self.hyperedges, len(x)))[:1]


@pytest.mark.parametrize("ends", [[[0, 1], [1, 9]], [[0, 9], [1, 1]]])
def test_edges_of_a_layer_of_somebody_s_own(ends):
    with pytest.raises(InputError, match=r"edge_index names nodes [01] to 9, but x has 4 rows"):
        ww.trace(OwnLayer(), torch.rand(4, 3), torch.tensor(ends), target=0)


def test_a_layer_of_somebody_s_own_may_send_to_hyperedges():
    incidence = torch.tensor([[0, 1, 2, 2, 3], [4, 4, 4, 5, 5]])
    model, x = OwnLayer(2), torch.rand(4, 3, dtype=torch.float64)
    chain = ww.trace(model, x, incidence, target=0, rule="zero")
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf, incidence)[0, 0], leaf)
    torch.testing.assert_close(ww.feature_relevance(chain), gradient * x)
    assert chain.edge_index.t().tolist() == [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1], [2, 3], [3, 2]]


@pytest.mark.parametrize("first", [0, 4])
def test_nodes_of_a_hypergraph_are_next_to_those_with_which_they_share_a_hyperedge(first):
    class Hyper(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = pyg.HypergraphConv(3, 4), pyg.HypergraphConv(4, 2)

        def forward(self, x, hyperedge_index):
            return self.b(self.a(x, hyperedge_index).relu(), hyperedge_index).sum(0, keepdim=True)

    torch.manual_seed(0)
    incidence = torch.tensor([[0, 1, 2, 2, 3], [0, 0, 0, 1, 1]]) + torch.tensor([[0], [first]])
    chain = ww.trace(Hyper(), torch.rand(4, 3), incidence, target=0)
    pairs = [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1], [2, 3], [3, 2]]
    assert chain.edge_index.t().tolist() == pairs
    steps = {step for walk in ww.enumerate_walks(chain).tolist() for step in itertools.pairwise(walk)}
    assert {step for step in steps if step[0] != step[1]} == set(map(tuple, pairs))
    found = ww.find_subgraph(chain, size=2)
    assert list(found.nodes) in pairs


def test_a_forward_that_takes_nothing():
    class Closed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.GCNConv(3, 2)

        def forward(self):
            return self.conv(torch.rand(4, 3), EDGES)

    with pytest.raises(InputError, match="It takes no arguments: let it take a graph"):
        ww.trace(Closed(), torch.rand(4, 3), torch.tensor([[0, 1], [1, 0]]))


def test_a_model_without_a_forward_is_told_so():
    class Parts(nn.Module):
        """Its encode and decode are called one by one, as in many link predictors."""

        def __init__(self):
            super().__init__()
            self.conv = pyg.GCNConv(4, 4)

    with pytest.raises(InputError, match=r"Parts has no forward.*def forward\(self, x, edge_index, edge_label_index\)"):
        ww.trace(Parts(), torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]]), index=0)


@pytest.mark.parametrize("unpacks", [True, False])
def test_a_forward_of_one_thing_may_want_more_than_features(unpacks):
    class One(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.GCNConv(4, 2)

        def forward(self, inputs):
            x, edge_index = inputs if unpacks else (inputs.x, inputs.edge_index)
            return self.conv(x, edge_index)

    with pytest.raises(
        InputError, match=r"One\.forward\(inputs\) takes one thing .*If inputs is a graph, write ww\.trace"
    ):
        ww.trace(One(), torch.randn(6, 4), EDGES, index=0, target=0)
