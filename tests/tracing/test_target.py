"""Which numbers of an output are explained, and with which sign: a table of outputs and targets."""

import numpy as np
import pytest
import torch

from walkwise.core.node_types import NodeTypes
from walkwise.errors import TargetError
from walkwise.tracing.given.target import COLUMN_0, column_of, explained

TABLE = torch.tensor([[1.0, 5.0, 2.0], [7.0, 3.0, 4.0]], dtype=torch.float64)  # of two graphs, or two nodes
COLUMN, ROW = TABLE[:, :1], TABLE[0]
USERS, BOTH = NodeTypes({"user": 2, "item": 1}), NodeTypes({"user": 1, "item": 1})


@pytest.mark.parametrize(
    ("output", "given", "places", "outputs"),
    [
        # The largest of every row, a column, or one for each.
        (TABLE, {}, {(0, 1): 1, (1, 0): 1}, [5, 7]),
        (TABLE, {"target": 2}, {(0, 2): 1, (1, 2): 1}, [2, 4]),
        (TABLE, {"target": np.int64(0)}, {(0, 0): 1, (1, 0): 1}, [1, 7]),
        (TABLE, {"target": [0, 2]}, {(0, 0): 1, (1, 2): 1}, [1, 4]),
        (TABLE, {"target": torch.tensor([1, 1])}, {(0, 1): 1, (1, 1): 1}, [5, 3]),
        (TABLE, {"target": np.array([1, 1])}, {(0, 1): 1, (1, 1): 1}, [5, 3]),
        (TABLE, {"target": 1, "against": np.array([0, 2])}, {(0, 1): 1, (0, 0): -1, (1, 1): 1, (1, 2): -1}, [4, -1]),
        (TABLE, {"target": torch.tensor(2)}, {(0, 2): 1, (1, 2): 1}, [2, 4]),
        (TABLE[:1], {"target": 1, "num_graphs": 1}, {(0, 1): 1}, [5]),
        # One row.
        (TABLE, {"index": 1, "num_graphs": 1}, {(1, 0): 1}, [7]),
        (TABLE, {"target": 2, "index": 0, "num_graphs": 1}, {(0, 2): 1}, [2]),
        (TABLE, {"target": [2], "index": 0, "num_graphs": 1}, {(0, 2): 1}, [2]),
        (TABLE, {"target": 1, "index": [0, 1], "num_graphs": 1}, {(0, 1): 1, (1, 1): 1}, [5, 3]),
        # One column less another.
        (TABLE, {"target": 0, "against": 2}, {(0, 0): 1, (0, 2): -1, (1, 0): 1, (1, 2): -1}, [-1, 3]),
        (TABLE, {"against": 2}, {(0, 1): 1, (0, 2): -1, (1, 0): 1, (1, 2): -1}, [3, 3]),
        (TABLE, {"target": 1, "against": [0, 2]}, {(0, 1): 1, (0, 0): -1, (1, 1): 1, (1, 2): -1}, [4, -1]),
        (TABLE, {"target": 0, "against": 1, "index": 1, "num_graphs": 1}, {(1, 0): 1, (1, 1): -1}, [4]),
        # One column: the logit of a binary model.
        (COLUMN, {"target": "positive"}, {(0, 0): 1, (1, 0): 1}, [1, 7]),
        (COLUMN, {"target": "negative"}, {(0, 0): -1, (1, 0): -1}, [-1, -7]),
        (COLUMN, {"target": ["negative", 1]}, {(0, 0): -1, (1, 0): 1}, [-1, 7]),
        (COLUMN, {"target": "negative", "index": 1, "num_graphs": 1}, {(1, 0): -1}, [-7]),
        (COLUMN, {"target": "negative", "against": "positive"}, {(0, 0): -1, (1, 0): -1}, [-1, -7]),
        # Flat outputs: a score for every graph, for every node, or the classes of the graph; or one number.
        (COLUMN[:, 0], {}, {(0,): 1, (1,): 1}, [1, 7]),
        (ROW, {"num_graphs": 1, "num_nodes": 9}, {(1,): 1}, [5]),
        (ROW, {"target": 2, "num_graphs": 1, "num_nodes": 9}, {(2,): 1}, [2]),
        (ROW, {"index": 2, "num_graphs": 1, "num_nodes": 3}, {(2,): 1}, [2]),
        (ROW, {"num_graphs": 3, "num_nodes": 3}, {(0,): 1, (1,): 1, (2,): 1}, [1, 5, 2]),
        (TABLE[0, 0], {"num_graphs": 1}, {(): 1}, [1]),
        (TABLE[0, 0], {"target": "negative", "num_graphs": 1}, {(): -1}, [-1]),
        # By type.
        ({"user": TABLE, "item": COLUMN}, {"index": ("user", 1), "num_graphs": 1}, {(1, 0): 1}, [7]),
        (TABLE, {"index": ("user", 0), "num_graphs": 1, "types": USERS}, {(0, 1): 1}, [5]),
        (TABLE, {"index": ("item", 0), "num_graphs": 1, "types": BOTH}, {(1, 0): 1}, [7]),
    ],
)  # fmt: skip
def test_what_is_explained(output, given, places, outputs):
    given = {"target": None, "index": None, "num_graphs": 2, "num_nodes": 5, "against": None} | given
    scalar = explained(output, **given)
    whole = output["user"] if isinstance(output, dict) else output
    direction = torch.zeros_like(whole)
    for place, sign in places.items():
        direction[place] = sign
    assert scalar.tensor is whole
    assert torch.equal(scalar.direction, direction)
    assert scalar.outputs.tolist() == outputs
    assert float(scalar.outputs.sum()) == float((whole * direction).sum())


