"""RelevanceChain: one prediction as a chain of linear maps.

Between the input and the output of a model are node tensors H⁰ … Hᴸ, the *positions* at which a walk stands at a node.
A chain holds the linear maps between them (in gradient form: relevance appears only as ⟨message, H⟩ at the end) and
where the read-out reads them, and nothing else. Every quantity of the library is
:func:`~walkwise.core.contract.contract` with different node weights at the positions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from walkwise.core.cast import Cast
from walkwise.core.lazy import cached_property
from walkwise.core.node_types import NodeTypes, TypedNode
from walkwise.core.operators import Step, Visit
from walkwise.errors import InputError
from walkwise.rules import LRP_0, Rule

#: Relevance mostly cancels if it has grown to MUCH times the output; biases absorb most from a share of MOST on.
MUCH, MOST = 20.0, 0.9

P = ParamSpec("P")
T = TypeVar("T")


def without_gradients(query: Callable[P, T]) -> Callable[P, T]:
    """Decorate a query to run without recording gradients, and with ordinary tensors even in inference mode."""

    @functools.wraps(query)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False), torch.no_grad():
                return query(*args, **kwargs)
        with torch.no_grad():
            return query(*args, **kwargs)

    return run


@dataclass(frozen=True, eq=False, repr=False)
class Layer:
    """One call of a message-passing module, and where its relevance can be read off."""

    name: str
    kind: str
    route: str  # "closed form" or "autograd"
    rule: Rule
    position: int  # of its input
    ends: tuple[tuple[int, Tensor], ...]  # slots and values of what it returned
    starts: tuple[tuple[int, Tensor], ...]  # slots and values of what it read

    def __repr__(self) -> str:
        """One line: what it is and how it was traced, without the tensors."""
        return f"Layer({self.name!r}, {self.kind}, {self.route}, {self.rule!r}, position={self.position})"


@dataclass(frozen=True, eq=False)
class Origin:
    """Which node of the graph every row is, in a chain of the neighbourhoods of some nodes."""

    nodes: Tensor  # (K,) ascending within a neighbourhood
    graphs: Tensor  # (K,) ascending: which of those nodes it belongs to, in the order in which they were given
    edges: Tensor  # (E,) which of the graph's edges every edge is

    def to(self, cast: Cast) -> Origin:
        """The same, moved."""
        return Origin(cast(self.nodes), cast(self.graphs), cast(self.edges))


@dataclass(frozen=True)
class ExplainedNumber:
    """The number that a chain explains, as :func:`walkwise.trace` takes it: a row's column, minus another column."""

    target: int | str | None  # "negative" if the sign of one logit is flipped; None for a callable target
    against: int | None = None
    index: int | TypedNode | None = None


