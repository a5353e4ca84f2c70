"""Predictions made ready: traced once, drawn, named, the model left alone."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import walkwise as ww
from walkwise import models
from walkwise.errors import AbandonedError, InputError
from walkwise.explorer import Session, exports
from walkwise.explorer.cases import Desk, open_case
from walkwise.explorer.drawings import MOST_DRAWN, draw
from walkwise.explorer.structure import elements
from walkwise.questions.progress import shown


def test_a_case_is_the_librarys_trace(motifs, motif):
    graph = motifs.graphs[0]
    chain = ww.trace(
        motifs.model, graph.x, graph.edge_index, target=motif.target, batch=torch.zeros(25, dtype=torch.long)
    )
    assert torch.allclose(motif.heat, ww.node_relevance(chain))
    assert motif.target == int(motifs.model(graph.x, graph.edge_index).argmax())
    assert (motif.title, motif.label, motif.classes) == ("graph 0", "cycle", ("cycle", "house"))
    other = open_case(motifs, 0, 1 - motif.target)
    assert other.target_title == motif.classes[1 - motif.target]
    assert not torch.allclose(other.heat, motif.heat)


def test_the_rule_is_the_sessions(motifs, motif):
    plain = open_case(replace(motifs, rule="zero"), 0, motif.target)
    assert not torch.allclose(plain.heat, motif.heat)


def test_the_model_is_left_alone(motifs, unchanged):
    with unchanged(motifs.model, motifs.graphs[1].x):
        open_case(motifs, 1)


def test_a_graph_is_drawn_with_its_motif(motif):
    drawing = motif.drawing
    assert not drawing.molecule
    assert drawing.groups == {"motif": [20, 21, 22, 23, 24]}
    assert drawing.places.shape == (25, 2)
    assert len(drawing.edges) == 25
    assert all(u < v for u, v in drawing.edges)
    assert motif.node_title(3) == "3"


def test_a_molecule_is_drawn_as_one(molecules, molecule):
    drawing = molecule.drawing
    assert drawing.molecule
    assert drawing.labels == ("C",) * 7 + ("N⁺", "O", "O⁻")
    assert drawing.groups == {"NO2": [7, 8, 9], "ring": [1, 2, 3, 4, 5, 6]}
    lines = dict(zip(drawing.edges, drawing.lines, strict=True))
    assert [len(lines[pair]) for pair in [(7, 8), (7, 9), (1, 2)]] == [2, 1, 2]
    assert [line.dashed for line in lines[7, 8] + lines[1, 2]] == [False, False, False, True]
    middle = drawing.places[1:7].mean(0)
    for u, v in [(1, 2), (3, 4)]:  # the second line is nearer to the middle of the ring
        inwards = middle - drawing.places[[u, v]].mean(0)
        assert np.dot(inwards, [lines[u, v][1].x, lines[u, v][1].y]) > 0.5
    lengths = [np.hypot(*(drawing.places[u] - drawing.places[v])) for u, v in drawing.edges]
    assert lengths == pytest.approx([1.0] * len(lengths), abs=0.05)
    assert molecule.node_title(7) == "N7"
    assert [len(lines) for lines in open_case(molecules, 1).drawing.lines] == [3, 1, 2]


def test_one_hot_atoms_are_named_by_the_session(molecules):
    data = molecules.graphs[0]
    bare = Data(data.x, data.edge_index)
    named = replace(molecules, graphs=[bare], names=None, node_names=("C", "N", "O", "F", "I", "Cl", "Br"))
    assert draw(named, bare).molecule
    assert draw(named, bare).labels == tuple(data.symbols)
    assert not draw(replace(named, node_names=None), bare).molecule
    unknown = replace(named, node_names=("C", "N", "O", "F", "I", "Cl", "Xx"))
    strange = Data(torch.eye(7)[[0, 6]], torch.tensor([[0, 1], [1, 0]]))
    assert not draw(unknown, strange).molecule  # no atom: still a graph, with its names
    assert draw(unknown, strange).labels == ("C", "Xx")


def test_words_name_nodes(motifs):
    data = Data(torch.ones(2, 1), torch.tensor([[0, 1], [1, 0]]), tokens=["not", "bad"])
    case = open_case(replace(motifs, model=motifs.model, graphs=[data_as(data)], names=["s"]), 0)
    assert case.drawing.labels == ("not", "bad")
    assert case.node_title(1) == "bad (1)"
    assert case.label is None


def data_as(data):
    """In the model's precision."""
    data.x = data.x.double()
    return data


