"""EMP-neu and AMP-ave against enumeration and against the numbers of the paper's authors."""

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GCN, GIN, GINConv

import walkwise as ww
from walkwise.errors import InputError
from walkwise.partialwalks import stages
from walkwise.topwalks import _search, top_walks
from walkwise.walksearch import _lattice, top_walks_amp_ave, top_walks_emp_neu

GOLDEN = Path(os.environ.get("WALKWISE_DATA", "")) / "golden"
torch.set_num_threads(1)  # on tensors this small threads only wait for each other

golden = pytest.mark.skipif(
    "WALKWISE_DATA" not in os.environ or not GOLDEN.is_dir(),
    reason="golden values not found: set WALKWISE_DATA to the folder that holds golden/",
)


class Pooled(nn.Module):
    def __init__(self, gnn):
        super().__init__()
        self.gnn = gnn

    def forward(self, x, edge_index):
        return self.gnn(x, edge_index).sum(0, keepdim=True)


def small_chain(seed, kind=GIN, rule="zero", M=4, **kwargs):
    torch.manual_seed(seed)
    model = Pooled(kind(2, 4, num_layers=2, out_channels=2, **kwargs)).double().eval()
    with torch.no_grad():  # so that not all neurons are off
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.uniform_(0, 0.5)
    edges = torch.randint(M, (2, 6))
    return ww.trace(model, torch.rand(M, 2, dtype=torch.float64), edges, target=0, rule=rule)


def neuron_walks(chain):
    """The relevance of every neuron walk, one product each."""
    lattice = _lattice(stages(chain))
    seed = lattice.high[-1]  # at the last position there is nothing to maximise over
    maps = [
        {(int(m), int(u)): b for m, u, b in zip(la.lower, la.upper, la.block, strict=True)} for la in lattice.layers
    ]
    found = {}
    for walk in ww.enumerate_walks(chain).tolist():
        for neurons in itertools.product(*(range(high.shape[1]) for high in lattice.high)):
            r = float(lattice.H[walk[0], neurons[0]] * seed[walk[-1], neurons[-1]])
            for i, (m, u) in enumerate(itertools.pairwise(walk)):
                r *= float(maps[i][m, u][neurons[i + 1], neurons[i]])
            found[tuple(walk), neurons] = r
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("rule", ["zero", "gamma"])
def test_emp_neu_is_exact_with_negative_factors(seed, rule):
    chain = small_chain(seed, kind=[GIN, GCN][seed % 2], rule=rule)
    every = neuron_walks(chain)
    node_walks = ww.enumerate_walks(chain)
    for walk, relevance in zip(node_walks.tolist(), ww.walk_relevance(chain, node_walks).tolist(), strict=True):
        assert sum(r for (w, _), r in every.items() if w == tuple(walk)) == pytest.approx(relevance, abs=1e-12)
    found = top_walks_emp_neu(chain, 15)
    assert found.relevance.tolist() == pytest.approx(sorted(every.values(), reverse=True)[:15], abs=1e-13)
    named = zip(found.walks.tolist(), found.neurons.tolist(), strict=True)
    for (walk, neurons), relevance in zip(named, found.relevance.tolist(), strict=True):
        assert every[tuple(walk), tuple(neurons)] == pytest.approx(relevance, abs=1e-13)


def test_amp_ave_lists_every_walk_once_when_asked_for_all():
    listed = 0
    for seed in range(10):
        chain = small_chain(seed, kind=[GIN, GCN][seed % 2])
        walks = ww.enumerate_walks(chain)
        found = top_walks_amp_ave(chain, len(walks) + 5)
        assert sorted(map(tuple, found.walks.tolist())) == sorted(map(tuple, walks.tolist()))
        assert torch.allclose(found.relevance, ww.walk_relevance(chain, found.walks))
        if len(walks):
            assert float(found.relevance[0]) <= float(top_walks(chain, 1).relevance[0]) + 1e-12
        listed += len(walks)
    assert listed > 100


