"""Curves, fidelity and motif scores: against the definitions, and against the authors' published figures."""

import copy

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from sklearn.metrics import roc_auc_score
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GATConv, GCNConv, GINEConv, SGConv, SSGConv, global_add_pool
from torch_geometric.utils import remove_self_loops, subgraph, to_undirected

import walkwise as ww
from authors import ba2motif, golden, load, mutag, needs_golden
from walkwise import evaluation as ev
from walkwise.errors import InputError
from walkwise.evaluation.parts import subgraph_values
from walkwise.evaluation.predictions import predict
from walkwise.search.orders import order_nodes


class Classifier(nn.Module):
    def __init__(self, columns=3, **conv):
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(4, 8, **conv), GCNConv(8, 8, **conv)])
        self.head = nn.Linear(8, columns)

    def forward(self, x, edge_index, edge_weight=None, batch=None):
        for conv in self.convs:
            x = conv(x, edge_index, edge_weight).relu()
        return self.head(global_add_pool(x, batch))


class WithoutBatch(Classifier):
    def forward(self, x, edge_index, edge_weight=None):
        return super().forward(x, edge_index, edge_weight)


class BatchIgnored(Classifier):
    def forward(self, x, edge_index, edge_weight=None, batch=None):
        return super().forward(x, edge_index, edge_weight)


class Mixing(Classifier):
    """Gives one row per graph, but what a graph gets depends on its neighbours in the batch."""

    def forward(self, x, edge_index, edge_weight=None, batch=None):
        return super().forward(x - x.mean(0), edge_index, edge_weight, batch)


