"""Every layer with a closed form, under every rule, against transitions written out and walks enumerated."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.nn import functional as F

import walkwise as ww
from walkwise import reference
from walkwise.questions import subgraphs
from walkwise.rules import AlphaBeta, Epsilon, Gamma, GeneralisedGamma, PositivePart, ZPlus, as_schedule
from walkwise.tracing.steps import locality

M = 5
# Directed, with a self-loop (3), edges given twice (2 -> 0) and an isolated node (4).
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 0, 3, 2, 2, 2], [1, 0, 2, 1, 3, 2, 2, 3, 0, 0, 1]])
SUBGRAPHS = [[0, 1], [2], [0, 2, 3], [], [0, 1, 2, 3, 4], [4, 1]]
EVERY_PAIR = torch.cartesian_prod(torch.arange(M), torch.arange(M)).t()


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(7)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def x():
    return torch.randn(M, 3)


def options(*names):
    count = EDGES.shape[1]
    every = {
        "edge_weight": torch.rand(count) + 0.1,
        "edge_attr": torch.randn(count, 2),
        "edge_type": torch.arange(count) % 2,
    }
    return {name: every[name] for name in names}


class Stack(nn.Module):
    """Convolutions with an activation between them, a sum over nodes and a linear head."""

    def __init__(self, convs, activation=F.relu):
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.activation = activation
        self.head = nn.Linear(4, 2)

    def forward(self, x, edge_index, **kwargs):
        for i, conv in enumerate(self.convs):
            x = self.activation(x) if i else x
            x = conv(x, edge_index, **kwargs)
        return self.head(x.sum(0, keepdim=True))


def with_biases(model):
    for name, parameter in model.named_parameters():
        if "bias" in name:
            nn.init.uniform_(parameter, -0.3, 0.3)
    return model.eval()


CONVS = {
    "GCN": (pyg.GCNConv, {}, ["edge_weight"]),
    "GCN-no-loops": (pyg.GCNConv, {"add_self_loops": False, "improved": True}, []),
    "GCN-plain": (pyg.GCNConv, {"normalize": False, "bias": False}, ["edge_weight"]),
    "GraphConv-sum": (pyg.GraphConv, {}, ["edge_weight"]),
    "GraphConv-mean": (pyg.GraphConv, {"aggr": "mean"}, ["edge_weight"]),
    "SAGE-mean": (pyg.SAGEConv, {}, []),
    "SAGE-sum": (pyg.SAGEConv, {"aggr": "sum", "root_weight": False}, []),
    "GAT": (lambda i, o, **k: pyg.GATConv(i, o // 2, heads=2, **k), {"edge_dim": 2}, ["edge_attr"]),
    "GAT-mean": (pyg.GATConv, {"heads": 3, "concat": False, "residual": True}, []),
    "GATv2": (lambda i, o, **k: pyg.GATv2Conv(i, o // 2, heads=2, **k), {"edge_dim": 2}, ["edge_attr"]),
    "GATv2-shared": (pyg.GATv2Conv, {"share_weights": True, "residual": True}, []),
    "LE": (pyg.LEConv, {}, ["edge_weight"]),
    "SG": (pyg.SGConv, {"K": 2}, ["edge_weight"]),
    "TAG": (pyg.TAGConv, {"K": 2}, ["edge_weight"]),
    "Cheb": (pyg.ChebConv, {"K": 3}, ["edge_weight"]),
    "RGCN": (pyg.RGCNConv, {"num_relations": 2}, ["edge_type"]),
    "RGCN-sum": (pyg.RGCNConv, {"num_relations": 2, "aggr": "sum", "root_weight": False}, ["edge_type"]),
}
#: Of these, the ones in which two weights join the same pair of neurons: αβ and z⁺ tell them apart, while a
#: transition written out as a whole cannot.
JOINED = {"GraphConv-sum", "GraphConv-mean", "SAGE-mean", "GAT-mean", "GATv2", "GATv2-shared", "LE", "TAG", "Cheb",
          "RGCN", "RGCN-sum"}  # fmt: skip
RULES = ["zero", "gamma", Gamma(2.0), Epsilon(0.1), GeneralisedGamma(3.0), AlphaBeta(2.0, 1.0), ZPlus(), PositivePart()]


def enumerated(model, x, rule, **kwargs):
    """Every walk's relevance by the paper's definition."""
    H, transitions = x, []
    rules = as_schedule(rule).rules(len(model.convs))
    with torch.no_grad():
        for i, conv in enumerate(model.convs):
            H = model.activation(H) if i else H
            frozen = reference.frozen_conv(conv, H, EDGES, **kwargs)
            transitions.append(reference.transition(frozen, H, rules[i]))
            H = conv(H, EDGES, **kwargs)
        return reference.all_walks(transitions, H * model.head.weight[1])


def check_all(chain, walks):
    """Every query on the chain, against the walks one by one."""
    scale = max(map(abs, walks.values()))

    def close(ours, theirs):
        assert torch.allclose(ours, torch.as_tensor(theirs), rtol=0, atol=1e-11 * scale)

    for alpha in (0.0, 0.3, 1.0):
        expected = [reference.subgraph_relevance(walks, nodes, alpha) for nodes in SUBGRAPHS]
        close(ww.subgraph_relevance(chain, SUBGRAPHS, alpha=alpha), expected)
        powers = torch.tensor([alpha**d for d in range(chain.num_layers + 1)])
        close(ww.subgraph_polynomial(chain, SUBGRAPHS) @ powers, expected)
    close(ww.walk_relevance(chain, list(walks)), list(walks.values()))
    listed = ww.enumerate_walks(chain)
    close(ww.walk_relevance(chain, listed).sum(), sum(walks.values()))
    assert {w for w, r in walks.items() if abs(r) > 1e-9 * scale} <= set(map(tuple, listed.tolist()))
    for position in range(chain.num_layers + 1):
        at = torch.zeros(M)
        for walk, relevance in walks.items():
            if walk[position] >= 0:
                at[walk[position]] += relevance
        close(ww.node_relevance(chain, layer=position), at)
    for layer in range(chain.num_layers):
        along = torch.zeros(M, M)
        for walk, relevance in walks.items():
            if min(walk[layer : layer + 2]) >= 0:
                along[walk[layer], walk[layer + 1]] += relevance
        close(ww.edge_relevance(chain, layer=layer, edge_index=EVERY_PAIR).view(M, M), along)


CASES = [(n, r) for n in CONVS for r in RULES if n not in JOINED or not as_schedule(r).rules(1)[0].splits]


@pytest.mark.parametrize(("name", "rule"), CASES, ids=str)
def test_layer_against_enumeration(name, rule, x):
    make, settings, arguments = CONVS[name]
    kwargs = options(*arguments)
    model = with_biases(Stack([make(3, 4, **settings), make(4, 4, **settings)]))
    chain = ww.trace(model, x, EDGES, target=1, rule=rule, **kwargs)
    assert [layer.route for layer in chain.layers] == ["closed form"] * 2
    check_all(chain, enumerated(model, x, rule, **kwargs))


@pytest.mark.parametrize("rule", [AlphaBeta(2.0, 1.0), ZPlus()], ids=repr)
def test_joined_weights_are_told_apart(rule, x):
    """Neighbours and root of a SAGEConv meet in a self-loop: their contributions keep their own signs."""
    conv = with_biases(pyg.SAGEConv(3, 4))
    neighbours = torch.zeros(M, M)
    for source, target in EDGES.t().tolist():
        neighbours[target, source] += 1
    neighbours /= neighbours.sum(1, keepdim=True).clamp(min=1)
    shares = rule.shares
    z = conv(x, EDGES)
    expected = torch.zeros(M, M)  # relevance from node m to node m', the output being Σ z
    for sign, share in ((1, shares[0]), (-1, shares[1])):
        paths = [
            torch.einsum("ba,an,kn->anbk", neighbours, x, conv.lin_l.weight),
            torch.einsum("ba,an,kn->anbk", torch.eye(M), x, conv.lin_r.weight),
        ]
        parts = [(sign * path).clamp(min=0) * sign for path in paths]
        bias = (sign * conv.lin_l.bias).clamp(min=0) * sign
        total = sum(part.sum((0, 1)) for part in parts) + bias
        if share:
            expected += share * (sum(parts) / total * z).sum((1, 3))
    model = nn.Module()
    model.conv = conv
    model.forward = lambda x, edge_index: model.conv(x, edge_index).sum().view(1, 1)
    chain = ww.trace(model, x, EDGES, rule=rule)
    assert torch.allclose(ww.edge_relevance(chain, layer=0, edge_index=EVERY_PAIR).view(M, M), expected, atol=1e-12)


ACTIVATIONS = [F.relu, F.leaky_relu, nn.PReLU(init=0.2), F.elu, F.gelu, nn.GELU("tanh"), F.silu, nn.SiLU(),
               torch.tanh, nn.Tanh(), torch.sigmoid, nn.LeakyReLU(0.3), nn.ELU(), F.mish, F.softplus]  # fmt: skip


@pytest.mark.parametrize("rule", ["zero", "gamma"])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda f: getattr(f, "__name__", None) or str(f))
def test_activation_passes_relevance_on_as_it_is(activation, rule, x):
    activation = activation.double() if isinstance(activation, nn.Module) else activation
    model = with_biases(Stack([pyg.GCNConv(3, 4), pyg.GCNConv(4, 4)], activation))
    check_all(ww.trace(model, x, EDGES, target=1, rule=rule), enumerated(model, x, rule))


@pytest.mark.parametrize(("edge", "rule"), [(False, r) for r in RULES] + [(True, r) for r in RULES[:4]], ids=str)
def test_gin_shares_the_first_denominator_over_neighbours(rule, edge, x):
    """GIN's first linear map and its aggregation are one stretch, its second linear map another."""

    def mlp(i):
        return nn.Sequential(nn.Linear(i, 6), nn.ReLU(), nn.Linear(6, 4))

    kwargs = {"edge_attr": torch.randn(EDGES.shape[1], 3)} if edge else {}
    convs = [pyg.GINEConv(mlp(3), eps=0.4)] if edge else [pyg.GINConv(mlp(3), eps=0.4), pyg.GINConv(mlp(4))]
    model = with_biases(Stack(convs))
    chain = ww.trace(model, x, EDGES, target=1, rule=rule, **kwargs)
    H, transitions = x, []
    with torch.no_grad():
        for i, (conv, r) in enumerate(zip(model.convs, as_schedule(rule).rules(len(convs)), strict=True)):
            H = F.relu(H) if i else H

            def first(values, lift, conv=conv, H=H):
                """Messages are on or off as they are at H; their sum goes to the first linear map."""
                total = (1 + conv.eps) * values
                for e, (source, target) in enumerate(EDGES.t().tolist()):
                    offset = kwargs["edge_attr"][e] if edge else torch.zeros(H.shape[1])
                    on = (H[source] + offset > 0) if edge else torch.ones(H.shape[1])
                    total = total.index_add(0, torch.tensor([target]), (on * (values[source] + offset))[None])
                return F.linear(total, lift(conv.nn[0].weight), lift(conv.nn[0].bias))

            one = reference.transition(first, H, r)
            hidden = conv.nn[:2](conv.propagate(EDGES, x=(H, H), **kwargs) + (1 + conv.eps) * H)
            two = reference.transition(reference.frozen_linear(conv.nn[2]), hidden, r)
            transitions.append(torch.einsum("anbk,bkcl->ancl", one, two))
            H = conv(H, EDGES, **kwargs)
        walks = reference.all_walks(transitions, H * model.head.weight[1])
    check_all(chain, walks)