def test_refuse_skips_and_no_walks_at_all():
    chain = small_chain(0, jk="cat")
    assert not chain.straight
    for search in (top_walks_emp_neu, top_walks_amp_ave):
        with pytest.raises(InputError, match="skip or jumping"):
            search(chain, 3)
        with pytest.raises(InputError, match="at least 1"):
            search(small_chain(0), 0)


# -- the authors' numbers -----------------------------------------------------------------------------


class Gin(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.convs = nn.ModuleList(GINConv(nn.Sequential(*block)) for block in blocks)

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = conv(x, edge_index)
        return x.sum(0, keepdim=True) / 20**0.5


def authors_model(name):
    spec = json.loads((GOLDEN / "weights" / f"{name}.json").read_text())
    arrays = np.load(GOLDEN / "weights" / f"{name}.npz")
    layers = [block["layers"] for block in spec["blocks"][1:]]
    linears = [[nn.Linear(la["in_width"], la["out_width"], dtype=torch.float64) for la in block] for block in layers]
    blocks = [
        [m for linear, la in zip(row, block, strict=True) for m in ([linear, nn.ReLU()] if la["relu"] else [linear])]
        for row, block in zip(linears, layers, strict=True)
    ]
    model = Gin(blocks)
    with torch.no_grad():  # after GINConv has reset its network; their sums run over (A + I) / 2
        for linear, la in zip(itertools.chain(*linears), itertools.chain(*layers), strict=True):
            linear.weight.copy_(torch.tensor(arrays[la["W"]]).t() * (0.5 if la["aggregates"] else 1.0))
            linear.bias.copy_(torch.tensor(arrays[la["b"]]))
    return model.eval()


@pytest.fixture(scope="module")
def cases():
    """(chain under the γ rule, the authors' lists) of eight molecules."""
    listed = json.loads((GOLDEN / "walks-mutag.json").read_text())
    graphs = json.loads((GOLDEN / "graphs-mutag.json").read_text())
    model, found = authors_model(listed["meta"]["model"]), []
    for entry in listed["graphs"]:
        edges = torch.tensor(graphs[entry["graph"]]["edges"]).t()
        x = torch.eye(7, dtype=torch.float64)[torch.tensor(graphs[entry["graph"]]["feature_index"])]
        chain = ww.trace(model, x, torch.cat([edges, edges.flip(0)], 1), target=entry["target_predicted_class"])
        found.append((chain, entry["rules"]["gamma"]))
    return found


def values(listed):
    return pytest.approx([walk["relevance"] for walk in listed], rel=1e-9)


@golden
def test_exact_search_meets_the_authors_enumeration(cases):
    for chain, listed in cases:
        assert top_walks(chain, 10).relevance.tolist() == values(listed["exhaustive_top10"])
        largest = top_walks(chain, 10, by="magnitude").relevance
        assert largest.abs().tolist() == pytest.approx([abs(w["relevance"]) for w in listed["exhaustive_top10_abs"]])


@golden
def test_exact_search_beyond_the_ties(cases):
    """Their ten best are mostly one tie, and all completions fit in memory: search deep, with bounds alone."""
    for chain, _ in cases:
        relevance = ww.walk_relevance(chain, ww.enumerate_walks(chain))
        for by, key in (("relevance", relevance), ("magnitude", relevance.abs())):
            for k in (10, 200):
                found = _search(stages(chain), k, by, 10**6, room=0, batch=8).relevance
                got = found if by == "relevance" else found.abs()
                assert got.tolist() == pytest.approx(key.sort(descending=True).values[:k].tolist(), rel=1e-9)


@golden
def test_emp_neu_meets_the_authors(cases):
    for chain, listed in cases:
        found = top_walks_emp_neu(chain, 10).relevance.tolist()
        assert found == values(listed["emp_neu_top10"])
        assert found == values(listed["exhaustive_neuron_top10"])


@golden
def test_amp_ave_meets_the_authors_in_the_order_found(cases):
    for chain, listed in cases:
        assert top_walks_amp_ave(chain, 10).relevance.tolist() == values(listed["amp_ave_top10_in_order_found"])
