"""Models made at random: equal to gradients of walks that are masked, and the same however they are written."""

import random

import pytest
import torch

import walkwise as ww
from programs import WIDTH, Program
from walkwise.rules import Epsilon

RULES = ("zero", "auto", "alphabeta", Epsilon(0.1))


def case(seed):
    """A program, its input and some sets of nodes."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    model = Program(draw).double().eval()
    nodes = draw.randint(4, 7)
    ring = [(i, (i + 1) % nodes) for i in range(nodes)]
    more = [(draw.randrange(nodes), draw.randrange(nodes)) for _ in range(draw.randint(0, 4))]
    edges = torch.tensor(sorted({*ring, *((j, i) for i, j in ring), *more})).t().contiguous()
    sets = [[i for i in range(nodes) if draw.random() < 0.5] or [0] for _ in range(4)] + [list(range(nodes))]
    return model, torch.randn(nodes, WIDTH, dtype=torch.float64), edges, sets


def masked(model, x, edges, nodes):
    """The relevance of a set under LRP-0: gradient times input, where no gradient passes other nodes on the way."""
    mask, begun = torch.zeros(len(x), 1, dtype=x.dtype), []
    mask[nodes] = 1

    def standing(h):
        if not begun:
            begun.append(h.detach().requires_grad_())
            h = begun[0]
        return mask * h + (1 - mask) * h.detach()

    output = model(x, edges, torch.Tensor.detach, standing)[0, 1]
    (gradient,) = torch.autograd.grad(output, begun)
    return (gradient * begun[0]).sum().detach()


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8 * float(expected.abs().max()) + 1e-12)


def check(seed):
    model, x, edges, sets = case(seed)
    expected = torch.stack([masked(model, x, edges, nodes) for nodes in sets])
    for rule in RULES:
        found = []
        for model.plain in (True, False):
            chain = ww.trace(model, x, edges, target=1, rule=rule)
            found.append(ww.subgraph_relevance(chain, sets))
            if rule == "zero":
                close(found[-1], expected)
        close(*found)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    check(seed)


@pytest.mark.full
@pytest.mark.parametrize("start", range(60, 1260, 100))
def test_many_random_programs(start):
    for seed in range(start, start + 100):
        check(seed)