def graph(M=9, seed=0, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    pairs = torch.randint(0, M, (2, 2 * M), generator=rng)
    edge_index = to_undirected(remove_self_loops(pairs)[0], num_nodes=M)
    weight = torch.rand(edge_index.shape[1], generator=rng, dtype=dtype) + 0.5
    return Data(torch.randn(M, 4, generator=rng, dtype=dtype), edge_index, edge_weight=weight)


def made(kind, **kwargs):
    torch.manual_seed(1)
    return kind(**kwargs).double()


def slow_values(model, data, sets, target):
    """f of each node set, by PyG's own subgraph."""
    values = []
    for nodes in sets:
        index = torch.tensor(sorted(nodes))
        edges, weight = subgraph(index, data.edge_index, data.edge_weight, relabel_nodes=True, num_nodes=data.num_nodes)
        with torch.no_grad():
            values.append(model.eval()(data.x[index], edges, weight)[0, target])
    return torch.stack(values)


def test_a_known_route_is_not_tried_again(monkeypatch):
    data = graph(5)
    masks = torch.rand(6, 5, generator=torch.Generator().manual_seed(0)) < 0.7
    for kind, route in [(Classifier, "batched"), (Mixing, "one by one")]:
        prediction = predict(made(kind), data, target=0)
        first = subgraph_values(prediction, masks)
        assert first.route == route
        with monkeypatch.context() as patch:
            patch.setattr("walkwise.evaluation.parts._mixes", None)  # cannot be called
            again = subgraph_values(prediction, masks, route=route)
        assert torch.equal(again.values, first.values)
        assert again.route == route


@pytest.mark.parametrize(
    ("kind", "route"),
    [(Classifier, "batched"), (WithoutBatch, "one by one"), (BatchIgnored, "one by one"), (Mixing, "one by one")],
)
def test_curves_follow_the_definition_whatever_the_route(kind, route):
    model, data = made(kind), graph()
    order = torch.randperm(9, generator=torch.Generator().manual_seed(3)).tolist()
    expected = slow_values(model, data, [order[: i + 1] for i in range(9)], 1)
    curve = ev.activation_curve(model, data, order, target=1)
    assert curve.route == route
    torch.testing.assert_close(curve.values, expected)
    assert curve.area == pytest.approx(float(expected.mean()))

    rest = slow_values(model, data, [order[i:] for i in range(9)], 1)
    pruned = ev.pruning_curve(model, data.x, data.edge_index, order, target=1, edge_weight=data.edge_weight)
    torch.testing.assert_close(pruned.values, (rest - expected[-1]).abs())


@given(st.integers(2, 12), st.integers(0, 50), st.sampled_from(["logit", "probability"]))
@settings(max_examples=25, deadline=None)
def test_curves_start_and_end_where_they_must(M, seed, on):
    model, data = made(Classifier), graph(M, seed)
    order = torch.randperm(M, generator=torch.Generator().manual_seed(seed))
    whole = predict(model, data, target=0).value(on)
    activation = ev.activation_curve(model, data, order, target=0, on=on).values
    pruning = ev.pruning_curve(model, data, order, target=0, on=on).values
    assert activation.shape == pruning.shape == (M,)
    assert float(activation[-1]) == pytest.approx(whole)
    assert float(pruning[0]) == 0
    assert (pruning >= 0).all()
    # What is left at the end of pruning is where the activation of the reversed order begins.
    backwards = ev.activation_curve(model, data, order.flip(0), target=0, on=on).values
    assert float(pruning[-1]) == pytest.approx(abs(whole - float(backwards[0])))


@given(st.integers(0, 50))
@settings(max_examples=15, deadline=None)
def test_renaming_the_nodes_changes_nothing(seed):
    model, data = made(Classifier), graph(8, seed)
    rng = torch.Generator().manual_seed(seed + 1)
    order, name = torch.randperm(8, generator=rng), torch.randperm(8, generator=rng)  # node m is called name[m]
    renamed = Data(data.x[name.argsort()], name[data.edge_index], edge_weight=data.edge_weight)
    curve = ev.activation_curve(model, data, order, target=2)
    torch.testing.assert_close(ev.activation_curve(model, renamed, name[order], target=2).values, curve.values)


def test_chunks_do_not_change_the_values():
    model, data = made(Classifier), graph()
    prediction = predict(model, data, target=0)
    masks = torch.rand(40, 9, generator=torch.Generator().manual_seed(0)) < 0.5
    masks[7] = False
    once = subgraph_values(prediction, masks).values
    for most_rows in (1, 100, 333):
        torch.testing.assert_close(subgraph_values(prediction, masks, most_rows=most_rows).values, once)
    first = subgraph_values(prediction, masks[7:])
    assert first.route == "batched"
    torch.testing.assert_close(first.values, once[7:])
    assert float(once[7]) == 0  # of no nodes at all, every logit is 0
    assert float(subgraph_values(prediction, masks, on="probability").values[7]) == pytest.approx(1 / 3)


def test_edge_attributes_and_graph_attributes_are_carried_along():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GINEConv(nn.Linear(4, 4), edge_dim=3)

        def forward(self, x, edge_index, edge_attr, pos, u, batch):
            x = self.conv(x, edge_index, edge_attr) * pos
            return global_add_pool(x, batch) + u

    model, data = made(Model), graph()
    data.edge_attr = torch.randn(data.num_edges, 3, dtype=torch.float64)
    data.pos, data.u = torch.randn(9, 1, dtype=torch.float64), torch.randn(1, 4, dtype=torch.float64)
    order = list(range(9))
    batched = ev.activation_curve(model, data, order, target=0)
    assert batched.route == "batched"
    for i, value in enumerate(batched.values):
        part = data.subgraph(torch.arange(i + 1))
        zeros = torch.zeros(i + 1, dtype=torch.long)
        with torch.no_grad():
            expected = model(part.x, part.edge_index, part.edge_attr, part.pos, part.u, zeros)[0, 0]
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("batch", [True, False])
def test_node_level_models_keep_the_explained_node(batch):
    class NodeLevel(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GATConv(4, 2)

        def forward(self, x, edge_index, **kwargs):
            return self.conv(x, edge_index)

    data = graph()
    model = GCN(4, 8, 2, out_channels=2).double() if batch else made(NodeLevel)
    order = [0, 1, 2, 3, 5, 6, 7, 8, 4]
    curve = ev.activation_curve(model, data.x, data.edge_index, order, target=1, index=4)
    assert curve.route == ("batched" if batch else "one by one")
    for i, value in enumerate(curve.values):
        nodes = torch.tensor(sorted({*order[: i + 1], 4}))
        edges, _ = subgraph(nodes, data.edge_index, relabel_nodes=True, num_nodes=9)
        with torch.no_grad():
            expected = model.eval()(data.x[nodes], edges)[int((nodes == 4).nonzero()), 1]
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("conv", [None, SGConv, lambda *sizes, cached: SSGConv(*sizes, alpha=0.1, cached=cached)])
def test_caches_of_layers_do_not_answer_for_subgraphs(conv):
    model, data = made(Classifier, cached=True).eval(), graph()
    if conv is not None:
        model.convs[0] = conv(4, 8, cached=True).double()
    fresh = copy.deepcopy(model)
    with torch.no_grad():
        model(data.x, data.edge_index, data.edge_weight)
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    curve = ev.activation_curve(model, data, list(range(9)), target=0)
    torch.testing.assert_close(curve.values, ev.activation_curve(fresh, data, list(range(9)), target=0).values)
    for name, module in model.named_modules():
        assert all(module.__dict__[key] is value for key, value in before[name].items())


def test_a_callable_target_and_a_training_model():
    model, data = made(Classifier).train(), graph()
    order = list(range(9))
    difference = ev.activation_curve(model, data, order, target=lambda out: out[0, 0] - out[0, 1])
    parts = [ev.activation_curve(model, data, order, target=column).values for column in (0, 1)]
    torch.testing.assert_close(difference.values, parts[0] - parts[1])
    contrast = ev.activation_curve(model, data, order, target=0, against=1)
    torch.testing.assert_close(contrast.values, difference.values)
    contrast = ev.pruning_curve(model, data, order, target=0, against=1)
    wanted = ev.pruning_curve(model, data, order, target=lambda out: out[0, 0] - out[0, 1])
    torch.testing.assert_close(contrast.values, wanted.values)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_fidelity_by_hand():
    model, data = made(Classifier), graph()
    nodes = [0, 2, 5]
    prediction = predict(model, data, target=1)
    rest = [m for m in range(9) if m not in nodes]
    alone, without = slow_values(model, data, [nodes, rest], 1)
    plus = ev.fidelity_plus(model, data, nodes, target=1, on="logit")
    minus = ev.fidelity_minus(model, data, nodes, target=1, on="logit")
    assert plus == pytest.approx(prediction.value() - float(without))
    assert minus == pytest.approx(prediction.value() - float(alone))
    other = [measure(model, data, nodes, target=0, on="logit") for measure in (ev.fidelity_plus, ev.fidelity_minus)]
    contrasts = {"target": 1, "against": 0, "on": "logit"}
    assert ev.fidelity_plus(model, data, nodes, **contrasts) == pytest.approx(plus - other[0])
    assert ev.fidelity_minus(model, data, nodes, **contrasts) == pytest.approx(minus - other[1])
    assert ev.fidelity_minus(model, data, list(range(9)), target=1) == pytest.approx(0)
    assert ev.fidelity_plus(model, data, [], target=1) == pytest.approx(0)
    assert ev.fidelity_plus(model, data, list(range(9)), target=1, on="logit") == pytest.approx(prediction.value())


@given(st.integers(2, 30).flatmap(lambda M: st.tuples(st.just(M), st.integers(1, M - 1), st.integers(0, 1000))))
@settings(max_examples=50, deadline=None)
def test_the_truth_itself_scores_one(case):
    M, size, seed = case
    rng = np.random.default_rng(seed)
    motif = rng.permutation(M)[:size]
    truth = torch.zeros(M, dtype=torch.bool)
    truth[motif] = True
    assert ev.motif_auroc(truth.double(), motif.tolist()) == 1
    assert ev.motif_auroc(-truth.double(), truth) == 0
    order = truth.double().argsort(descending=True)
    assert ev.motif_accuracy(order, truth) == 1
    assert ev.motif_auroc(ev.scores_of_order(order), truth) == 1
    scores = rng.integers(0, 4, M)  # with ties
    assert ev.motif_auroc(scores, truth) == pytest.approx(roc_auc_score(truth.numpy(), scores))
    other = torch.roll(truth, 1)
    best = max(ev.motif_auroc(scores, truth), ev.motif_auroc(scores, other))
    assert ev.motif_auroc(scores, torch.stack([truth, other])) == best
    assert ev.motif_auroc(scores, [truth.nonzero()[:, 0].tolist(), other.nonzero()[:, 0].tolist()]) == best


def test_sparsity():
    assert ev.sparsity([], 4) == 1
    assert ev.sparsity(torch.ones(4, dtype=torch.bool), 4) == 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m, d: ev.activation_curve(m, d, [0, 1]), "each of the nodes 0 to 8 once"),
        (lambda m, d: ev.activation_curve(m, d, [0] * 9), "each of the nodes 0 to 8 once"),
        (lambda m, d: ev.activation_curve(m, d, list(range(9)), on="score"), '"logit" or "probability"'),
        (lambda m, d: ev.activation_curve(m, d, list(range(9)), target=3), "out of range"),
        (lambda m, d: ev.activation_curve(m, list(range(9))), "as one Data object"),
        (lambda m, d: ev.fidelity_plus(m, d, [9]), "nodes must be node ids from 0 to 8"),
        (lambda m, d: ev.activation_curve(m, d, list(range(9)), batch=torch.arange(9)), "one graph at a time"),
        (
            lambda m, d: ev.activation_curve(m, d.x.float(), d.edge_index, range(9)),
            r"x is torch\.float32 .* torch\.float64",
        ),
        (lambda m, d: ev.activation_curve(m, d.x.to_sparse(), d.edge_index, range(9)), r"Give x\.to_dense\(\)"),
        (lambda m, d: ev.activation_curve(m, Data(d.x, adj_t=torch.eye(9).to_sparse()), range(9)), "ToSparseTensor"),
        (lambda m, d: ev.motif_accuracy([0, 1], []), "at least one node"),
        (lambda m, d: ev.motif_auroc([0, 1], [0, 1]), "whole graph"),
        (lambda m, d: ev.activation_curve(m, d.x, d.edge_index, None), "each of the nodes 0 to 8 once, got None"),
        (lambda m, d: ev.activation_curve(m, d, "abcd"), "each of the nodes 0 to 8 once, got 'abcd'"),
        (lambda m, d: ev.pruning_curve(m, d, None), "each of the nodes 0 to 8 once, got None"),
        (lambda m, d: ev.activation_curve(m), r"and then order, got \(\)"),
        (lambda m, d: ev.pruning_curve(m, d), r"and then order, got \(Data\)"),
        (lambda m, d: ev.activation_curve(m, d.x, d.edge_index), r"and then order, got \(Tensor, Tensor\)"),
        (lambda m, d: ev.fidelity_plus(m), r"and then nodes, got \(\)"),
        (lambda m, d: ev.fidelity_minus(m, d, None), "node ids from 0 to 8, or a boolean mask of shape .9,., got None"),
        (lambda m, d: ev.fidelity_plus(m, d, "ab"), "got 'ab'"),
        (lambda m, d: ev.motif_accuracy(None, [0]), "every node once, such as .*, got None"),
        (lambda m, d: ev.scores_of_order("abc"), "every node once, such as .*, got 'abc'"),
        (lambda m, d: ev.scores_of_order([[0, 1]]), "each of the nodes 0 to 1 once"),
        (lambda m, d: ev.motif_accuracy([1, 0], None), "motif must be node ids from 0 to 1, .*, got None"),
        (lambda m, d: ev.motif_accuracy([1, 0], 1), "motif must be node ids from 0 to 1, .*, got 1"),
        (lambda m, d: ev.motif_auroc([0.5, 1], {0}), r"got \{0\}"),
        (lambda m, d: ev.motif_auroc("ab", [0]), "a number for every node"),
        (lambda m, d: ev.motif_auroc(0.5, [0]), r"a number for every node, of shape \(M,\), got .* \(\)"),
    ],
)
def test_errors_say_what_was_expected(call, says):
    with pytest.raises(InputError, match=says):
        call(made(Classifier), graph())


