"""The generalised γ on random small models, against its definition written out contribution by contribution."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch_geometric import nn as pyg

import walkwise as ww
from walkwise import reference
from walkwise.core.contract import tapped_messages
from walkwise.rules import Gamma, GeneralisedGamma

M = 4
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 2], [1, 0, 2, 1, 3, 2, 3, 0]])
SETS = [[0], [1, 2], [0, 2, 3], [0, 1, 2, 3]]

KINDS = {
    "GCN": lambda i, o, b: pyg.GCNConv(i, o, bias=b),
    "GIN": lambda i, o, b: pyg.GINConv(nn.Linear(i, o, bias=b), eps=0.3),
    "SAGE": lambda i, o, b: pyg.SAGEConv(i, o, bias=b),
    "GAT": lambda i, o, b: pyg.GATConv(i, o, heads=1, bias=b),
}
ACTIVATIONS = {"relu": F.relu, "elu": F.elu, "gelu": F.gelu, "tanh": torch.tanh}


class Stack(nn.Module):
    """Layers, each with a normalisation (if any) and an activation behind it but the last."""

    def __init__(self, convs, norm, activation):
        super().__init__()
        self.convs, self.norm, self.activation = nn.ModuleList(convs), norm, activation
        self.head = nn.Linear(3, 2, bias=False)

    def between(self, z):
        return self.activation(z if self.norm is None else self.norm(z))

    def forward(self, x, edge_index):
        for i, conv in enumerate(self.convs):
            x = conv(self.between(x) if i else x, edge_index)
        return self.head(x.sum(0, keepdim=True))


def model_of(kind, activation, seed, *, bias=True, norm=False, layers=2):
    torch.manual_seed(seed)
    normalisation = nn.BatchNorm1d(3) if norm else None
    model = Stack([KINDS[kind](3, 3, bias) for _ in range(layers)], normalisation, ACTIVATIONS[activation])
    model = model.double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name or name == "norm.weight":
                parameter.uniform_(-1, 1)
        if norm:
            model.norm.running_mean.normal_()
            model.norm.running_var.uniform_(0.5, 2)
    return model


def contributions(conv, H):
    """What every entry adds to every entry of the output, path by path, and what is there without any."""
    paths = [conv]
    if isinstance(conv, pyg.SAGEConv):
        paths = [copy.deepcopy(conv), copy.deepcopy(conv)]
        nn.init.zeros_(paths[0].lin_r.weight)
        nn.init.zeros_(paths[1].lin_l.weight)
    found = []
    for path in paths:
        affine = reference.frozen_conv(path, H, EDGES)
        bias = affine(torch.zeros_like(H), same)
        units = torch.eye(H.numel(), dtype=H.dtype) * H.flatten()
        parts = [affine(unit.view_as(H), same) - bias for unit in units]
        found.append(torch.stack(parts).view(*H.shape, *bias.shape))
    return found, bias


def same(weight):
    return weight


def transition(paths, bias, gamma):
    """Shares in proportion to c + γc⁺ over z + γP⁺ where z ≥ 0, and to c + γc⁻ over z + γP⁻ elsewhere."""
    z = sum(path.sum((0, 1)) for path in paths) + bias
    shares = []
    for part in (lambda t: t.clamp(min=0), lambda t: t.clamp(max=0)):
        total = z + gamma * (sum(part(path).sum((0, 1)) for path in paths) + part(bias))
        favoured = sum(path + gamma * part(path) for path in paths)
        shares.append(torch.where(total == 0, 0.0, favoured / total))
    return torch.where(z >= 0, *shares)


def enumerated(model, x, gamma):
    """Every walk's relevance, one product each; a normalisation is one map with the layer before it."""
    H, transitions = x, []
    with torch.no_grad():
        for i, conv in enumerate(model.convs):
            H = model.between(H) if i else H
            paths, bias = contributions(conv, H)
            H = conv(H, EDGES)
            if model.norm is not None and i + 1 < len(model.convs):
                shift = model.norm(torch.zeros(1, 3, dtype=H.dtype))
                scale = model.norm(torch.ones(1, 3, dtype=H.dtype)) - shift
                paths, bias = [path * scale for path in paths], bias * scale + shift
            transitions.append(transition(paths, bias, gamma))
        return reference.all_walks(transitions, H * model.head.weight[1])


