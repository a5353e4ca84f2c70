"""The LRP rules that are compared: one line each, a function from a network to the ``rule`` of ``ww.trace``.

A rule that this version of the library does not have is skipped, with a note in the report.
"""

from __future__ import annotations

from collections.abc import Callable

from quality.networks import Network, bends
from walkwise import rules
from walkwise.errors import InputError
from walkwise.rules import AlphaBeta, Gamma, Rule, RuleLike, Schedule, Zero, ZPlus, as_schedule

Candidate = Callable[[tuple[bool, ...]], RuleLike]  # given for every layer whether a non-linearity follows


class UnknownRuleError(Exception):
    """The library does not have this rule."""


def generalised(gamma: float) -> Rule:
    """Generalised γ, where the library has it."""
    kind = getattr(rules, "GeneralisedGamma", None)
    if kind is None:
        raise UnknownRuleError("this version of walkwise has no GeneralisedGamma")
    rule: Rule = kind(gamma)
    return rule


def everywhere(rule: Rule) -> Schedule:
    """A rule in every layer and in the read-out."""
    return Schedule.constant(rule, rule)


def where_bent(bent: tuple[bool, ...], rule: Rule, readout: Rule | None = None) -> Schedule:
    """A rule in layers whose output passes a non-linearity, LRP-0 in the others."""
    return Schedule(lambda _: [rule if bend else Zero() for bend in bent], readout or Zero())


#: Rules that the library names, or that are usual.
RULES: dict[str, Candidate] = {
    "auto": lambda bent: "auto",
    "gamma": lambda bent: "gamma",
    "zero": lambda bent: "zero",
    "γ = 1": lambda bent: Gamma(1.0),
    "γ = 3": lambda bent: Gamma(3.0),
    "γ = 10": lambda bent: Gamma(10.0),
    "αβ": lambda bent: AlphaBeta(),
    "z+": lambda bent: ZPlus(),
}

#: What "auto" could be: the validation tasks decide among these.
CANDIDATES: dict[str, Candidate] = {
    "general γ = 1": lambda bent: generalised(1.0),
    "general γ = 3": lambda bent: generalised(3.0),
    "general γ = 10": lambda bent: generalised(10.0),
    "general γ = 3 where bent": lambda bent: where_bent(bent, generalised(3.0)),
    "general γ = 1, read-out too": lambda bent: everywhere(generalised(1.0)),
    "general γ = 3, read-out too": lambda bent: everywhere(generalised(3.0)),
    "general γ = 10, read-out too": lambda bent: everywhere(generalised(10.0)),
    "general γ = 3 where bent, read-out too": lambda bent: where_bent(bent, generalised(3.0), generalised(3.0)),
}

ALL = RULES | CANDIDATES

#: The rules under which orders, Shapley values and best subgraphs are compared.
ASKED = ("auto", "gamma")


def rule_for(name: str, network: Network) -> RuleLike:
    """The rule of that name for a network."""
    return ALL[name](bends(network))


def signature(name: str) -> str:
    """What a rule amounts to in three layers, as text: results of another meaning of a name are not taken over."""
    try:
        return described(ALL[name]((True, True, False)))
    except InputError as error:
        raise UnknownRuleError(str(error)) from None


def described(rule: RuleLike) -> str:
    """The rules of three layers and of the read-out."""
    schedule = as_schedule(rule)
    return f"{list(schedule.rules(3))}, read-out {schedule.readout}"
