"""What is a weight: what is learned, or mixes the neurons of a node."""

from types import SimpleNamespace

import pytest
import torch

from walkwise.tracing.meaning.weights import is_weight

T, F, N = True, False, None


@pytest.mark.parametrize(
    ("along", "summed", "expected"),
    [
        ((T, F), (1,), True),  # over the neurons of every node
        ((T, F), (-1,), True),
        ((T, F), (0,), False),  # over nodes: an adjacency
        ((T, F), (0, 1), False),
        ((F, F), (0,), True),
        ((N, N), (1,), True),  # nobody knows what rows are: neurons come last
        ((N, N), (-1,), True),
        ((N, N), (0,), False),
        ((N, N), (-2,), False),
        ((N, N), (0, 1), True),
        ((T, N), (0, 1), False),
    ],
)
def test_a_constant_that_mixes_no_nodes_is_a_weight(along, summed, expected):
    run = SimpleNamespace(learned=lambda _: False, values=[torch.rand(3, 4)], along_nodes=lambda _, dim: along[dim])
    assert is_weight(run, torch.rand(2), 0, summed) == expected
    run.learned = lambda _: True
    assert is_weight(run, torch.rand(2), 0, summed)
