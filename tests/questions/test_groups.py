"""Interactions and formulas against the walks themselves."""

from dataclasses import FrozenInstanceError

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import walkwise as ww
from chains import chain_of, walks_of
from walkwise import reference
from walkwise.errors import InputError
from walkwise.questions.groups import _few, interactions, query

torch.set_num_threads(1)


CHAINS = [chain_of(0, M=6), chain_of(1, M=6), chain_of(2, M=6, jk="cat"), chain_of(5, M=6)]
GROUPS = {"ring": [0, 1], "NO2": [2], "Cl": [4]}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("groups", [GROUPS, {"a": [0, 3], "b": [1, 2], "c": [4], "d": [5]}, {"all": list(range(6))}])
def test_terms_are_the_walks_that_visit_exactly_these_groups(chain, groups):
    found = interactions(chain, groups)
    walks = walks_of(chain)
    assert len(walks) > 20
    for chosen, term in reference.interactions(walks, groups).items():
        assert found.terms.get(chosen, 0.0) == pytest.approx(term, abs=1e-10)
    union = sorted(set().union(*groups.values()))
    whole = float(ww.subgraph_relevance(chain, [union])[0])
    assert sum(found.terms.values()) == pytest.approx(whole, abs=1e-10)
    assert found.remainder == pytest.approx(0, abs=1e-10)


