"""Formulas over names: ``ring & (NO2 | Cl) & ~rest``, read by recursive descent.

formula := term { "|" term }        term := factor { "&" factor }
factor  := { "~" } ( "(" formula ")" | name | 'any text' | "any text" )
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from walkwise.errors import InputError

#: Whether a formula holds, given the names that are true.
Holds = Callable[[frozenset[str]], bool]

#: The most parentheses that may stand inside each other; every level is a few calls deep.
_MOST_NESTED = 50

_TOKEN = re.compile(r"\s*(?:(?P<sign>[&|~()])|(?P<name>\w+)|'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\")")


@dataclass(frozen=True)
class Formula:
    """A formula, and the names it uses in the order they appear."""

    names: tuple[str, ...]
    holds: Holds


def parse(text: str, known: Sequence[str]) -> Formula:
    """The formula a text stands for.

    >>> formula = parse("a & ~(b | 'the rest')", ["a", "b", "the rest"])
    >>> formula.names
    ('a', 'b', 'the rest')
    >>> formula.holds(frozenset({"a"})), formula.holds(frozenset({"a", "b"}))
    (True, False)
    """
    reader = _Reader(text, known, _tokens(text))
    holds = reader.formula()
    if reader.next is not None:
        raise _wrong(text, reader.next.start, "expected & or | or the end")
    return Formula(tuple(dict.fromkeys(reader.used)), holds)


@dataclass(frozen=True)
class _Token:
    sign: str  # one of & | ~ ( ), or "" for a name
    name: str
    start: int


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            open_quote = text[start] in "'\""
            raise _wrong(text, start, "this quote is not closed" if open_quote else "not a name, nor one of & | ~ ( )")
        kind = str(found.lastgroup)
        sign = found[kind] if kind == "sign" else ""
        tokens.append(_Token(sign, found[kind], found.start(kind) - (kind in ("single", "double"))))
        at = found.end()
    return tokens


@dataclass
class _Reader:
    """Reads tokens from left to right."""

    text: str
    known: Sequence[str]
    tokens: list[_Token]
    used: list[str] = field(default_factory=list)
    nested: int = 0  # parentheses that are open

    @property
    def next(self) -> _Token | None:
        return self.tokens[0] if self.tokens else None

    def _take(self, sign: str) -> bool:
        if self.next is None or self.next.sign != sign:
            return False
        self.tokens.pop(0)
        return True

    def formula(self) -> Holds:
        terms = [self._term()]
        while self._take("|"):
            terms.append(self._term())
        return lambda true: any(term(true) for term in terms)

    def _term(self) -> Holds:
        factors = [self._factor()]
        while self._take("&"):
            factors.append(self._factor())
        return lambda true: all(factor(true) for factor in factors)

    def _factor(self) -> Holds:
        negated = False
        while self._take("~"):
            negated = not negated
        opened = self.next
        inner = self._inside(opened) if opened is not None and opened.sign == "(" else self._name()
        return (lambda true: not inner(true)) if negated else inner

    def _inside(self, opened: _Token) -> Holds:
        """What stands between two parentheses, the next token being the first of them."""
        if self.nested == _MOST_NESTED:
            raise _wrong(self.text, opened.start, f"more than {_MOST_NESTED} parentheses inside each other")
        self._take("(")
        self.nested += 1
        inner = self.formula()
        if not self._take(")"):
            raise _wrong(self.text, opened.start, "this parenthesis is not closed")
        self.nested -= 1
        return inner

    def _name(self) -> Holds:
        token = self.next
        if token is None or token.sign:
            start = len(self.text) if token is None else token.start
            raise _wrong(self.text, start, "expected a name, ~ or (")
        if token.name not in self.known:
            valid = ", ".join(map(repr, self.known)) or "none, since no groups were given"
            raise _wrong(self.text, token.start, f"no group is called {token.name!r}; the names are {valid}")
        self.tokens.pop(0)
        self.used.append(token.name)
        return lambda true: token.name in true


def _wrong(text: str, start: int, what: str) -> InputError:
    return InputError(f"In the formula, at character {start + 1}: {what}.\n  {text}\n  {' ' * start}^")
