"""Models of every build, as their users write them, against hooks on the very same model (LRP-0)."""

import math

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional as F
from torch_geometric.utils import softmax

import walkwise as ww
from walkwise import reference

M = 5
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 0, 3, 2, 2, 2], [1, 0, 2, 1, 3, 2, 2, 3, 0, 0, 1]])
#: Every node has a neighbour: maxima over no messages would be 0 whatever a rule says.
RING = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 0, 1, 3], [1, 0, 2, 1, 3, 2, 4, 3, 0, 4, 3, 1]])
SUBGRAPHS = [[0, 1], [2], [0, 2, 3], [], [0, 1, 2, 3, 4], [4, 1]]


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(3)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def x():
    return torch.randn(M, 3)


class Model(nn.Module):
    """A model whose forward is given as a function."""

    def __init__(self, run, **modules):
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self.run = run
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.uniform_(parameter, -0.3, 0.3)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm1d):
                nn.init.uniform_(module.weight, -1, 1)
                nn.init.uniform_(module.running_mean, -1, 1)
        self.eval()

    def forward(self, x, edge_index):
        return self.run(self, x, edge_index)


def residual(m, x, e):
    h = m.lin(x).relu()
    for conv in (m.a, m.b):
        h = h + conv(h, e).relu()
    return m.head(h.mean(0, keepdim=True))


def skips_over_layers(m, x, e):
    h0 = m.a(x, e).relu()
    h1 = m.b(h0, e).relu()
    h2 = m.c(h1, e) + h0 * 2
    return m.head((m.d(h2.relu(), e) + h0).sum(0, keepdim=True))


def skip_taken_before_the_call(m, x, e):
    h0 = m.lin(x).relu()
    kept = h0 * 2 + h0
    h1 = m.a(h0, e).relu()
    return m.head(torch.cat([m.b(h1 + kept, e), h1], 1).sum(0, keepdim=True))


def one_module_three_times(m, x, e):
    h = m.lin(x)
    for _ in range(3):
        h = F.leaky_relu(m.a(h, e))
    return m.head(h.sum(0, keepdim=True))


def raw_outputs_in_the_readout(m, x, e):
    first = m.a(x, e)
    return m.head(torch.cat([first, m.b(first.relu(), e)], 1).sum(0, keepdim=True))


def parallel_branches(m, x, e):
    return m.head(m.c((m.a(x, e) + m.b(x, e)).relu(), e).sum(0, keepdim=True))


def virtual_node(m, x, e):
    h = m.a(x, e).relu()
    return m.head(m.b(h + h.mean(0, keepdim=True), e).sum(0, keepdim=True))


def max_pooling(m, x, e):
    return m.head(pyg.global_max_pool(m.b(m.a(x, e).relu(), e), torch.zeros(M, dtype=torch.long)))


def mlp_head(m, x, e):
    return m.mlp(pyg.global_mean_pool(m.b(F.dropout(m.a(x, e).relu(), 0.5, m.training), e), None))


def split_and_joined(m, x, e):
    left, right = m.a(x, e).chunk(2, dim=1)
    return m.head(m.b(torch.cat([right.relu(), left[:, :1] * 2 - 1, left], 1)[:, :4], e).sum(0, keepdim=True))


def conv(i, o):
    return pyg.GCNConv(i, o)


def gin(i, o):
    return pyg.GINConv(nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o), nn.LeakyReLU(), nn.Linear(o, o)))


def library(kind, jk):
    def build():
        gnn = kind(3, 4, num_layers=3, out_channels=2, jk=jk, norm="batch_norm", dropout=0.5, act="leaky_relu")
        return Model(lambda m, x, e: m.gnn(x, e).sum(0, keepdim=True), gnn=gnn)

    return build


