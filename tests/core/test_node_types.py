"""Nodes of a heterogeneous graph as callers name them."""

import numpy as np
import pytest
import torch

from walkwise.core.node_types import NodeTypes
from walkwise.errors import InputError

TYPES = NodeTypes({"user": 2, "item": 3})


@pytest.mark.parametrize(
    "nodes",
    [
        {"user": [0], "item": [0, 2]},
        {"user": (0,), "item": {0, 2}},
        {"user": np.array([0]), "item": torch.tensor([0, 2])},
        {"user": np.array([True, False]), "item": torch.tensor([True, False, True])},
        [("user", 0), ("item", np.int64(0)), ("item", torch.tensor(2))],
        [0, ("item", 0), 4],
    ],
)
def test_ids_masks_and_pairs_are_the_same_nodes(nodes):
    assert TYPES.numbers(nodes) == [0, 2, 4]


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"item": 2}, r"nodes\['item'\] must be a list of node ids, got 2\. For a single node write \{'item': \[0\]\}"),
        ({"item": "02"}, "must be a list of node ids, got '02'"),
        ({"item": torch.tensor(2)}, "must be a list of node ids, got 2"),
        ({"item": [0.7]}, r"a node id, or \(type, i\) with a node id, got \('item', 0\.7\)"),
        ({"item": [True, False, True]}, r"got \('item', True\)"),
        ({"item": torch.tensor([True, False])}, r"got \('item', True\)"),
        ([("item", [0])], r"got \('item', \[0\]\)"),
        ([("item", 0), "item"], "got 'item'"),
        ({"shop": [0]}, "a type of 'user', 'item'"),
        ({"item": [3]}, "no node 3 of type 'item': it has 3"),
    ],
)
def test_what_names_no_node_is_refused(nodes, words):
    with pytest.raises(InputError, match=words):
        TYPES.numbers(nodes)