def test_node_ids_may_be_short():
    model, data = made(Classifier), graph()
    expected = ev.activation_curve(model, data, range(9)).values
    data.edge_index = data.edge_index.int()
    torch.testing.assert_close(ev.activation_curve(model, data, range(9)).values, expected)


def test_scores_must_be_numbers():
    with pytest.raises(InputError, match="NaN"):
        ev.motif_auroc([1.0, float("nan"), 0.0], [0])


# --- The authors' published figures ---------------------------------------------------------------


def chain_of(model, data):
    batch = torch.zeros(data.num_nodes, dtype=torch.long)
    return ww.trace(model, data.x, data.edge_index, target=data.y, batch=batch, rule="gamma")


def mutag_areas(alpha, every=1):
    """AUAC and AUPC of the authors' model, the mean over the graphs of each label."""
    model = load("gin-3-mutag")
    areas = {"auac_pos": [], "auac_neg": [], "aupc_pos": [], "aupc_neg": []}
    for data in mutag()[::every]:
        chain, sign = chain_of(model, data), "pos" if data.y == 0 else "neg"
        activation = ev.activation_curve(model, data, order_nodes(chain, mode="activation", alpha=alpha), target=data.y)
        pruning = ev.pruning_curve(model, data, order_nodes(chain, mode="pruning", alpha=alpha), target=data.y)
        areas[f"auac_{sign}"].append(activation.area)
        areas[f"aupc_{sign}"].append(pruning.area)
    return {name: sum(values) / len(values) for name, values in areas.items()}


