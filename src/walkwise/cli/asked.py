"""One graph put to one model: the prediction, its chain, and what every report says of them first."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from rich.text import Text
from torch import Tensor
from torch_geometric.data import Data

from walkwise.chain import RelevanceChain
from walkwise.cli.names import RULES, choice
from walkwise.cli.output import number
from walkwise.cli.sources import Session
from walkwise.errors import CoverageWarning, InputError, WalkwiseError
from walkwise.predictions import Prediction, predict, traced


@dataclass(frozen=True, eq=False)
class Asked:
    """A prediction to explain, and its chain."""

    session: Session
    number: int
    prediction: Prediction
    chain: RelevanceChain
    rule: str

    @property
    def data(self) -> Data:
        """The graph."""
        return self.session.graph(self.number)

    @property
    def labels(self) -> list[str]:
        """What the nodes are called; empty where they have no names."""
        return self.session.node_labels(self.number)

    @property
    def target(self) -> int:
        """The output column that is explained."""
        column = self.prediction.target
        assert isinstance(column, int)  # the command line gives no functions
        return column

    def head(self, command: str) -> dict[str, Any]:
        """What every JSON report begins with."""
        chain, prediction = self.chain, self.prediction
        return {
            "command": command,
            "model": self.session.model_name,
            "data": self.session.data.source,
            "graph": self.number,
            "name": self.session.names[self.number],
            "num_nodes": chain.num_nodes,
            "num_edges": int(prediction.edge_index.shape[1]),
            "num_layers": chain.num_layers,
            "node_labels": self.labels,
            "target": self.target,
            "class_name": self.session.class_name(self.target),
            "index": prediction.index,
            "rule": self.rule,
            "outputs": prediction.logits.tolist(),
            "output": chain.output,
            "input_relevance": chain.input_relevance,
            "bias_leak": chain.bias_leak,
            "notes": list(chain.notes),
        }

    def headline(self) -> Text:
        """The same in two lines."""
        chain, node = self.chain, self.prediction.index
        where = "" if node is None else f", node {node}"
        text = Text.assemble(
            (self.session.names[self.number], "bold"),
            f"{where}: {chain.num_nodes} nodes, {self.prediction.edge_index.shape[1]} edges. The model says ",
            (self.session.class_name(int(self.prediction.logits.argmax())), "bold"),
            f"; explained is {self.session.class_name(self.target)}, {number(chain.output)}.\n",
            f"Walks have {number(chain.input_relevance)}, biases took {number(chain.bias_leak)} (rule: {self.rule}).",
        )
        return Text("\n").join([text, *(Text(f"Note: {note}", style="yellow") for note in chain.notes)])


def ask(session: Session, graph: int, *, target: int | None, index: int | None, rule: str) -> Asked:
    """The prediction for one graph, traced.

    Args:
        session: the model and the graphs.
        graph: the graph's number.
        target: the output column, by default the largest.
        index: the node, for models with an output per node.
        rule: a name of `walkwise.rules`.
    """
    choice(rule, RULES, "rule")
    data = session.graph(graph)
    try:
        prediction = predict(session.model, data, target=target, index=index)
    except WalkwiseError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError) as error:
        shapes = ", ".join(
            f"{key} {tuple(value.shape)}" for key, value in data.to_dict().items() if isinstance(value, Tensor)
        )
        raise InputError(
            f"{session.model_name} does not run on {session.names[graph]} ({shapes}): {type(error).__name__}: {error}. "
            "Give graphs with the features that the model was trained on."
        ) from error
    rows = prediction.output.shape[0] if prediction.output.dim() == 2 else None
    if index is not None and rows == 1 and data.num_nodes != 1:
        raise InputError(
            f"{session.model_name} has one output for the whole graph, not one per node: leave out --index."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)  # the chain's notes say it, and reports show them
        chain = traced(prediction, rule=rule)
    return Asked(session, graph, prediction, chain, rule)