@given(st.integers(0, 10**6), st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_terms_sum_back_to_the_union(seed, member):
    """Groups at random, some empty, some nodes in none (3): the terms of all orders conserve R of the union."""
    chain = chain_of(seed, M=6, layers=2)
    groups = {str(g): [m for m in range(6) if member[m] == g] for g in range(3)}
    found = interactions(chain, groups)
    union = float(ww.subgraph_relevance(chain, [[m for m in range(6) if member[m] < 3]])[0])
    assert sum(found.terms.values()) == pytest.approx(union, abs=1e-9)
    assert found.union == pytest.approx(union, abs=1e-12)
    pairs = interactions(chain, groups, max_order=2)
    assert sum(pairs.terms.values()) + pairs.remainder == pytest.approx(union, abs=1e-9)


def test_a_group_may_be_a_mask():
    ring = torch.tensor([True, True, False, False, False, False])
    found = interactions(CHAINS[0], GROUPS | {"ring": ring}).terms
    assert found == interactions(CHAINS[0], GROUPS).terms
    with pytest.raises(InputError, match="truth values"):
        interactions(CHAINS[0], GROUPS | {"ring": [True, False]})


def test_the_formula_of_the_paper():
    chain, (a, b, c) = CHAINS[0], GROUPS.values()
    sets = [a + b + c, a + b, a + c, b + c, a, b, c]
    signs = torch.tensor([1, -1, -1, -1, 1, 1, 1], dtype=torch.float64)
    want = float(ww.subgraph_relevance(chain, sets) @ signs)
    assert interactions(chain, GROUPS)["Cl", "ring", "NO2"] == pytest.approx(want, abs=1e-12)


def test_orders_beyond_the_walks_are_zero_and_left_out():
    chain = chain_of(1, M=6, layers=1)
    found = interactions(chain, {str(m): [m] for m in range(6)})
    assert max(map(len, found.terms)) == 2
    assert found.remainder == pytest.approx(0, abs=1e-12)
    first = interactions(chain, {str(m): [m] for m in range(6)}, max_order=1)
    assert set(map(len, first.terms)) == {1}
    assert first.remainder == pytest.approx(sum(v for k, v in found.terms.items() if len(k) == 2), abs=1e-12)


def test_interactions_refuse():
    chain = CHAINS[0]
    with pytest.raises(InputError, match="'a' and 'b' share node 1") as caught:
        interactions(chain, {"a": [0, 1], "b": [1, 2]})
    assert str(caught.value.got) == "'a' and 'b', which share node 1"
    with pytest.raises(InputError, match="node 9"):
        interactions(chain, {"a": [0], "b": [9]})
    with pytest.raises(InputError, match="max_order"):
        interactions(chain, GROUPS, max_order=0)
    for kind in (KeyError, InputError):
        with pytest.raises(kind, match=r"^No group is called 'gold'; the groups are 'ring'.*without a match"):
            interactions(chain, GROUPS)["ring", "gold"]
    with pytest.raises(InputError, match="no term of 2 groups"):
        interactions(chain, GROUPS, max_order=1)["ring", "NO2"]
    with pytest.raises(InputError, match=r"no group is called 'gold'.*without a match"):
        query(chain, "ring & gold", GROUPS)


# -- formulas -----------------------------------------------------------------------------------------

NAMES = ["ring", "NO2", "Cl", "rest", "'two words'", "élan_1"]
OVERLAPPING = GROUPS | {"two words": [1, 2, 3], "élan_1": [0]}

formulas = st.recursive(
    st.sampled_from(NAMES),
    lambda inner: st.one_of(
        inner.map("~{}".format),
        inner.map("({})".format),
        st.tuples(inner, inner).map(lambda p: f"({p[0]}) & ({p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]})|({p[1]})"),
    ),
    max_leaves=6,
)


@given(formulas, st.integers(0, len(CHAINS) - 1))
@settings(deadline=None, max_examples=150)
def test_any_formula_selects_its_walks(formula, which):
    chain = CHAINS[which]
    groups = OVERLAPPING | {"rest": sorted(set(range(6)) - set().union(*OVERLAPPING.values()))}
    text = formula.replace("'two words'", "two_words").replace("~", " not ").replace("&", " and ").replace("|", " or ")

    def holds(visited):
        return eval(text.strip(), {}, {name.replace(" ", "_"): name in visited for name in groups})

    want = reference.query(walks_of(chain), holds, groups)
    assert query(chain, formula, OVERLAPPING) == pytest.approx(want, abs=1e-9)


def test_and_binds_before_or_and_not_before_both():
    chain = CHAINS[1]
    assert query(chain, "ring | NO2 & Cl", GROUPS) == pytest.approx(query(chain, "ring | (NO2 & Cl)", GROUPS))
    assert query(chain, "~ring & Cl", GROUPS) == pytest.approx(query(chain, "(~ring) & Cl", GROUPS))
    assert query(chain, "ring & ~ring", GROUPS) == 0.0
    assert query(chain, "ring | ~ring", GROUPS) == pytest.approx(chain.input_relevance)
    assert query(chain, "ring&NO2&~Cl&~rest", GROUPS) == pytest.approx(interactions(chain, GROUPS)["ring", "NO2"])


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([], "none"),
        ([0, 3], "0, 3"),
        (range(8), "0, 1, 2, 3, 4, 5, 6, 7"),
        (range(9), "0, 1, 2, 3, 4, 5, 6, 7, … (9 nodes)"),
    ],
)
def test_a_few_nodes_are_named_and_many_are_counted(nodes, words):
    assert _few(torch.isin(torch.arange(12), torch.tensor(list(nodes))), None) == words


def test_answers_cannot_be_written_into():
    with pytest.raises(FrozenInstanceError):
        interactions(CHAINS[0], GROUPS).union = 0.0


def test_a_group_called_rest_must_be_the_rest():
    chain = CHAINS[0]
    left = sorted(set(range(6)) - {0, 3})
    groups = {"a": [0], "b": [3]}
    both = groups | {"rest": left}
    for formula in ("rest", "a & ~rest", "a & rest | b"):
        assert query(chain, formula, both) == pytest.approx(query(chain, formula, groups))
    assert interactions(chain, both)["a", "rest"] == pytest.approx(query(chain, "a & rest & ~b", groups))
    for wrong in ([3], left[1:], [*left, 3], []):
        for ask in (interactions, lambda *given: query(given[0], "a", given[1])):
            with pytest.raises(InputError, match=r"'rest' stands for the nodes in no group, here 1, 2, 4, 5; .* has"):
                ask(chain, groups | {"rest": wrong})
    with pytest.raises(InputError, match=r"here 0, 1, 2, 3, 4, 5; the group of that name has 0\. Call it something"):
        query(chain, "rest", {"rest": [0]})