@needs_golden
@pytest.mark.slow
def test_mutag_areas_are_the_published_ones():
    published = golden("published")
    found = mutag_areas(0.0)
    for name, value in (published["mutag_auac"]["0.00"] | published["mutag_aupc"]["0.00"]).items():
        assert found[name] == pytest.approx(value, abs=0.03), name


def ba2motif_figures(alpha, numbers):
    model = load("gin-3-ba2motif")
    found = []
    for data in (ba2motif()[i] for i in numbers):
        order, motif = order_nodes(chain_of(model, data), mode="activation", alpha=alpha), list(range(20, 25))
        curve = ev.activation_curve(model, data, order, target=data.y, on="probability")
        found.append((ev.motif_accuracy(order, motif), ev.motif_auroc(ev.scores_of_order(order), motif), curve.area))
    return dict(zip(("acc", "auc", "auac"), np.mean(found, axis=0), strict=True))


@needs_golden
@pytest.mark.slow
def test_ba2motif_figures_are_the_published_ones():
    published = golden("published")["ba2motif_gin3"]["0.00"]
    found = ba2motif_figures(0.0, [*range(400, 500), *range(900, 1000)])
    for name, value in found.items():
        assert value == pytest.approx(published[name], abs=6e-4), name


@pytest.mark.parametrize("said", [{"target": 0}, {"target": 2, "against": 1}, {}], ids=["one", "contrast", "largest"])
def test_a_curve_measures_what_its_order_explains(said):
    data, model = graph(), made(Classifier)
    chain = ww.trace(model, data, **said)
    orders = order_nodes(chain, alpha=[0.0, 0.5])
    for order in (order_nodes(chain), orders[1], *orders):
        curve, pruned = ev.activation_curve(model, data, order), ev.pruning_curve(model, data, order)
        assert float(curve.values[-1]) == pytest.approx(chain.output)
        torch.testing.assert_close(curve.values, ev.activation_curve(model, data, order.tolist(), **said).values)
        torch.testing.assert_close(pruned.values, ev.pruning_curve(model, data, order.tolist(), **said).values)
    other = ev.activation_curve(model, data, order, target=1)
    assert other.target == "output 1"
    torch.testing.assert_close(other.values, ev.activation_curve(model, data, order.tolist(), target=1).values)


