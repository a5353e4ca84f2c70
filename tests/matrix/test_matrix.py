"""The generated matrix of models: every cell exact against the brute force, or refused by name."""

import ast
from pathlib import Path

import numpy as np
import pytest

from matrix import brute
from matrix.cells import COUNT, FACTORS, MEANING, SAMPLED, cells, pairs, pairs_of
from matrix.checks import checked
from matrix.models import CONVS
from matrix.table import PAGE, page, written_results


def pytest_generate_tests(metafunc):
    """A sample of the cells, or (``--full``) all."""
    if "cell" in metafunc.fixturenames:
        chosen = cells() if metafunc.config.getoption("--full") else cells()[:SAMPLED]
        metafunc.parametrize("cell", chosen, ids=lambda cell: str(cell).replace(" ", "-"))


def test_exact_or_refused(cell):
    checked(cell)


def test_every_pair_of_values_stands_in_a_cell():
    there = set().union(*(pairs_of(tuple(getattr(cell, name) for name in FACTORS)) for cell in cells()))
    assert there == pairs()
    assert len(set(cells())) == len({cell.name for cell in cells()}) == COUNT == 5000
    assert FACTORS.keys() == MEANING.keys()
    assert set(FACTORS["layer"]) == CONVS.keys()


def test_the_sample_has_every_value():
    for name, values in FACTORS.items():
        assert {getattr(cell, name) for cell in cells()[:SAMPLED]} == set(values)


@pytest.mark.parametrize("name", ["brute.py", "dense.py", "network.py"])
def test_the_brute_force_shares_nothing_with_the_library(name):
    tree = ast.parse((Path(__file__).parent / name).read_text(encoding="utf-8"))
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert found <= {"dataclasses", "itertools", "math", "matrix.brute", "matrix.dense", "numpy"}


def test_the_brute_force_by_hand():
    """Two nodes, one edge each way, one neuron: y = 3 (2 x_0 + 2 x_1), with x = (1, 4)."""
    net = brute.Network()
    x = net.given([[1.0], [4.0]])
    x.position = 0
    path = brute.signed(np.ones((2, 2)))
    z = net.ended(brute.weighted(brute.Stretch(brute.Rule("zero")), x, path, np.array([[2.0]]), np.array([-1.0])))
    z.position = 1
    y = net.mapped(z, np.array([[[[3.0]]], [[[0.0]]]]))  # the first node alone is read
    assert y.value == 3 * (2 * 5 - 1)
    walks = net.walks(y)
    assert {walk: r for walk, r in walks.items() if r} == {(0, 0): 6.0, (1, 0): 24.0}
    assert brute.subgraph_relevance(walks, [0], 0.5) == 6.0 + 0.5 * 24.0
    assert brute.node_relevance(walks, 1, 2).tolist() == [30.0, 0.0]


@pytest.mark.parametrize(
    ("kind", "amount", "expected"),
    [  # contributions 2, 6 and -4, a bias of -1: z = 3
        ("zero", 0.0, [2, 6, -4]),
        ("epsilon", 1.0, [2 * 3 / 4, 6 * 3 / 4, -4 * 3 / 4]),
        ("gamma", 1.0, [4 * 3 / 11, 12 * 3 / 11, -4 * 3 / 11]),
        ("generalised", 1.0, [4 * 3 / 11, 12 * 3 / 11, -4 * 3 / 11]),
        ("alphabeta", 2.0, [2 * 2 * 3 / 8, 2 * 6 * 3 / 8, -1 * -4 * 3 / -5]),
        ("zplus", 0.0, [2 * 3 / 8, 6 * 3 / 8, 0]),
        ("positive", 0.0, [2 * 3 / 9, 6 * 3 / 9, 0]),
    ],
)
def test_the_rules_of_the_brute_force_by_hand(kind, amount, expected):
    net = brute.Network()
    x = net.given([[1.0, 2.0, 4.0]])
    weight = np.array([[2.0], [3.0], [-1.0]])
    z = net.linear(x, weight, np.array([-1.0]), brute.Rule(kind, amount))
    assert z.value == 3
    assert net.arrivals(z)[id(x)][0] * x.value[0] * 3 / 3 == pytest.approx(expected)


def test_the_page_is_current():
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(*written_results(text)), "run python tests/matrix/table.py"