@pytest.mark.parametrize(
    ("formula", "says", "column"),
    [
        ("ring & gold", "no group is called 'gold'; the names are 'ring', 'NO2', 'Cl', 'rest'", 7),
        ("ring NO2", "expected & or | or the end", 5),
        ("ring &", "expected a name", 6),
        ("", "expected a name", 0),
        ("(ring | NO2", "this parenthesis is not closed", 0),
        ("ring & 'NO2", "this quote is not closed", 7),
        ("ring + NO2", "not a name, nor one of", 5),
        ("ring)", "expected & or | or the end", 4),
        ("ring & __import__('os')", "no group is called '__import__'", 7),
    ],
)
def test_errors_point_at_the_place(formula, says, column):
    with pytest.raises(InputError) as error:
        query(CHAINS[0], formula, GROUPS)
    message, shown, pointer = str(error.value).split("\n")
    assert says in message
    assert shown == "  " + formula
    assert pointer.index("^") - 2 == column


@pytest.mark.parametrize("nodes", [0, None, "012", torch.tensor(2)])
def test_a_group_is_a_list(nodes):
    for ask in (interactions, lambda *given: query(given[0], "a", given[1])):
        with pytest.raises(InputError, match=r"groups\['a'\] must be a list of node ids, got .*write \[0\]"):
            ask(CHAINS[0], {"b": [1], "a": nodes})


@pytest.mark.parametrize("formula", [None, 3, ["ring"], b"ring"])
def test_a_formula_is_a_text(formula):
    with pytest.raises(InputError, match="formula must be a text such as"):
        query(CHAINS[0], formula, GROUPS)


@pytest.mark.parametrize("max_order", [0, 1.5, "x"])
def test_an_order_is_a_whole_number(max_order):
    with pytest.raises(InputError, match=f"largest terms, must be a whole number of at least 1, got {max_order!r}"):
        interactions(CHAINS[0], GROUPS, max_order=max_order)


def test_formulas_may_be_deep():
    chain = CHAINS[1]
    plain, negated = query(chain, "ring", GROUPS), query(chain, "~ring", GROUPS)
    assert plain != pytest.approx(negated)
    assert query(chain, "~" * 5000 + "ring", GROUPS) == plain
    assert query(chain, "~" * 5001 + "ring", GROUPS) == negated
    assert query(chain, "~(" * 49 + "(ring" + ")" * 50, GROUPS) == pytest.approx(negated)
    assert query(chain, " & ".join(["(((ring)))"] * 60), GROUPS) == plain  # side by side, not inside each other
    for depth in (51, 200, 5000):
        with pytest.raises(InputError, match="at character 51: more than 50 nested parentheses"):
            query(chain, "(" * depth + "ring" + ")" * depth, GROUPS)


def test_too_many_names():
    groups = {f"g{i}": [i % 6] for i in range(13)}
    with pytest.raises(InputError, match="names 13 groups; the limit is 12"):
        query(CHAINS[0], " & ".join(groups), groups)
    many = chain_of(0, M=40, layers=15)
    with pytest.raises(InputError, match="the limit is 65536"):
        interactions(many, {str(m): [m] for m in range(40)})


@pytest.mark.parametrize("max_order", [None, 2])
def test_many_groups_come_from_a_table_and_few_from_subgraphs(max_order):
    for seed in range(3):
        chain = chain_of(seed, M=8)
        groups = {name: [i] for i, name in enumerate("abcdefgh")}
        found = interactions(chain, groups, max_order=max_order)
        want = reference.interactions(walks_of(chain), groups)
        assert "walks listed" in found.route
        assert found.terms == pytest.approx({key: want[key] for key in found.terms}, abs=1e-12)
        assert found.union == pytest.approx(sum(want.values()), abs=1e-12)
        few = {name: groups[name] for name in "abc"}
        other = interactions(chain_of(seed, M=8), few, max_order=max_order)
        assert "subgraphs" in other.route
        assert other.terms == pytest.approx(dict(interactions(chain, few, max_order=max_order).terms), abs=1e-12)