@pytest.mark.parametrize("size", [9, 3000], ids=["small", "a part of a large graph"])
def test_a_curve_of_a_node_takes_the_node_of_the_chain(size):
    torch.manual_seed(0)
    model, edges = GCN(4, 8, num_layers=2, out_channels=3).double(), graph(9).edge_index
    x = torch.rand(size, 4, dtype=torch.float64)
    order = order_nodes(ww.trace(model, x, edges, index=4, target=2, against=0))
    assert (order.explained.target, order.explained.against, order.explained.index) == (2, 0, 4)
    if size == 9:
        curve = ev.activation_curve(model, x, edges, order)
        output = model.eval()(x, edges)[4]
        assert float(curve.values[-1]) == pytest.approx(float(output[2] - output[0]))


@pytest.mark.parametrize("target", ["positive", "negative"])
def test_a_curve_of_one_logit_has_the_sign_of_its_class(target):
    data, model = graph(), made(Classifier, columns=1)
    for chain in (ww.trace(model, data, target=target), ww.explain(model, data, target=target).chain):
        curve = ev.activation_curve(model, data, order_nodes(chain))
        assert float(curve.values[-1]) == pytest.approx(chain.output)


def test_a_curve_of_a_callable_target_asks_for_it():
    data, model = graph(), made(Classifier)
    order = order_nodes(ww.trace(model, data, target=lambda out: out[0, 1]))
    with pytest.raises(InputError, match=r"a chain with a callable target.*target=lambda output"):
        ev.activation_curve(model, data, order)
    curve = ev.activation_curve(model, data, order, target=lambda out: out[0, 1])
    torch.testing.assert_close(curve.values, ev.activation_curve(model, data, order, target=1).values)