head4, head8 = (lambda: nn.Linear(4, 2)), (lambda: nn.Linear(8, 2))
BUILDS = {
    "residual": lambda: Model(residual, lin=nn.Linear(3, 4), a=conv(4, 4), b=conv(4, 4), head=head4()),
    "skips": lambda: Model(
        skips_over_layers, a=conv(3, 4), b=conv(4, 4), c=gin(4, 4), d=pyg.SAGEConv(4, 4), head=head4()
    ),
    "early skip": lambda: Model(
        skip_taken_before_the_call, lin=nn.Linear(3, 4), a=conv(4, 4), b=conv(4, 4), head=head8()
    ),
    "called thrice": lambda: Model(one_module_three_times, lin=nn.Linear(3, 4), a=gin(4, 4), head=head4()),
    "raw outputs": lambda: Model(raw_outputs_in_the_readout, a=conv(3, 4), b=conv(4, 4), head=head8()),
    "parallel": lambda: Model(parallel_branches, a=conv(3, 4), b=pyg.SAGEConv(3, 4), c=conv(4, 4), head=head4()),
    "virtual node": lambda: Model(virtual_node, a=conv(3, 4), b=conv(4, 4), head=head4()),
    "max pooling": lambda: Model(max_pooling, a=conv(3, 4), b=conv(4, 4), head=head4()),
    "mlp head": lambda: Model(
        mlp_head, a=conv(3, 4), b=conv(4, 4), mlp=nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    ),
    "split and joined": lambda: Model(split_and_joined, a=conv(3, 4), b=conv(4, 4), head=head4()),
    **{
        f"{kind.__name__}-{jk}": library(kind, jk)
        for kind in (pyg.GCN, pyg.GIN, pyg.GraphSAGE)
        for jk in (None, "last", "cat", "max")
    },
}


def two(a, b, **more):
    """Two layers of any kind with a ReLU between them."""
    run = lambda m, x, e: m.head(m.b(m.a(x, e).relu(), e).sum(0, keepdim=True))  # noqa: E731
    return lambda: Model(run, a=a, b=b, head=nn.Linear(4, 2), **more)


EDGE_ATTR = torch.linspace(-1, 1, 2 * RING.shape[1]).view(-1, 2)


class WithEdges(nn.Module):
    """A layer that takes edge features, with the features at hand."""

    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index):
        return self.conv(x, edge_index, EDGE_ATTR.to(x.dtype))


DEGREES = torch.tensor([1, 2, 2])
FALLBACKS = {
    "EdgeConv": lambda: two(
        pyg.EdgeConv(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 4))),
        pyg.EdgeConv(nn.Linear(8, 4), aggr="add"),
    )(),
    "NNConv": lambda: two(
        WithEdges(pyg.NNConv(3, 4, nn.Linear(2, 12))), WithEdges(pyg.NNConv(4, 4, nn.Linear(2, 16), aggr="mean"))
    )(),
    "GCN2Conv": lambda: Model(
        lambda m, x, e: m.head(m.b(m.a(h := m.lin(x), h, e).relu(), h, e).sum(0, keepdim=True)),
        lin=nn.Linear(3, 4), a=pyg.GCN2Conv(4, 0.3), b=pyg.GCN2Conv(4, 0.2, 0.5, 2), head=nn.Linear(4, 2),
    ),
    "PNAConv": lambda: two(
        pyg.PNAConv(3, 4, ["mean", "max", "sum", "min", "std"], ["identity", "amplification"], DEGREES),
        pyg.PNAConv(4, 4, ["mean", "std"], ["identity"], DEGREES),
    )(),
    "GENConv": lambda: two(pyg.GENConv(3, 4, aggr="add"), pyg.GENConv(4, 4, aggr="max"))(),
    "max aggregation": lambda: two(pyg.GraphConv(3, 4, aggr="max"), pyg.SAGEConv(4, 4, aggr="max"))(),
    "APPNP": lambda: Model(
        lambda m, x, e: m.head(m.a(m.lin(x).relu(), e).sum(0, keepdim=True)),
        lin=nn.Linear(3, 4), a=pyg.APPNP(3, 0.2), head=nn.Linear(4, 2),
    ),
    "ARMAConv": lambda: two(pyg.ClusterGCNConv(3, 4), pyg.ARMAConv(4, 4, num_stacks=2))(),
    "MFConv": lambda: two(pyg.MFConv(3, 4), pyg.GeneralConv(4, 4))(),
}  # fmt: skip


