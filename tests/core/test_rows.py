"""Rows of a contraction and of types of nodes, by hand."""

import pytest
import torch

from walkwise.core.fan import Fan
from walkwise.core.node_types import NodeTypes
from walkwise.errors import InputError

TYPES = NodeTypes({"user": 2, "item": 3})


def test_a_fan_has_a_row_for_every_query_and_then_one_for_every_neighbour():
    """Two queries, at nodes 0 and 2; the first may go to 0 and 1, the second to 1 and 2."""
    standing, nodes, owner = torch.tensor([0, 2]), torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 1])
    fan = Fan(3, standing, nodes, owner, lambda edges, weight, root: None)
    values = torch.tensor([[1.0], [10.0], [100.0]])
    stayed, gone = torch.tensor([2.0, 3.0]).view(2, 1, 1, 1), torch.tensor([1.0, 2.0, 3.0, 4.0]).view(4, 1, 1, 1)
    assert fan.here.tolist() == [0, 3]
    assert fan.take(values, stayed).flatten().tolist() == [1, 100]
    assert fan.take(values, gone).flatten().tolist() == fan.take(values).flatten().tolist() == [1, 10, 10, 100]
    assert fan.spread(stayed).flatten().tolist() == [2, 0, 0, 3]
    assert fan.spread(gone) is gone
    assert fan.add(stayed, gone).flatten().tolist() == fan.add(gone, stayed).flatten().tolist() == [3, 2, 3, 7]
    assert fan.total(stayed, values).flatten().tolist() == [2, 300]
    assert fan.total(gone, values).flatten().tolist() == [1 + 20, 30 + 400]


def test_nodes_of_types_are_numbered_in_one_row():
    assert TYPES.num_nodes == 5
    assert [TYPES.number(node) for node in [("user", 1), ("item", 0), ("item", 2), 4]] == [1, 2, 4, 4]
    assert TYPES.numbers({"item": [1], "user": [0, 1]}) == [3, 0, 1]
    assert TYPES.numbers([("item", 1), 4, None]) == [3, 4, -1]
    assert TYPES.numbers([1, 2]) == [1, 2]
    assert TYPES.written([0, -1, 4]) == ["user 0", "–", "item 2"]
    assert TYPES.grouped([3]) == {"item": [1]}
    for wrong in [("item", 3), ("item", -1), ("tag", 0), ("item", 0, 0)]:
        with pytest.raises(InputError):
            TYPES.number(wrong)
