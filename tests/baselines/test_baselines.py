"""Every explainer against its definition, and all of them against the promise to leave the model alone."""

import copy
import itertools
import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, global_add_pool
from torch_geometric.utils import k_hop_subgraph, remove_self_loops, to_undirected

import walkwise as ww
from typed_graphs import Reader, papers
from walkwise import baselines, reference
from walkwise.baselines.gradients import cam, grad_cam, gradient, gradient_times_input, integrated_gradients
from walkwise.baselines.pgm import chi_square, pgm_explainer, without
from walkwise.baselines.pyg import gnn_explainer
from walkwise.baselines.subgraphx import subgraphx
from walkwise.errors import InputError
from walkwise.evaluation.parts import subgraph_values
from walkwise.evaluation.predictions import predict, traced, value_at


class Classifier(nn.Module):
    def __init__(self, conv="gin", columns=3, layers=2):
        super().__init__()
        kinds = {
            "gin": lambda i, o: GINConv(nn.Sequential(nn.Linear(i, o), nn.ReLU())),
            "gcn": GCNConv,
            "gat": lambda i, o: GATConv(i, o, heads=2, concat=False),
        }
        self.convs = nn.ModuleList([kinds[conv](4 if i == 0 else 6, 6) for i in range(layers)])
        self.head = nn.Linear(6, columns)

    def forward(self, x, edge_index, batch=None):
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))


class NodeLevel(nn.Module):
    def __init__(self, columns=3):
        super().__init__()
        self.conv = GCNConv(4, columns)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


