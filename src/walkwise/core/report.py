"""A chain in words: routes, rules, relevance in and out of every layer, and what biases absorb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain, without_gradients
from walkwise.core.contract import all_rows, pull_back, tapped_messages
from walkwise.display import html_box, html_line, html_table, number


@dataclass(frozen=True)
class Balance:
    """The relevance that went through one part of the model: out = in + taken."""

    name: str
    kind: str
    route: str
    rule: str
    relevance_out: float  # at its output
    relevance_in: float  # passed on to its input
    rounding: float = 0.0

    @property
    def taken(self) -> float:
        """What biases absorb (and a rule's stabilizer, and functions that conserve nothing); 0 within rounding."""
        taken = self.relevance_out - self.relevance_in
        return 0.0 if abs(taken) <= self.rounding * max(abs(self.relevance_out), abs(self.relevance_in)) else taken


@without_gradients
def balances(chain: RelevanceChain) -> tuple[Balance, ...]:
    """The balance of every message-passing layer and, last, of the read-out.

    Linear maps and normalisations between layers get a line of their own if their biases absorb anything; it shows only
    that.
    """
    messages = tapped_messages(chain)
    below = {step.target: step.sources[0] for step in chain.steps if step.visit is not None}
    rounding = 20 * torch.finfo(chain.dtype).eps
    layers = []
    for layer in chain.layers:
        # What the layer itself sends back: its own messages, followed until they reach its input.
        seeds = [(below.get(slot, slot), messages[slot]) for slot, _ in layer.ends if slot in messages]
        handed = {slot for slot, _ in layer.starts}
        inside = [step for step in chain.steps if step.target not in handed]
        sent = pull_back(inside, seeds, all_rows(chain), lambda visit, message: None)
        out, back = _relevance(messages, layer.ends), _relevance(sent, layer.starts)
        layers.append(Balance(layer.name or "(model)", layer.kind, layer.route, repr(layer.rule), out, back, rounding))
    passed = sum(float((seed * value).sum()) for (_, seed), (_, value) in zip(chain.seeds, chain.readout, strict=True))
    readout = Balance("read-out", "", "autograd", repr(chain.readout_rule), chain.output, passed, rounding)
    between = chain.bias_leak - sum(part.taken for part in (*layers, readout))
    largest = max(abs(part.relevance_out) for part in (*layers, readout))
    if abs(between) <= 100 * torch.finfo(chain.dtype).eps * max(largest, abs(chain.input_relevance)):
        return (*layers, readout)
    return (*layers, Balance("between layers", "", "", "", between, 0.0), readout)


def _relevance(messages: Mapping[int, Tensor], places: Sequence[tuple[int, Tensor]]) -> float:
    """Σ ⟨message, value⟩ over places."""
    return sum(float((messages[slot][:, 0, 0] * value).sum()) for slot, value in places if slot in messages)


_COLUMNS = ("layer", "kind", "route", "rule", ">relevance out", ">relevance in", ">absorbed")


def describe(chain: RelevanceChain) -> str:
    """The report of a chain: a headline, a line per layer, and what a reader should know."""
    header = tuple(column.lstrip(">") for column in _COLUMNS)
    numbers = ((b.relevance_out, b.relevance_in, b.taken) for b in balances(chain))
    rows = [
        (b.name, b.kind, b.route, b.rule, *(f"{value:.6g}" for value in values))
        for b, values in zip(balances(chain), numbers, strict=True)
    ]
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in (header, *rows)]
    headline = (
        f"RelevanceChain({chain.size}, output={chain.output:.6g}, "
        f"relevance at the input={chain.input_relevance:.6g}, bias leak={_leak(chain):.3g})"
    )
    return "\n".join([headline, *lines, *_remarks(chain)])


def describe_html(chain: RelevanceChain) -> str:
    """The same report as HTML, for notebooks."""
    rows = [(b.name, b.kind, b.route, b.rule, b.relevance_out, b.relevance_in, b.taken) for b in balances(chain)]
    headline = (
        f"RelevanceChain: {chain.size}. Output {number(chain.output)}: walks sum to {number(chain.input_relevance)}, "
        f"{absorbed(_leak(chain), chain.normaliser)}."
    )
    lines = [html_line(remark[:1].upper() + remark[1:]) for remark in _remarks(chain)]
    return html_box(html_line(headline, strong=True), html_table(_COLUMNS, rows), *lines)


def absorbed(leak: float, normaliser: float = 0.0, *, scale: float = 0.0) -> str:
    """Who absorbs how much of what the walks do not carry.

    Args:
        leak: the output minus the sum of all walks.
        normaliser: what of it log_softmax subtracts from the explained logit.
        scale: the largest number it stands beside: what is 0 but for rounding is written as 0.

    >>> absorbed(0.25), absorbed(-2.0, -2.5)
    ('biases absorb 0.25', "biases absorb 0.5 and log_softmax's normaliser −2.5")
    """
    taken = f" and log_softmax's normaliser {number(normaliser, scale=scale)}" if normaliser else ""
    return f"biases absorb {number(leak - normaliser, scale=scale)}{taken}"


def _leak(chain: RelevanceChain) -> float:
    """The bias leak, 0 within rounding."""
    scale = max(abs(chain.output), abs(chain.input_relevance))
    rounding = max(1e-6, 100 * torch.finfo(chain.dtype).eps)
    return chain.bias_leak if abs(chain.bias_leak) > rounding * scale else 0.0


def _remarks(chain: RelevanceChain) -> list[str]:
    """What a reader should know: the rule, notes and cautions."""
    rule = [f"rule: {chain.rule_note}"] if chain.rule_note else []
    taken = [f"log_softmax's normaliser: {chain.normaliser:.6g} of the bias leak"] if chain.normaliser else []
    cautions = (f"caution: {caution}" for caution in chain.cautions)
    return [*rule, *taken, *(f"note: {note}" for note in chain.notes), *cautions]
