"""The names that the command line knows, and what it says of those it does not.

They stand apart from what they name, which takes seconds to import: help and completion need not wait for it.
"""

from __future__ import annotations

import difflib
import socket
from collections.abc import Sequence
from pathlib import Path

from walkwise.errors import InputError

#: The bundled models, and the graphs that each is asked about unless others are named.
BUNDLED = {"ba2motif": "ba2motif-generated", "mutagenicity": "molecules", "mutag": "molecules"}

#: What `walkwise.datasets` loads by name, and with it the bundled molecules.
DATA_SETS = (
    "ba2motif",
    "ba2motif-generated",
    "mutag",
    "mutagenicity",
    "mutagenicity-hydrogens",
    "reddit-binary",
    "graph-sst2",
)
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

#: What `walkwise.runs` asks of every graph.
QUESTIONS = ("nodes", "edges", "walks", "order", "subgraph", "groups", "curves")

#: The models that `walkwise.recipes` trains.
RECIPES = (
    *(f"ba2motif-gin{layers}" for layers in range(2, 8)),
    "mutag-gin3",
    "mutagenicity-gin3",
    "mutagenicity-hydrogens-gin3",
    "reddit-binary-gin5",
    "graph-sst2-gcn3",
)

#: The tables and figures of `walkwise.paper`.
EXHIBITS = ("table3", "figure1", "figure4", "figure5", "figure6")


class SourceError(InputError):
    """What the command line names is not there, or is not what it should be."""


def which_graphs(ways: str) -> SourceError:
    """The error that no graphs were named, and the ways to name them."""
    return SourceError("Which graphs?", argument="graphs", expected=ways, remedy=f"Name them after the model: {ways}.")


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


def is_import_path(spec: str) -> bool:
    """Whether this is meant as "package.module:name", not as a file."""
    return ":" in spec and not Path(spec).exists()


def check_model(spec: str) -> str:
    """The name of a model, a file of weights that is there, or an import path.

    >>> check_model("mutagg")
    Traceback (most recent call last):
        ...
    walkwise.cli.names.SourceError: Unknown model 'mutagg'; did you mean 'mutag'? ...
    """
    if spec.endswith(".safetensors") and not is_import_path(spec):
        return str(existing(Path(spec)))
    if spec not in (*BUNDLED, *RECIPES) and not is_import_path(spec):
        bundled = ", ".join(BUNDLED)
        raise SourceError(
            f"Unknown model {spec!r}{nearest(spec, [*BUNDLED, *RECIPES])} Expected a bundled model ({bundled}), a "
            ".safetensors file, or an import path such as mypkg.models:build.",
            argument="model",
            expected=f"a bundled model ({bundled}), a .safetensors file or an import path",
            got=spec,
        )
    return spec


def check_graphs(spec: str) -> str:
    """The name of a data set, a file of graphs that is there, or an import path."""
    if Path(spec).suffix in (".pt", ".pth") and not is_import_path(spec):
        return str(existing(Path(spec)))
    if spec not in GRAPHS and not is_import_path(spec):
        raise SourceError(
            f"Unknown graphs {spec!r}{nearest(spec, GRAPHS)} Expected a data set ({', '.join(GRAPHS)}), a file saved "
            "by torch (.pt), or an import path such as mypkg.data:load.",
            argument="graphs",
            expected="a data set, a .pt file or an import path",
            got=spec,
        )
    return spec


def existing(path: Path) -> Path:
    """The file, if it is there."""
    if not path.is_file():
        beside = [other.name for other in path.parent.glob("*")] if path.parent.is_dir() else []
        raise SourceError(
            f"There is no file {path}{nearest(path.name, beside)}",
            argument="path",
            expected="a file that is there",
            got=str(path),
        )
    return path


def check_folder(path: Path) -> Path:
    """The folder of data sets, if it is there."""
    if not path.is_dir():
        wrong = f"{path} is a file" if path.exists() else f"There is no folder {path}"
        raise SourceError(
            f"{wrong}. --data names the folder that data sets are in, or are to be downloaded to.",
            argument="data",
            expected="a folder that is there",
            got=str(path),
        )
    return path


def check_run(path: Path) -> Path:
    """The folder of a run, if there is one in it."""
    if not (path / "manifest.json").is_file():
        raise SourceError(
            f"There is no run in {path}: it has no manifest.json. Make one with: walkwise run MODEL GRAPHS --ask nodes "
            "--out DIR.",
            argument="folder",
            expected="the folder of a run",
            got=str(path),
        )
    return path


def check_port(host: str, port: int) -> None:
    """Refuse a port that another program uses."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise SourceError(
            f"Cannot listen on {host}, port {port}: {error.strerror}. Choose another port with --port, or --port 0 for "
            "any that is free.",
            argument="port",
            expected="a port that is free",
            got=port,
        ) from None
