"""Arguments that do not fit, put before public functions: an error of ours, never one from inside."""

from __future__ import annotations

import csv
import io
import pickle

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import walkwise as ww
from walkwise import baselines, datasets, errors, evaluation, models, training
from walkwise.datasets import ba2motif
from walkwise.errors import InputError, TargetError, WalkwiseError
from walkwise.evaluation.parts import subgraph_values
from walkwise.evaluation.predictions import predict
from walkwise.evaluation.tuning import tune_alpha
from walkwise.files import harmless
from walkwise.paper.tables import write_csv

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
X = torch.rand(3, 2, generator=torch.Generator().manual_seed(0))
DATA = Data(X, EDGES, y=torch.tensor([0]))
BAD = {
    "nothing": None,
    "text": "x",
    "negative": -1,
    "a fraction": 1.5,
    "NaN": float("nan"),
    "no entries": [],
    "a dict": {},
    "an object": object(),
    "an empty tensor": torch.tensor([]),
    "a number in a tensor": torch.tensor(1.5),
    "a list in a list": [[7]],
    "huge": 10**20,
    "a truth value": torch.tensor(True),
}


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    graph, node = models.GIN(2, 4, 2, 2).eval(), GCN(2, 8, 2, out_channels=3).eval()
    return (
        graph,
        node,
        predict(graph, DATA, target=0),
        datasets.load("ba2motif-generated"),
        models.build("ba2motif-gin2"),
    )


CALLS = {
    "predict(model)": lambda b, g, n, p, s, t: predict(b, DATA),
    "predict(data)": lambda b, g, n, p, s, t: predict(g, b),
    "predict(x)": lambda b, g, n, p, s, t: predict(g, b, EDGES),
    "predict(edge_index)": lambda b, g, n, p, s, t: predict(g, X, b),
    "predict(target)": lambda b, g, n, p, s, t: predict(g, DATA, target=b),
    "predict(index)": lambda b, g, n, p, s, t: predict(n, DATA, index=b),
    "subgraph_values(masks)": lambda b, g, n, p, s, t: subgraph_values(p, b),
    "subgraph_values(on)": lambda b, g, n, p, s, t: subgraph_values(p, torch.ones(1, 3, dtype=torch.bool), on=b),
    "activation_curve": lambda b, g, n, p, s, t: evaluation.activation_curve(g, DATA, b, target=0),
    "pruning_curve": lambda b, g, n, p, s, t: evaluation.pruning_curve(g, DATA, b, target=0),
    "motif_accuracy(order)": lambda b, g, n, p, s, t: evaluation.motif_accuracy(b, [0]),
    "motif_auroc(scores)": lambda b, g, n, p, s, t: evaluation.motif_auroc(b, [0]),
    "motif_auroc(motif)": lambda b, g, n, p, s, t: evaluation.motif_auroc([0.0, 1.0], b),
    "tune_alpha(graphs)": lambda b, g, n, p, s, t: tune_alpha(g, b),
    "tune_alpha(alphas)": lambda b, g, n, p, s, t: tune_alpha(g, [DATA], alphas=b),
    "tune_alpha(task)": lambda b, g, n, p, s, t: tune_alpha(g, [DATA], task=b),
    "tune_alpha(rule)": lambda b, g, n, p, s, t: tune_alpha(g, [DATA], rule=b, alphas=0.0),
    "compare(graphs)": lambda b, g, n, p, s, t: baselines.compare(["random"], g, b),
    "compare(sparsity)": lambda b, g, n, p, s, t: baselines.compare(["random"], g, [DATA], sparsity=b),
    "compare(alphas)": lambda b, g, n, p, s, t: baselines.compare(["random"], g, [DATA], alphas=b),
    "generate(seed)": lambda b, g, n, p, s, t: ba2motif.generate(1, seed=b),
    "load(name)": lambda b, g, n, p, s, t: datasets.load(b),
    "load(root)": lambda b, g, n, p, s, t: datasets.load("graph-sst2", root=b),
    "pack": lambda b, g, n, p, s, t: datasets.pack(b),
    "pack(one)": lambda b, g, n, p, s, t: datasets.pack([b]),
    "batch": lambda b, g, n, p, s, t: s.graphs.batch(b),
    "build": lambda b, g, n, p, s, t: models.build(b),
    "bundled": lambda b, g, n, p, s, t: models.bundled(b),
    "open_weights": lambda b, g, n, p, s, t: models.open_weights(b),
    "load_weights(path)": lambda b, g, n, p, s, t: models.load_weights(t, b),
    "save_weights(model)": lambda b, g, n, p, s, t: models.save_weights(b, "unwritten"),
    "from_arrays": lambda b, g, n, p, s, t: models.from_arrays(b, "x"),
    "train(model)": lambda b, g, n, p, s, t: training.train(b, s, epochs=1),
    "train(graphs)": lambda b, g, n, p, s, t: training.train(t, b, epochs=1),
    "train(epochs)": lambda b, g, n, p, s, t: training.train(t, s, epochs=b),
    "train(batch_size)": lambda b, g, n, p, s, t: training.train(t, s, epochs=1, batch_size=b),
    "evaluate(index)": lambda b, g, n, p, s, t: training.evaluate(t, s.graphs, b),
}


