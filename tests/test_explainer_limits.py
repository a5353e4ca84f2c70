"""The PyG adapter leaves the model alone, and says what it refuses and why."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.explain.config import ExplainerConfig, ModelConfig
from torch_geometric.nn import ARMAConv, GATConv, GCNConv, HypergraphConv

import walkwise as ww
from explained import BINARY, MULTICLASS, REGRESSION, Model, columns, edge_index, explainer_of, x
from walkwise.errors import CoverageWarning, InputError, TargetError, TraceError, UnsupportedLayerError

# -- the model ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [GCNConv, GATConv, ARMAConv])
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
        ["autograd"] * 2 if make is ARMAConv else ["closed form"] * 2
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
    with pytest.warns(CoverageWarning, match="no softmax or sigmoid was found"):
        explanation = explainer_of(model, MULTICLASS, "node", "probs")(x, edge_index, index=2)
    assert "not the logits" in str(explanation.chain)
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


@pytest.mark.parametrize(
    ("mode", "options", "arguments", "words"),
    [
        (MULTICLASS, {}, {"index": 8}, r"index must be one or more of the 8 rows of the output, 0 to 7, got \[8\]"),
        (MULTICLASS, {}, {"index": torch.tensor([], dtype=torch.long)}, "index must be one or more"),
        (MULTICLASS, {}, {"index": torch.zeros(8, dtype=torch.bool)}, "index must be one or more"),
        (MULTICLASS, {}, {"index": torch.ones(3, dtype=torch.bool)}, "index must be one or more"),
        (MULTICLASS, {}, {"index": torch.tensor([1.0])}, "index must be one or more"),
        (MULTICLASS, {}, {"target": torch.tensor([0, 1])}, r"one class per row of the output, of shape \(8,\)"),
        (MULTICLASS, {}, {"target": 1}, "got 1"),
        (MULTICLASS, {}, {"target": torch.full((8,), 4)}, "target must be classes from 0 to 3, got 4 to 4"),
        (BINARY, {}, {"target": torch.full((8,), 2)}, "classes from 0 to 1"),
        (REGRESSION, {"column": 2}, {}, r"column=2 is out of range: the output has 2 column\(s\)"),
    ],
)
def test_wrong_targets(mode, options, arguments, words):
    explainer = explainer_of(Model("node", columns(mode)), mode, "node", kind="phenomenon", **options)
    with pytest.raises(TargetError, match=words):
        explainer(x, edge_index, **{"target": torch.zeros(8, dtype=torch.long)} | arguments)


def test_outputs_that_are_not_a_tensor():
    model = Model("node", 4, lambda z: (z, z))
    for return_type in ("raw", "probs"):
        explainer = explainer_of(model, MULTICLASS, "node", return_type, kind="phenomenon")
        with pytest.raises(TargetError, match="must return one tensor with a row per prediction; it returned a tuple"):
            explainer(x, edge_index, target=torch.zeros(8, dtype=torch.long))


def test_falling_back_can_be_refused():
    explainer = explainer_of(Model("node", 4, make=ARMAConv), MULTICLASS, "node", fallback="error")
    with pytest.raises(UnsupportedLayerError, match=r"convs\.0"):
        explainer(x, edge_index, index=2)


def test_wrong_options():
    with pytest.raises(InputError, match="mask must be one of 'positive', 'magnitude', got 'signed'"):
        ww.SubgraphLRPExplainer(mask="signed")
    with pytest.raises(InputError, match="Give alpha or position, not both"):
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
    with pytest.raises(InputError, match="a sparse adjacency has no columns"):
        explainer_of(model, MULTICLASS, "node")(x, sparse, index=2)
    model.convs[1].flow = "target_to_source"
    with pytest.raises(InputError, match="both directions"):
        explainer_of(model, MULTICLASS, "node")(x, edge_index, index=2)
    hyper = Model("node", 4, make=HypergraphConv)
    assert explainer_of(hyper, MULTICLASS, "node", masks=("object", None))(x, edge_index, index=2).node_mask.any()
    with pytest.raises(InputError, match="names a hyperedge"):
        explainer_of(hyper, MULTICLASS, "node")(x, edge_index, index=2)


@pytest.mark.parametrize("masks", [("object", "object"), ("object", None)])
def test_a_model_without_layers_is_refused_for_having_none(masks):
    """Whatever masks are asked for: that no flow is known is no reason then."""
    model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 4)).double()
    model.forward = lambda x, edge_index: model[0](x)
    with pytest.raises(TraceError, match="Sequential has no message-passing layer"):
        explainer_of(model, MULTICLASS, "node", masks=masks)(x, edge_index, index=2)