def check_against_hooks(model, x, edges, twin=None):
    """Every query, against gradients weighted at the positions of the model itself (or a twin)."""
    chain = ww.trace(model, x, edges, target=1, rule="zero")
    positions = chain.num_layers + 1
    hooked = twin or model
    walks = dict(
        zip(
            map(tuple, (listed := ww.enumerate_walks(chain)).tolist()),
            ww.walk_relevance(chain, listed).tolist(),
            strict=True,
        )
    )
    scale = max(map(abs, walks.values()))
    assert scale > 0
    for alpha in (0.0, 0.3, 1.0):
        ours = ww.subgraph_relevance(chain, SUBGRAPHS, alpha=alpha).tolist()
        powers = torch.tensor([alpha**d for d in range(positions)])
        polynomial = (ww.subgraph_polynomial(chain, SUBGRAPHS) @ powers).tolist()
        for nodes, relevance, by_polynomial in zip(SUBGRAPHS, ours, polynomial, strict=True):
            expected = reference.hooked_subgraph_relevance(
                hooked, lambda: hooked(x, edges)[0, 1], nodes, alpha, M, positions
            )
            assert relevance == pytest.approx(expected, abs=1e-11 * scale)
            assert by_polynomial == pytest.approx(expected, abs=1e-11 * scale)
            assert reference.subgraph_relevance(walks, nodes, alpha) == pytest.approx(expected, abs=1e-11 * scale)
    at_nodes = ww.node_relevance(chain, layer=1)
    for node in range(M):
        through = sum(r for walk, r in walks.items() if walk[1] == node)
        assert float(at_nodes[node]) == pytest.approx(through, abs=1e-11 * scale)
    return chain


@pytest.mark.parametrize("name", BUILDS)
def test_build_against_hooks(name, x):
    chain = check_against_hooks(BUILDS[name](), x, EDGES)
    assert {layer.route for layer in chain.layers} == {"closed form"}


@pytest.mark.parametrize("name", FALLBACKS)
def test_layer_without_closed_form_against_hooks(name, x):
    chain = check_against_hooks(FALLBACKS[name](), x, RING)
    by_autograd = name in ("NNConv", "ARMAConv", "MFConv")
    assert ("autograd" in {layer.route for layer in chain.layers}) == by_autograd


# Layers with attention or gates: the twin is the same layer with them detached.


class HeldTransformer(pyg.TransformerConv):
    def message(self, query_i, key_j, value_j, edge_attr, index, ptr, size_i):
        attention = softmax((query_i * key_j).sum(-1) / math.sqrt(self.out_channels), index, ptr, size_i)
        return value_j * attention.detach().unsqueeze(-1)


class HeldResGated(pyg.ResGatedGraphConv):
    def message(self, k_i, q_j, v_j, edge_attr):
        return self.act(k_i + q_j).detach() * v_j


class HeldCG(pyg.CGConv):
    def message(self, x_i, x_j, edge_attr):
        z = torch.cat([x_i, x_j], -1)
        s = self.lin_s(z)
        return self.lin_f(z).sigmoid().detach() * s * (F.softplus(s) / s).detach()


class HeldSoftmaxGEN(pyg.GENConv):
    def message(self, x_j, edge_attr):
        return x_j.relu() + self.eps

    def aggregate(self, inputs, index, dim_size=None):
        share = softmax(inputs, index, num_nodes=dim_size, dim=0).detach()
        return torch.zeros(dim_size, inputs.shape[1]).index_add(0, index, inputs * share)


GATED = {
    "TransformerConv": (pyg.TransformerConv, HeldTransformer, lambda c, i: c(i, 2, heads=2)),
    "TransformerConv-beta": (pyg.TransformerConv, HeldTransformer, lambda c, i: c(i, 4, concat=False)),
    "ResGatedGraphConv": (pyg.ResGatedGraphConv, HeldResGated, lambda c, i: c(i, 4)),
    "CGConv": (pyg.CGConv, HeldCG, lambda c, i: c(4)),
    "GENConv-softmax": (pyg.GENConv, HeldSoftmaxGEN, lambda c, i: c(i, 4)),
}


@pytest.mark.parametrize("name", GATED)
def test_attention_and_gates_are_held_constant(name, x):
    kind, held, make = GATED[name]

    def build(c):
        def run(m, x, e):
            return m.head(m.b(m.a(m.lin(x), e).relu(), e).sum(0, keepdim=True))

        return Model(run, lin=nn.Linear(3, 4), a=make(c, 4), b=make(c, 4), head=nn.Linear(4, 2))

    model, twin = build(kind), build(held)
    twin.load_state_dict(model.state_dict())
    chain = check_against_hooks(model, x, RING, twin)
    assert {layer.route for layer in chain.layers} == {"closed form"}
    assert chain.local