QUESTIONS = {
    "find_subgraph(size)": lambda b, c: ww.find_subgraph(c, b),
    "find_subgraph(method)": lambda b, c: ww.find_subgraph(c, 2, method=b),
    "find_subgraph(beam)": lambda b, c: ww.find_subgraph(c, 2, beam=b),
    "find_subgraph(max_subgraphs)": lambda b, c: ww.find_subgraph(c, 2, method="exact", max_subgraphs=b),
    "order_nodes(mode)": lambda b, c: ww.order_nodes(c, mode=b),
    "shapley_values(max_walks)": lambda b, c: ww.shapley_values(c, max_walks=b),
    "shapley_values(seed)": lambda b, c: ww.shapley_values(c, max_walks=1, seed=b),
    "shapley_interactions(max_walks)": lambda b, c: ww.shapley_interactions(c, max_walks=b),
    "enumerate_walks(max_walks)": lambda b, c: ww.enumerate_walks(c, max_walks=b),
    "top_walks(k)": lambda b, c: ww.top_walks(c, b),
    "top_walks(by)": lambda b, c: ww.top_walks(c, 2, by=b),
    "top_walks(max_expansions)": lambda b, c: ww.top_walks(c, 2, max_expansions=b),
    "node_relevance(layer)": lambda b, c: ww.node_relevance(c, layer=b),
    "edge_relevance(layer)": lambda b, c: ww.edge_relevance(c, layer=b),
    "interactions(groups)": lambda b, c: ww.interactions(c, b),
    "interactions(max_order)": lambda b, c: ww.interactions(c, {"a": [0]}, max_order=b),
    "query(groups)": lambda b, c: ww.query(c, "a", b),
    "walk_relevance(walks)": lambda b, c: ww.walk_relevance(c, b),
    "subgraph_relevance(subgraphs)": lambda b, c: ww.subgraph_relevance(c, b),
}
CALLS |= {name: lambda b, g, *others, ask=ask: ask(b, ww.trace(g, DATA, target=0)) for name, ask in QUESTIONS.items()}


def test_limits_may_be_written_in_any_way(made):
    chain = ww.trace(made[0], DATA, target=0)
    walks = ww.enumerate_walks(chain)
    for limit in (1e6, float("inf"), 10**30, torch.tensor(1000)):
        assert torch.equal(ww.enumerate_walks(chain, max_walks=limit), walks)
        assert ww.find_subgraph(chain, 2, method="exact", max_subgraphs=limit).exhaustive


@pytest.mark.filterwarnings("ignore::walkwise.errors.SamplingWarning")
@pytest.mark.parametrize("name", CALLS)
def test_what_does_not_fit_is_refused_in_words(made, name):
    allowed = 0
    for given in BAD.values():
        try:
            CALLS[name](given, *made)
        except WalkwiseError as error:
            refused = error
        else:
            allowed += 1
            continue
        assert str(refused)
        assert refused.argument, str(refused)
        assert refused.expected, str(refused)
    assert allowed < len(BAD) / 2  # None is a default here and there, and an empty list an empty set


