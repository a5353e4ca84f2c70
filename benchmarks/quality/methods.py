"""Every way to explain a prediction that is compared: the registry's explainers, the rules, orders and searches."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import walkwise as ww
from quality import candidates, unions
from quality.measures import Answer
from quality.networks import Network
from quality.unions import Union
from walkwise.baselines import available_baselines, baseline, node_scores
from walkwise.baselines.registry import Explain, is_trained
from walkwise.errors import SamplingWarning
from walkwise.evaluation import scores_of_order
from walkwise.evaluation.predictions import Prediction, traced

ALPHAS = (0.0, 0.1, 0.3, 0.5, 0.7, 1.0)

#: Explainers that the short form leaves out.
SLOW = ("subgraphx", "gnnexplainer", "gnnexplainer-paper", "pgmexplainer", "pgexplainer")
SEARCHED = (0.0, 0.1, 0.3)  # the discounts of searches for the best subgraph, and of nodes by themselves
MOST_NODES = 1000  # greedy orders, Shapley values and searches pass larger graphs by


class PassedByError(Exception):
    """A prediction that a method is not asked about."""


class Together:
    """Answers for all explained graphs of one model, where a question can be asked once for all of them."""

    def __init__(self, network: Network, predictions: Sequence[Prediction]) -> None:
        self.network, self.predictions = network, predictions
        self._known: dict[tuple[str, ...], tuple[list[Any], float]] = {}

    def relevance(self, rule: str) -> tuple[list[Tensor], float]:
        """The relevance of every node, graph by graph, and the seconds per graph."""
        return self._once(
            ("relevance", rule), lambda: self._split(rule, lambda chain: ww.node_relevance(chain, layer="start"))
        )

    def visits(self, rule: str) -> tuple[list[Tensor], float]:
        """The mean over all positions of a walk of the relevance that stands at a node."""

        def mean(chain: ww.RelevanceChain) -> Tensor:
            return torch.stack([ww.node_relevance(chain, layer=p) for p in range(chain.num_layers + 1)]).mean(0)

        return self._once(("visits", rule), lambda: self._split(rule, mean))

    def alone(self, rule: str, alpha: float) -> tuple[list[Tensor], float]:
        """R_α of every node by itself."""

        def each(chain: ww.RelevanceChain) -> Tensor:
            bounds = torch.arange(chain.num_nodes + 1)
            return ww.subgraph_relevance(chain, (bounds[:-1], bounds), alpha=alpha)

        return self._once(("alone", rule, f"{alpha}"), lambda: self._split(rule, each))

    def orders(self, rule: str, mode: str) -> tuple[list[Tensor], float]:
        """For every graph the orders for all α, (A, M)."""

        def ask() -> list[Tensor]:
            chain, graphs = self._batch(rule)
            return [order - order.min() for order in ww.order_nodes(chain, mode=mode, alpha=ALPHAS, graphs=graphs)]

        return self._once(("orders", rule, mode), ask)

    def shapley(self, rule: str) -> tuple[list[Tensor], float]:
        """The Shapley value of every node."""

        def ask() -> list[Tensor]:
            chain, graphs = self._batch(rule)
            return [found.values for found in ww.shapley_values(chain, graphs=graphs)]

        return self._once(("shapley", rule), ask)

    def union(self, name: str) -> tuple[list[Tensor], float]:
        """The scores of an explainer of the registry that takes all graphs as one."""
        return self._once(("union", name), lambda: unions.EXPLAINERS[name](Union.of(self.network, self.predictions)))

    def chain(self, rule: str, number: int) -> ww.RelevanceChain:
        """One prediction, traced."""
        return traced(self.predictions[number], rule=candidates.rule_for(rule, self.network))

    def _split(self, rule: str, ask: Callable[[ww.RelevanceChain], Tensor]) -> list[Tensor]:
        return list(ask(self._batch(rule)[0]).split([prediction.num_nodes for prediction in self.predictions]))

    def _batch(self, rule: str) -> tuple[ww.RelevanceChain, Tensor]:
        """All graphs in one chain, and the graph of every node."""
        union = Union.of(self.network, self.predictions)
        chain = ww.trace(
            self.network,
            union.x,
            union.edge_index,
            batch=union.batch,
            target=lambda output: output[union.rows, union.columns].sum(),
            rule=candidates.rule_for(rule, self.network),
        )
        return chain, union.graphs

    def _once(self, key: tuple[str, ...], ask: Callable[[], list[Any]]) -> tuple[list[Any], float]:
        if key not in self._known:
            begun = time.process_time()
            found = ask()
            self._known[key] = found, (time.process_time() - begun) / len(found)
        return self._known[key]


@dataclass
class Case:
    """One prediction, and what several methods need of it."""

    prediction: Prediction
    together: Together
    number: int  # of the prediction, among those of the model
    size: int  # how many nodes the truth has
    trained: dict[str, Explain] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A name, what it answers, and what the name means (results of another meaning are not taken over)."""

    name: str
    group: str  # "explainer", "rule", "candidate", "score", "order", "pruning", "game" or "search"
    answer: Callable[[Case], Answer]
    meaning: str = ""


