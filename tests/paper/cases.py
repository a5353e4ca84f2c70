"""Small models and graphs that the tests of the paper share."""

from __future__ import annotations

import torch

from walkwise import models
from walkwise.datasets import GraphSet, ba2motif, pack
from walkwise.paper.bench import BenchCase, Effort

TINY = Effort("tiny", 2, 1, 5.0, 3, (1, 2, 3), 1, 5, 0.01, ("png",))


def gin(layers=3, features=1, width=6, seed=0):
    """A GIN with random weights, in float64: more above zero than below, and negative biases, as the authors' are."""
    torch.manual_seed(seed)
    model = models.GIN(features, width, 2, layers).double().eval().requires_grad_(False)
    for name, value in model.named_parameters():
        value.uniform_(*((-0.1, -0.01) if name.endswith("bias") else (-0.2, 0.4)))
    return model


def case(name="ba2motif-gin3", layers=3, graphs=None):
    """A model on BA-2motif made afresh, under the name of one of the paper's."""
    graphs = graphs or small_set()
    return BenchCase(name, gin(layers, graphs.graphs.x.shape[1]), graphs, "random weights", f"random-{layers}")


def small_set(count=12):
    """A few graphs of BA-2motif, all of them for testing."""
    index = torch.arange(count)
    return GraphSet("small", pack(ba2motif.generate(count, seed=0)), index, index, index, ("cycle", "house"))
