"""What follows a layer right away belongs to it, if nothing else reads what the layer gave."""

from types import SimpleNamespace

import pytest

from walkwise.tracing.sorting import fold_into_layers


def op(name, given, made, call=None):
    return SimpleNamespace(word=SimpleNamespace(name=name), inputs=(given,), outputs=(made,), call=call)


def folded(*ops):
    """Which call each operation after the first belongs to, and what the calls give."""
    calls = [SimpleNamespace(outputs=[7, 8]), SimpleNamespace(outputs=[9, 1, 8])]
    every = [op("propagate", 0, 1, call=1), *(op(*told) for told in ops)]
    fold_into_layers(every, calls)
    assert calls[0].outputs == [7, 8]
    return [one.call for one in every[1:]], calls[1].outputs


@pytest.mark.parametrize(
    ("ops", "belong", "outputs"),
    [
        ([("relu", 1, 2)], [1], [9, 2, 8]),
        ([("batch_norm", 1, 2)], [1], [9, 2, 8]),
        ([("batch_norm", 1, 2), ("relu", 2, 3)], [1, 1], [9, 3, 8]),
        ([("relu", 1, 2), ("linear", 2, 3), ("relu", 3, 4)], [1, None, None], [9, 2, 8]),
        ([("tanh", 1, 2), ("relu", 2, 3)], [None, None], [9, 1, 8]),
        ([("relu", 1, 2), ("linear", 1, 3)], [None, None], [9, 1, 8]),  # read by another, too
        ([("relu", 0, 2)], [None], [9, 1, 8]),  # of the features
    ],
)
def test_what_is_folded(ops, belong, outputs):
    assert folded(*ops) == (belong, outputs)


def test_what_belongs_to_a_layer_stays_with_it():
    assert folded(("relu", 1, 2, 0), ("relu", 2, 3)) == ([0, 0], [9, 1, 8])