def graph(M=7, seed=0):
    rng = torch.Generator().manual_seed(seed)
    ring = torch.stack([torch.arange(M), (torch.arange(M) + 1) % M])
    chords = torch.randint(0, M, (2, M // 2), generator=rng)
    edge_index = to_undirected(remove_self_loops(torch.cat([ring, chords], 1))[0], num_nodes=M)
    return Data(torch.rand(M, 4, generator=rng, dtype=torch.float64), edge_index)


def made(kind=Classifier, *args, **kwargs):
    torch.manual_seed(2)
    return kind(*args, **kwargs).double()


def snapshot(model):
    return [
        (name, dict(m.__dict__), {k: dict(v) for k, v in m.__dict__.items() if k.endswith("hooks")})
        for name, m in model.named_modules()
    ]


FAST = [name for name in baselines.available_baselines() if name != "attention"]


@pytest.mark.parametrize("name", [*FAST, "attention"])
def test_every_baseline_orders_the_nodes_and_leaves_the_model_alone(name):
    model = made(Classifier, "gat" if name == "attention" else "gin").train()
    weights, before = copy.deepcopy(model.state_dict()), snapshot(model)
    prediction = predict(model, graph(), target=1)
    explanation = baselines.baseline(name, [prediction])(prediction)
    for mode, alpha in itertools.product(("activation", "pruning"), (0.0, 0.5)):
        order = baselines.node_order(explanation, mode, alpha=alpha)
        assert sorted(order.tolist()) == list(range(7))
    scores = baselines.node_scores(explanation)
    assert scores.shape == (7,)
    assert scores.isfinite().all()
    assert not scores.requires_grad

    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())
    for (_, attributes, hooks), (_, old, old_hooks) in zip(snapshot(model), before, strict=True):
        assert attributes.keys() == old.keys()
        assert all(attributes[key] is value for key, value in old.items())
        assert hooks == old_hooks


@pytest.mark.parametrize(
    "name", ["gradient", "cam", "lrp", "gnn-lrp", "gnnexplainer", "gnnexplainer-paper", "pgexplainer", "pgmexplainer"]
)
@pytest.mark.parametrize("columns", [1, 3])
def test_node_level_models_and_single_outputs(name, columns):
    prediction = predict(made(NodeLevel, columns), graph(), index=3)
    explanation = baselines.baseline(name, [prediction])(prediction)
    assert sorted(baselines.node_order(explanation).tolist()) == list(range(7))
    prediction = predict(made(Classifier, columns=columns), graph())
    explanation = baselines.baseline(name, [prediction])(prediction)
    assert sorted(baselines.node_order(explanation).tolist()) == list(range(7))


def test_gradients_by_their_formulas():
    model, data = made(), graph()
    prediction = predict(model, data, target=2)
    x = data.x.clone().requires_grad_(True)
    (expected,) = torch.autograd.grad(model.eval()(x, data.edge_index)[0, 2], x)
    torch.testing.assert_close(gradient(prediction).nodes, expected.sum(1).abs())
    torch.testing.assert_close(gradient_times_input(prediction).nodes, (expected * data.x).sum(1))
    integrated = integrated_gradients(prediction, steps=500).nodes
    gap = prediction.value() - value_at(prediction, [torch.zeros_like(data.x)])
    assert float(integrated.sum()) == pytest.approx(gap, rel=1e-3)


@pytest.mark.parametrize("index", [None, ("paper", 2)])
def test_gradients_of_every_type_of_nodes(index):
    model, data = Reader(whole=index is None).eval(), papers()
    prediction = predict(model, data, target=1, index=index)
    x = {name: each.clone().requires_grad_(True) for name, each in data.x_dict.items()}
    output = model(x, data.edge_index_dict)
    scalar = output[0, 1] if index is None else output["paper"][2, 1]
    gradients = torch.autograd.grad(scalar, list(x.values()))
    torch.testing.assert_close(gradient(prediction).nodes, torch.cat([g.sum(1) for g in gradients]).abs())
    expected = torch.cat([(g * each.detach()).sum(1) for g, each in zip(gradients, x.values(), strict=True)])
    torch.testing.assert_close(gradient_times_input(prediction).nodes, expected)
    nothing = [torch.zeros_like(each) for each in data.x_dict.values()]
    gap = prediction.value() - value_at(prediction, nothing)
    assert float(integrated_gradients(prediction, steps=300).nodes.sum()) == pytest.approx(gap, rel=2e-3)


@pytest.mark.parametrize("name", baselines.available_baselines())
def test_every_explainer_takes_types_of_nodes_or_says_why_not(name):
    model, data = Reader(), papers()
    prediction = predict(model, data, target=0, index=("paper", 2))
    explain = baselines.baseline(name, [prediction])
    if name in ("attention", "gnnexplainer", "gnnexplainer-paper", "pgexplainer"):
        with pytest.raises(InputError, match="masks edges in graphs with one node type"):
            explain(prediction)
        return
    order = baselines.node_order(explain(prediction)).tolist()
    assert sorted(order) == list(range(13))


def test_node_relevance_and_perturbations_of_types_of_nodes():
    model, data = Reader(), papers()
    prediction = predict(model, data, target=0, index=("paper", 2))
    chain = ww.trace(model, data, target=0, index=("paper", 2))
    relevance = chain.types.joined(ww.node_relevance(chain))
    torch.testing.assert_close(baselines.baseline("lrp")(prediction).nodes, relevance)
    gone = torch.zeros(13, dtype=torch.bool)
    gone[[1, 7, 12]] = True  # author 1, paper 2, venue 1
    for name, i in (("author", 1), ("paper", 2), ("venue", 1)):
        data[name].x[i] = 0
    expected = float(model(data.x_dict, data.edge_index_dict)["paper"][2, 0])
    whole = predict(model, papers(), target=0, index=("paper", 2))
    assert value_at(whole, without(whole.features, gone)) == pytest.approx(expected)


def test_integrated_gradients_are_captums():
    attr = pytest.importorskip("captum.attr")
    model, data = made().eval(), graph()

    def forward(x):  # captum puts its steps along the first axis
        steps = x.view(-1, *data.x.shape)
        return torch.stack([model(step, data.edge_index)[0] for step in steps])

    method = attr.IntegratedGradients(forward)
    theirs = method.attribute(data.x[None], target=1, n_steps=64, method="riemann_middle")[0].sum(1)
    ours = integrated_gradients(predict(model, data, target=1), steps=64).nodes
    torch.testing.assert_close(ours, theirs)


def test_cam_gives_every_node_its_term_of_a_linear_read_out():
    model, data = made(), graph()
    x = data.x
    for conv in model.convs:
        x = conv(x, data.edge_index).relu()
    terms = (x @ model.head.weight[1]).detach()
    prediction = predict(model, data, target=1)
    assert float(terms.sum() + model.head.bias[1]) == pytest.approx(prediction.value())
    torch.testing.assert_close(cam(prediction).nodes, terms.abs())
    torch.testing.assert_close(grad_cam(prediction).nodes, terms.clamp(min=0))


@given(st.integers(0, 30), st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=15, deadline=None)
def test_listed_walks_score_node_sets_as_the_chain_does(seed, alpha):
    prediction = predict(made(), graph(6, seed), target=0)
    chain, walks = traced(prediction), baselines.baseline("gnn-lrp")(prediction)
    sets = torch.rand(12, 6, generator=torch.Generator().manual_seed(seed)) < 0.5
    expected = ww.subgraph_relevance(chain, sets, alpha=alpha)
    torch.testing.assert_close(baselines.subgraph_scores(walks, sets, alpha=alpha), expected)
    torch.testing.assert_close(baselines.subgraph_scores(chain, sets, alpha=alpha), expected)
    for mode in ("activation", "pruning"):
        ours, theirs = (baselines.node_order(e, mode, alpha=alpha) for e in (chain, walks))
        assert torch.equal(ours, theirs)


@given(st.integers(0, 30), st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=15, deadline=None)
def test_edges_are_walks_of_one_step(seed, alpha):
    """Appendix K, edge by edge."""
    rng = torch.Generator().manual_seed(seed)
    data = graph(6, seed)
    edges = torch.randn(data.num_edges, generator=rng, dtype=torch.float64)
    explanation = baselines.Attribution(torch.zeros(6, dtype=torch.float64), edges, data.edge_index)
    sets = torch.rand(8, 6, generator=rng) < 0.5
    found = baselines.subgraph_scores(explanation, sets, alpha=alpha)
    for inside, score in zip(sets.tolist(), found.tolist(), strict=True):
        total = 0.0
        for (u, v), weight in zip(data.edge_index.t().tolist(), edges.tolist(), strict=True):
            total += weight * {0: 0.0, 1: alpha, 2: 1.0}[inside[u] + inside[v]]
        assert score == pytest.approx(total)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(max_examples=30, deadline=None)
def test_scores_of_nodes_are_sorted_both_ways(scores):
    values = torch.tensor(scores, dtype=torch.float64)
    explanation = baselines.of_nodes(values)
    down, up = (values[baselines.node_order(explanation, mode)] for mode in ("activation", "pruning"))
    torch.testing.assert_close(down, values.sort(descending=True).values)
    assert ((up[1:] - up[:-1]) >= -1e-9).all()


def test_gnnexplainer_finds_the_edge_that_matters():
    class OneEdge(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GINConv(nn.Identity(), eps=-1.0)

        def forward(self, x, edge_index, batch=None):
            arrived = self.conv(x, edge_index)[:, :1] * x[:, 1:2]  # only node 1 listens, only node 0 speaks
            return torch.cat([10 * global_add_pool(arrived, batch), torch.full((1, 1), 5.0).to(x)], 1)

    data = graph()
    data.x = torch.zeros(7, 2, dtype=torch.float64)
    data.x[0, 0], data.x[1, 1] = 1, 1
    torch.manual_seed(0)
    found = gnn_explainer(predict(OneEdge(), data, target=0), epochs=200)
    assert data.edge_index[:, found.edges.argmax()].tolist() == [0, 1]


def test_attention_refuses_models_without_any():
    with pytest.raises(InputError, match="attention layers"):
        baselines.baseline("attention")(predict(made(), graph()))


def test_chi_square_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    rng = torch.Generator().manual_seed(0)
    perturbed, changed = torch.rand(60, 4, generator=rng) < 0.5, torch.rand(60, generator=rng) < 0.3
    for column, found in zip(perturbed.t(), chi_square(perturbed, changed), strict=True):
        table = [[int(((column == a) & (changed == b)).sum()) for b in (0, 1)] for a in (0, 1)]
        assert float(found) == pytest.approx(stats.chi2_contingency(table, correction=False).statistic)
    assert chi_square(torch.ones(5, 2, dtype=torch.bool), changed[:5]).tolist() == [0, 0]


class Planted(nn.Module):
    """Counts the triangle's nodes that are there, and cares for nothing else."""

    def __init__(self):
        super().__init__()
        self.conv = GINConv(nn.Identity())

    def forward(self, x, edge_index, batch=None):
        score = (self.conv(x, edge_index)[:, :1] * x[:, :1]).relu()
        total = global_add_pool(score, batch)
        return torch.cat([total, torch.full_like(total, 4.5)], dim=1)


def planted():
    """A path of nine nodes whose nodes 3, 4, 5 form a triangle and carry the feature."""
    path = torch.stack([torch.arange(8), torch.arange(1, 9)])
    edge_index = to_undirected(torch.cat([path, torch.tensor([[3], [5]])], dim=1))
    x = torch.zeros(9, 1, dtype=torch.float64)
    x[3:6] = 1
    return Data(x, edge_index)


@pytest.mark.parametrize("method", [subgraphx, pgm_explainer])
def test_searches_find_a_planted_motif(method):
    torch.manual_seed(0)
    options = {"size": 3} if method is subgraphx else {"samples": 1000, "changed": 0.5}
    found = method(predict(Planted(), planted(), target=0), **options)
    assert set(found.nodes.topk(3).indices.tolist()) == {3, 4, 5}


class Local(nn.Module):
    """Sums over neighbours: what is further away than its layers has no part in the output."""

    def __init__(self, columns=3, layers=2):
        super().__init__()
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(4 if i == 0 else 5, 5), nn.Tanh())) for i in range(layers)
        )
        self.head = nn.Linear(5, columns)

    def forward(self, x, edge_index, batch=None):
        for conv in self.convs:
            x = conv(x, edge_index)
        return self.head(x)


