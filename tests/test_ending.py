"""The logits behind a model's probabilities are found, or known not to be."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from walkwise.explainer.ending import Ending

scores = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0]])


def found(make):
    z = scores.clone()
    with Ending() as ending:
        return ending.logits(make(z))


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda z: z.softmax(dim=-1), scores),
        (lambda z: F.softmax(z, dim=-1), scores),
        (lambda z: torch.softmax(input=z, dim=-1), scores),
        (nn.Softmax(dim=-1), scores),
        (nn.LogSoftmax(dim=-1), scores),
        (lambda z: z.softmax(dim=-1).log(), scores),
        (torch.sigmoid, scores),
        (nn.Sigmoid(), scores),
        (lambda z: z.sigmoid().view(-1), scores.view(-1)),
        (lambda z: z.sigmoid().ravel(), scores.view(-1)),
        (lambda z: z.sigmoid().unflatten(1, (3, 1)), scores[:, :, None]),
        (lambda z: z.unsqueeze(0).softmax(-1).squeeze(0).clone(), scores),
        (lambda z: z.sigmoid()[:, 1], scores[:, 1]),
        (lambda z: (2 * z).sigmoid()[:, 1:].flatten(), 2 * scores[:, 1:].flatten()),
        (lambda z: F.softmax(z.softmax(dim=-1), dim=-1), scores.softmax(dim=-1)),  # the last one counts
    ],
)
def test_found(make, wanted):
    assert torch.equal(found(make), wanted)


@pytest.mark.parametrize(
    "make",
    [
        lambda z: z,
        lambda z: z.softmax(dim=-1)[:, 1],  # log-odds, if anything: not one logit
        lambda z: z.sigmoid() * 2,
        lambda z: z.sigmoid().log(),
        lambda z: z.sigmoid_(),
        lambda z: z.softmax(dim=-1).mul_(2),
        lambda z: z.exp() / z.exp().sum(dim=-1, keepdim=True),
    ],
)
def test_not_found(make):
    assert found(make) is None


def test_overwritten_logits_are_not_used():
    def make(z):
        probabilities = z.softmax(dim=-1)
        z += 1
        return probabilities

    def reshaped(z):
        probabilities = z.sigmoid()
        flat = probabilities.view(-1)
        probabilities.zero_()
        return flat

    assert found(make) is None
    assert found(reshaped) is None
