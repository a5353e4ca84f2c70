"""The PyG adapter, tested the way PyG tests its own algorithms, and against chains traced by hand."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch
from torch import nn
from torch_geometric import EdgeIndex
from torch_geometric.nn import GATConv, GCNConv, GraphConv, TransformerConv

import walkwise as ww
from explained import BINARY, ENDINGS, MULTICLASS, REGRESSION, Model, columns, edge_index, explainer_of, further, x
from walkwise.errors import InputError

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
    explanation = explainer_of(Model("node", 4), MULTICLASS, "node", rule="gamma")(x, edge_index, index=2)
    assert explanation.node_relevance.min() < 0 < explanation.node_relevance.max()
    assert torch.equal(explanation.node_mask[:, 0] > 0, explanation.node_relevance > 0)


def test_negative_relevance_alone_is_the_mask_of_a_negative_regression():
    """As in a model whose every weight makes its output negative."""
    model = Model("node", 1).requires_grad_(False)
    for parameter in model.parameters():
        parameter.abs_() if parameter.dim() == 2 else parameter.zero_()
    model.head.weight.neg_()
    explainer = explainer_of(model, REGRESSION, "node", masks=("attributes", "object"))
    explanation = explainer(x.abs(), edge_index, index=2)
    assert explanation.node_relevance.min() < 0
    assert torch.equal(explanation.node_mask, explanation.feature_relevance / explanation.feature_relevance.min())
    assert float(explanation.edge_mask.max()) == 1
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


def test_edges_of_another_class():
    plain = explainer_of(Model("node", 4), MULTICLASS, "node")
    index = EdgeIndex(edge_index, sparse_size=(8, 8))
    assert torch.equal(plain(x, index, index=2).edge_mask, plain(x, edge_index, index=2).edge_mask)


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
        with pytest.raises(InputError, match=r"numbers of shape \(M, F\).*Ask for node_mask_type='object'"):
            explainer_of(Typed(), MULTICLASS, "node", masks=(kind, None))(types, edge_index, index=2)


@pytest.mark.parametrize("make", [GATConv, TransformerConv])
@pytest.mark.parametrize("ending", [None, ENDINGS[MULTICLASS, "probs"]])
def test_edge_features_and_layers_carried_by_autograd(make, ending):
    class Attended(nn.Module):
        def __init__(self, ending):
            super().__init__()
            torch.manual_seed(1)
            self.a, self.b, self.ending = make(3, 4, edge_dim=2), make(4, 3, edge_dim=2), ending
            self.double()

        def forward(self, x, edge_index, edge_attr):
            h = self.b(self.a(x, edge_index, edge_attr=edge_attr).relu(), edge_index, edge_attr=edge_attr)
            return h if self.ending is None else self.ending(h)

    attributes = torch.randn(14, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    explainer = explainer_of(Attended(ending), MULTICLASS, "node", "raw" if ending is None else "probs")
    explanation = explainer(x, edge_index, index=3, edge_attr=attributes)
    column = int(explanation.target[3])
    chain = ww.trace(Attended(None), x, edge_index, index=3, target=column, edge_attr=attributes)
    assert explanation.chain.output == pytest.approx(chain.output)
    assert torch.allclose(explanation.node_relevance, ww.node_relevance(chain))
    assert torch.allclose(explanation.edge_relevance, ww.edge_relevance(chain))
    assert torch.equal(explanation.edge_attr, attributes)