def test_a_desk_traces_once_and_one_at_a_time(motifs):
    desk = Desk(motifs)
    found = []
    threads = [threading.Thread(target=lambda g=g: found.append(desk.case(g % 2, 0))) for g in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({id(case) for case in found}) == 2
    alone = open_case(motifs, 1, 0)
    assert torch.equal(desk.case(1, 0).heat, alone.heat)


@pytest.mark.parametrize(
    ("y", "label"), [(torch.tensor([1]), "house"), (1, "house"), (None, None), (9, None), (0.0, None)]
)
def test_the_label_is_what_the_data_name(motifs, y, label):
    graph = motifs.graphs[0].clone()
    graph.y = y
    assert open_case(replace(motifs, graphs=[graph]), 0).label == label


def test_the_label_of_a_node_is_the_nodes_own():
    graph = Data(torch.ones(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), y=torch.tensor([0, 1, 1]))
    session = Session(GCN(2, 4, 2, out_channels=2), [graph], class_names=["no", "yes"], index=1)
    assert open_case(session, 0).label == "yes"
    assert open_case(session, 0, {"index": 0}).label == "no"
    assert Desk(session).summaries[0][2] == "yes"
    graph.y = torch.tensor([0.5, 0.1, 0.2])
    assert open_case(session, 0).label is None


def test_bonds_that_are_none_leave_a_graph(molecules):
    graph = molecules.graphs[0].clone()
    graph.bond_orders = torch.full_like(graph.bond_orders, 0.25)
    del graph.smiles
    drawing = draw(molecules, graph)
    assert not drawing.molecule
    assert drawing.labels[7] == "N"


def test_node_level_models_have_a_row(net, graph):
    x, edge_index = graph()
    session = Session(net(pooled=False), [Data(x, edge_index)], index=2)
    case = open_case(session, 0)
    assert case.prediction.index == 2
    assert case.classes == ("class 0", "class 1", "class 2")


def test_wrong_sessions_are_refused(motifs):
    with pytest.raises(InputError, match="at least one graph"):
        Session(motifs.model, [])
    with pytest.raises(InputError, match="1 entries for 4 graphs"):
        Session(motifs.model, motifs.graphs, names=["one"])
    with pytest.raises(InputError, match="the number of a graph, 0 to 3, got 4"):
        open_case(motifs, 4)


def test_of_large_graphs_the_part_that_matters_is_drawn(net):
    torch.manual_seed(0)
    source = torch.arange(1, 600)
    edges = torch.stack([source, (source * torch.rand(599)).long()])
    data = Data(torch.randn(600, 3, dtype=torch.float64), torch.cat([edges, edges.flip(0)], 1))
    case = open_case(Session(net(pooled=False), [data], index=7), 0)
    assert len(case.drawing.nodes) == len(case.drawing.places) <= MOST_DRAWN
    kept = set(case.drawing.nodes)
    assert 7 in kept
    assert all(u in kept and v in kept for u, v in case.drawing.edges)
    best = case.heat.abs().argsort(descending=True)[:40].tolist()
    assert all(node in kept for node in best if abs(case.heat[node]) >= 0.02 * case.heat.abs().max())
    drawn = {element["data"]["node"] for element in elements(case) if "node" in element["data"]}
    assert drawn == kept


def test_one_logit_has_two_classes():
    torch.manual_seed(0)
    data = Data(
        torch.rand(5, 3), torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]]), y=torch.tensor([1])
    )
    session = Session(models.GIN(3, 8, 1, 2).eval(), [data], class_names=["safe", "toxic"])
    safe, toxic = open_case(session, 0, 0), open_case(session, 0, 1)
    assert (safe.target_title, toxic.target_title, toxic.label) == ("safe", "toxic", "toxic")
    assert safe.chain.output == pytest.approx(-toxic.chain.output)
    assert safe.said == toxic.said == int(toxic.chain.output > 0)
    assert set(exports.shown(toxic)["prediction"]["outputs"]) == {"toxic"}


def test_what_the_model_and_the_data_say_is_told(motifs):
    summaries = Desk(motifs).summaries
    assert [name for name, _, _ in summaries] == [f"graph {i}" for i in range(4)]
    for number, (_, said, label) in enumerate(summaries):
        case = open_case(motifs, number)
        assert (said, label) == (case.classes[case.said], case.label)


def test_a_long_question_is_given_up_when_its_tab_asks_again(motifs):
    desk, begun = Desk(motifs), []

    def steps():
        for step in range(5):
            begun.append(step)
            if step == 1:
                with desk.turn("a", "order"):  # the same tab asks again
                    pass
            yield step

    with pytest.raises(AbandonedError), desk.turn("a", "order"):
        list(shown(steps(), progress=False))
    assert begun == [0, 1]
    with desk.turn("b", "order"), desk.turn("c", "order"):  # other tabs do not matter
        assert list(shown(range(3), progress=False)) == [0, 1, 2]
