"""Chains of every kind of model can be pickled, copied and cast, and answer as before."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric import nn as pyg

import walkwise as ww
from walkwise.core.differential import Differential

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 0, 0, 2], [1, 0, 2, 1, 3, 2, 4, 3, 0, 4, 2, 0]])
SETS = [[0], [1, 2], [0, 2, 3], [0, 1, 2, 3, 4]]


def mlp():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads, self.norm = nn.MultiheadAttention(4, 2), nn.LayerNorm(4)

    def forward(self, h):
        return self.norm(h + self.heads(h, h, h)[0])


KINDS = {
    "GCN": lambda: pyg.GCNConv(4, 4),
    "GIN": lambda: pyg.GINConv(mlp()),
    "GAT": lambda: pyg.GATConv(4, 2, heads=2),
    "TransformerConv": lambda: pyg.TransformerConv(4, 2, heads=2),
    "GatedGraphConv": lambda: pyg.GatedGraphConv(4, 1),
    "ResGatedGraphConv": lambda: pyg.ResGatedGraphConv(4, 4),
    "ARMA": lambda: pyg.ARMAConv(4, 4),
    "EdgeConv": lambda: pyg.EdgeConv(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())),
    "EGConv": lambda: pyg.EGConv(4, 4, num_heads=2, num_bases=2),
    "median": lambda: pyg.SAGEConv(4, 4, aggr="median"),
    "maximum": lambda: pyg.SAGEConv(4, 4, aggr="max"),
    "several aggregations": lambda: pyg.SAGEConv(4, 4, aggr=["mean", "max", "std"]),
    "PNA": lambda: pyg.PNAConv(4, 4, ["mean", "max", "min"], ["identity"], torch.tensor([0, 0, 3, 2])),
}
#: Ways of writing things that are recorded as functions hard to name.
SPELLINGS = {
    "attributes": lambda h: h.T.mT.T.mT.contiguous(),
    "in place": lambda h: h.clone().mul_(0.5).add_(h).masked_fill_(h > 1, 0.1),
    "assignment": lambda h: put(h.clone(), h),
    "sorted": lambda h: h.sort(dim=0, descending=True).values + h,
    "attention": lambda h: F.scaled_dot_product_attention(h, h, h),
    "einsum": lambda h: torch.einsum("mn,mk->mk", h.softmax(-1), h),
    "conversions": lambda h: h.float().to(torch.float64) + h.type(torch.float64),
    "indices": lambda h: h[:, [1, 0, 3, 2]] + h[torch.tensor([4, 3, 2, 1, 0])] + h[:, None].squeeze(1),
    "reversed": lambda h: torch.stack(list(reversed(h.unbind(0)))) + h.cumsum(1) + h.roll(1, 0),
    "other operand": lambda h: (1 / (1 + h.square())) * h + 2 ** h.clamp(max=1) + torch.eye(5, dtype=h.dtype) @ h,
}


def put(into, values):
    into[1:, :2] = values[:-1, 2:]
    return into


class Model(nn.Module):
    def __init__(self, conv, between, encoder=None):
        super().__init__()
        self.first, self.second, self.between = conv(), conv(), between
        self.encoder, self.head = encoder, nn.Linear(4, 2)

    def forward(self, x, edge_index):
        h = x if self.encoder is None else self.encoder(x)
        h = self.between(self.first(h, edge_index).relu())
        return self.head(self.second(h, edge_index).tanh().amax(0, keepdim=True))


def same(h):
    return h


MODELS = {name: (conv, same, None) for name, conv in KINDS.items()}
MODELS |= {name: (KINDS["GCN"], between, None) for name, between in SPELLINGS.items()}
MODELS |= {"encoder with attention": (KINDS["GCN"], same, Attention)}


def chain_of(name, rule):
    torch.manual_seed(2)
    conv, between, encoder = MODELS[name]
    model = Model(conv, between, None if encoder is None else encoder()).double().eval()
    return ww.trace(model, torch.randn(5, 4, dtype=torch.float64), EDGES, target=0, rule=rule)


def answers(chain):
    polynomial = ww.subgraph_polynomial(chain, SETS)
    return [polynomial, ww.feature_relevance(chain), ww.edge_relevance(chain)]


WAYS = {"pickled": lambda chain: pickle.loads(pickle.dumps(chain)), "copied": copy.deepcopy}


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("rule", ["zero", "auto"])
@pytest.mark.parametrize("name", MODELS)
def test_copies_answer_as_the_chain_does(name, rule):
    chain = chain_of(name, rule)
    before = answers(chain)  # which builds what operators keep
    for way in WAYS.values():
        again = way(chain)
        for a, b in zip(before, answers(again), strict=True):
            assert torch.equal(a, b)
        assert str(again) == str(chain)


@pytest.mark.filterwarnings("ignore::walkwise.errors.CoverageWarning")
@pytest.mark.parametrize("name", MODELS)
def test_casting_answers_nearly_as_the_chain_does(name):
    chain = chain_of(name, "zero")
    before = answers(chain)
    cast = chain.to(torch.float32)
    for a, b in zip(before, answers(cast), strict=True):
        assert b.dtype == torch.float32
        torch.testing.assert_close(a.float(), b, rtol=1e-4, atol=1e-5)
    for a, b in zip(before, answers(cast.to(torch.float64)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_copy_does_not_carry_what_was_built_to_answer():
    chain = chain_of("sorted", "zero")
    ww.subgraph_relevance(chain, SETS)
    copied = [o for step in copy.deepcopy(chain).steps for o in step.operators if isinstance(o, Differential)]
    assert copied
    assert not any("_graph" in vars(o) or "_constant" in vars(o) for o in copied)
