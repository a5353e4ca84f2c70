"""One graph and one model: the prediction, its chain, and the beginning of every report."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text
from torch import Tensor

from walkwise.cli import sources
from walkwise.cli.beforehand import Request
from walkwise.cli.names import RULES, SourceError, choice, is_import_path
from walkwise.cli.options import Node, NodeSets
from walkwise.cli.output import listed, print_json, say, tell
from walkwise.cli.sources import Subject
from walkwise.cli.wording import ONE_OUTPUT, in_options, option_of
from walkwise.core.chain import RelevanceChain
from walkwise.core.node_types import NodeTypes
from walkwise.core.report import absorbed
from walkwise.display import count
from walkwise.errors import LEFT_OUT, CoverageWarning, InputError, WalkwiseError
from walkwise.evaluation.naming import answer_title, explained_title
from walkwise.evaluation.predictions import Prediction, predict, traced
from walkwise.evaluation.types import node_of, node_types
from walkwise.page import number
from walkwise.questions.marginals import node_relevance


@dataclass(frozen=True, eq=False)
class TracedPrediction:
    """A prediction to explain, and its chain."""

    subject: Subject
    number: int
    prediction: Prediction
    chain: RelevanceChain
    rule: str

    @property
    def data(self) -> Any:
        """The graph: a Data or a HeteroData."""
        return self.subject.graph(self.number)

    @property
    def labels(self) -> list[str]:
        """The names of the nodes; empty if they have none."""
        return self.subject.node_labels(self.number)

    def listed(self, nodes: Sequence[int]) -> str:
        """Nodes as text: by number and name, or by type in a heterogeneous graph."""
        types = self.chain.types
        return listed(nodes, self.labels) if types is None else listed(types.written(nodes))

    @property
    def node_relevance(self) -> Tensor:
        """The relevance of every node.  # (M,)"""
        types, relevance = self.chain.types, node_relevance(self.chain)
        return relevance if types is None else types.joined(relevance)

    @property
    def target(self) -> int:
        """The output column that is explained."""
        column = self.prediction.target
        assert isinstance(column, int)  # the command line gives no functions
        return column

    @property
    def class_name(self) -> str:
        """A title for what is explained: a class, an output column, or one against another."""
        return explained_title(self.prediction, self.subject.data.class_names)

    @property
    def answer(self) -> str:
        """The model's answer; empty if its one output has no classes."""
        names = self.subject.data.class_names
        return answer_title(self.prediction.logits, names, negative=self.prediction.negative)

    def head(self, command: str) -> dict[str, Any]:
        """The beginning of every JSON report."""
        chain, prediction = self.chain, self.prediction
        return {
            "command": command,
            "model": self.subject.model_name,
            "data": self.subject.data.source,
            "graph": self.number,
            "name": self.subject.names[self.number],
            "num_nodes": chain.num_nodes,
            "num_edges": int(prediction.edge_index.shape[1]),
            "num_layers": chain.num_layers,
            "node_labels": self.labels,
            "node_types": None if chain.types is None else dict(chain.types.counts),
            "target": self.target,
            "against": self.prediction.against,
            "class_name": self.class_name,
            "index": prediction.index,
            "rule": self.rule,
            "outputs": prediction.logits.tolist(),
            "output": chain.output,
            "input_relevance": chain.input_relevance,
            "bias_leak": chain.bias_leak,
            "notes": [*chain.notes, *chain.cautions],
        }

    def headline(self) -> Text:
        """The same in two lines."""
        chain, node = self.chain, self.prediction.index
        types = chain.types
        where = "" if node is None else f", {f'node {node}' if types is None else types.written([node])[0]}"
        same = self.answer == self.class_name
        text = Text.assemble(
            (self.subject.names[self.number], "bold"),
            f"{where}: {count(chain.num_nodes, 'node')}{_by_type(types)}, {_edges(self.prediction.edge_index)}.\n",
            *(("Prediction: ", (self.answer, "bold"), ". ") if self.answer else ()),
            f"Explaining {'its output' if same else self.class_name}, {number(chain.output)}: walks sum to "
            f"{number(chain.input_relevance)}, {absorbed(chain.bias_leak, chain.normaliser)} (rule: {self.rule}).",
        )
        notes = (*chain.notes, *chain.cautions)
        return Text("\n").join([text, *(Text(f"Note: {note}", style="yellow") for note in notes)])


