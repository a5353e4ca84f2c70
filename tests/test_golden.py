"""The numbers of the paper's authors: their weights as plain PyG modules, their relevances and walks."""

import json
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.datasets import BA2MotifDataset
from torch_geometric.nn import GINConv, global_add_pool
from torch_geometric.utils import remove_self_loops

import walkwise as ww

ROOT = Path(os.environ.get("WALKWISE_DATA") or Path(__file__).parents[2] / "shared")
GOLDEN = ROOT / "golden"

pytestmark = pytest.mark.skipif(
    not GOLDEN.is_dir(), reason="golden values not found: set WALKWISE_DATA to the folder that holds golden/"
)


class Gin(nn.Module):
    """The authors' models: GIN blocks (one linear map in GCN-3), and a sum over nodes / √20."""

    def __init__(self, blocks):
        super().__init__()
        self.convs = nn.ModuleList(GINConv(nn.Sequential(*block)) for block in blocks)

    def forward(self, x, edge_index, batch=None):
        for conv in self.convs:
            x = conv(x, edge_index)
        return global_add_pool(x, batch) / 20**0.5


def load(name):
    spec = json.loads((GOLDEN / "weights" / f"{name}.json").read_text())
    arrays = np.load(GOLDEN / "weights" / f"{name}.npz")
    blocks, weights = [], []
    for block in spec["blocks"][1:]:
        modules = []
        for layer in block["layers"]:
            linear = nn.Linear(layer["in_width"], layer["out_width"], dtype=torch.float64)
            share = 0.5 if layer["aggregates"] else 1.0  # they average the sum with (A + I) / 2
            weights.append((linear, torch.tensor(arrays[layer["W"]]).double().t() * share, arrays[layer["b"]]))
            modules += [linear, nn.ReLU()] if layer["relu"] else [linear]
        blocks.append(modules)
    model = Gin(blocks)
    with torch.no_grad():
        for linear, weight, bias in weights:  # GINConv resets its network when it is made
            linear.weight.copy_(weight)
            linear.bias.copy_(torch.tensor(bias))
    return model.eval()


def mutag():
    graphs = []
    for graph in json.loads((GOLDEN / "graphs-mutag.json").read_text()):
        edges = torch.tensor(graph["edges"]).t()
        x = torch.eye(7, dtype=torch.float64)[torch.tensor(graph["feature_index"])]
        graphs.append((x, torch.cat([edges, edges.flip(0)], 1)))
    return graphs


def ba2motif(tmp_path):
    import lzma

    raw = tmp_path / "raw"
    raw.mkdir()
    packed = ROOT / "data" / "ba2motif" / "raw" / "BA-2motif.pkl.xz"
    (raw / "BA-2motif.pkl").write_bytes(lzma.decompress(packed.read_bytes()))
    graphs = []
    for data in BA2MotifDataset(str(tmp_path)):
        graphs.append((torch.ones(data.num_nodes, 1, dtype=torch.float64), remove_self_loops(data.edge_index)[0]))
    return graphs


def check_subgraphs(name, graphs, cases):
    model = load(name)
    questions = defaultdict(list)
    for case in cases:
        questions[case["graph"], case["target"]].append(case)
    worst = 0.0
    for (graph, target), asked in questions.items():
        chain = ww.trace(model, *graphs[graph], target=target)
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
    cases = json.loads((GOLDEN / "subgraphs-mutag.json").read_text())
    graphs = mutag()
    for name, asked in cases.items():
        check_subgraphs(name, graphs, asked)


def test_ba2motif_subgraphs(tmp_path):
    cases = json.loads((GOLDEN / "subgraphs-ba2motif.json").read_text())
    graphs = ba2motif(tmp_path)
    assert len(cases) == 6
    for name, asked in cases.items():
        check_subgraphs(name, graphs, asked)


def test_mutag_walks():
    """Their walk values carry a stabilizer of 1e-6, so they agree to about that."""
    golden = json.loads((GOLDEN / "walks-mutag.json").read_text())
    model, graphs = load(golden["meta"]["model"]), mutag()
    for graph in golden["graphs"]:
        chain = ww.trace(model, *graphs[graph["graph"]], target=graph["target_predicted_class"])
        rule = graph["rules"]["gamma"]
        for listed in (rule["exhaustive_top10"], rule["exhaustive_bottom10"]):
            ours = ww.walk_relevance(chain, [entry["walk"] for entry in listed]).tolist()
            assert ours == pytest.approx([entry["relevance"] for entry in listed], rel=2e-6)
        walks = ww.enumerate_walks(chain)
        assert len(walks) == rule["n_walks"]
        total = float(ww.walk_relevance(chain, walks).sum())
        assert total == pytest.approx(rule["sum_of_all_walks"], rel=1e-5)
        assert total == pytest.approx(chain.input_relevance, rel=1e-12)
