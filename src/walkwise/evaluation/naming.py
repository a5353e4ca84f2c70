"""Names for a model's outputs, explained or predicted, and for the nodes of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from torch import Tensor

from walkwise.errors import InputError
from walkwise.evaluation.predictions import Prediction
from walkwise.notation import molecule_of_graph


def column_title(column: int, class_names: Sequence[str] | None = None) -> str:
    """The name of an output column, or its number.

    >>> column_title(1, ["safe", "toxic"]), column_title(2, ["safe", "toxic"])
    ('toxic', 'output 2')
    """
    names = class_names or ()
    return str(names[column]) if 0 <= column < len(names) else f"output {column}"


def explained_title(prediction: Prediction, class_names: Sequence[str] | None = None) -> str:
    """A title for the explained number: a class, a column, or one against another.

    Args:
        prediction: the prediction.
        class_names: names of the columns; two for a model with one logit.

    >>> import torch
    >>> from torch_geometric.nn import GCN
    >>> from walkwise.evaluation.predictions import predict
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> one = predict(GCN(2, 8, 2, out_channels=3), torch.ones(3, 2), edge_index, index=1, target=2, against=0)
    >>> explained_title(one, ["red", "green", "blue"])
    'blue, not red'
    """
    if callable(prediction.target):
        return "the target"
    if not has_one_logit(prediction.logits, class_names):
        title = column_title(prediction.target, class_names)
        if prediction.against is not None:
            return f"{title}, not {column_title(prediction.against, class_names)}"
        return f"the opposite of {title}" if prediction.negative else title
    return column_title(0 if prediction.negative else 1, class_names)


def answer_title(logits: Tensor, class_names: Sequence[str] | None = None, *, negative: bool = False) -> str:
    """The class that a row of the output predicts; empty if a single column has no classes.

    Args:
        logits: one row of the output, (C,).
        class_names: names of the columns; two for a model with one logit.
        negative: whether the sign of one logit has been flipped.

    >>> import torch
    >>> answer_title(torch.tensor([0.2, 1.4])), answer_title(torch.tensor([-3.0]), ["safe", "toxic"])
    ('output 1', 'safe')
    """
    if len(logits) > 1:
        return column_title(int(logits.argmax()), class_names)
    if not has_one_logit(logits, class_names):
        return ""
    return column_title(int((float(logits[0]) > 0) != negative), class_names)


def has_one_logit(logits: Tensor, class_names: Sequence[str] | None) -> bool:
    """Whether two named classes share one logit."""
    return len(logits) == 1 and len(class_names or ()) == 2


def node_labels(data: Any, num_nodes: int) -> tuple[str, ...]:
    """The names of a graph's nodes: its ``symbols`` or ``tokens``, or the atoms of its ``smiles``; empty without names.

    Args:
        data: a graph, or None.
        num_nodes: M, how many nodes it has.
    """
    for name in ("symbols", "tokens"):
        given = getattr(data, name, None)
        if isinstance(given, Sequence) and len(given) == num_nodes:
            return tuple(map(str, given))
    smiles, edges = getattr(data, "smiles", None), getattr(data, "edge_index", None)
    if isinstance(smiles, str) and isinstance(edges, Tensor) and find_spec("rdkit"):
        try:
            molecule = molecule_of_graph(smiles, edges.t().tolist(), num_nodes)
        except InputError:  # not a molecule after all
            return ()
        if molecule is None or not _same_elements(molecule, getattr(data, "z", None)):
            return ()
        return tuple(atom.GetSymbol() for atom in molecule.GetAtoms())
    return ()


def _same_elements(molecule: Any, numbers: Any) -> bool:
    """Whether a graph's atomic numbers, if it has any, are those of the molecule's atoms in their order."""
    return not isinstance(numbers, Tensor) or numbers.tolist() == [atom.GetAtomicNum() for atom in molecule.GetAtoms()]
