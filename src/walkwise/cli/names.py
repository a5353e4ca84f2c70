"""The names that the command line knows, and its errors for unknown names.

They are kept apart from what they name, which takes seconds to import, so that help and completion need not wait.
"""

from __future__ import annotations

import difflib
import math
import socket
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from walkwise.errors import InputError
from walkwise.notation import molecule_of

#: The bundled models, and the default graphs of each.
BUNDLED = {"ba2motif": "ba2motif-generated", "mutagenicity": "molecules", "mutag": "molecules"}

#: The data sets that `walkwise.datasets` loads by name, and the bundled molecules.
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

#: The bundled molecules: their names and their SMILES.
MOLECULES = {
    "2-nitronaphthalene": "O=[N+]([O-])c1ccc2ccccc2c1",
    "1-nitropyrene": "O=[N+]([O-])c1ccc2ccc3cccc4ccc1c2c34",
    "4-(2-nitroethyl)nitrobenzene": "O=[N+]([O-])CCc1ccc([N+](=O)[O-])cc1",
    "4-aminobiphenyl": "Nc1ccc(cc1)-c1ccccc1",
    "styrene oxide": "C1OC1c1ccccc1",
    "N-nitrosodiethylamine": "CCN(CC)N=O",
    "paracetamol": "CC(=O)Nc1ccc(O)cc1",
    "toluene": "Cc1ccccc1",
}

#: The classes of each data set, by output column.
CLASSES = {
    "molecules": ("non-mutagenic", "mutagenic"),
    "ba2motif": ("cycle", "house"),
    "ba2motif-generated": ("cycle", "house"),
    "mutag": ("non-mutagenic", "mutagenic"),
    "mutagenicity": ("mutagenic", "non-mutagenic"),
    "mutagenicity-hydrogens": ("non-mutagenic", "mutagenic"),
    "reddit-binary": ("label -1", "label 1"),
    "graph-sst2": ("negative", "positive"),
}

#: The number of graphs in data sets that need no files.
SIZES = {"molecules": len(MOLECULES), "ba2motif-generated": 1000}

#: The rules that `walkwise.rules` knows by name.
RULES = ("auto", "gamma", "zero", "epsilon", "alphabeta", "zplus", "positive")

#: The explainers of `walkwise.baselines`, and their measures.
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

#: The questions of `walkwise.runs` about every graph.
QUESTIONS = ("nodes", "edges", "walks", "order", "subgraph", "groups", "curves")

#: Questions with a number of walks or nodes after a colon, or with an optional α.
_COUNTED, _DISCOUNTED = ("walks", "subgraph"), ("order", "curves")

#: Files that are read during a run, not before.
READ_LATER = (".csv", ".tsv", ".parquet")

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
    """Something named on the command line does not exist, or is not what it should be."""


def which_graphs(ways: str) -> SourceError:
    """The error for missing graphs, with the ways to name them."""
    return SourceError("Which graphs?", argument="graphs", expected=ways, remedy=f"Give them after the model: {ways}.")


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
    """The end of a sentence about a wrong name, with the nearest valid name, if one is close.

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
    """Check the name of a model, an existing file of weights, or an import path.

    >>> check_model("mutagg")
    Traceback (most recent call last):
        ...
    walkwise.cli.names.SourceError: Unknown model 'mutagg'; did you mean 'mutag'? ...
    """
    if spec.endswith(".safetensors") and not is_import_path(spec):
        return str(existing(Path(spec)))
    if spec not in (*BUNDLED, *RECIPES) and not is_import_path(spec):
        expected = (
            f"a bundled model ({', '.join(BUNDLED)}), a .safetensors file, an import path such as mypkg.models:build, "
            f"or, with --weights, a model of the paper ({', '.join(RECIPES)})"
        )
        weights = spec.endswith((".pt", ".pth", ".ckpt")) and Path(spec).is_file()
        code = f"Name the code that makes the model, too: mypkg.models:build --weights {spec}."
        raise SourceError(
            f"Unknown model {spec!r}{nearest(spec, [*BUNDLED, *RECIPES])} Expected {expected}.",
            argument="model",
            expected=expected,
            got=spec,
            remedy=code if weights else None,
        )
    return spec


def check_question(text: str) -> str:
    """Check a question about every graph of a run, in the form of `walkwise.runs`; its groups are read later.

    >>> check_question("walks:none")
    Traceback (most recent call last):
        ...
    walkwise.cli.names.SourceError: Expected a question such as walks:10, got 'walks:none'.
    """
    kind, _, rest = text.partition(":")
    choice(kind, QUESTIONS, "question")
    if kind in _COUNTED:
        fits, example = _within(rest, 1, math.inf, int), f"{kind}:10"
    elif kind in _DISCOUNTED:
        fits, example = _within(rest or "0", 0, 1, float), f"{kind}:0.1, with an α from 0 to 1"
    elif kind == "groups":
        fits, example = bool(rest), "groups:functional, groups:alerts or groups:FILE"
    else:
        fits, example = not rest, kind
    if not fits:
        raise SourceError(
            f"Expected a question such as {example}, got {text!r}.", argument="ask", expected=example, got=text
        )
    return text


def _within(text: str, low: float, high: float, read: Callable[[str], float]) -> bool:
    try:
        return low <= read(text) <= high
    except ValueError:
        return False


def check_run_graphs(spec: str) -> str:
    """Check the graphs of a run: what `check_graphs` takes, a folder, or an existing table."""
    if Path(spec).suffix in READ_LATER:
        return str(existing(Path(spec)))
    return spec if Path(spec).is_dir() else check_graphs(spec)


def check_smiles(smiles: list[str]) -> list[str]:
    """Check that RDKit can read molecules, if it is installed."""
    if find_spec("rdkit"):
        for text in smiles:
            molecule_of(text)
    return smiles


def check_graphs(spec: str) -> str:
    """Check the name of a data set, an existing file of graphs, or an import path."""
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
    """The file, if it exists."""
    if not path.is_file():
        beside = [other.name for other in path.parent.glob("*")] if path.parent.is_dir() else []
        raise SourceError(
            f"There is no file {path}{nearest(path.name, beside)}",
            argument="path",
            expected="an existing file",
            got=str(path),
        )
    return path


def check_folder(path: Path) -> Path:
    """The folder of data sets, if it exists."""
    if not path.is_dir():
        wrong = f"{path} is a file" if path.exists() else f"There is no folder {path}"
        raise SourceError(
            f"{wrong}. --data names the folder that holds the data sets, or to which to download them.",
            argument="data",
            expected="an existing folder",
            got=str(path),
        )
    return path


def check_run(path: Path) -> Path:
    """The folder of a run, if it contains one."""
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
