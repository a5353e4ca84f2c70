"""The numbers of the paper's authors: their weights as plain PyG modules, their relevances and walks."""

from collections import defaultdict

import pytest
import torch

import walkwise as ww
from authors import ba2motif, golden, load, mutag, needs_golden

pytestmark = needs_golden


def check_subgraphs(name, graphs, cases):
    model = load(name)
    questions = defaultdict(list)
    for case in cases:
        questions[case["graph"], case["target"]].append(case)
    worst = 0.0
    for (graph, target), asked in questions.items():
        chain = ww.trace(model, graphs[graph].x, graphs[graph].edge_index, target=target, rule="gamma")
        alphas = sorted({case["alpha"] for case in asked})
        many = ww.subgraph_relevance(chain, [case["nodes"] for case in asked], alpha=alphas)
        coefficients = ww.subgraph_polynomial(chain, [case["nodes"] for case in asked])
        for row, polynomial, case in zip(many, coefficients, asked, strict=True):
            powers = torch.tensor([case["alpha"] ** d for d in range(len(polynomial))], dtype=torch.float64)
            single = ww.subgraph_relevance(chain, [case["nodes"]], alpha=case["alpha"])[0]
            for ours in (row[alphas.index(case["alpha"])], polynomial @ powers, single):
                worst = max(worst, abs(float(ours) - case["relevance"]) / abs(case["full_graph"]))
    assert worst <= 1e-9, f"{name}: worst difference {worst:.2e} of R_G"


def test_mutag_subgraphs():
    cases, graphs = golden("subgraphs-mutag"), mutag()
    for name, asked in cases.items():
        check_subgraphs(name, graphs, asked)


def test_ba2motif_subgraphs():
    cases, graphs = golden("subgraphs-ba2motif"), ba2motif()
    assert len(cases) == 6
    for name, asked in cases.items():
        check_subgraphs(name, graphs, asked)


def test_mutag_walks():
    """Their walk values carry a stabilizer of 1e-6, so they agree to about that."""
    listed_walks, graphs = golden("walks-mutag"), mutag()
    model = load(listed_walks["meta"]["model"])
    for graph in listed_walks["graphs"]:
        data, target = graphs[graph["graph"]], graph["target_predicted_class"]
        chain = ww.trace(model, data.x, data.edge_index, target=target, rule="gamma")
        rule = graph["rules"]["gamma"]
        for listed in (rule["exhaustive_top10"], rule["exhaustive_bottom10"]):
            ours = ww.walk_relevance(chain, [entry["walk"] for entry in listed]).tolist()
            assert ours == pytest.approx([entry["relevance"] for entry in listed], rel=2e-6)
        walks = ww.enumerate_walks(chain)
        assert len(walks) == rule["n_walks"]
        total = float(ww.walk_relevance(chain, walks).sum())
        assert total == pytest.approx(rule["sum_of_all_walks"], rel=1e-5)
        assert total == pytest.approx(chain.input_relevance, rel=1e-12)