class Anywhere(Local):
    """The mean of all nodes has a part in every output."""

    def forward(self, x, edge_index, batch=None):
        return super().forward(x - x.mean(0), edge_index)


SEARCHED = [  # the model, the explained node, how far its output depends on others
    (Classifier, None, None),
    (NodeLevel, 4, 2),
    (Local, 4, 2),
    (lambda: Local(layers=1), 0, 2),
    (lambda: Local(layers=3), 3, 3),
    (lambda: Local(layers=4), 3, None),
    (Anywhere, 2, None),
]


@pytest.mark.parametrize("seed", range(len(SEARCHED)))
def test_subgraphx_is_what_it_would_be_with_everything_asked(seed):
    kind, index, _ = SEARCHED[seed]
    data = tailed(seed)
    prediction = predict(made(kind), data, target=0, index=index)
    options = {"size": 3, "rollouts": 10, "children": 4, "samples": 5, "hops": 2, "exploration": 5.0}

    def value(nodes):
        mask = torch.zeros(1, prediction.num_nodes, dtype=torch.bool)
        mask[0, sorted(nodes)] = True
        return float(subgraph_values(prediction, mask, on="probability").values)

    torch.manual_seed(seed)
    found = subgraphx(prediction, **options).nodes.tolist()
    torch.manual_seed(seed)
    edges = list(map(tuple, data.edge_index.t().tolist()))
    assert found == reference.subgraphx(value, prediction.num_nodes, edges, **options)
    assert len(set(found)) > 3


