"""The names that the command line knows, and what it says of those it does not.

They stand apart from what they name, which takes seconds to import: help and completion need not wait for it.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from walkwise.errors import InputError

#: The bundled models, and the graphs that each is asked about unless others are named.
BUNDLED = {"ba2motif": "ba2motif-generated", "mutag": "molecules"}

#: What `walkwise.datasets` loads by name, and with it the bundled molecules.
DATA_SETS = ("ba2motif", "ba2motif-generated", "mutag", "mutagenicity", "reddit-binary", "graph-sst2")
GRAPHS = ("molecules", *DATA_SETS)

#: What `walkwise.rules` knows by name.
RULES = ("auto", "gamma", "zero", "epsilon", "alphabeta", "zplus", "positive")

#: The explainers of `walkwise.baselines`, and what they are measured by.
METHODS = (
    "attention",
    "cam",
    "gnn-lrp",
    "gnnexplainer",
    "gnnexplainer-paper",
    "grad-cam",
    "gradient",
    "gradient-x-input",
    "integrated-gradients",
    "lrp",
    "pgexplainer",
    "pgmexplainer",
    "random",
    "sgnn-lrp",
    "subgraphx",
)
METRICS = ("auac", "aupc", "fidelity+", "fidelity-", "accuracy", "auroc")

#: The models that `walkwise.recipes` trains.
RECIPES = (
    *(f"ba2motif-gin{layers}" for layers in range(2, 8)),
    "mutag-gin3",
    "mutagenicity-gin3",
    "reddit-binary-gin5",
    "graph-sst2-gcn3",
)

#: The tables and figures of `walkwise.paper`.
EXHIBITS = ("table3", "figure1", "figure4", "figure5", "figure6")


class SourceError(InputError):
    """What the command line names is not there, or is not what it should be."""


def choice(name: str, valid: Sequence[str], what: str) -> str:
    """The name, if it is one of the valid ones.

    >>> choice("gama", RULES, "rule")
    Traceback (most recent call last):
        ...
    walkwise.cli.names.SourceError: Unknown rule 'gama'; did you mean 'gamma'? Expected one of auto, gamma, ...
    """
    if name not in valid:
        listed = f"one of {', '.join(valid)}"
        raise SourceError(
            f"Unknown {what} {name!r}{nearest(name, valid)} Expected {listed}.",
            argument=what,
            expected=listed,
            got=name,
        )
    return name


def nearest(name: str, valid: Sequence[str]) -> str:
    """The end of a sentence about a wrong name: the valid name next to it, if one is near.

    >>> nearest("mutga", ["mutag", "ba2motif"])
    "; did you mean 'mutag'?"
    >>> nearest("xyz", ["mutag", "ba2motif"])
    '.'
    """
    close = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else "."
