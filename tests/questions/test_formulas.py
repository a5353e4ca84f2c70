"""Formulas: any text is read or refused in words, and the work grows as the text does."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkwise.errors import InputError
from walkwise.questions import formulas
from walkwise.questions.formulas import parse

NAMES = ["a", "b", "the rest"]
pieces = st.sampled_from(["a", "b", "'the rest'", '"a"', "&", "|", "~", "(", ")", " ", "\n", "'", "c", "=", "\0", "é"])


@settings(max_examples=300)
@given(st.text(max_size=200) | st.lists(pieces, max_size=60).map("".join))
def test_any_text_is_a_formula_or_refused_in_words(text):
    try:
        formula = parse(text, NAMES)
    except InputError as error:
        first, line, caret = str(error).split("\n")
        assert first.startswith("In the formula, at character ")
        assert caret.strip() == "^"
        assert len(caret) <= len(line) + 1 or not line.strip()
    else:
        assert set(formula.names) <= set(NAMES)
        assert formula.holds(frozenset()) in (True, False)


formulas_made = st.recursive(
    st.sampled_from(["a", "b", "c"]),
    lambda inner: st.one_of(
        inner.map(lambda f: f"~ {f}" if f[0] != "(" else f"~{f}"),
        st.tuples(inner, st.sampled_from("&|"), inner).map(lambda f: f"({f[0]} {f[1]} {f[2]})"),
    ),
    max_leaves=12,
)


@given(formulas_made, st.sets(st.sampled_from("abc")))
def test_formulas_mean_what_python_means_by_them(text, true):
    words = text.replace("~", " not ").replace("&", " and ").replace("|", " or ")
    expected = eval(words, {name: name in true for name in "abc"})
    assert parse(text, list("abc")).holds(frozenset(true)) == expected


class Counted(str):
    """A text that counts the characters that are copied out of it."""

    copied = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        Counted.copied += len(found)
        return found


def work(text, names):
    """Characters copied and functions called while a text is read."""
    Counted.copied, calls = 0, 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        parse(Counted(text), names)
    except InputError:
        pass
    finally:
        sys.setprofile(before)
    return Counted.copied + calls


@pytest.mark.parametrize("piece", ["a & ", "~", "(a) | ", "'a' &", "a ", "    "])
def test_work_grows_as_the_text_does(piece):
    once, twice = (work(piece * count + "a", ["a"]) for count in (500, 1000))
    assert twice <= 2.1 * once + 200


def test_names_are_looked_up_not_searched():
    names = [f"n{i}" for i in range(1000)]
    text = " & ".join(names)
    assert parse(text, names).names == tuple(names)


class Listed(list):
    """Tokens that must not be moved up one by one."""

    def pop(self, *place):
        raise AssertionError("every pop from the front moves all the others")


def test_tokens_are_read_where_they_are(monkeypatch):
    made = formulas._tokens
    monkeypatch.setattr(formulas, "_tokens", lambda text: Listed(made(text)))
    assert parse("a & ~(a | a)", ["a"]).holds(frozenset()) is False


def test_formulas_have_a_longest_and_a_deepest():
    assert parse("~" * 99_999 + "a", ["a"]).holds(frozenset()) is True
    with pytest.raises(InputError, match="at most 100000 characters, got 100001"):
        parse("~" * 100_000 + "a", ["a"])
    assert parse("(" * 50 + "a" + ")" * 50, ["a"]).names == ("a",)
    with pytest.raises(InputError, match="more than 50 nested parentheses"):
        parse("(" * 51 + "a" + ")" * 51, ["a"])


def test_a_long_formula_is_shown_around_its_place():
    with pytest.raises(InputError) as raised:
        parse("a & " * 5000 + "?" + " & a" * 5000, ["a"])
    first, line, caret = str(raised.value).split("\n")
    assert "character 20001" in first
    assert len(line) < 130
    assert line[caret.index("^")] == "?"
