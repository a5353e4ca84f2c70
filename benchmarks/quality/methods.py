"""Every way to explain a prediction that is compared: the registry's explainers, the rules, orders and searches."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

import walkwise as ww
from quality import candidates
from quality.measures import Answer
from quality.networks import Network
from walkwise.baselines import available_baselines, baseline, node_scores
from walkwise.baselines.registry import Explain, is_trained
from walkwise.errors import SamplingWarning
from walkwise.evaluation import scores_of_order
from walkwise.evaluation.predictions import Prediction, traced

ALPHAS = (0.0, 0.1, 0.3, 0.5, 0.7, 1.0)

#: Explainers that need seconds per graph: how many graphs of each model they get. The short form leaves them out.
SLOW = {"subgraphx": 2, "gnnexplainer": 5, "pgmexplainer": 5, "pgexplainer": 10}
#: The same for those that take some tenths of a second; the short form has them.
SLOWER = {"integrated-gradients": 15, "gnn-lrp": 5}  # gnn-lrp has the scores of sgnn-lrp
ASKED_GRAPHS = 20  # for orders, Shapley values and searches
MOST_NODES = 150  # greedy orders, Shapley values and searches pass larger graphs by


class PassedByError(Exception):
    """A prediction that a method is not asked about."""


@dataclass
class Case:
    """One prediction, and what several methods need of it."""

    prediction: Prediction
    network: Network
    size: int  # how many nodes the truth has
    trained: dict[str, Explain] = field(default_factory=dict)
    spent: float = 0.0  # seconds of what was taken over from another method
    _chains: dict[str, tuple[ww.RelevanceChain, float]] = field(default_factory=dict)

    def chain(self, rule: str) -> ww.RelevanceChain:
        """The traced prediction under a rule; traced once, the time told to every method."""
        if rule in self._chains:
            self.spent += self._chains[rule][1]
        else:
            begun = time.process_time()
            chain = traced(self.prediction, rule=candidates.rule_for(rule, self.network))
            self._chains[rule] = chain, time.process_time() - begun
        return self._chains[rule][0]


@dataclass(frozen=True)
class Method:
    """A name, what it answers, and what the name means (results of another meaning are not taken over)."""

    name: str
    group: str  # "explainer", "rule", "candidate", "order", "pruning", "game" or "search"
    answer: Callable[[Case], Answer]
    meaning: str = ""
    graphs: int | None = None  # per model, where not all


def all_methods(short: bool = False) -> tuple[list[Method], dict[str, str]]:
    """The methods that can be run now, and why the others cannot."""
    left: dict[str, str] = {}
    methods = []
    for name in available_baselines():
        if short and name in SLOW:
            left[name] = "needs seconds per graph: not in the short form"
        else:
            methods.append(Method(name, "explainer", _registered(name), _default_rule(name), (SLOW | SLOWER).get(name)))
    for name in candidates.ALL:
        try:
            meaning = candidates.signature(name)
        except candidates.UnknownRuleError as error:
            left[f"lrp, {name}"] = str(error)
            continue
        group = "rule" if name in candidates.RULES else "candidate"
        methods.append(Method(f"lrp, {name}", group, _relevance(name), meaning))
        if name in candidates.ASKED:
            methods += _asked(name, meaning)
    return methods, left


def _asked(rule: str, meaning: str) -> Iterable[Method]:
    for alpha in ALPHAS:
        by = f"{rule}, α = {alpha:g}"
        yield Method(f"order, {by}", "order", _order(rule, "activation", alpha), meaning, ASKED_GRAPHS)
        yield Method(f"pruning, {by}", "pruning", _order(rule, "pruning", alpha), meaning, ASKED_GRAPHS)
    yield Method(f"shapley, {rule}", "game", _shapley(rule), meaning, ASKED_GRAPHS)
    yield Method(f"best subgraph, {rule}", "search", _search(rule), meaning, ASKED_GRAPHS)


def _default_rule(name: str) -> str:
    """The rule that an explainer of the registry takes by itself, or nothing: a new default is a new meaning."""
    rule = None if is_trained(name) else inspect.signature(baseline(name)).parameters.get("rule")
    return "" if rule is None else candidates.described(rule.default)


def _registered(name: str) -> Callable[[Case], Answer]:
    def answer(case: Case) -> Answer:
        explain = case.trained[name] if is_trained(name) else baseline(name)
        return Answer(node_scores(explain(case.prediction)).detach().cpu())

    return answer


def _relevance(rule: str) -> Callable[[Case], Answer]:
    def answer(case: Case) -> Answer:
        chain = case.chain(rule)
        scores = ww.node_relevance(chain)
        output = abs(case.prediction.value("logit"))
        return Answer(scores, magnitude=float(scores.abs().sum()) / max(output, 1e-12))

    return answer


def _order(rule: str, mode: str, alpha: float) -> Callable[[Case], Answer]:
    def answer(case: Case) -> Answer:
        _check_size(case)
        order = ww.order_nodes(case.chain(rule), mode=mode, alpha=alpha)
        return Answer(scores_of_order(order if mode == "activation" else order.flip(0)))

    return answer


def _shapley(rule: str) -> Callable[[Case], Answer]:
    def answer(case: Case) -> Answer:
        _check_size(case)
        with warnings.catch_warnings():
            warnings.simplefilter("error", SamplingWarning)
            try:
                return Answer(ww.shapley_values(case.chain(rule)).values)
            except SamplingWarning:
                raise PassedByError("too many walks for exact Shapley values") from None

    return answer


def _search(rule: str) -> Callable[[Case], Answer]:
    def answer(case: Case) -> Answer:
        _check_size(case)
        chain = case.chain(rule)
        found = ww.find_subgraph(chain, case.size)
        inside = torch.zeros(chain.num_nodes)
        inside[list(found.nodes)] = 1
        return Answer(inside, nodes=found.nodes)

    return answer


def _check_size(case: Case) -> None:
    if case.prediction.num_nodes > MOST_NODES:
        raise PassedByError(f"more than {MOST_NODES} nodes")