def all_methods(short: bool = False) -> tuple[list[Method], dict[str, str]]:
    """The methods that can be run now, and why the others cannot."""
    left: dict[str, str] = {}
    methods = []
    for name in available_baselines():
        if short and name in SLOW:
            left[name] = "needs seconds per graph: not in the short form"
        else:
            answer = _of(lambda all_, n=name: all_.union(n)) if name in unions.EXPLAINERS else _registered(name)
            methods.append(Method(name, "explainer", answer, _default_rule(name)))
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
        yield Method(f"order, {by}", "order", _order(rule, "activation", alpha), meaning)
        yield Method(f"pruning, {by}", "pruning", _order(rule, "pruning", alpha), meaning)
    yield Method(f"visits, {rule}", "score", _of(lambda all_: all_.visits(rule)), meaning)
    for alpha in SEARCHED:
        by = f"{rule}, α = {alpha:g}"
        yield Method(f"alone, {by}", "score", _of(lambda all_, a=alpha: all_.alone(rule, a)), meaning)
    yield Method(f"shapley, {rule}", "game", _shapley(rule), meaning)
    for alpha in SEARCHED:
        by = f"{rule}, α = {alpha:g}"
        yield Method(f"best subgraph, {by}", "search", _search(rule, alpha), meaning)


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
        found, seconds = case.together.relevance(rule)
        scores = found[case.number]
        output = abs(case.prediction.value("logit"))
        return Answer(scores, magnitude=float(scores.abs().sum()) / max(output, 1e-12), seconds=seconds)

    return answer


def _of(ask: Callable[[Together], tuple[list[Tensor], float]]) -> Callable[[Case], Answer]:
    def answer(case: Case) -> Answer:
        found, seconds = ask(case.together)
        return Answer(found[case.number], seconds=seconds)

    return answer


def _order(rule: str, mode: str, alpha: float) -> Callable[[Case], Answer]:
    def answer(case: Case) -> Answer:
        _check_size(case)
        found, seconds = case.together.orders(rule, mode)
        order = found[case.number][ALPHAS.index(alpha)]
        return Answer(scores_of_order(order if mode == "activation" else order.flip(0)), seconds=seconds / len(ALPHAS))

    return answer


def _shapley(rule: str) -> Callable[[Case], Answer]:
    def answer(case: Case) -> Answer:
        _check_size(case)
        with warnings.catch_warnings():
            warnings.simplefilter("error", SamplingWarning)
            try:
                found, seconds = case.together.shapley(rule)
            except SamplingWarning:
                raise PassedByError("too many walks for exact Shapley values") from None
        return Answer(found[case.number], seconds=seconds)

    return answer


def _search(rule: str, alpha: float) -> Callable[[Case], Answer]:
    def answer(case: Case) -> Answer:
        _check_size(case)
        found = ww.find_subgraph(case.together.chain(rule, case.number), case.size, alpha=alpha)
        inside = torch.zeros(case.prediction.num_nodes)
        inside[list(found.nodes)] = 1
        return Answer(inside, nodes=found.nodes)

    return answer


def _check_size(case: Case) -> None:
    if max(p.num_nodes for p in case.together.predictions) > MOST_NODES:
        raise PassedByError(f"more than {MOST_NODES} nodes")