# Subclasses that override ``message`` with the same thing, so that no closed form serves them.


class MyGCN(pyg.GCNConv):
    def message(self, x_j, edge_weight):
        return x_j if edge_weight is None else edge_weight.view(-1, 1) * x_j


class MyGraphConv(pyg.GraphConv):
    def message(self, x_j, edge_weight):
        return edge_weight.view(-1, 1) * x_j


class MySAGE(pyg.SAGEConv):
    def message(self, x_j):
        return x_j


class MyGAT(pyg.GATConv):
    def message(self, x_j, alpha):
        return alpha.unsqueeze(-1) * x_j


class MyGATv2(pyg.GATv2Conv):
    def message(self, x_j, alpha):
        return x_j * alpha.unsqueeze(-1)


class MyLE(pyg.LEConv):
    def message(self, a_j, b_i, edge_weight):
        return (a_j - b_i) * edge_weight.view(-1, 1)


class MyCheb(pyg.ChebConv):
    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class MyTAG(pyg.TAGConv):
    def message(self, x_j, edge_weight):
        return x_j * edge_weight[:, None]


class MySG(pyg.SGConv):
    def message(self, x_j, edge_weight):
        return edge_weight.view(-1, 1) * x_j


class MyGIN(pyg.GINConv):
    def message(self, x_j):
        return x_j


