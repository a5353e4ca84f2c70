"""Formulas over names: ``ring & (NO2 | Cl) & ~rest``, read by recursive descent.

formula := term { "|" term }        term := factor { "&" factor }
factor  := { "~" } ( "(" formula ")" | name | 'any text' | "any text" )
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from walkwise.errors import InputError

#: Whether a formula holds, given the names that are true.
Holds = Callable[[frozenset[str]], bool]

#: The most parentheses that may stand inside each other; every level is a few calls deep.
_MOST_NESTED = 50

#: The most characters of a formula; the longest that anybody writes have some hundreds.
_LONGEST = 100_000

#: How much of a long formula an error shows around the place it points at.
_SHOWN = 60

#: Whatever would begin a new line, or move on it: the caret must stand under its place.
_BLANKS = dict.fromkeys([*range(32), 0x7F, *range(0x80, 0xA0), 0x2028, 0x2029], " ")

_TOKEN = re.compile(r"\s*(?:(?P<sign>[&|~()])|(?P<name>\w+)|'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\")")


@dataclass(frozen=True)
class Formula:
    """A formula, and the names it uses in the order they appear."""

    names: tuple[str, ...]
    holds: Holds


def parse(text: str, known: Sequence[str]) -> Formula:
    """Parse a text into a formula.

    >>> formula = parse("a & ~(b | 'the rest')", ["a", "b", "the rest"])
    >>> formula.names
    ('a', 'b', 'the rest')
    >>> formula.holds(frozenset({"a"})), formula.holds(frozenset({"a", "b"}))
    (True, False)
    """
    if len(text) > _LONGEST:
        raise InputError(
            argument="formula",
            expected=f"a text of at most {_LONGEST} characters",
            got=len(text),
            remedy="Merge groups that you need not distinguish.",
        )
    reader = _Reader(text, dict.fromkeys(known), _tokens(text))
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
    """The tokens from left to right, in time linear in the text."""
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise _no_token(text, at)
        kind = str(found.lastgroup)
        sign = found[kind] if kind == "sign" else ""
        tokens.append(_Token(sign, found[kind], found.start(kind) - (kind in ("single", "double"))))
        at = found.end()
    return tokens


def _no_token(text: str, at: int) -> InputError:
    start = len(text) - len(text[at:].lstrip())
    open_quote = text[start] in "'\""
    return _wrong(text, start, "this quote is not closed" if open_quote else "not a name, nor one of & | ~ ( )")


@dataclass
class _Reader:
    """Reads tokens from left to right."""

    text: str
    known: Mapping[str, None]  # the names, in order
    tokens: list[_Token]
    used: list[str] = field(default_factory=list)
    place: int = 0  # of the next token
    nested: int = 0  # parentheses that are open

    @property
    def next(self) -> _Token | None:
        return self.tokens[self.place] if self.place < len(self.tokens) else None

    def _take(self, sign: str) -> bool:
        if self.next is None or self.next.sign != sign:
            return False
        self.place += 1
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
            raise _wrong(self.text, opened.start, f"more than {_MOST_NESTED} nested parentheses")
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
            what = f"no group is called {token.name!r}; the names are {valid}"
            raise _wrong(self.text, token.start, f"{what} (a pattern without a match makes no group)")
        self.place += 1
        self.used.append(token.name)
        return lambda true: token.name in true


def _wrong(text: str, start: int, what: str) -> InputError:
    """The error, with a line of the formula and a caret under the place; of a long formula, only the part around it."""
    line = text.translate(_BLANKS)
    first = max(0, start - _SHOWN) if len(text) > 2 * _SHOWN else 0
    line = line[first : first + 2 * _SHOWN]
    caret = " " * (start - first)
    return InputError(
        f"In the formula, at character {start + 1}: {what}.\n  {line}\n  {caret}^",
        argument="formula",
        expected='names of groups joined by &, | and ~, such as "ring & ~NO2"',
        got=line,
    )