#: What prints a report for people.
Show = Callable[[TracedPrediction, dict[str, Any]], None]


def opened(request: Request) -> Subject:
    """The model and the graphs from `sources.load_subject`, with a note if no weights were given."""
    subject = sources.load_subject(
        request.model,
        request.graphs,
        weights=request.weights,
        smiles=request.smiles or (),
        featurise=request.featurise,
        root=request.root,
    )
    if request.weights is None and is_import_path(request.model):
        tell(f"Note: {request.model} uses the weights it comes with, which may be random: give a file with --weights.")
    return subject


def traced_of(request: Request) -> Iterator[TracedPrediction]:
    """Trace the predictions in question, one after the other."""
    subject = opened(request)
    for graph in request.numbers:
        yield ask(
            subject, graph, target=request.target, against=request.against, index=request.index, rule=request.rule
        )


def ask(
    subject: Subject,
    graph: int,
    *,
    target: int | str | None,
    index: Node | None,
    rule: str,
    against: int | str | None = None,
) -> TracedPrediction:
    """The prediction for one graph, traced.

    Args:
        subject: the model and the graphs.
        graph: the graph's number.
        target: the output column or class, by default the largest; for one logit, "positive" or "negative".
        index: the node, for models with an output per node; in a heterogeneous graph (type, i) or its number.
        rule: a name of `walkwise.rules`.
        against: another column or class, whose output is subtracted.
    """
    choice(rule, RULES, "rule")
    prediction = predicted(subject, graph, target=target, index=index, against=against)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)  # the chain's notes say it, and reports show them
        chain = traced(prediction, rule=rule)
    return TracedPrediction(subject, graph, prediction, chain, rule)


def answer(found: Sequence[tuple[TracedPrediction, dict[str, Any]]], show: Show, *, as_json: bool) -> None:
    """Print the reports on one graph or several: as JSON one object, otherwise one after the other.

    Args:
        found: for each graph, its traced prediction and its report.
        show: prints one of them for people.
        as_json: whether a program reads it.
    """
    several = len(found) > 1
    if as_json:
        reports = [report for _, report in found]
        common = {key: reports[0][key] for key in ("command", "model", "data")}
        print_json(common | {"reports": reports} if several else reports[0])
        return
    for i, (one, report) in enumerate(found, start=1):
        if several:
            say(Text(f"{'' if i == 1 else chr(10)}Molecule {i} of {len(found)}", style="bold underline"))
        show(one, report)


def predicted(
    subject: Subject,
    graph: int,
    *,
    target: int | str | None,
    index: Node | None,
    against: int | str | None = None,
) -> Prediction:
    """The prediction for one graph; errors are worded for the command line.

    Args:
        subject: the model and the graphs.
        graph: the graph's number.
        target: the output column or class, by default the largest; for one logit, "positive" or "negative".
        index: the node, for models with an output per node; in a heterogeneous graph (type, i) or its number.
        against: another column or class, whose output is subtracted.
    """
    data = subject.graph(graph)
    features = [x for store in data.stores if isinstance(x := store.get("x"), Tensor) and x.is_floating_point()]
    if not all(bool(x.isfinite().all()) for x in features):
        raise InputError(
            f"{subject.names[graph]}: x has NaN or infinite entries; relevance needs finite numbers.",
            argument="x",
            expected="made of finite numbers",
        )
    types = node_types(data)
    try:
        names, node = subject.data.class_names, node_of(data, index)
        prediction = predict(subject.model, data, target=target, against=against, index=node, class_names=names)
    except WalkwiseError as error:
        raise InputError(
            in_options(error, subject.model_name), argument=option_of(error), expected=error.expected, got=error.got
        ) from error
    except Exception as error:
        held = [item for store in data.stores for item in store.items()]
        shapes = ", ".join(f"{key} {tuple(value.shape)}" for key, value in held if isinstance(value, Tensor))
        raise InputError(
            f"{subject.model_name} does not run on {subject.names[graph]} ({shapes}): {type(error).__name__}: {error}.",
            argument="graphs",
            expected="graphs that the model runs on",
            got=shapes,
            remedy="Give graphs with the features that the model was trained on.",
        ) from error
    output = prediction.output
    if index is not None and types is None and data.num_nodes != 1 and (output.dim() == 0 or output.shape[0] == 1):
        problem = ONE_OUTPUT.format(subject.model_name)
        raise InputError(problem, argument="--index", expected=LEFT_OUT, got=index)
    return prediction