@dataclass(frozen=True, eq=False)
class RelevanceChain:
    """A traced prediction, made by :func:`walkwise.trace`. Questions are functions that take a chain."""

    steps: tuple[Step, ...]  # in the model's order
    seeds: tuple[tuple[int, Tensor], ...]  # (slot, ∂y/∂(slot) through the read-out alone)
    readout: tuple[tuple[int, Tensor], ...]  # (slot, value) of what the read-out reads, as in seeds
    roots: tuple[tuple[int, Tensor], ...]  # (slot, H) where walks begin, each of them with a visit
    layers: tuple[Layer, ...]
    num_nodes: int
    num_layers: int  # L; positions are 0 … L
    outputs: Tensor  # (G,) the explained output of every graph in the batch
    edge_index: Tensor  # (2, E) as the first layer got it
    readout_rule: Rule = LRP_0
    encoder: tuple[Step, ...] = ()  # from the model's input features to the roots
    features: tuple[tuple[int, Tensor], ...] = ()  # the slots and values (M, F) of those features
    notes: tuple[str, ...] = field(default=())
    types: NodeTypes | None = None  # of a heterogeneous graph
    rule_note: str = ""  # why these rules, if the caller gave none
    normaliser: float = 0.0  # what log-softmax subtracts from the logit: in the bias leak, but not due to biases
    explained: ExplainedNumber | None = None  # None if several graphs or rows have a number each
    origin: Origin | None = None  # of a chain of neighbourhoods
    part: RelevanceChain | None = None  # the neighbourhood of the one node explained, whose rows all tensors here have

    @property
    def output(self) -> float:
        """The explained scalar: the sum of the graphs' own outputs."""
        return float(self.outputs.sum())

    @cached_property
    def input_relevance(self) -> float:
        """The relevance of all walks together: R of the whole graph."""
        arrived = self.arrivals
        return sum(float(torch.dot(arrived[s].reshape(-1), H.reshape(-1))) for s, H in self.roots if s in arrived)

    @cached_property
    def arrivals(self) -> Mapping[int, Tensor]:
        """The messages that arrive where walks begin, with all node weights 1.  # {slot: (M, N)}"""
        from walkwise.core.contract import all_rows, run_backward, unweighted

        messages = without_gradients(run_backward)(self, all_rows(self), unweighted)
        return {slot: messages[slot][:, 0, 0] for slot, _ in self.roots if slot in messages}

    @property
    def bias_leak(self) -> float:
        """The relevance that biases absorb: the output minus the relevance of all walks."""
        return self.output - self.input_relevance

    @cached_property
    def amplification(self) -> float:
        """How much |relevance| has grown compared with the output: max over layers of Σ |R(node)| / |output|.

        It is about 1 if all relevance has one sign, and much larger if positive and negative relevance cancel; then no
        heat map means much. A gentler rule helps (``rule="auto"``). After log-softmax, relevance is compared with the
        logit, which it explains.
        """
        from walkwise.core.contract import tapped_messages

        messages = without_gradients(tapped_messages)(self)
        passed = [*self.roots, *(place for layer in self.layers for place in (*layer.starts, *layer.ends))]
        found = [(messages[slot][:, 0, 0] * value).sum(-1) for slot, value in passed if slot in messages]
        most = max((float(nodes.abs().sum()) for nodes in found), default=0.0)
        return most / abs(self._passed) if self._passed else math.inf if most else 0.0

    @property
    def _passed(self) -> float:
        """The relevance at the output: the output, or the logit from which log-softmax subtracts the normaliser."""
        return self.output - self.normaliser

    @property
    def cautions(self) -> tuple[str, ...]:
        """Reasons not to trust this relevance, and what to do about them."""
        found, begun, whole = [], self._passed, "logit" if self.normaliser else "output"
        if self.amplification > MUCH:
            found.append(
                f"|relevance| grows to {self.amplification:.3g} times the {whole} on its way: positive and negative "
                'relevance cancel, and a heat map of it means little. Trace with rule="auto", or with a larger γ.'
            )
        absorbed = self.bias_leak - self.normaliser
        if abs(absorbed) > MOST * abs(begun):
            share = abs(absorbed / begun) if begun else math.inf
            left = self.input_relevance / begun if begun else math.inf
            found.append(
                f"biases and other constants (features of edges, say) absorb {share:.0%} of the {whole}, and walks sum "
                f"to {left:.0%}. Another target, the difference of two outputs or a larger γ may leave them more."
            )
        return tuple(found)

    @property
    def size(self) -> str:
        """Layers and nodes, in words."""
        layers, nodes = ("" if n == 1 else "s" for n in (self.num_layers, self.num_nodes))
        kinds = (
            "" if self.types is None else " (" + ", ".join(f"{n} {name}" for name, n in self.types.counts.items()) + ")"
        )
        return f"{self.num_layers} layer{layers}, {self.num_nodes} node{nodes}{kinds}"

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the messages."""
        return self.roots[0][1].dtype

    @property
    def device(self) -> torch.device:
        """Where the chain lives."""
        return self.roots[0][1].device

    @cached_property
    def width(self) -> int:
        """The widest message, in neurons per node; it sizes the batches of queries."""
        widths = [seed.shape[-1] for _, seed in self.seeds] + [H.shape[-1] for _, H in self.roots]
        for step in self.steps:
            widths += [operator.widest for operator in step.operators]
        return max(widths)

    @cached_property
    def hops(self) -> Hops | None:
        """The numbers of hops between positions; None if a step may lead anywhere."""
        return hops_of(self.steps, [slot for slot, _ in self.seeds])

    @cached_property
    def local(self) -> bool:
        """Whether the rows of S alone determine the walks inside S."""
        return self.hops is not None and self.hops.are_steps

    @cached_property
    def straight(self) -> bool:
        """Whether every walk stands at a node in every position, so that no skip bypasses one."""
        visits: dict[int, set[int]] = {}
        for slot, _ in self.seeds:
            visits.setdefault(slot, set()).add(0)
        for step in reversed(self.steps):
            counts = visits.get(step.target, set())
            if step.visit is not None:
                counts = {count + 1 for count in counts}
            for source in step.sources:
                visits.setdefault(source, set()).update(counts)
        return all(visits.get(slot, set()) <= {self.num_layers + 1} for slot, _ in self.roots)

    @cached_property
    def visits(self) -> tuple[Visit, ...]:
        """The positions where walks stand at nodes, in the model's order."""
        return tuple(step.visit for step in self.steps if step.visit is not None)

    @cached_property
    def memo(self) -> dict[Hashable, Any]:
        """A cache that queries share; a chain that is moved starts with an empty one."""
        return {}

    def to(
        self, device: torch.device | torch.dtype | str | None = None, dtype: torch.dtype | None = None
    ) -> RelevanceChain:
        """The same chain on another device, in another floating-point type, or both."""
        if isinstance(device, torch.dtype):  # chain.to(torch.float64), as of a tensor
            device, dtype = None, device
        cast = Cast(_device(device), _floating(dtype))

        def pairs(old: tuple[tuple[int, Tensor], ...]) -> tuple[tuple[int, Tensor], ...]:
            return tuple((slot, cast(tensor)) for slot, tensor in old)

        return replace(
            self,
            steps=tuple(step.to(cast) for step in self.steps),
            seeds=pairs(self.seeds),
            readout=pairs(self.readout),
            roots=pairs(self.roots),
            layers=tuple(replace(la, ends=pairs(la.ends), starts=pairs(la.starts)) for la in self.layers),
            outputs=cast(self.outputs),
            edge_index=cast(self.edge_index),
            encoder=tuple(step.to(cast) for step in self.encoder),
            features=pairs(self.features),
            origin=None if self.origin is None else self.origin.to(cast),
            part=None if self.part is None else self.part.to(device, dtype),
        )

    def report(self) -> str:
        """A report of what was traced: every layer's route, its relevance in and out, and what biases absorb."""
        from walkwise.core.report import describe

        return describe(self)

    def _repr_html_(self) -> str:
        """The report as a table, for notebooks."""
        from walkwise.core.report import describe_html

        return describe_html(self)

    def __repr__(self) -> str:
        """One line: layers, nodes, output."""
        return f"RelevanceChain({self.size}, output={self.output:.6g})"

    def __str__(self) -> str:
        """The report."""
        return self.report()