def test_exceptions_of_a_callable_target_come_through(made):
    def mine(output):
        raise KeyError("of the user's own")

    with pytest.raises(KeyError, match="of the user's own") as raised:
        predict(made[0], DATA, target=mine).value()
    assert getattr(raised.value, "__notes__", ["callable target"])[0].count("callable target")


@pytest.mark.parametrize("wrong", [lambda output: output, lambda output: "x", lambda output: None])
def test_a_callable_target_makes_one_number(made, wrong):
    with pytest.raises(TargetError, match="into one number"):
        predict(made[0], DATA, target=wrong).value()


QUESTIONS = {
    "order_nodes": ww.order_nodes,
    "top_walks": lambda chain: ww.top_walks(chain, 3),
    "subgraph_relevance": lambda chain: ww.subgraph_relevance(chain, [[0]]),
    "node_relevance": ww.node_relevance,
    "find_subgraph": ww.find_subgraph,
    "shapley_values": ww.shapley_values,
    "query": lambda chain: ww.query(chain, "a", {"a": [0]}),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_is_no_chain_is_not_asked(name):
    explanation = ww.explain(GCN(2, 4, num_layers=2, out_channels=2), DATA, index=0)
    with pytest.raises(InputError, match=r"chain must be a RelevanceChain, got .*explanation\.chain"):
        QUESTIONS[name](explanation)
    with pytest.raises(InputError, match=r"chain must be a RelevanceChain, got 3\. ww\.trace"):
        QUESTIONS[name](3)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64, "float64", 3])
def test_a_chain_keeps_to_floating_point(made, dtype):
    chain = ww.trace(made[0], X, EDGES, target=0)
    with pytest.raises(InputError, match=r"dtype must be a floating-point type.*torch\.float64"):
        chain.to(dtype=dtype)
    assert chain.to(torch.float64).dtype == torch.float64
    with pytest.raises(InputError, match="floating-point type"):
        chain.to(torch.int64)
    with pytest.raises(InputError, match='device must be a device such as "cpu"'):
        chain.to("nowhere")


def test_errors_carry_fields_and_travel():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, WalkwiseError)]
    assert len(kinds) >= 7
    for kind in kinds:
        error = kind("a is wrong.", argument="a", expected="right", got=3, remedy="Mend it.")
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error) == "a is wrong. Mend it."
        assert (again.argument, again.expected, again.got, again.remedy) == ("a", "right", 3, "Mend it.")
        assert str(kind("Plain.")) == "Plain."


@pytest.mark.parametrize("text", ["=1+2", "+1+2", "-2+3", "@SUM(A1)", "\t=1", " =1", "\r=1", "=cmd|' /C calc'!A0"])
def test_text_is_no_formula_to_a_spreadsheet(tmp_path, text):
    shown = f"'{text}".replace("\r", " ")  # which would end the row
    assert harmless(text) == shown
    write_csv([{text: text, "n": -1.5}], tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        header, row = csv.reader(file)
    assert header == [shown, "n"]
    assert row == [shown, "-1.5"]


@pytest.mark.parametrize("cell", [-1.5, 0, None, "-1.5", "+2e-3", "ring", "", "a=b", "C=C"])
def test_numbers_and_other_text_stay(cell):
    assert harmless(cell) is cell


def test_exports_of_the_explorer_hold_no_formula():
    pytest.importorskip("dash")
    from walkwise.explorer.exports import as_csv

    document = {
        "selection": {"nodes": [0], "alpha": 0.0, "relevance": -1.0, "alphas": [], "values": []},
        "order": {},
        "prediction": {"outputs": {"=1+2": -1.0}},
        "relevance": {"nodes": [{"name": "@x", "node": 0, "relevance": -2.0}]},
        "walks": [],
        "groups": {"+1+2": [0]},
        "interactions": {},
        "query": {"formula": "-a", "relevance": 1.0},
    }
    rows = list(csv.reader(io.StringIO(as_csv(document))))
    assert [row[1] for row in rows if row[0] in ("output", "node", "group", "query")] == [
        "'=1+2",
        "'@x",
        "'+1+2",
        "'-a",
    ]
    assert rows[1][4] == "-1.0"
