"""One call that explains a prediction: its parts against the functions they come from, its check against the model."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GINConv, global_add_pool
from torch_geometric.utils import from_smiles, subgraph

import walkwise as ww
from walkwise.display import number
from walkwise.errors import InputError, TraceError
from walkwise.evaluation.naming import node_labels
from walkwise.explanation import Check, Explanation, Outcome
from walkwise.search.best_walks import TopWalks

NAMES = ["safe", "toxic"]


class GraphModel(nn.Module):
    """Two layers, a sum over nodes, and as many logits as there are to be."""

    def __init__(self, columns=2, node_level=False):
        super().__init__()
        torch.manual_seed(4)
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(i, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())) for i in (3, 8)
        )
        self.head, self.node_level = nn.Linear(8, columns), node_level

    def forward(self, x, edge_index, batch=None):
        for conv in self.convs:
            x = conv(x, edge_index)
        return self.head(x if self.node_level else global_add_pool(x, batch))


@pytest.fixture
def data():
    torch.manual_seed(1)
    pairs = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 2], [1, 2, 3, 4, 5, 6, 0, 5]])
    edge_index = torch.cat([pairs, pairs.flip(0)], 1)
    return Data(torch.rand(7, 3, dtype=torch.float64), edge_index, symbols=list("CCNOCCO"))


@pytest.fixture
def model():
    return GraphModel().double()


def test_the_parts_are_those_of_the_functions_they_come_from(model, data):
    found = ww.explain(model, data, target="toxic", class_names=NAMES, size=3, walks=6)
    chain = ww.trace(model, data, target=1)
    assert torch.allclose(found.node_relevance, ww.node_relevance(chain))
    assert torch.allclose(found.edge_relevance, ww.edge_relevance(chain, edge_index=data.edge_index))
    assert torch.allclose(found.feature_relevance, ww.feature_relevance(chain))
    assert found.subgraph == ww.find_subgraph(chain, 3)
    assert torch.equal(found.walks.walks, ww.top_walks(chain, 6).walks)
    assert found.relevance == pytest.approx(chain.input_relevance)
    assert found.target == "toxic"
    assert found.node_labels == tuple("CCNOCCO")


@pytest.mark.parametrize("node_level", [False, True])
def test_the_check_is_the_model_on_the_subgraph_and_without_it(data, node_level):
    model = GraphModel(node_level=node_level).double()
    index = 2 if node_level else None
    found = ww.explain(model, data, class_names=NAMES, index=index, target="safe", against="toxic", size=3)
    for outcome, kept in ((found.check.alone, True), (found.check.without, False)):
        nodes = [i for i in range(7) if (i in found.subgraph.nodes) == kept or i == index]
        edges, _ = subgraph(nodes, data.edge_index, relabel_nodes=True, num_nodes=7)
        with torch.no_grad():
            row = model(data.x[nodes], edges)[nodes.index(index) if node_level else 0]
        assert outcome.output == pytest.approx(float(row[0] - row[1]))
        assert outcome.says == NAMES[int(row.argmax())]


@pytest.mark.parametrize("node_level", [False, True])
def test_a_contrast_is_the_difference_of_two_outputs(data, node_level):
    model = GraphModel(3, node_level).double()
    index = 1 if node_level else None
    chain = ww.trace(model, data, target=2, against=0, index=index)
    row = index or 0
    twin = ww.trace(model, data, target=lambda output: output[row, 2] - output[row, 0])
    assert chain.output == pytest.approx(twin.output)
    assert torch.allclose(ww.node_relevance(chain), ww.node_relevance(twin))
    assert torch.allclose(ww.edge_relevance(chain), ww.edge_relevance(twin))
    found = ww.explain(model, data, target="c", against="a", class_names=list("abc"), index=index)
    assert found.target == "c, not a"
    assert torch.allclose(found.node_relevance, ww.node_relevance(twin))


def test_every_graph_of_a_batch_is_contrasted(model, data):
    both = torch.cat([data.x, 2 * data.x])
    edges = torch.cat([data.edge_index, data.edge_index + 7], 1)
    batch = torch.arange(2).repeat_interleave(7)
    chain = ww.trace(model, both, edges, batch=batch, target=[1, 0], against=[0, 1])
    with torch.no_grad():
        rows = model(both, edges, batch)
    assert torch.allclose(chain.outputs, torch.stack([rows[0, 1] - rows[0, 0], rows[1, 0] - rows[1, 1]]))


def test_one_logit_has_two_classes_with_names(data):
    model = GraphModel(1).double()
    with torch.no_grad():
        logit = float(model(data.x, data.edge_index))
    toxic = ww.explain(model, data, target="toxic", class_names=NAMES)
    safe = ww.explain(model, data, target="safe", against="toxic", class_names=NAMES)
    assert (toxic.prediction.output, safe.prediction.output) == (pytest.approx(logit), pytest.approx(-logit))
    assert toxic.prediction.says == safe.prediction.says == NAMES[int(logit > 0)]
    assert (toxic.target, safe.target) == ("toxic", "safe")
    assert torch.allclose(toxic.node_relevance, -safe.node_relevance)
    assert safe.outputs == (pytest.approx(logit),)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target": "toxik", "class_names": NAMES}, "or one of 'safe', 'toxic', got 'toxik'"),
        ({"target": 1, "against": 1}, "same output"),
        ({"target": 1, "against": 5}, "against=5 is out of range"),
        ({"target": lambda output: output[0, 0], "against": 1}, "subtract inside the callable"),
        ({"size": 9}, "size"),
        ({"walks": 0}, "walks, the number of top walks, must be a whole number of at least 1, got 0"),
        (
            {"target": "toxic", "class_names": [*NAMES, "other"]},
            "class_names must be 2 names, .* got 3: safe, toxic, other",
        ),
        ({"class_names": ["safe"]}, "class_names must be 2 names"),
        ({"class_names": 2}, "class_names must be a list of names, one for each column of the output, got 2"),
        ({"class_names": "ab"}, "class_names must be a list of names, one for each column of the output, got .ab."),
        ({"class_names": {"safe", "toxic"}}, "a list of names, .* got set"),
        ({"class_names": {"safe": 0, "toxic": 1}}, "a list of names, .* got dict"),
    ],
)
def test_what_does_not_fit_is_refused(model, data, arguments, words):
    with pytest.raises(InputError, match=words):
        ww.explain(model, data, **arguments)


@pytest.mark.parametrize("names", [np.array(NAMES), tuple(NAMES), {1: NAMES[1], 0: NAMES[0]}, iter(NAMES)])
def test_names_of_classes_in_every_form(model, data, names):
    expected = ww.explain(model, data, target="toxic", class_names=NAMES)
    found = ww.explain(model, data, target="toxic", class_names=names)
    assert (found.target, found.prediction.says) == (expected.target, expected.prediction.says)


def test_a_column_against_itself_is_refused_by_trace_too(model, data):
    with pytest.raises(ww.errors.TargetError, match="column itself"):
        ww.trace(model, data, target=1, against=1)


def test_a_callable_target_has_numbers_but_no_classes(model, data):
    found = ww.explain(model, data, target=lambda output: output[0, 0] * 2)
    assert found.outputs == ()
    assert not found.prediction.says
    assert found.check.alone.output == pytest.approx(2 * ww.explain(model, data, target=0).check.alone.output, rel=1e-9)


def test_what_is_saved_comes_back(model, data, tmp_path):
    found = ww.explain(model, data, class_names=NAMES)
    found.save(tmp_path / "one.safetensors")
    again = Explanation.load(tmp_path / "one.safetensors")
    assert again.to_dict() == found.to_dict()
    assert str(again) == str(found)
    assert again.chain is None
    assert json.loads(json.dumps(found.to_dict()))["subgraph"]["nodes"] == list(found.subgraph.nodes)


def test_other_files_are_refused(tmp_path, model, data):
    from walkwise.models import GIN, save_weights

    save_weights(GIN(1, 2, 2, 2), tmp_path / "weights.safetensors")
    with pytest.raises(InputError, match="does not hold an explanation"):
        Explanation.load(tmp_path / "weights.safetensors")
    with pytest.raises(InputError, match="Cannot write"):
        ww.explain(model, data).save(tmp_path / "nowhere" / "one.safetensors")


def test_tables(model, data):
    pytest.importorskip("pandas")
    found = ww.explain(model, data, size=3, walks=4)
    nodes = found.to_pandas()
    assert nodes["relevance"].tolist() == found.node_relevance.tolist()
    assert [i for i in nodes.index if nodes["subgraph"][i]] == list(found.subgraph.nodes)
    assert found.to_pandas("edges").shape == (16, 3)
    assert found.to_pandas("features").shape == (7, 3)
    assert found.to_pandas("walks").columns.tolist() == ["position 0", "position 1", "position 2", "relevance"]
    with pytest.raises(InputError, match="of must be"):
        found.to_pandas("atoms")


def test_it_shows_itself(model, data):
    pytest.importorskip("matplotlib")
    found = ww.explain(model, data, class_names=["<safe>", "<toxic>"], size=3)
    html = found._repr_html_()
    assert "data:image/png;base64," in html
    assert "&lt;" in html
    assert "<toxic>" not in html
    assert "these nodes alone" in html
    groups = {"left": [0, 1], "right": [2, 3]}
    for thing in (
        found.chain,
        found.walks,
        found.subgraph,
        ww.interactions(found.chain, groups),
        ww.shapley_values(found.chain),
        ww.shapley_interactions(found.chain),
    ):
        assert thing._repr_html_().count("<table") == thing._repr_html_().count("</table>") == 1


def test_what_holds():
    def check(whole, alone, without):
        return Check(Outcome(*whole), Outcome(*alone), Outcome(*without))

    held = check((4.0, "toxic"), (0.1, "toxic"), (-1.0, "safe"))
    assert held.sufficient
    assert held.necessary
    failed = check((4.0, "toxic"), (-0.1, "safe"), (1.0, "toxic"))
    assert not failed.sufficient
    assert not failed.necessary
    plain = check((-4.0,), (-2.5,), (-1.0,))
    assert plain.sufficient
    assert plain.necessary
    assert not check((-4.0,), (2.5,), (1.0,)).sufficient


def test_walks_that_tie_stand_together():
    relevance = torch.tensor([0.5, 0.25, 0.25, 0.25 + 1e-9, 0.1])
    found = TopWalks(torch.arange(10).reshape(5, 2), relevance, 0, 9)
    assert [(len(tie.walks), round(tie.relevance, 3), tie.complete) for tie in found.tied] == [
        (1, 0.5, True),
        (3, 0.25, True),
        (1, 0.1, False),
    ]
    assert TopWalks(found.walks, relevance, 0, 5).tied[-1].complete
    assert found.tied[1].amount == "3 walks"
    assert TopWalks(found.walks[:0], relevance[:0], 0, 0).tied == []


def test_a_model_from_the_documentation(data):
    found = ww.explain(GCN(3, 8, 2, 2).double(), data, index=3)
    assert str(found).startswith("Prediction for node 3: output")


def test_a_class_that_nobody_has_named(model, data):
    with pytest.raises(InputError, match=r"target must be a column of the output, 0 to 1, got 'toxic'.*class_names"):
        ww.explain(model, data, target="toxic")


def test_a_saved_explanation_can_be_read_by_whom_the_user_lets(model, data, tmp_path):
    import os
    import stat

    mask = os.umask(0o022)
    try:
        ww.explain(model, data, target=1).save(tmp_path / "found.safetensors")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "found.safetensors").stat().st_mode) == 0o644


def test_atoms_are_not_named_where_the_graph_has_them_in_another_order():
    pytest.importorskip("rdkit")
    bond = torch.tensor([[0, 1], [1, 0]])
    for z, names in (([6, 8], ("C", "O")), ([8, 6], ()), (None, ("C", "O"))):
        graph = Data(torch.eye(2), bond, smiles="CO")
        if z is not None:
            graph.z = torch.tensor(z)
        assert node_labels(graph, 2) == names


def test_graphs_from_smiles_name_their_atoms():
    pytest.importorskip("rdkit")
    graph = from_smiles("OCC", with_hydrogen=False)
    assert node_labels(graph, 3) == ("O", "C", "C")
    assert node_labels(from_smiles("OCC", with_hydrogen=True), 9)[:4] == ("O", "C", "C", "H")
    graph.smiles = "CCCO"  # another molecule than the graph
    assert node_labels(graph, 3) == ()
    graph.smiles = "O(("
    assert node_labels(graph, 3) == ()


def test_nodes_that_are_equal_but_for_rounding_are_listed_by_their_numbers(model, data):
    relevance = torch.tensor([0.1, 0.7, 0.3, 0.7, 0.2, -0.7, 0.0], dtype=torch.float64)
    apart = relevance + torch.tensor([0, 0, 0, 1e-12, 0, -2e-12, 0], dtype=torch.float64)
    found = replace(ww.explain(model, data, target=1), node_relevance=apart)
    assert "nodes: 1 C +0.7, 3 O +0.7, 5 C −0.7, 2 N" in str(found)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("x.csv", "to_pandas"), ("x.json", "to_dict"), ("x.PNG", "plot"), ("x.pt", r"save\('x\.safetensors'\)")],
)
def test_a_file_is_not_given_the_name_of_another_kind(name, instead, tmp_path, model, data):
    with pytest.raises(InputError, match=instead) as caught:
        ww.explain(model, data).save(tmp_path / name)
    assert (caught.value.argument, caught.value.got) == ("path", name)
    assert not list(tmp_path.iterdir())
    ww.explain(model, data).save(tmp_path / "without")
    assert Explanation.load(tmp_path / "without").num_nodes == 7


def test_nodes_without_relevance_are_not_among_the_most_relevant(model, data):
    found = ww.explain(model, data)
    few = replace(found, node_relevance=torch.tensor([0.0, 1.0, 0.0, 1 + 1e-12, -2.0, 1e-15, 0.0]).double())
    assert "Most relevant nodes: 4 C −2, 1 C +1, 3 O +1\n" in str(few)
    none = replace(found, node_relevance=torch.zeros(7))
    assert "Most relevant nodes: none has relevance\n" in str(none)


def test_layers_have_the_names_that_the_model_gives_them(data):
    class Whole(GraphModel):
        def forward(self, data):
            return super().forward(data.x, data.edge_index, data.batch)

    for model, said in ((Whole(), {}), (GraphModel(1), {"target": "negative"}), (Whole(1), {"target": "negative"})):
        chain = ww.explain(model.double(), data, **said).chain
        assert [layer.name for layer in chain.layers] == ["convs.0", "convs.1"]
        assert "model." not in str(chain)


def test_what_is_no_layer_is_called_by_the_name_of_the_model(data):
    class Plain(nn.Module):
        def forward(self, data):
            return data.x.sum(0, keepdim=True)

    with pytest.raises(TraceError, match="Plain has no message-passing layer"):
        ww.explain(Plain(), data)


def test_what_log_softmax_subtracts_is_not_said_of_biases(model, data, tmp_path):
    class Normalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x, edge_index):
            return self.inner(x, edge_index).log_softmax(-1)

    plain = ww.explain(model, data, target=1)
    explanation = ww.explain(Normalised(), data, target=1)
    leak = plain.prediction.output - plain.relevance
    with torch.no_grad():
        normaliser = -float(model(data.x, data.edge_index).logsumexp(-1))
    assert explanation.normaliser == pytest.approx(normaliser, rel=1e-4)
    text = str(explanation).splitlines()[0]
    assert text.endswith(f"biases absorb {number(leak)} and log_softmax's normaliser {number(normaliser)}.")
    explanation.save(tmp_path / "some.safetensors")
    assert str(ww.Explanation.load(tmp_path / "some.safetensors")) == str(explanation)