def test_schnet_interaction_conserves_relevance_walk_by_walk(x):
    """Continuous filters and shifted softplus: whatever the rule, walks add up to what subgraphs get."""
    pos = torch.randn(M, 3)

    def everyone(pos, batch):
        edges = torch.cartesian_prod(torch.arange(M), torch.arange(M)).t()
        edges = edges[:, edges[0] != edges[1]]
        return edges, (pos[edges[0]] - pos[edges[1]]).norm(dim=1)

    model = pyg.SchNet(8, 8, num_interactions=2, num_gaussians=4, interaction_graph=everyone).eval()
    z = torch.tensor([6, 1, 8, 7, 1])
    for rule in ("zero", "gamma"):
        chain = ww.trace(model, z, pos, rule=rule)
        walks = ww.enumerate_walks(chain)
        table = dict(zip(map(tuple, walks.tolist()), ww.walk_relevance(chain, walks).tolist(), strict=True))
        for alpha in (0.0, 0.4):
            ours = ww.subgraph_relevance(chain, SUBGRAPHS, alpha=alpha).tolist()
            expected = [reference.subgraph_relevance(table, nodes, alpha) for nodes in SUBGRAPHS]
            assert ours == pytest.approx(expected, abs=1e-10)
        assert not chain.straight  # h = h + interaction(h), read again by the output


def test_in_place_operations_are_followed(x):
    def in_place(m, x, e):
        h = m.a(x, e)
        h.relu_()
        h += 1.0
        h = F.leaky_relu(m.b(h, e), 0.1, True)
        h[:, 1] = h[:, 1] * 2
        h *= 2
        return m.head(h.sum(0, keepdim=True))

    def out_of_place(m, x, e):
        h = m.a(x, e).relu() + 1.0
        h = F.leaky_relu(m.b(h, e), 0.1)
        return m.head((h * torch.tensor([1.0, 2.0, 1.0, 1.0]) * 2).sum(0, keepdim=True))

    model = Model(in_place, a=conv(3, 4), b=conv(4, 4), head=nn.Linear(4, 2))
    twin = Model(out_of_place, a=model.a, b=model.b, head=model.head)
    for rule in ("zero", "gamma"):
        ours, theirs = (ww.trace(m, x, EDGES, target=1, rule=rule) for m in (model, twin))
        assert ours.output == pytest.approx(theirs.output)
        a, b = (ww.subgraph_relevance(c, SUBGRAPHS, alpha=[0.0, 0.5]) for c in (ours, theirs))
        assert torch.allclose(a, b, atol=1e-12)


def test_encoder_relevance_goes_on_to_the_input_features(x):
    model = Model(residual, lin=nn.Linear(3, 4, bias=False), a=conv(4, 4), b=conv(4, 4), head=nn.Linear(4, 2))
    chain = ww.trace(model, x, EDGES, target=1, rule="zero")
    features = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(model(features, EDGES)[0, 1], features)
    assert torch.allclose(ww.feature_relevance(chain), gradient * x, atol=1e-12)
    assert float(ww.feature_relevance(chain).sum()) == pytest.approx(chain.input_relevance, abs=1e-12)


def test_log_softmax_explains_the_logit(x):
    logits = Model(mlp_head, a=conv(3, 4), b=conv(4, 4), mlp=nn.Linear(4, 2))
    model = Model(lambda m, x, e: F.log_softmax(m.inner(x, e), -1), inner=logits)
    ours, theirs = (ww.trace(m, x, EDGES, target=1) for m in (model, logits))
    a, b = (ww.subgraph_relevance(c, SUBGRAPHS, alpha=[0.0, 0.5]) for c in (ours, theirs))
    assert torch.allclose(a, b, atol=1e-12)
    assert "log_softmax" in ours.report()
    assert ours.amplification == pytest.approx(theirs.amplification, rel=1e-12)
    assert [c.replace("logit", "output") for c in ours.cautions] == list(theirs.cautions)