def _by_type(types: NodeTypes | None) -> str:
    """How many nodes there are of each type.

    >>> _by_type(NodeTypes({"user": 3, "item": 2}))
    ' (3 user, 2 item)'
    """
    return "" if types is None else f" ({', '.join(f'{number} {name}' for name, number in types.counts.items())})"


def _edges(edge_index: Tensor) -> str:
    """The number of edges: an edge and its reverse count once, unless some edges have no reverse.

    >>> import torch
    >>> _edges(torch.tensor([[0, 1, 1], [1, 0, 1]])), _edges(torch.tensor([[0, 1, 1], [1, 0, 2]]))
    ('2 edges', '3 directed edges')
    """
    pairs = Counter(map(tuple, edge_index.t().tolist()))
    if all(pairs[target, source] == number for (source, target), number in pairs.items()):
        return count(sum(number for (source, target), number in pairs.items() if source <= target), "edge")
    return count(sum(pairs.values()), "directed edge")


def numbered(traced: TracedPrediction, sets: NodeSets) -> dict[str, list[int]]:
    """Sets of nodes by number; nodes that the graph does not have are refused."""
    types, last, graph = traced.chain.types, traced.chain.num_nodes - 1, traced.subject.names[traced.number]
    known = types or NodeTypes({})
    found: dict[str, list[int]] = {}
    for name, given in sets.items():
        if types is None and any(isinstance(node, tuple) for node in given):
            raise InputError(
                f"--nodes {name} names nodes by type, but {graph} has only one node type.",
                argument="nodes",
                expected=f"nodes from 0 to {last}",
                got=name,
            )
        nodes = [known.number(node) for node in given]
        found[name] = list(dict.fromkeys(nodes))
        if max(nodes) > last:
            raise InputError(
                f"--nodes {name} names node {max(nodes)}, but {graph} has nodes 0 to {last}.",
                argument="nodes",
                expected=f"nodes from 0 to {last}",
                got=max(nodes),
            )
    return found


def groups_of(
    traced: TracedPrediction, sets: NodeSets, patterns: Mapping[str, str], *, functional: bool
) -> dict[str, list[int]]:
    """The groups of one graph: given by nodes, by patterns, and, if wanted, its functional groups.

    For a heterogeneous graph without given groups, they are its types.

    Args:
        traced: the prediction, and its chain.
        sets: names and nodes.
        patterns: names and SMARTS patterns; a name without a match is left out.
        functional: whether the functional groups of the molecule are groups, too.
    """
    nodes, types = numbered(traced, sets), traced.chain.types
    if not patterns and not functional:
        return nodes
    if types is not None and not patterns and not nodes:
        return {name: types.numbers({name: range(count)}) for name, count in types.counts.items() if count}
    from walkwise import smarts

    try:
        if types is not None:
            raise InputError(argument="graph", expected="a molecule", got="HeteroData")
        known = smarts.functional_groups(traced.data, symbols=traced.labels or None) if functional else {}
        matched = smarts.groups(traced.data, symbols=traced.labels or None, **patterns)
    except InputError as error:
        if error.argument in patterns:
            raise
        name = traced.subject.names[traced.number]
        raise SourceError(
            f"{name} is not a molecule: its nodes are not atoms.",
            argument="graph",
            expected="a molecule",
            got=name,
            remedy="Name groups with --nodes.",
        ) from error
    return {**known, **matched, **nodes}
