"""The paper's algorithm by hooks against the traced chain."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    ChebConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GraphConv,
    GraphSAGE,
    SAGEConv,
    SGConv,
    TAGConv,
    global_add_pool,
    global_max_pool,
)

import walkwise as ww
from typed_graphs import Reader, papers
from walkwise import hooks, rules
from walkwise.errors import CoverageWarning, InputError, TargetError, TraceError, WalkwiseError
from zoo.checks import inputs, made
from zoo.models import ZOO

M = 7
RULES = [
    "zero",
    "gamma",
    "epsilon",
    rules.Epsilon(0.1),
    rules.Gamma(0.5),
    rules.GeneralisedGamma(2.0),
    "alphabeta",
    "zplus",
    "positive",
]
SETS = [[0, 2, 3], [4], list(range(M))]


@pytest.fixture(scope="module")
def graph():
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, M, (2, 12), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    both = torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1)
    return torch.randn(M, 3, generator=generator, dtype=torch.float64), both


def compare(model, x, edge_index, rule, alphas=(0.0, 0.3, 1.0), **asked):
    chain = ww.trace(model, x, edge_index, rule=rule, **asked)
    for nodes in SETS:
        for alpha, want in zip(
            alphas, ww.subgraph_relevance(chain, [nodes], alpha=list(alphas))[0].tolist(), strict=True
        ):
            found = hooks.subgraph_relevance(model, x, edge_index, nodes, alpha=alpha, rule=rule, **asked)
            assert found == pytest.approx(want, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("kind", [GIN, GCN, GraphSAGE])
def test_hooks_equal_the_chain(graph, kind, rule, unchanged):
    torch.manual_seed(1)
    model = kind(3, 5, 3, out_channels=2).double()  # in training mode, to be left so
    with unchanged(model, *graph):
        compare(model, *graph, rule, index=2, target=1)


class Various(nn.Module):
    """Skips computed before the layer, a layer that runs twice, maps between layers, and a read-out."""

    def __init__(self, make, pool=global_add_pool, act=torch.relu):
        super().__init__()
        self.encode, self.skip, self.between = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.first, self.twice, self.pool, self.act = make(4, 4), make(4, 4), pool, act
        self.read = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x, edge_index, batch=None):
        h = self.act(self.encode(x))
        beside = self.skip(h)
        h = self.act(self.first(h, edge_index) + beside)
        early = h
        h = self.act(self.between(self.act(self.twice(h, edge_index))))
        h = self.twice(h, edge_index) + h
        return self.read(self.pool(torch.cat([h, early], dim=1), batch))


def _gin(inside, out):
    return GINConv(nn.Sequential(nn.Linear(inside, 6), nn.ReLU(), nn.Linear(6, out)), train_eps=True)


MAKERS = {"GIN": _gin, "GCN": GCNConv, "Graph": GraphConv, "SAGE": SAGEConv, "SG": SGConv, "TAG": TAGConv}


@pytest.mark.parametrize("rule", ["auto", "zero", "gamma", "epsilon", "alphabeta"])
@pytest.mark.parametrize("name", MAKERS)
def test_hooks_follow_skips_repeats_and_maps_between(graph, name, rule):
    torch.manual_seed(2)
    compare(Various(MAKERS[name]).double(), *graph, rule, target=0)


@pytest.mark.parametrize("act", [torch.tanh, nn.functional.elu, nn.functional.gelu, nn.functional.softplus])
@pytest.mark.parametrize("rule", ["zero", "gamma"])
def test_hooks_divide_smooth_activations(graph, act, rule):
    torch.manual_seed(3)
    compare(Various(GCNConv, global_max_pool, act).double(), *graph, rule, target=1)


@pytest.mark.parametrize("rule", ["auto", *RULES])
def test_hooks_hold_attention_constant(graph, rule):
    torch.manual_seed(4)
    edge_attr = torch.randn(graph[1].shape[1], 2, dtype=torch.float64)  # negative entries change attention alone
    for v2 in (False, True):
        model = GAT(3, 4, 2, out_channels=2, heads=2, v2=v2, edge_dim=2).double()
        for conv in model.convs:  # the last takes the mean over heads, whose biases have other signs
            nn.init.normal_(conv.bias)
            nn.init.normal_(conv.lin_l.bias if v2 else conv.bias)
        compare(model, *graph, rule, index=1, target=0, edge_attr=edge_attr)


@pytest.mark.parametrize("rule", ["auto", "gamma", "zplus"])
def test_hooks_tell_signs_apart_along_negative_edges(graph, rule):
    torch.manual_seed(4)
    model = GCN(3, 4, 2, out_channels=2, normalize=False).double()
    weights = torch.linspace(-1, 1, graph[1].shape[1], dtype=torch.float64)
    compare(model, *graph, rule, index=0, target=1, edge_weight=weights)


def test_hooks_take_a_batch_and_a_read_out_rule(graph):
    x, edge_index = graph
    both = torch.cat([edge_index, edge_index + M], dim=1)
    batch = torch.arange(2).repeat_interleave(M)
    torch.manual_seed(5)
    schedule = rules.Schedule.constant(rules.Gamma(1.0), readout=rules.Gamma(2.0))
    compare(Various(GCNConv).double(), torch.cat([x, 2 * x]), both, schedule, batch=batch, target=[0, 1])
    compare(Various(GCNConv).double(), x, edge_index, schedule, target=lambda output: output[0, 1] - output[0, 0])


class Normalised(nn.Module):
    """Normalisations after a map before the layers, after every layer, and after one in the read-out."""

    def __init__(self, make):
        super().__init__()
        self.first, self.convs, self.head = nn.Linear(3, 4), nn.ModuleList([make(4, 4), make(4, 4)]), nn.Linear(4, 3)
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in (4, 4, 4, 3))

    def forward(self, x, edge_index):
        x = self.norms[0](self.first(x)).relu()
        for conv, norm in zip(self.convs, self.norms[1:], strict=False):
            x = nn.functional.gelu(norm(conv(x, edge_index)))
        return self.norms[3](self.head(x)).sum(0, keepdim=True)


def perceptron(before, after):
    return GINConv(nn.Sequential(nn.Linear(before, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, after)))


@pytest.mark.parametrize("rule", ["auto", "gamma", rules.Epsilon(0.1), "alphabeta", "positive"])
@pytest.mark.parametrize("make", [GCNConv, SAGEConv, perceptron, lambda i, o: GAT(i, o, 1, heads=2).convs[0]])
def test_hooks_fold_batch_normalisations(graph, make, rule):
    torch.manual_seed(6)
    model = Normalised(make).double()
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm1d):  # slopes of both signs
            for tensor in (norm.weight, norm.bias, norm.running_mean):
                nn.init.normal_(tensor)
            nn.init.uniform_(norm.running_var, 0.5, 2.0)
    compare(model.eval(), *graph, rule, alphas=(0.0, 0.3), target=1)


class Odd(nn.Module):
    """A layer, and something done to it."""

    def __init__(self, conv, after=lambda h: h):
        super().__init__()
        self.conv, self.last, self.after = conv, GCNConv(4, 2), after

    def forward(self, x, edge_index):
        return self.last(self.after(self.conv(x, edge_index)), edge_index)


class Beside(nn.Module):
    """A normalisation, and what it normalises read by somebody else, before or after it."""

    def __init__(self, before):
        super().__init__()
        self.norm, self.before = nn.BatchNorm1d(4), before

    def forward(self, h):
        if self.before:
            return h.relu() + self.norm(h)
        return self.norm(h) + h.relu()


def two_biases():
    """A layer with a bias in its messages, and another of the other sign after them."""
    conv = GATv2Conv(3, 4)
    nn.init.ones_(conv.lin_l.bias)
    nn.init.constant_(conv.bias, -2.0)
    return conv


@pytest.mark.parametrize("rule", ["auto", "zero", "gamma"])
@pytest.mark.parametrize(
    ("make", "after"),
    [
        (lambda: ChebConv(3, 4, 3), None),
        (lambda: SAGEConv(3, 4, aggr="max"), None),
        (lambda: SAGEConv(3, 4, normalize=True), None),
        (lambda: GCNConv(3, 4), lambda h: h * h.sigmoid()),
        (lambda: GCNConv(3, 4), lambda h: nn.functional.layer_norm(h, (4,))),
        (lambda: GCNConv(3, 4), lambda h: h @ torch.eye(4, dtype=h.dtype)),
        (lambda: GCNConv(3, 4), lambda h: h + 1),
        (two_biases, nn.BatchNorm1d(4)),
        (lambda: GCNConv(3, 4), Beside(before=False)),
        (lambda: GCNConv(3, 4), Beside(before=True)),
    ],
)
def test_hooks_carry_what_a_trace_carries(graph, make, after, rule, unchanged):
    torch.manual_seed(7)
    model = Odd(make(), after or (lambda h: h)).double().eval()
    with unchanged(model, *graph):
        compare(model, *graph, rule, alphas=(0.0, 0.3), index=0, target=1)


def zoo_differs(entry, rule, alpha):
    """How far hooks are from the chain on a random subgraph, as a share of the relevance of all walks."""
    model, (x, edges) = made(entry), inputs(entry)
    chain = ww.trace(model, x, edges, target=0, rule=rule)
    chosen = random.Random(f"{entry.name} {rule} {alpha}")
    nodes = [i for i in range(chain.num_nodes) if chosen.random() < 0.5]
    asked = nodes if chain.types is None else chain.types.grouped(nodes)
    found = hooks.subgraph_relevance(model, x, edges, asked, alpha=alpha, target=0, rule=rule)
    scale = float(ww.walk_relevance(chain, ww.enumerate_walks(chain)).abs().sum())
    return abs(found - float(ww.subgraph_relevance(chain, [nodes], alpha=alpha)[0])) / (scale or 1.0)


TRACED = [entry for entry in ZOO if entry.refused is None]
ALPHAS = [0.0, 0.3, 1.0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(len(TRACED)), ids=lambda number: TRACED[number].name)
def test_hooks_carry_the_zoo(number, in_double):
    """Every architecture under the default, or under another rule."""
    others = [rule for rule in RULES if rule != "zero"]
    rule = "auto" if number % 2 else others[number // 2 % len(others)]
    assert zoo_differs(TRACED[number], rule, ALPHAS[number % 3]) < 1e-9


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", TRACED, ids=lambda entry: entry.name)
def test_hooks_carry_the_zoo_under_every_rule(entry, in_double):
    for rule in ("auto", *RULES):
        for alpha in ALPHAS:
            assert zoo_differs(entry, rule, alpha) < 1e-9, (rule, alpha)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", [e for e in ZOO if e.refused is not None], ids=lambda entry: entry.name)
def test_what_a_trace_refuses_hooks_refuse(entry, in_double):
    model, (x, edges) = made(entry), inputs(entry)
    nodes = {} if isinstance(x, dict) else [0]
    with pytest.raises(WalkwiseError, match=entry.refused):
        hooks.subgraph_relevance(model, x, edges, nodes, target=0)


@pytest.fixture
def in_double():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_nodes_of_a_heterogeneous_graph_are_given_by_type(alpha):
    data, model, nodes = papers(), Reader(), {"author": [0, 3], "paper": [1, 2, 3]}
    chain = ww.trace(model, data, index=("paper", 1), target=1, rule="gamma")
    want = float(ww.subgraph_relevance(chain, [nodes], alpha=alpha)[0])
    asked = {"alpha": alpha, "index": ("paper", 1), "target": 1}
    one_by_one = [(kind, i) for kind, ids in nodes.items() for i in ids]
    assert hooks.subgraph_relevance(model, data, nodes=nodes, **asked) == pytest.approx(want, rel=1e-9)
    assert hooks.subgraph_relevance(model, data, nodes=one_by_one, **asked) == pytest.approx(want, rel=1e-9)
    by_type = data.x_dict, data.edge_index_dict, nodes
    assert hooks.subgraph_relevance(model, *by_type, **asked) == pytest.approx(want, rel=1e-9)
    with pytest.raises(InputError, match=r"such as \{'author': \[0, 1\]\}, got list"):
        hooks.subgraph_relevance(model, data, nodes=["author"], **asked)
    with pytest.raises(InputError, match="There is no node 9 of type 'author'"):
        hooks.subgraph_relevance(model, data, nodes={"author": [9]}, **asked)


def test_hooks_take_a_graph_and_a_batch(graph):
    torch.manual_seed(8)
    model, one = Various(GCNConv).double(), Data(*graph)
    batch = Batch.from_data_list([one, one])
    for data, nodes in ((one, torch.tensor([0, 2])), (batch, [1, M, M + 3])):
        chain = ww.trace(model, data, target=1, against=0, rule="gamma")
        want = float(ww.subgraph_relevance(chain, [nodes], alpha=0.2)[0])
        found = hooks.subgraph_relevance(model, data, nodes=nodes, alpha=0.2, target=1, against=0)
        assert found == pytest.approx(want, rel=1e-9)


def test_hooks_take_several_matrices_on_one_graph(graph):
    torch.manual_seed(9)
    x, model = torch.randn(2, M, 3, dtype=torch.float64), Static().double()
    compare(model, x, graph[1], "auto", target=lambda out: out.sum())


class Static(nn.Module):
    """Two layers on a static graph, (T, M, F)."""

    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(3, 4), GCNConv(4, 2)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def test_what_has_no_rule_is_told(graph):
    model = Odd(GCNConv(3, 4), lambda h: torch.logcumsumexp(h, 1)).double()
    words = r"logcumsumexp in the code between layers has no rule; its plain gradient was used"
    with pytest.warns(CoverageWarning, match=words) as told:
        hooks.subgraph_relevance(model, *graph, [0], index=0)
    assert told[0].filename == __file__


@pytest.mark.parametrize("switched_off", [torch.no_grad, torch.inference_mode])
def test_gradients_may_be_switched_off(graph, switched_off):
    model = GCN(3, 4, 2, out_channels=2).double()
    want = hooks.subgraph_relevance(model, *graph, [0, 1], index=0, alpha=0.5)
    with switched_off():
        assert hooks.subgraph_relevance(model, *graph, [0, 1], index=0, alpha=0.5) == want != 0


def test_wrong_questions_are_refused(graph):
    model = GCN(3, 4, 2, out_channels=2).double()
    with pytest.raises(InputError, match="Node 7 is not in the graph, whose 7 nodes are 0 to 6"):
        hooks.subgraph_relevance(model, *graph, [0, 7], index=0)
    with pytest.raises(InputError, match=r"nodes must be the nodes of a subgraph, such as \[0, 3, 4\], got list"):
        hooks.subgraph_relevance(model, *graph, [True, False], index=0)
    with pytest.raises(InputError, match=r"such as \[0, 3, 4\], got nothing"):
        hooks.subgraph_relevance(model, *graph, index=0)
    with pytest.raises(InputError, match="index must be one row of the output, got list"):
        hooks.subgraph_relevance(model, *graph, [0], index=[0, 1])
    with pytest.raises(InputError, match="alpha must be a discount between 0 and 1"):
        hooks.subgraph_relevance(model, *graph, [0], index=0, alpha=2.0)
    with pytest.raises(TargetError, match="The output has 7 rows but the input has 1 graph"):
        hooks.subgraph_relevance(model, *graph, [0])
    with pytest.raises(TraceError, match="no message-passing layer"):
        hooks.subgraph_relevance(Perceptron().double(), *graph, [0])
    assert hooks.subgraph_relevance(model, *graph, [], index=0) == 0


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 2)

    def forward(self, x, edge_index):
        return self.lin(x).sum(0, keepdim=True)


@pytest.mark.parametrize("target", ["positive", "negative", 1, 0])
def test_both_classes_of_one_logit(target):
    torch.manual_seed(0)
    model, x = GCN(3, 8, num_layers=2, out_channels=1).double(), torch.rand(4, 3, dtype=torch.float64)
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    chain = ww.trace(model, x, edge_index, index=1, target=target, rule="zero")
    found = hooks.subgraph_relevance(model, x, edge_index, [0, 1, 2], index=1, target=target, rule="zero")
    assert float(found) == pytest.approx(float(ww.subgraph_relevance(chain, [[0, 1, 2]])))
