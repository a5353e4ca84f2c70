"""The two classes of a model with one logit, scores of links, and targets that raise."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_add_pool

import walkwise as ww
from walkwise.errors import InputError, TargetError
from walkwise.evaluation.parts import subgraph_values
from walkwise.evaluation.predictions import predict, traced

SETS = [[0, 1], [2, 3, 4]]


class Shaped(nn.Module):
    def __init__(self, inner, shape):
        super().__init__()
        self.inner, self.shape = inner, shape

    def forward(self, x, edge_index, batch=None):
        out = self.inner(x, edge_index, batch)
        return out.reshape(self.shape) if self.shape is not None else out


@pytest.fixture(params=[None, (-1,), ()], ids=["(G, 1)", "(G,)", "scalar"])
def binary(request, net):
    return Shaped(net(out=1), request.param)


def test_both_classes_of_one_logit(binary, graph):
    x, edge_index = graph()
    plain, positive, one, zero, negative = (
        ww.trace(binary, x, edge_index, target=t) for t in (None, "positive", 1, 0, "negative")
    )
    logit = float(binary(x, edge_index).detach())
    for chain in (plain, positive, one, zero):  # 0 is the column itself: a regression is never turned over
        assert chain.output == pytest.approx(logit)
        torch.testing.assert_close(ww.subgraph_relevance(chain, SETS), ww.subgraph_relevance(plain, SETS))
    assert negative.output == pytest.approx(-logit)
    assert negative.input_relevance == pytest.approx(-plain.input_relevance)
    torch.testing.assert_close(ww.subgraph_relevance(negative, SETS), -ww.subgraph_relevance(plain, SETS))
    turned = ww.trace(binary, x, edge_index, target=lambda out: -out.sum())
    torch.testing.assert_close(ww.node_relevance(negative), ww.node_relevance(turned))
    assert any('target="negative"' in note for note in zero.notes)
    assert not any("negative" in note for chain in (plain, positive, one, negative) for note in chain.notes)


def test_a_class_for_every_graph(net, graph):
    model, (x, edge_index) = net(out=1), graph()
    batch = Batch.from_data_list([Data(x=x, edge_index=edge_index)] * 3)
    chain = ww.trace(model, batch, target=["negative", "positive", 1])
    logit = float(model(x, edge_index).detach())
    assert chain.outputs.tolist() == pytest.approx([-logit, logit, logit])


@pytest.mark.parametrize(
    ("out", "target", "words"),
    [
        (3, "negative", "for models with one logit; the output has 3 columns"),
        (1, 2, 'target=2 is out of range.*"positive" and "negative"'),
        (1, -1, "target=-1 is out of range"),
        (1, "no", "column of the output.*got 'no'"),
    ],
)
def test_classes_that_do_not_exist(net, graph, out, target, words):
    with pytest.raises(TargetError, match=words):
        ww.trace(net(out=out), *graph(), target=target)
    with pytest.raises(InputError, match="column"):
        predict(net(out=out), *graph(), target=target)


def test_predictions_know_both_classes(net, graph):
    model, (x, edge_index) = net(out=1), graph()
    logit = float(model(x, edge_index).detach())
    masks = torch.tensor([[True] * 6, [True, True, False, False, False, True]])
    ours = {t: predict(model, x, edge_index, target=t) for t in (0, 1, "positive", "negative", None)}
    for target, prediction in ours.items():
        sign = -1 if target == "negative" else 1
        assert prediction.negative is (target == "negative")
        assert prediction.value() == pytest.approx(sign * logit)
        assert prediction.value("probability") == pytest.approx(1 / (1 + torch.tensor(-sign * logit).exp().item()))
        values = sign * subgraph_values(ours[0], masks).values
        torch.testing.assert_close(subgraph_values(prediction, masks).values, values)
        chain = traced(prediction)
        torch.testing.assert_close(ww.node_relevance(chain), sign * ww.node_relevance(traced(ours[0])))
        assert not chain.notes


class Links(nn.Module):
    """A score for every pair of nodes that is asked for."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, edge_index, edge_label_index):
        z = self.inner(x, edge_index)
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(-1)


@pytest.mark.parametrize("count", [1, 2, 4, 6, 9])
def test_scores_of_links(net, graph, count):
    """Whatever their number: also if it is that of the nodes, or of the graphs."""
    x, edge_index = graph()
    pairs = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 1, 2], [1, 2, 3, 4, 5, 0, 2, 3, 4]])[:, :count]
    data = Data(x=x, edge_index=edge_index, edge_label_index=pairs)
    model, last = Links(net(pooled=False)), count - 1
    chain = ww.trace(model, data, index=last)
    assert chain.output == pytest.approx(float(model(x, edge_index, pairs)[last].detach()))
    by_hand = ww.trace(model, data, target=lambda out: out[last])
    torch.testing.assert_close(ww.node_relevance(chain), ww.node_relevance(by_hand))
    with pytest.raises(TargetError, match=f"index={count} is out of range: the output has {count} row"):
        ww.trace(model, data, index=count)


def test_predictions_of_links_are_refused(net, graph):
    x, edge_index = graph()
    with pytest.raises(InputError, match=r"2 scores for 6 nodes.*ww\.trace"):
        predict(Links(net(pooled=False)), x, edge_index, edge_label_index=torch.tensor([[0, 1], [2, 3]]), index=1)


def test_what_a_callable_raises_comes_through(net, graph):
    with pytest.raises(KeyError, match="logits") as caught:
        ww.trace(net(), *graph(), target=lambda out: {}["logits"])
    if sys.version_info >= (3, 11):
        assert "callable target, which got a tensor of shape (1, 3)" in caught.value.__notes__[0]


@pytest.mark.parametrize("target", [0, [0, 1, 0], torch.tensor([0, 1, 0])], ids=str)
def test_labels_of_a_one_logit_model_get_a_note(target):
    """0 is the column itself, which somebody who hands over labels should know."""

    class Logit(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(2, 1)

        def forward(self, x, edge_index, batch):
            return global_add_pool(self.conv(x, edge_index), batch)

    batch, edges = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([[0, 2, 4], [1, 3, 5]])
    chain = ww.trace(Logit(), torch.ones(6, 2), edges, batch=batch, target=target)
    assert any("target=0" in note for note in chain.notes)
    crossing = torch.tensor([[0, 2, 3], [1, 3, 5]])
    assert not any("different graphs" in note for note in chain.notes)
    told = ww.trace(Logit(), torch.ones(6, 2), crossing, batch=batch, target=target)
    assert any("different graphs" in note for note in told.notes)
