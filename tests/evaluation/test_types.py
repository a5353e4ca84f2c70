"""Predictions for heterogeneous graphs and their parts, against parts that are made by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv

import walkwise as ww
from typed_graphs import Reader, papers, part_by_hand
from walkwise.errors import InputError
from walkwise.evaluation.parts import subgraph_logits, subgraph_values
from walkwise.evaluation.predictions import predict, traced

NAMES = ["author"] * 5 + ["paper"] * 6 + ["venue"] * 2
FIRST = {"author": 0, "paper": 5, "venue": 11}


def by_type(mask):
    nodes = mask.nonzero().flatten().tolist()
    return {name: [node - FIRST[name] for node in nodes if NAMES[node] == name] for name in FIRST}


@pytest.fixture
def masks():
    torch.manual_seed(2)
    drawn = torch.rand(12, 13) < 0.6
    drawn[0], drawn[1] = True, False
    return drawn


@pytest.mark.parametrize("index", [("paper", 1), ("author", 3), ("venue", 0)])
def test_parts_of_a_graph_are_those_made_by_hand(masks, index):
    data, model = papers(), Reader()
    prediction = predict(model, data, index=index, target=1)
    torch.testing.assert_close(prediction.logits, model(data.x_dict, data.edge_index_dict)[index[0]][index[1]].detach())
    masks[:, FIRST[index[0]] + index[1]] = True  # the explained node always stays
    found = subgraph_logits(prediction, masks)
    for mask, row in zip(masks, found, strict=True):
        kept = by_type(mask)
        part = part_by_hand(data, kept)
        torch.testing.assert_close(
            row, model(part.x_dict, part.edge_index_dict)[index[0]][kept[index[0]].index(index[1])]
        )
    torch.testing.assert_close(subgraph_values(prediction, masks).values, found[:, 1])


def test_one_output_for_the_whole_graph(masks):
    data, model = papers(), Reader(whole=True)
    found = subgraph_logits(predict(model, data), masks)
    for mask, row in zip(masks, found, strict=True):
        part = part_by_hand(data, by_type(mask))
        expected = model(part.x_dict, part.edge_index_dict)[0] if mask.any() else torch.zeros(2, dtype=torch.float64)
        torch.testing.assert_close(row, expected.detach())


@pytest.mark.parametrize("target", ["positive", "negative"])
def test_the_chain_is_that_of_the_graph_itself(target):
    data, model = papers(), Reader(columns=1)
    prediction = predict(model, data, index=("paper", 1), target=target)
    chain, direct = traced(prediction), ww.trace(model, data, index=("paper", 1), target=target)
    assert chain.output == pytest.approx(prediction.value()) == direct.output
    assert chain.types.counts == {"author": 5, "paper": 6, "venue": 2}
    torch.testing.assert_close(ww.node_relevance(chain)["venue"], ww.node_relevance(direct)["venue"])


def test_a_contrast_and_a_curve():
    data, model = papers(), Reader()
    prediction = predict(model, data, index=("paper", 1), target=1, against=0)
    chain = traced(prediction)
    assert chain.output == pytest.approx(float(prediction.logits[1] - prediction.logits[0]))
    curve = ww.activation_curve(model, data, ww.order_nodes(chain), index=("paper", 1), target=1)
    assert float(curve.values[-1]) == pytest.approx(float(prediction.logits[1]))
    same = ww.activation_curve(model, data, ww.order_nodes(chain))
    assert float(same.values[-1]) == pytest.approx(chain.output)
    assert same.target == "output 1, not output 0"


def test_what_does_not_fit_is_refused():
    data, model = papers(), Reader()
    with pytest.raises(InputError, match=r"index must be \(type, i\), of a heterogeneous graph of the types 'author'"):
        predict(model, data, index=3)
    with pytest.raises(InputError, match="There is no node 9 of type 'paper'"):
        predict(model, data, index=("paper", 9))
    with pytest.raises(InputError, match="does not have one row for each of the 5 nodes of type 'author'"):
        predict(Reader(whole=True), data, index=("author", 0))


def test_a_type_without_features_is_explained_but_not_run_in_parts():
    """As in PyG's own example of link prediction: users have an embedding, and the model scores pairs."""

    class Scores(nn.Module):
        def __init__(self):
            super().__init__()
            self.users, self.items = nn.Embedding(4, 6), nn.Linear(3, 6)
            self.rates, self.rated = SAGEConv(6, 6), SAGEConv(6, 6)

        def forward(self, data):
            user, item = self.users(data["user"].node_id), self.items(data["item"].x)
            there, back = data["user", "rates", "item"], data["item", "rated", "user"]
            user, item = (
                self.rated((item, user), back.edge_index).relu(),
                self.rates((user, item), there.edge_index).relu(),
            )
            return (user[there.edge_label_index[0]] * item[there.edge_label_index[1]]).sum(-1)

    torch.manual_seed(0)
    data, model = HeteroData(), Scores()
    data["user"].node_id, data["item"].x = torch.arange(4), torch.rand(3, 3)
    edges = torch.tensor([[0, 1, 2, 3, 3], [0, 0, 1, 2, 1]])
    data["user", "rates", "item"].edge_index, data["item", "rated", "user"].edge_index = edges, edges.flip(0)
    data["user", "rates", "item"].edge_label_index = torch.tensor([[0, 3], [1, 0]])
    found = ww.explain(model, data, target=lambda output: output[1])
    direct = ww.trace(model, data, index=1)
    assert found.check is None
    assert any("nodes of type 'user' have no features" in note for note in found.notes)
    assert found.relevance == pytest.approx(direct.input_relevance)
    torch.testing.assert_close(found.node_relevance[4:], ww.node_relevance(direct, layer="start")["item"])
    assert "user 3" in str(found)
    with pytest.raises(InputError, match=r"Nodes of type 'user' have no features.*ww\.trace"):
        ww.activation_curve(model, data, ww.order_nodes(found.chain), target=lambda output: output[1])
    with pytest.raises(InputError, match=r"\(type, i\).*For the score of a pair"):
        ww.explain(model, data, index=1)