@dataclass(frozen=True)
class Hops:
    """The largest number of message-passing hops: between two positions, and between the last one and the read-out."""

    between: int
    after: int

    @property
    def are_steps(self) -> bool:
        """Whether every hop leads from one position to the next."""
        return self.between <= 1 and not self.after


def hops_of(steps: Sequence[Step], read: Iterable[int]) -> Hops | None:
    """The numbers of hops, if the read-out reads these slots; None if a map may lead anywhere."""
    since: dict[int, int] = {}  # the last position
    between = 0
    for step in steps:
        if step.visit is not None:
            between = max(between, since.get(step.sources[0], 0))
            continue
        passed = 0
        for source, operator in zip(step.sources, step.operators, strict=True):
            if operator.reach is None:
                return None
            passed = max(passed, since.get(source, 0) + operator.reach)
        if passed:
            since[step.target] = passed
    return Hops(between, max((since.get(slot, 0) for slot in read), default=0))


def _device(given: torch.device | str | None) -> torch.device | None:
    try:
        return None if given is None else torch.device(given)
    except (RuntimeError, TypeError) as error:
        raise InputError(argument="device", expected='a device such as "cpu" or "cuda:0"', got=given) from error


def _floating(dtype: Any) -> torch.dtype | None:
    if dtype is None or (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        return dtype
    raise InputError(
        argument="dtype",
        expected="a floating-point type, since relevance is a share of a number",
        got=dtype,
        remedy="Take torch.float32 or torch.float64.",
    )