@pytest.mark.parametrize(
    ("output", "target", "noted"),
    [
        (COLUMN, 0, True), (COLUMN, [0, 1], True), (COLUMN, [1, 1], False), (COLUMN, torch.tensor([1, 0]), True),
        (COLUMN, "positive", False), (COLUMN, None, False), (TABLE, 0, False), (COLUMN, 1, False),
        (COLUMN, torch.tensor([1, 1]), False), (COLUMN, np.array([1, 0]), True), (COLUMN, ["negative", 0], True),
    ],
)  # fmt: skip
def test_column_0_of_one_is_noted(output, target, noted):
    assert explained(output, target, None, 2, 5).notes == ((COLUMN_0,) if noted else ())


def test_a_callable_is_asked_for_one_number():
    scalar = explained(TABLE, lambda output: output[0, 1] * 2, None, 2, 5)
    assert (float(scalar.tensor), scalar.direction.tolist(), scalar.outputs.tolist()) == (10, 1, [10])
    for wrong in (lambda output: 3.0, lambda output: output, lambda output: output[0, 0].long()):
        with pytest.raises(TargetError, match="must return a floating-point tensor with one element"):
            explained(TABLE, wrong, None, 2, 5)
    for given in ({"index": 1}, {"against": 1}):
        with pytest.raises(TargetError, match="does not go with a callable target"):
            explained(TABLE, lambda output: output[0, 0], given.get("index"), 2, 5, given.get("against"))


@pytest.mark.parametrize(
    ("output", "given", "words"),
    [
        (TABLE, {"target": 3}, r"target=3 is out of range: the output has 3 column\(s\), 0 to 2\.$"),
        (TABLE, {"target": -1}, "counted from 0, not from the end"),
        (COLUMN, {"target": 2}, 'one logit are "positive" and "negative"'),
        (TABLE, {"target": [0, 1, 2]}, r"names 3 columns for 2 explained row\(s\)"),
        (TABLE, {"target": "positive"}, "for models with one logit; the output has 3 columns"),
        (TABLE, {"target": "first"}, "target must be a column of the output, 0 to 2, got 'first'"),
        (COLUMN, {"target": "first"}, 'or, for a binary model with one logit, "positive" or "negative"'),
        (TABLE, {"target": True}, r"target must be an integer, got True \(bool\)"),
        (TABLE, {"target": 1.0}, r"target must be an integer, got 1\.0"),
        (TABLE, {"target": 1, "against": 3}, "against=3 is out of range"),
        (
            TABLE,
            {"target": 1, "against": "first"},
            "against must be a column of the output, 0 to 2, got 'first'.*class_names",
        ),
        (TABLE, {"target": 1, "against": 1}, "against=1 is the explained column itself"),
        (TABLE, {"num_graphs": 3}, r"2 rows but the input has 3 graph\(s\)"),
        (TABLE, {"index": 2}, "index=2 is out of range: the output has 2 rows, 0 to 1"),
        (TABLE, {"index": -1}, "index=-1 is out of range"),
        (ROW, {"num_graphs": 1, "num_nodes": 3}, "as many nodes: this may be one score per node"),
        (TABLE.long(), {}, "must be one floating-point tensor, got a tensor of shape"),
        ([TABLE], {}, "must be one floating-point tensor, got a list"),
        (TABLE[None], {}, r"of shape \(rows, columns\), \(rows,\) or a scalar, got \(1, 2, 3\)"),
        ({"user": TABLE}, {"index": 1}, r"returned a dict \('user'\).*index=\(type, i\).*Got index=1"),
        ({"user": TABLE}, {"index": ("item", 1)}, "returned a dict"),
        ({"user": TABLE}, {"index": ("user", [1])}, r"index must be an integer, got \[1\] \(list\)"),
        ({"user": TABLE}, {"index": ("user", True)}, r"index must be an integer, got True \(bool\)"),
        (TABLE, {"index": torch.tensor(True)}, r"index must be an integer, got tensor\(True\)"),
    ],
)
def test_what_cannot_be_explained_is_told(output, given, words):
    given = {"target": None, "index": None, "num_graphs": 2, "num_nodes": 5, "against": None} | given
    with pytest.raises(TargetError, match=words):
        explained(output, **given)


def test_the_one_column_is_the_positive_class():
    assert column_of(1, 1) == (0, 1)
    assert column_of(1, 2) == (1, 1)
    assert column_of(0, 1) == (0, 1)


def test_a_type_where_there_are_none_is_refused():
    with pytest.raises(TargetError, match="index must be a row of the output, of a graph without types"):
        explained(TABLE, 0, ("atom", 0), 1, 2)