def test_one_call_explains_by_type(tmp_path):
    data, model = papers(), Reader()
    found = ww.explain(model, data, index=("paper", 1), class_names=["theory", "experiment"], size=4)
    says = found.check.whole.says
    assert str(found).startswith(f"Prediction for paper 1: {says}.")
    assert found.subgraph.named["paper"][0] in range(6)
    assert all(word in found._repr_html_() for word in ("author 1", "venue 0", "→ paper 1"))
    torch.testing.assert_close(found.node_relevance[11:], ww.node_relevance(found.chain, layer="start")["venue"])
    assert {name: part.shape[1] for name, part in found.feature_relevance.items()} == {
        "author": 4,
        "paper": 6,
        "venue": 3,
    }
    kept = by_type(torch.tensor([node in found.subgraph.numbers for node in range(13)]))
    part = part_by_hand(data, kept)
    alone = model(part.x_dict, part.edge_index_dict)["paper"][kept["paper"].index(1)].detach()
    assert found.check.alone.output == pytest.approx(
        float(alone.max() if says == found.check.alone.says else alone.min())
    )
    found.save(tmp_path / "paper.safetensors")
    again = ww.Explanation.load(tmp_path / "paper.safetensors")
    assert (str(again), again.to_dict()) == (str(found), found.to_dict())
    assert again.walks.named == found.walks.named
    pytest.importorskip("pandas")
    assert found.to_pandas().label[11] == "venue 0"
    assert found.to_pandas("features").shape == (13, 6)
    assert found.to_pandas("walks")["position 2"].eq("paper 1").all()
    assert set(found.to_pandas("edges").source) <= set(found.to_pandas().label)
    assert found.to_dict()["subgraph"]["nodes"] == found.subgraph.nodes == found.subgraph.named