def tailed(seed):
    """A ring with chords, a tail of five nodes, two of its edges one-way, and a node by itself."""
    data = graph(7, seed)
    tail = torch.tensor([[0, 7, 8, 9, 10], [7, 8, 9, 10, 11]])
    x = torch.rand(13, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Data(x, torch.cat([data.edge_index, tail, tail[:, :3].flip(0)], 1))


@pytest.mark.parametrize("case", range(len(SEARCHED)))
def test_subgraphx_knows_how_far_a_model_sees(case):
    kind, index, reach = SEARCHED[case]
    prediction = predict(made(kind), tailed(0), target=0, index=index)
    assert baselines.subgraphx._SearchTree(prediction, 3, 4, 5, 2, 5.0)._reach == reach


@pytest.mark.parametrize(("kind", "index"), [(Classifier, None), (NodeLevel, 4)])
def test_subgraphx_asks_of_a_coalition_once_and_only_where_it_matters(kind, index, monkeypatch):
    prediction = predict(made(kind), graph(9), target=0, index=index)
    asked = []

    def noted(prediction, sets, **options):
        asked.extend(row.tobytes() for row in sets.numpy())
        return subgraph_values(prediction, sets, **options)

    tree = baselines.subgraphx._SearchTree(prediction, 2, 12, 30, 1, 10.0)
    monkeypatch.setattr(baselines.subgraphx, "subgraph_values", noted)
    first = tree.rollout((1 << 9) - 1)
    assert 0 < len(asked) <= 60  # of the last subgraph alone: nothing was to choose from
    for _ in range(3):
        tree.rollout(first[0])
    assert len(set(asked)) == len(asked) > (60 if index is None else 0)


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
def test_subgraphx_plays_with_nodes_whose_messages_arrive(hops):
    torch.manual_seed(hops)
    edge_index = torch.randint(0, 12, (2, 14))  # directed
    prediction = predict(Planted(), torch.ones(12, 1), edge_index, target=0)
    near = baselines.subgraphx._SearchTree(prediction, 5, 12, 30, hops, 10.0)._near
    for node in range(12):
        expected, _, _, _ = k_hop_subgraph(node, hops, edge_index, num_nodes=12)
        assert near[node].nonzero().flatten().tolist() == expected.tolist()


class OwnTable(NodeLevel):
    """A vector of its own for every node, by its number."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4)

    def forward(self, x, edge_index):
        return self.conv(x + self.table.weight[: len(x)], edge_index)


@pytest.mark.parametrize(("method", "metric"), [("subgraphx", "accuracy"), ("random", "auac"), ("random", "fidelity+")])
def test_what_needs_parts_refuses_a_model_that_goes_by_numbers(method, metric):
    model, data = made(OwnTable), graph()
    if method == "subgraphx":
        with pytest.raises(InputError, match="The model depends on node numbers"):
            baselines.baseline(method)(predict(model, data, index=2))
    else:
        with pytest.raises(InputError, match="The model depends on node numbers"):
            baselines.compare([method], model, [data], metrics=[metric], index=2)
    assert (
        baselines.compare(["random"], model, [data], metrics=["accuracy"], index=2, motif=lambda data: [1, 2])[0].graphs
        == 1
    )


def test_names_are_given_once_and_unknown_ones_list_the_valid():
    with pytest.raises(InputError, match="already"):
        baselines.register_baseline("lrp")(lambda prediction: None)
    with pytest.raises(InputError, match="expected one of attention, cam"):
        baselines.baseline("lime")
    with pytest.raises(InputError, match="to train on"):
        baselines.baseline("pgexplainer")


def test_compare_gives_mean_error_and_time():
    model, graphs = made(), [graph(7, seed) for seed in range(4)]
    state = torch.get_rng_state()
    asked = {
        "target": lambda data: 1,
        "alphas": (0.0, 0.5),
        "metrics": list(baselines.measures.METRICS),
        "motif": lambda data: [[0, 1], [2, 3]],
    }
    rows = baselines.compare(["random", "sgnn-lrp", "gnn-lrp"], model, graphs, **asked)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(rows) == 6 * (1 + 2 + 2)
    assert all(row.graphs == 4 and row.seconds > 0 and row.standard_error >= 0 for row in rows)
    again = baselines.compare(["random", "sgnn-lrp", "gnn-lrp"], model, graphs, **asked)
    assert [row.mean for row in rows] == [row.mean for row in again]
    ours = [row.mean for row in rows if row.method == "sgnn-lrp"]
    assert ours == pytest.approx([row.mean for row in rows if row.method == "gnn-lrp"])

    areas = []
    for data in graphs:
        order = baselines.node_order(traced(predict(model, data, target=1)), alpha=0.0)
        areas.append(ww.evaluation.activation_curve(model, data, order, target=1).area)
    first = next(row for row in rows if row.method == "sgnn-lrp" and row.metric == "auac" and row.alpha == 0)
    assert first.mean == pytest.approx(sum(areas) / 4)
    error = torch.tensor(areas, dtype=torch.float64).std() / 2
    assert first.standard_error == pytest.approx(float(error))


def test_compare_draws_anew_for_every_graph():
    drawn = []

    def draw(prediction):
        drawn.append(torch.rand(1).item())
        return baselines.of_nodes(torch.zeros(prediction.num_nodes))

    baselines.compare({"one": draw, "two": draw}, made(), [graph(), graph()], metrics=["auac"])
    assert drawn[:2] == drawn[2:]
    assert drawn[0] != drawn[1]


def test_compare_says_what_it_left_out():
    rows = baselines.compare(["attention", "random"], made(), [graph()], metrics=["auac"])
    assert rows[0].graphs == 0
    assert math.isnan(rows[0].mean)
    assert "1 left out" in rows[0].note
    assert rows[1].note == ""
    with pytest.raises(InputError, match="Unknown metric 'auc'"):
        baselines.compare(["random"], made(), [graph()], metrics=["auc"])
    with pytest.raises(InputError, match="need the motif"):
        baselines.compare(["random"], made(), [graph()], metrics=["auroc"])


@pytest.mark.parametrize(
    ("methods", "options", "says"),
    [
        ("rand", {}, "Unknown baseline 'rand': expected one of attention, cam"),
        (["random", None], {}, "Unknown baseline None"),
        (None, {}, "Unknown baseline None"),
        ({"one": "random", "two": "lime"}, {}, "Unknown baseline 'lime'"),
        ({"one": 3}, {}, "Unknown baseline 3"),
        ([baselines.gradients.gradient], {}, "under a label.* Write methods={'mine': it}"),
        ([], {}, r"methods is empty\. Give at least one"),
        ("random", {"metrics": []}, "metrics is empty"),
        ("random", {"metrics": "auc"}, "Unknown metric 'auc': expected one of auac, aupc"),
        ("random", {"metrics": [None]}, "Unknown metric None"),
        ("random", {"alphas": []}, "alphas is empty"),
        ("random", {"alphas": 2.0}, "between 0 and 1"),
        ("random", {"sparsity": 2}, "left out, between 0 and 1, got 2"),
        ("random", {"sparsity": -0.1}, "left out, between 0 and 1, got -0.1"),
        ("random", {"sparsity": math.nan}, "got nan"),
        ("random", {"sparsity": "most"}, "got 'most'"),
        ("random", {"graphs": []}, "graphs is empty; give at least one graph"),
        ("random", {"graphs": graph()}, "graphs must be a list of graphs, got one Data"),
        ("random", {"graphs": Batch.from_data_list([graph()])}, "got one DataBatch. .* data.to_data_list"),
        ("random", {"graphs": [None]}, "Data objects, got None"),
        ("pgexplainer", {"train_graphs": graph()}, "train_graphs must be a list of graphs, got one Data"),
        ("pgexplainer", {"train_graphs": []}, "train_graphs is empty"),
    ],
)
def test_compare_says_what_was_expected(methods, options, says):
    with pytest.raises(InputError, match=says):
        baselines.compare(methods, made(), **({"graphs": [graph()]} | options))


def test_compare_takes_one_of_everything():
    def told(rows):
        return [(row.method, row.alpha, row.metric, row.mean, row.graphs) for row in rows]

    one = baselines.compare("sgnn-lrp", made(), [graph()], metrics="auac", alphas=0.5)
    assert told(one) == told(baselines.compare(["sgnn-lrp"], made(), [graph()], metrics=["auac"], alphas=[0.5]))
    assert told(one)[0][:3] == ("sgnn-lrp", 0.5, "auac")


def test_compare_tells_the_time_of_training(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(baselines.comparison.time, "perf_counter", lambda: clock[0])

    def spend(seconds):
        clock[0] += seconds

    def learn(predictions):
        spend(30.0 * len(predictions))

        def explain(prediction):
            spend(0.25)
            if prediction.num_nodes == 5:
                raise InputError("five nodes")
            return baselines.of_nodes(torch.zeros(prediction.num_nodes))

        return explain

    monkeypatch.setitem(baselines.registry._TRAINERS, "pupil", learn)
    graphs = [graph(), graph(6), graph(5)]
    asked = {"metrics": ["auac", "aupc"], "train_graphs": graphs[:2]}
    rows = baselines.compare({"a": "pupil", "b": "random"}, made(), graphs, **asked)
    assert [(row.seconds, row.training_seconds) for row in rows] == [(0.25, 60.0)] * 2 + [(0.0, 0.0)] * 2
    assert [row.note for row in rows] == ["trained first, 60 s on 2 graphs; 1 left out: five nodes"] * 2 + [""] * 2
    (head, _, first, second) = baselines.to_markdown(rows).splitlines()
    assert head.endswith("| graphs | s / graph | s to train |")
    assert first.endswith("| 2 | 0.25 | 60 |")
    assert second.endswith("| 3 | 0 | |")
    assert "train" not in baselines.to_markdown(rows[2:])
    (failed,) = baselines.compare("pupil", made(), graphs[2:], metrics="auac")
    assert failed.training_seconds == 30.0
    assert failed.note.startswith("trained first, 30 s on 1 graph; 1 left out")


def test_compare_takes_functions_and_tables_come_out():
    pandas = pytest.importorskip("pandas")
    methods = {
        "first": lambda prediction: baselines.of_nodes(torch.arange(prediction.num_nodes, 0, -1.0)),
        "ours": "sgnn-lrp",
    }
    rows = baselines.compare(methods, made(), [graph(), graph(5, 1)], metrics={"first": lambda e: float(e.top[0])})
    frame = baselines.to_pandas(rows)
    assert isinstance(frame, pandas.DataFrame)
    assert frame["method"].tolist() == ["first", "ours"]
    assert frame["mean"][0] == 0
    assert "| ours | 0.5 |" in baselines.to_markdown(rows)