cases = {
    "kind": st.sampled_from(sorted(KINDS)),
    "activation": st.sampled_from(sorted(ACTIVATIONS)),
    "seed": st.integers(0, 10_000),
    "gamma": st.sampled_from([0.1, 1.0, 3.0, 30.0]),
}


@settings(max_examples=30, deadline=None)
@given(**cases, norm=st.booleans())
def test_walks_are_those_of_the_definition(kind, activation, seed, gamma, norm):
    model = model_of(kind, activation, seed, norm=norm)
    x = torch.randn(M, 3, dtype=torch.float64)
    walks = enumerated(model, x, gamma)
    chain = ww.trace(model, x, EDGES, target=1, rule=GeneralisedGamma(gamma))
    scale = sum(map(abs, walks.values()))
    ours = ww.walk_relevance(chain, list(walks))
    torch.testing.assert_close(ours, torch.tensor(list(walks.values()), dtype=ours.dtype), rtol=0, atol=1e-10 * scale)
    expected = [reference.subgraph_relevance(walks, nodes, 0.3) for nodes in SETS]
    found = ww.subgraph_relevance(chain, SETS, alpha=0.3)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=ours.dtype), rtol=0, atol=1e-10 * scale)


@settings(max_examples=30, deadline=None)
@given(**cases)
def test_one_map_amplifies_by_a_bounded_factor(kind, activation, seed, gamma):
    model = model_of(kind, activation, seed, layers=1)
    x = torch.randn(M, 3, dtype=torch.float64)
    chain = ww.trace(model, x, EDGES, target=1, rule=GeneralisedGamma(gamma))
    slot, H = chain.roots[0]
    arrived = float((tapped_messages(chain)[slot][:, 0, 0] * H).abs().sum())
    sent = float((model.convs[0](x, EDGES) * model.head.weight[1]).detach().abs().sum())
    assert arrived <= (1 + 2 / gamma) * sent * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(**cases)
def test_it_is_the_papers_rule_where_nothing_is_negative(kind, activation, seed, gamma):
    """Inputs and what layers give are ≥ 0; weights have both signs."""
    model = model_of(kind, activation, seed)
    x = torch.rand(M, 3, dtype=torch.float64)
    with torch.no_grad():
        for conv, enough in zip(model.convs, (20, 400), strict=True):
            bias = next(p for name, p in conv.named_parameters() if name.endswith("bias"))
            bias.abs_().add_(enough)
    ours, theirs = (ww.trace(model, x, EDGES, target=1, rule=rule) for rule in (GeneralisedGamma(gamma), Gamma(gamma)))
    a, b = (ww.subgraph_polynomial(chain, SETS) for chain in (ours, theirs))
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@settings(max_examples=30, deadline=None)
@given(**cases)
def test_without_biases_nothing_is_lost(kind, activation, seed, gamma):
    model = model_of(kind, activation, seed, bias=False)
    chain = ww.trace(model, torch.randn(M, 3, dtype=torch.float64), EDGES, target=1, rule=GeneralisedGamma(gamma))
    assert chain.input_relevance == pytest.approx(chain.output, rel=1e-8, abs=1e-10)


class Skipped(pyg.MessagePassing):
    """A layer with a path past its weights, and a constant before them."""

    def __init__(self, shift):
        super().__init__(aggr="sum")
        self.lin, self.shift = nn.Linear(3, 3), shift

    def forward(self, x, edge_index):
        h = x + self.shift
        return self.lin(self.propagate(edge_index, x=h)) + x

    def message(self, x_j):
        return x_j


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_one_negative_number_makes_no_other_rule(shift):
    """A feature a hair above 0 and the same a hair below it have the same relevance, but for that hair."""
    torch.manual_seed(0)
    model = Stack([Skipped(shift), Skipped(shift)], None, F.relu).double()
    found = []
    for hair in (1e-9, -1e-9):
        x = torch.linspace(0.1, 1, M * 3, dtype=torch.float64).view(M, 3)
        x[0, 0] = hair
        found.append(ww.subgraph_polynomial(ww.trace(model, x, EDGES, target=1, rule=GeneralisedGamma(3.0)), SETS))
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-7)