class MyGINE(pyg.GINEConv):
    def message(self, x_j, edge_attr):
        return torch.relu(x_j + self.lin(edge_attr))


class MyRGCN(pyg.RGCNConv):
    def message(self, x_j, edge_type_ptr):
        return x_j


MINE = {kind.__mro__[1]: kind for kind in (MyGCN, MyGraphConv, MySAGE, MyGAT, MyGATv2, MyLE, MyCheb, MyTAG, MySG,
                                           MyGIN, MyGINE, MyRGCN)}  # fmt: skip


def mlp_with_norm(i, o):
    return nn.Sequential(nn.Linear(i, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, o))


TWINS = {
    "GCN": (pyg.GCNConv, lambda c, i, o: c(i, o), ["edge_weight"]),
    "GraphConv": (pyg.GraphConv, lambda c, i, o: c(i, o, aggr="mean"), ["edge_weight"]),
    "SAGE": (pyg.SAGEConv, lambda c, i, o: c(i, o, project=True, normalize=True), []),
    "GAT": (pyg.GATConv, lambda c, i, o: c(i, o // 2, heads=2, edge_dim=2), ["edge_attr"]),
    "GAT-mean": (pyg.GATConv, lambda c, i, o: c(i, o, heads=2, concat=False, residual=True), []),
    "GATv2": (pyg.GATv2Conv, lambda c, i, o: c(i, o // 2, heads=2), []),
    "LE": (pyg.LEConv, lambda c, i, o: c(i, o), ["edge_weight"]),
    "Cheb": (pyg.ChebConv, lambda c, i, o: c(i, o, K=3), ["edge_weight"]),
    "TAG": (pyg.TAGConv, lambda c, i, o: c(i, o, K=2), ["edge_weight"]),
    "SG": (pyg.SGConv, lambda c, i, o: c(i, o, K=2), ["edge_weight"]),
    "GIN": (pyg.GINConv, lambda c, i, o: c(mlp_with_norm(i, o), eps=0.3, train_eps=True), []),
    "GINE": (pyg.GINEConv, lambda c, i, o: c(mlp_with_norm(i, o), edge_dim=2), ["edge_attr"]),
    "RGCN": (pyg.RGCNConv, lambda c, i, o: c(i, o, 2, num_bases=2), ["edge_type"]),
    "RGCN-blocks": (pyg.RGCNConv, lambda c, i, o: c(i, o, 2, num_blocks=1), ["edge_type"]),
}

#: Layers without a form of their own: what they do edge by edge is put together as sums over edges.
DEGREES = torch.tensor([0, 1, 2, 1])
BY_EDGES = {
    "Transformer": (lambda i, o: pyg.TransformerConv(i, o // 2, heads=2, edge_dim=2), ["edge_attr"]),
    "Transformer-beta": (lambda i, o: pyg.TransformerConv(i, o, heads=2, concat=False, beta=True), []),
    "Transformer-rootless": (lambda i, o: pyg.TransformerConv(i, o, root_weight=False), []),
    "GEN-softmax": (lambda i, o: pyg.GENConv(i, o, edge_dim=2), ["edge_attr"]),
    "GEN-powermean": (lambda i, o: pyg.GENConv(i, o, aggr="powermean"), []),
    "ResGated": (pyg.ResGatedGraphConv, []),
    "PNA": (lambda i, o: pyg.PNAConv(i, o, ["mean", "sum", "max", "min"], ["identity", "amplification"], DEGREES), []),
    "PNA-std": (lambda i, o: pyg.PNAConv(i, o, ["mean", "std"], ["identity"], DEGREES), []),
    "CG": (lambda i, o: pyg.CGConv(i, 2), ["edge_attr"]),
    "SAGE-max": (lambda i, o: pyg.SAGEConv(i, o, aggr="max"), []),
    "FeaSt": (lambda i, o: pyg.FeaStConv(i, o, heads=2), []),
    "General": (pyg.GeneralConv, []),
    "EdgeConv": (lambda i, o: pyg.EdgeConv(mlp_with_norm(2 * i, o), aggr="max"), []),
    "NN": (lambda i, o: pyg.NNConv(i, o, nn.Linear(2, i * o)), ["edge_attr"]),
}


def leave_rows_of_edges(monkeypatch):
    """Let chains be written as recorded, with a row for every edge of the graph."""
    monkeypatch.setattr(locality, "summed", lambda steps, *_: list(steps))
    for rewriting in ("at_home", "row_by_row"):
        monkeypatch.setattr(locality, rewriting, lambda *_: None)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("name", BY_EDGES)
def test_sums_over_edges_say_what_rows_of_edges_say(name, rule, x, monkeypatch):
    make, arguments = BY_EDGES[name]
    kwargs = options(*arguments)
    width = 3 if name == "CG" else 4
    model = with_norms(with_biases(Stack([make(3, width), make(width, width)])))
    model.head = nn.Linear(width, 2)
    short = ww.trace(model, x, EDGES, target=1, rule=rule, **kwargs)
    leave_rows_of_edges(monkeypatch)
    long = ww.trace(model, x, EDGES, target=1, rule=rule, **kwargs)
    assert not long.local
    assert short.local
    assert {layer.route for layer in short.layers} == {"autograd" if name == "NN" else "closed form"}
    monkeypatch.setattr(subgraphs, "_FEW_ROWS", 0)
    walks = ww.enumerate_walks(long)
    scale = float(ww.walk_relevance(long, walks).abs().sum())
    for query in (
        lambda c: ww.subgraph_relevance(c, SUBGRAPHS, alpha=[0.0, 0.4]),
        lambda c: ww.subgraph_polynomial(c, SUBGRAPHS),
        lambda c: ww.walk_relevance(c, walks),
        lambda c: ww.node_relevance(c, layer=1),
        lambda c: ww.edge_relevance(c, layer=0, edge_index=EVERY_PAIR),
        lambda c: ww.top_walks(c, k=1000).relevance.sum(),
        lambda c: ww.feature_relevance(c),
    ):
        assert torch.allclose(query(short), query(long), rtol=0, atol=1e-11 * scale)


def with_norms(model):
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            for tensor in (module.weight, module.bias, module.running_mean):
                nn.init.uniform_(tensor, -1, 1)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return model


class Normalised(Stack):
    def __init__(self, convs, norm):
        super().__init__(convs)
        self.norm = norm

    def forward(self, x, edge_index, **kwargs):
        x = self.norm(self.convs[0](x, edge_index, **kwargs)).relu()
        return self.head(self.convs[1](x, edge_index, **kwargs).sum(0, keepdim=True))


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("norm", [nn.Identity, nn.BatchNorm1d, nn.LayerNorm, pyg.GraphNorm])
@pytest.mark.parametrize("name", TWINS)
def test_rows_of_edges_give_what_the_closed_form_gives(name, norm, rule, x, monkeypatch):
    kind, make, arguments = TWINS[name]
    kwargs = options(*arguments)
    closed = with_norms(with_biases(Normalised([make(kind, 3, 4), make(kind, 4, 4)], norm(4))))
    mine = MINE[kind]
    asked = Normalised([make(mine, 3, 4), make(mine, 4, 4)], norm(4)).eval()
    asked.load_state_dict(closed.state_dict())
    leave_rows_of_edges(monkeypatch)
    chains = [ww.trace(model, x, EDGES, target=1, rule=rule, **kwargs) for model in (closed, asked)]
    assert not chains[1].local
    if name != "RGCN-blocks":
        assert {layer.route for layer in chains[0].layers} == {"closed form"}
    scale = ww.walk_relevance(chains[0], ww.enumerate_walks(chains[0])).abs().sum()
    for query in (
        lambda c: ww.subgraph_relevance(c, SUBGRAPHS, alpha=[0.0, 0.4]),
        lambda c: ww.subgraph_relevance(c, SUBGRAPHS, alpha=0.7),
        lambda c: ww.subgraph_polynomial(c, SUBGRAPHS),
        lambda c: ww.node_relevance(c, layer=1),
        lambda c: ww.edge_relevance(c),
        lambda c: ww.feature_relevance(c),
    ):
        ours, theirs = (query(chain) for chain in chains)
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-11 * float(scale))


@pytest.mark.parametrize("rule", ["zero", "gamma", Gamma(2.0), Epsilon(0.1), AlphaBeta(2.0, 1.0)], ids=repr)
def test_batch_norm_is_folded(rule, x):
    """A convolution and its batch normalisation are one linear map with scaled weights."""
    model = with_norms(with_biases(Normalised([pyg.GCNConv(3, 4), pyg.GCNConv(4, 4)], nn.BatchNorm1d(4))))
    scale = model.norm.weight / (model.norm.running_var + model.norm.eps).sqrt()
    assert (scale < 0).any()
    assert (scale > 0).any()
    folded = with_biases(Stack([pyg.GCNConv(3, 4), pyg.GCNConv(4, 4)]))
    with torch.no_grad():
        folded.load_state_dict(model.state_dict(), strict=False)
        folded.convs[0].lin.weight.mul_(scale[:, None])
        folded.convs[0].bias.sub_(model.norm.running_mean).mul_(scale).add_(model.norm.bias)
    check_all(ww.trace(model, x, EDGES, target=1, rule=rule), enumerated(folded, x, rule))


@pytest.mark.parametrize("make", [nn.LayerNorm, pyg.GraphNorm, pyg.LayerNorm], ids=lambda c: c.__module__)
def test_statistics_of_a_normalisation_are_constant(make, x):
    model = with_biases(Normalised([pyg.GCNConv(3, 4), pyg.GCNConv(4, 4)], make(4)))
    nn.init.uniform_(model.norm.weight, 0.5, 2)
    with torch.no_grad():
        Z = model.convs[0](x, EDGES)
        if isinstance(model.norm, pyg.GraphNorm):
            centred = Z - Z.mean(0) * model.norm.mean_scale
            mean, std = Z.mean(0) * model.norm.mean_scale, (centred.pow(2).mean(0) + model.norm.eps).sqrt()
        elif isinstance(model.norm, pyg.LayerNorm):
            mean, std = Z.mean(), Z.std(unbiased=False) + model.norm.eps
        else:
            mean, std = Z.mean(1, True), (Z.var(1, unbiased=False, keepdim=True) + model.norm.eps).sqrt()

        def norm(values, lift):
            return (values - mean) / std * model.norm.weight + model.norm.bias

        assert torch.allclose(norm(Z, None), model.norm(Z))
        first = reference.transition(reference.frozen_conv(model.convs[0], x, EDGES), x, Gamma(3.0))
        through = reference.transition(norm, Z, ww.rules.Zero())
        H = model.norm(Z).relu()
        second = reference.transition(reference.frozen_conv(model.convs[1], H, EDGES), H, Gamma(0.0))
        last = model.convs[1](H, EDGES) * model.head.weight[1]
        walks = reference.all_walks([torch.einsum("anbk,bkcl->ancl", first, through), second], last)
    check_all(ww.trace(model, x, EDGES, target=1, rule="gamma"), walks)


@pytest.mark.parametrize("layout", ["csr", "coo"])
@pytest.mark.parametrize("kind", [pyg.GCNConv, pyg.SAGEConv, pyg.GraphConv])
def test_sparse_adjacency_gives_what_edges_give(kind, layout, x):
    model = with_biases(Stack([kind(3, 4), kind(4, 4)]))
    edges = EDGES.unique(dim=1)
    edges = edges[:, edges[0] != edges[1]]  # PyG treats self-loops of a sparse adjacency in another way
    adjacency = torch.zeros(M, M).index_put((edges[1], edges[0]), torch.ones(edges.shape[1]))  # rows are targets
    adjacency = adjacency.to_sparse_csr() if layout == "csr" else adjacency.to_sparse()
    dense, sparse = (ww.trace(model, x, form, target=1) for form in (edges, adjacency))
    assert sparse.output == pytest.approx(dense.output, abs=1e-12)
    ours, theirs = (ww.subgraph_relevance(c, SUBGRAPHS, alpha=[0.0, 0.5]) for c in (sparse, dense))
    assert torch.allclose(ours, theirs, atol=1e-12)


def test_messages_can_flow_against_the_edges(x):
    forward = with_biases(Stack([pyg.GCNConv(3, 4), pyg.GCNConv(4, 4)]))
    backward = Stack([pyg.GCNConv(3, 4, flow="target_to_source"), pyg.GCNConv(4, 4, flow="target_to_source")]).eval()
    backward.load_state_dict(forward.state_dict())
    chains = ww.trace(forward, x, EDGES, target=1), ww.trace(backward, x, EDGES.flip(0), target=1)
    ours, theirs = (ww.subgraph_relevance(c, SUBGRAPHS, alpha=[0.0, 0.5]) for c in chains)
    assert torch.allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("scale", [(1.5, -0.7, 0.4, -2.0), (-1.5, -0.7, -0.4, -2.0)], ids=["some turned", "all turned"])
def test_batch_norm_is_folded_into_a_weight_of_every_edge(scale, x):
    """Where it turns a neuron over, the weight is lifted with its sign turned over, whatever made the weight."""
    attributes, scale = torch.randn(EDGES.shape[1], 2), torch.tensor(scale)
    conv, norm = with_biases(pyg.NNConv(3, 4, nn.Linear(2, 12))), nn.BatchNorm1d(4).eval()
    norm.weight.data, norm.bias.data = scale * (1 + norm.eps) ** 0.5, torch.randn(4)
    folded = pyg.NNConv(3, 4, nn.Linear(2, 12))
    with torch.no_grad():
        folded.nn.weight.copy_(conv.nn.weight * scale.repeat(3)[:, None])
        folded.nn.bias.copy_(conv.nn.bias * scale.repeat(3))
        folded.lin.weight.copy_(conv.lin.weight * scale[:, None])
        folded.bias.copy_(conv.bias * scale + norm.bias)

    class Activated(nn.Module):
        def __init__(self, *layers):
            super().__init__()
            self.layers = nn.ModuleList(layers)

        def forward(self, x, edge_index, edge_attr):
            h = self.layers[0](x, edge_index, edge_attr)
            for layer in self.layers[1:]:
                h = layer(h)
            return h.tanh().sum().view(1, 1)

    ours, theirs = (
        ww.trace(Activated(*layers), x, EDGES, edge_attr=attributes, rule=Gamma(2.0))
        for layers in ((conv, norm), (folded,))
    )
    assert ours.output == pytest.approx(theirs.output)
    relevance = (ww.edge_relevance(chain, layer=0, edge_index=EVERY_PAIR) for chain in (ours, theirs))
    torch.testing.assert_close(*relevance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_sets_without_edges_between_their_nodes(count, x):
    """Attention by heads: nothing comes along no edges, however many sets are asked for at once."""
    convs = [pyg.GATConv(i, 2, heads=2, add_self_loops=False) for i in (3, 4)]
    chain = ww.trace(with_biases(Stack(convs)), x, EDGES, target=1)
    assert ww.subgraph_relevance(chain, [[0], [4], [1], []] * count).tolist() == [0.0] * 4 * count
    assert ww.walk_relevance(chain, [[0, 0, 0]]).tolist() == [0.0]
