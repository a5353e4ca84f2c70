"""The PyG adapter, tested the way PyG tests its own algorithms, and against chains traced by hand."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch
from torch import nn
from torch_geometric.explain import Explainer
from torch_geometric.explain.config import ExplainerConfig, ModelConfig
from torch_geometric.nn import GATConv, GCNConv, GraphConv, TransformerConv, global_add_pool

import walkwise as ww
from walkwise.errors import CoverageWarning, InputError, TargetError

generator = torch.Generator().manual_seed(3)
x = torch.randn(8, 3, generator=generator, dtype=torch.float64)
edge_index = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7], [1, 0, 2, 1, 3, 2, 4, 3, 5, 4, 6, 5, 7, 6]])
further = {
    "edge_weight": torch.rand(14, generator=generator, dtype=torch.float64) + 0.5,
    "batch": torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]),
    "edge_label_index": torch.tensor([[0, 1, 2, 4], [3, 4, 5, 4]]),
}

BINARY, MULTICLASS, REGRESSION = "binary_classification", "multiclass_classification", "regression"
SETTINGS = [
    *itertools.product([BINARY], ["raw", "probs"]),
    *itertools.product([MULTICLASS], ["raw", "probs", "log_probs"]),
    (REGRESSION, "raw"),
]
LEVELS = ["graph", "node", "edge"]
MASKS = [
    pair
    for pair in itertools.product([None, "object", "common_attributes", "attributes"], [None, "object"])
    if any(pair)
]
ENDINGS = {
    (BINARY, "probs"): torch.sigmoid,
    (MULTICLASS, "probs"): lambda z: z.softmax(dim=-1),
    (MULTICLASS, "log_probs"): lambda z: nn.functional.log_softmax(z, dim=-1),
}


class Model(nn.Module):
    """Two layers, then a prediction for graphs, nodes, or pairs of nodes."""

    def __init__(self, level, columns, ending=None, make=GCNConv):
        super().__init__()
        torch.manual_seed(1)
        self.level, self.ending = level, ending
        self.convs = nn.ModuleList([make(3, 6), make(6, 6)])
        self.head = nn.Linear(6, columns)
        self.double()

    def forward(self, x, edge_index, batch=None, edge_weight=None, edge_label_index=None):
        weight = {} if edge_weight is None else {"edge_weight": edge_weight}
        for conv in self.convs:
            x = conv(x, edge_index, **weight).relu()
        if self.level == "graph":
            x = global_add_pool(x, batch)
        elif self.level == "edge":
            x = x[edge_label_index[0]] * x[edge_label_index[1]]
        x = self.head(x)
        return x if self.ending is None else self.ending(x)


def columns(mode):
    return {BINARY: 1, MULTICLASS: 4, REGRESSION: 2}[mode]


def explainer_of(model, mode, level, return_type="raw", masks=("object", "object"), kind="model", **options):
    threshold = options.pop("threshold_config", None)
    return Explainer(
        model,
        algorithm=ww.SubgraphLRPExplainer(**options),
        explanation_type=kind,
        node_mask_type=masks[0],
        edge_mask_type=masks[1],
        model_config={"mode": mode, "task_level": level, "return_type": return_type},
        threshold_config=threshold,
    )


@cache
def by_hand(mode, level, row, column):
    """Relevance of nodes, features and edges for one entry of the logits, from a chain of its own."""
    chain = ww.trace(Model(level, columns(mode)), x, edge_index, index=row, target=column, **further)
    return ww.node_relevance(chain), ww.feature_relevance(chain), ww.edge_relevance(chain)


def expected(mode, level, target, rows):
    """The same for the explained scalar: what each row counts for, added up."""
    terms = []
    for row in rows:
        if mode == MULTICLASS:
            terms.append((1, by_hand(mode, level, row, int(target[row]))))
        elif mode == BINARY:
            terms.append((1 if target[row] else -1, by_hand(mode, level, row, 0)))
        else:
            terms.extend((1, by_hand(mode, level, row, column)) for column in range(2))
    return [sum(sign * relevances[i] for sign, relevances in terms) for i in range(3)]


def mapped(relevance, how="positive"):
    kept = relevance.clamp(min=0) if how == "positive" else relevance.abs()
    return kept / kept.max() if kept.max() > 0 else kept


def check(explanation, masks, relevances, how="positive"):
    """Masks are the stated map of the relevances, which are kept with their signs."""
    nodes, features, edges = relevances
    sources = {"object": nodes[:, None], "attributes": features, "common_attributes": features.sum(0, keepdim=True)}
    for name, kind, relevance in (
        ("node_mask", masks[0], sources.get(masks[0])),
        ("edge_mask", masks[1], edges),
        ("node_relevance", masks[0], nodes),
        ("feature_relevance", masks[0], features),
        ("edge_relevance", masks[1], edges),
    ):
        if kind is None:
            assert explanation.get(name) is None
            continue
        wanted = mapped(relevance, how) if name.endswith("mask") else relevance
        assert explanation[name].shape == wanted.shape
        assert torch.allclose(explanation[name], wanted, rtol=1e-9, atol=1e-12)
        assert not name.endswith("mask") or (explanation[name].min() >= 0 and explanation[name].max() <= 1)
    assert explanation.validate()
    assert set(explanation.available_explanations) == {
        f"{name}_mask" for name, kind in zip(("node", "edge"), masks, strict=True) if kind
    }


# -- every setting -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["model", "phenomenon"])
@pytest.mark.parametrize("index", [None, 2, torch.tensor([2]), torch.arange(3)], ids=["all", "one", "tensor", "three"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("mode", "return_type"), SETTINGS)
def test_every_setting(mode, return_type, level, index, kind):
    model = Model(level, columns(mode), ENDINGS.get((mode, return_type)))
    output = model(x, edge_index, **further).detach()
    target = explainer_of(model, mode, level, return_type).get_target(output)
    if kind == "phenomenon" and mode != REGRESSION:  # other classes than the predicted ones
        target = (target + 1) % max(2, columns(mode))
    rows = range(len(output)) if index is None else torch.as_tensor(index).reshape(-1).tolist()
    relevances = expected(mode, level, target, rows)
    for masks in MASKS:
        explainer = explainer_of(model, mode, level, return_type, masks, kind)
        given = {"target": target} if kind == "phenomenon" else {}
        explanation = explainer(x, edge_index, index=index, **given, **further)
        check(explanation, masks, relevances)
    assert any(relevance.abs().max() > 1e-3 for relevance in relevances)


@pytest.mark.parametrize("threshold", [("hard", 0.5), ("topk", 3), ("topk_hard", 3)])
@pytest.mark.parametrize("masks", [("object", "object"), ("attributes", None), (None, "object")])
def test_thresholds(threshold, masks):
    explainer = explainer_of(Model("node", 4), MULTICLASS, "node", masks=masks, threshold_config=threshold)
    plain = explainer_of(Model("node", 4), MULTICLASS, "node", masks=masks)(x, edge_index, index=3)
    cut = explainer(x, edge_index, index=3)
    for name in cut.available_explanations:
        if cut[name] is None:  # PyG puts a None where there was no mask
            continue
        if threshold[0] == "hard":
            assert torch.equal(cut[name].bool(), plain[name] > 0.5)
        else:
            assert int((cut[name] > 0).sum()) == 3
            assert float(plain[name][cut[name] > 0].min()) >= float(plain[name][cut[name] == 0].max())
    assert torch.equal(cut.get("edge_relevance", x), plain.get("edge_relevance", x))  # signed, and not cut
    assert cut.chain.output == plain.chain.output


# -- what the masks mean -----------------------------------------------------------------------


@pytest.mark.parametrize("masks", MASKS)
def test_magnitude(masks):
    explanation = explainer_of(Model("node", 4), MULTICLASS, "node", masks=masks, mask="magnitude")(
        x, edge_index, index=2, **further
    )
    target = Model("node", 4)(x, edge_index, **further).argmax(dim=-1)
    check(explanation, masks, expected(MULTICLASS, "node", target, [2]), "magnitude")


def test_both_signs_occur_so_the_map_matters():
    explanation = explainer_of(Model("node", 4), MULTICLASS, "node")(x, edge_index, index=2)
    assert explanation.node_relevance.min() < 0 < explanation.node_relevance.max()
    assert torch.equal(explanation.node_mask[:, 0] > 0, explanation.node_relevance > 0)


def test_negative_relevance_alone_leaves_an_empty_mask():
    """As in a model whose every weight speaks against its output."""
    model = Model("node", 1).requires_grad_(False)
    for parameter in model.parameters():
        parameter.abs_() if parameter.dim() == 2 else parameter.zero_()
    model.head.weight.neg_()
    explainer = explainer_of(model, REGRESSION, "node", masks=("attributes", "object"))
    explanation = explainer(x.abs(), edge_index, index=2)
    assert explanation.node_relevance.min() < 0
    assert not explanation.node_mask.any()
    assert not explanation.edge_mask.any()
    assert explainer_of(model, REGRESSION, "node", mask="magnitude")(x.abs(), edge_index, index=2).node_mask.max() == 1


@pytest.mark.parametrize("position", [0, 1, 2, None])
def test_position(position):
    explanation = explainer_of(Model("graph", 4), MULTICLASS, "graph", position=position)(x, edge_index)
    positions = range(3) if position is None else [position]
    wanted = sum(ww.node_relevance(explanation.chain, layer=p) for p in positions)
    assert torch.allclose(explanation.node_relevance, wanted)
    assert torch.allclose(explanation.node_mask[:, 0], mapped(wanted))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_alpha(alpha):
    explanation = explainer_of(Model("graph", 4), MULTICLASS, "graph", alpha=alpha)(x, edge_index)
    wanted = torch.cat([ww.subgraph_relevance(explanation.chain, [[m]], alpha=alpha) for m in range(8)])
    assert torch.allclose(explanation.node_relevance, wanted)
    assert torch.allclose(explanation.node_mask[:, 0], mapped(wanted))


def test_one_column_of_a_regression():
    explanation = explainer_of(Model("node", 2), REGRESSION, "node", column=1)(x, edge_index, index=4, **further)
    assert torch.allclose(explanation.node_relevance, by_hand(REGRESSION, "node", 4, 1)[0])


@pytest.mark.parametrize("rule", ["zero", "alphabeta", [ww.rules.Gamma(1.0), ww.rules.Epsilon(0.1)]])
def test_rule(rule):
    explanation = explainer_of(Model("graph", 2), MULTICLASS, "graph", rule=rule)(x, edge_index)
    chain = ww.trace(Model("graph", 2), x, edge_index, rule=rule)
    assert torch.allclose(explanation.node_relevance, ww.node_relevance(chain))


def test_outputs_of_one_dimension():
    """A scalar per row, or one row of classes."""
    for level, index in (("node", 3), ("node", None), ("graph", 0)):
        flat = Model(level, 1, lambda z: z.sigmoid().squeeze(-1))
        table = Model(level, 1, torch.sigmoid)
        one, two = (explainer_of(m, BINARY, level, "probs")(x, edge_index, index=index) for m in (flat, table))
        assert torch.allclose(one.edge_relevance, two.edge_relevance)
    row = explainer_of(Model("graph", 4, lambda z: z.softmax(-1).view(-1)), MULTICLASS, "graph", "probs")
    table = explainer_of(Model("graph", 4), MULTICLASS, "graph")
    assert torch.allclose(row(x, edge_index).node_relevance, table(x, edge_index).node_relevance)


def test_boolean_index_and_repeated_rows():
    explainer = explainer_of(Model("node", 4), MULTICLASS, "node")
    rows = torch.tensor([1, 4])
    mask = torch.zeros(8, dtype=torch.bool)
    mask[rows] = True
    several = explainer(x, edge_index, index=rows).node_relevance
    assert torch.allclose(explainer(x, edge_index, index=mask).node_relevance, several)
    assert torch.allclose(explainer(x, edge_index, index=rows.repeat(2)).node_relevance, 2 * several)
    assert torch.allclose(
        explainer(x, edge_index, index=-1).edge_relevance, explainer(x, edge_index, index=7).edge_relevance
    )


# -- edges as the user gave them ---------------------------------------------------------------


def test_steps_along_edges_and_stays_make_up_every_walk():
    """GCN adds a self-loop to every node: a step is along an edge or a stay."""
    explanation = explainer_of(Model("graph", 4), MULTICLASS, "graph")(x, edge_index)
    loops = torch.arange(8).expand(2, -1)
    stays = ww.edge_relevance(explanation.chain, edge_index=loops).sum()
    total = explanation.edge_relevance.sum() + stays
    assert stays.abs() > 1e-3
    assert float(total) == pytest.approx(2 * explanation.chain.input_relevance)


def test_edges_in_any_order_with_loops_and_duplicates():
    explainer = explainer_of(Model("graph", 4, make=GraphConv), MULTICLASS, "graph")
    order = torch.randperm(14, generator=torch.Generator().manual_seed(0))
    plain, mixed = explainer(x, edge_index), explainer(x, edge_index[:, order])
    assert torch.allclose(mixed.edge_relevance, plain.edge_relevance[order])
    doubled = torch.cat([edge_index, edge_index[:, :3], torch.tensor([[5], [5]])], dim=1)
    explanation = explainer(x, doubled)
    assert explanation.edge_mask.shape == (18,)
    assert torch.allclose(explanation.edge_relevance[:3], explanation.edge_relevance[14:17])
    pairs = torch.unique(doubled, dim=1)
    whole = ww.edge_relevance(explanation.chain, edge_index=pairs)
    assert torch.allclose(explanation.edge_relevance.sum(), whole.sum())


@pytest.mark.parametrize("make", [GraphConv, TransformerConv])
def test_flow_against_the_edges(make):
    """Layers that send messages from target to source step the other way along the same edge."""
    forward = Model("node", 4, make=make)
    backward = Model("node", 4, make=lambda i, o: make(i, o, flow="target_to_source"))
    backward.load_state_dict(forward.state_dict())
    one = edge_index[:, ::2]  # one direction only
    a = explainer_of(forward, MULTICLASS, "node")(x, one, index=4)
    b = explainer_of(backward, MULTICLASS, "node")(x, one.flip(0), index=4)
    assert a.edge_relevance.any()
    assert torch.allclose(a.edge_relevance, b.edge_relevance)


def test_no_edge_and_nothing_reached():
    explainer = explainer_of(Model("node", 4), MULTICLASS, "node")
    alone = explainer(x, edge_index[:, :0], index=1)
    assert alone.edge_mask.shape == (0,)
    near = explainer(x, edge_index, index=0)  # on a path, with two layers
    assert near.node_relevance[:3].abs().min() > 0
    assert not near.node_relevance[3:].any()
    assert not near.edge_relevance[6:].any()


def test_features_that_are_not_numbers():
    class Typed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embedding, self.conv = nn.Embedding(5, 3), GCNConv(3, 2)

        def forward(self, x, edge_index):
            return self.conv(self.embedding(x.view(-1)), edge_index)

    types = torch.arange(8).view(8, 1) % 5
    explanation = explainer_of(Typed(), MULTICLASS, "node")(types, edge_index, index=2)
    assert explanation.node_mask.shape == (8, 1)
    assert "feature_relevance" not in explanation
    for kind in ("attributes", "common_attributes"):
        with pytest.raises(InputError, match=r"needs x of shape \(M, F\).*Ask for node_mask_type='object'"):
            explainer_of(Typed(), MULTICLASS, "node", masks=(kind, None))(types, edge_index, index=2)


# -- the model ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [GCNConv, GATConv, TransformerConv])
def test_the_model_is_left_alone(unchanged, make):
    """By the algorithm itself, with layers in closed form and by autograd."""
    model = Model("node", 4, lambda z: z.softmax(dim=-1), make).train()
    model.convs[0].eval()
    algorithm = ww.SubgraphLRPExplainer()
    algorithm.connect(
        ExplainerConfig("model", "attributes", "object"), ModelConfig(MULTICLASS, "node", return_type="probs")
    )
    target = torch.zeros(8, dtype=torch.long)
    with unchanged(model, x, edge_index, target):
        explanation = algorithm(model, x, edge_index, target=target, index=2)
        with pytest.raises(TargetError):
            algorithm(model, x, edge_index, target=target, index=99)
    assert [layer.route for layer in explanation.chain.layers] == (
        ["autograd"] * 2 if make is TransformerConv else ["closed form"] * 2
    )


def test_training_and_dropout():
    model = Model("node", 4, make=lambda i, o: GATConv(i, o, dropout=0.5)).train()
    explainer = explainer_of(model, MULTICLASS, "node")
    one, two = (explainer(x, edge_index, index=2) for _ in range(2))
    assert torch.equal(one.node_mask, two.node_mask)
    assert all(module.training for module in model.modules())


def test_features_that_require_grad():
    explainer = explainer_of(Model("node", 4), MULTICLASS, "node")
    explanation = explainer(x.clone().requires_grad_(True), edge_index, index=2)
    assert not explanation.node_mask.requires_grad
    with torch.no_grad():
        assert torch.equal(explainer(x, edge_index, index=2).edge_mask, explanation.edge_mask)


# -- refusals ----------------------------------------------------------------------------------


def test_probabilities_of_unknown_origin_are_explained_as_they_are():
    def by_hand_softmax(z):
        e = z.exp()
        return e / e.sum(dim=-1, keepdim=True)

    model = Model("node", 4, by_hand_softmax)
    with pytest.warns(CoverageWarning, match="probabilities come from no softmax or sigmoid"):
        explanation = explainer_of(model, MULTICLASS, "node", "probs")(x, edge_index, index=2)
    assert "as they are" in str(explanation.chain)
    assert explanation.chain.output == pytest.approx(float(explanation.prediction[2].max()))


def test_a_column_is_for_regression(caplog):
    with pytest.raises(ValueError, match="does not support"):
        explainer_of(Model("node", 4), MULTICLASS, "node", column=1)
    assert "takes a 'column' for regression only (got mode 'multiclass_classification')" in caplog.text


def test_a_regression_target_plays_no_part(caplog):
    model = Model("node", 2)
    explainer = explainer_of(model, REGRESSION, "node", kind="phenomenon")
    assert "play no part" in caplog.text
    a, b = (explainer(x, edge_index, target=torch.full((8, 2), value), index=1) for value in (0.0, 9.0))
    assert torch.equal(a.node_relevance, b.node_relevance)


def test_heterogeneous_models_are_refused():
    explainer = explainer_of(Model("node", 4), MULTICLASS, "node", kind="phenomenon")
    with pytest.raises(ValueError, match="does not explain heterogeneous models"):
        explainer({"a": x}, {("a", "to", "a"): edge_index}, target=torch.zeros(8))


@pytest.mark.parametrize(
    ("mode", "options", "arguments", "words"),
    [
        (MULTICLASS, {}, {"index": 8}, r"index selects from the 8 rows of the output, 0 to 7; got \[8\]"),
        (MULTICLASS, {}, {"index": torch.tensor([], dtype=torch.long)}, "index selects"),
        (MULTICLASS, {}, {"target": torch.tensor([0, 1])}, r"one class per row of the output, shape \(8,\)"),
        (MULTICLASS, {}, {"target": torch.full((8,), 4)}, "target names classes 4 to 4; there are 4"),
        (BINARY, {}, {"target": torch.full((8,), 2)}, "there are 2"),
        (REGRESSION, {"column": 2}, {}, r"column=2 is out of range: the output has 2 column\(s\)"),
    ],
)
def test_wrong_targets(mode, options, arguments, words):
    explainer = explainer_of(Model("node", columns(mode)), mode, "node", kind="phenomenon", **options)
    with pytest.raises(TargetError, match=words):
        explainer(x, edge_index, **{"target": torch.zeros(8, dtype=torch.long)} | arguments)


def test_wrong_options():
    with pytest.raises(InputError, match="mask is one of 'positive', 'magnitude', got 'signed'"):
        ww.SubgraphLRPExplainer(mask="signed")
    with pytest.raises(InputError, match="leave position as it is"):
        ww.SubgraphLRPExplainer(alpha=0.5, position=None)
    with pytest.raises(InputError, match="Unknown rule"):
        ww.SubgraphLRPExplainer(rule="nonsense")
    with pytest.raises(InputError, match="position from 0 to 2"):
        explainer_of(Model("node", 4), MULTICLASS, "node", position=3)(x, edge_index, index=0)


def test_edge_masks_need_edges():
    sparse = torch.sparse_coo_tensor(edge_index.flip(0), torch.ones(14).double(), (8, 8)).to_sparse_csr()
    model = Model("node", 4)
    nodes = explainer_of(model, MULTICLASS, "node", masks=("object", None))
    assert torch.allclose(nodes(x, sparse, index=2).node_mask, nodes(x, edge_index, index=2).node_mask)
    with pytest.raises(InputError, match="got a sparse adjacency"):
        explainer_of(model, MULTICLASS, "node")(x, sparse, index=2)
    model.convs[1].flow = "target_to_source"
    with pytest.raises(InputError, match="both directions"):
        explainer_of(model, MULTICLASS, "node")(x, edge_index, index=2)
