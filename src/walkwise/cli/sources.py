"""Models and graphs as the command line names them: bundled, in a file, by import path, or as SMILES.

Weights and graphs in files are read safely: tensors, and PyG's own containers of them, and nothing that could run. An
import path runs the module it names, as ``import`` does: it is for one's own code.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from walkwise import datasets, models
from walkwise.cli.beforehand import check_number, check_subject, check_weights
from walkwise.cli.names import (
    BUNDLED,
    CLASSES,
    MOLECULES,
    RECIPES,
    SourceError,
    check_graphs,
    check_model,
    existing,
    is_import_path,
    nearest,
)
from walkwise.datasets.graph_files import read_graphs
from walkwise.datasets.graphset import GraphSet
from walkwise.datasets.tu import HYDROGENS, MUTAGENICITY_ATOMS
from walkwise.errors import WalkwiseError
from walkwise.evaluation.naming import node_labels
from walkwise.evaluation.types import node_types


@dataclass(frozen=True, eq=False)
class NamedGraphs:
    """Graphs to ask about, and what they and their parts are called.

    Args:
        graphs: the graphs, of PyG.
        source: where they come from, in a word.
        names: what each graph is called: (G,).
        class_names: what the output columns mean; empty where nobody says.
        node_names: what the columns of one-hot features mean; empty where nobody says.
        held_out: numbers of the graphs to measure on: those no bundled model was trained on, where that is known.
    """

    graphs: Sequence[Any]
    source: str
    names: tuple[str, ...]
    class_names: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()
    held_out: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and the graphs to ask it about."""

    model: nn.Module
    model_name: str
    data: NamedGraphs

    @property
    def graphs(self) -> Sequence[Any]:
        """The graphs."""
        return self.data.graphs

    @property
    def names(self) -> tuple[str, ...]:
        """What each graph is called: (G,)."""
        return self.data.names

    def graph(self, number: int) -> Any:
        """The graph of that number, from 0."""
        check_number(number, len(self.graphs), self.data.source)
        return self.graphs[number]

    def class_name(self, column: int) -> str:
        """What an output column means, or its number."""
        names = self.data.class_names
        return names[column] if 0 <= column < len(names) else f"output {column}"

    def node_labels(self, number: int) -> list[str]:
        """What the nodes of a graph are called: symbols, words, one-hot names or types; empty where nobody says."""
        data = self.graph(number)
        if (types := node_types(data)) is not None:
            return types.written(range(types.num_nodes))
        if called := node_labels(data, data.num_nodes or 0):
            return list(called)
        names, x = self.data.node_names, data.x
        if x is not None and names and x.shape[1] == len(names) and bool(((x == 0) | (x == 1)).all()):
            return [names[column] for column in x.argmax(dim=1).tolist()]
        return []


def truth_of(data: Data | HeteroData) -> list[int]:
    """The nodes of the known motif, ascending; empty where none is known, as of heterogeneous graphs."""
    if isinstance(data, HeteroData):
        return []
    truth = data.get("ground_truth", None)
    nodes: list[int] = truth.nonzero().flatten().tolist() if isinstance(truth, Tensor) else []
    return nodes


def load_subject(
    model: str,
    data: str | None = None,
    *,
    weights: Path | None = None,
    smiles: Sequence[str] = (),
    featurise: str | None = None,
    root: Path | None = None,
) -> Subject:
    """The model and the graphs that the command line names.

    Args:
        model: see `load_model`.
        data: see `load_graphs`; by default the graphs that go with a bundled model.
        weights: the file with the model's weights.
        smiles: molecules, in place of data.
        featurise: an import path of what makes a graph of a molecule's SMILES; by default the bundled models' features.
        root: the folder of data sets.

    >>> subject = load_subject("ba2motif")
    >>> subject.graph(999)
    Data(x=[25, 1], edge_index=[2, 52], y=[1], ground_truth=[25])
    >>> subject.names[999], subject.class_name(1)
    ('ba2motif-generated 999', 'house')
    """
    check_subject(check_model(model), data, weights=weights, smiles=smiles, featurise=featurise)
    network = load_model(model, weights=weights)
    if smiles:
        graphs = from_smiles(smiles, reader_of(network) if featurise is None else featuriser(featurise))
    else:
        graphs = load_graphs(data or BUNDLED[model], root=root, hydrogens=counts_hydrogens(network))
    if graphs.source == "molecules" and model not in (*BUNDLED, *RECIPES):  # of which nobody says what it predicts
        graphs = replace(graphs, class_names=())
    return Subject(network, model, graphs)


def counts_hydrogens(model: nn.Module) -> bool:
    """Whether a model takes the features of the data set "mutagenicity-hydrogens", not those of MUTAG."""
    sizes = getattr(model, "sizes", {})
    return bool(sizes.get("in_channels") == len(MUTAGENICITY_ATOMS) + len(HYDROGENS))


# -- models -----------------------------------------------------------------------------------------


def load_model(spec: str, *, weights: Path | None = None) -> nn.Module:
    """The model that a name, a file or an import path stands for, in evaluation mode.

    Args:
        spec: a bundled name; with weights, the name of one of the paper's models; a safetensors file that describes its
            model; or "package.module:name", a model, or what returns one when called without arguments.
        weights: a safetensors file, or a state_dict saved by torch, of which only tensors are read.
    """
    check_weights(check_model(spec), weights)
    if is_import_path(spec):
        model = _called(import_path(spec), nn.Module, spec)
    elif spec.endswith(".safetensors"):
        model = models.open_weights(existing(Path(spec)))
    elif spec in BUNDLED:
        model = models.bundled(spec)
    else:
        model = models.build(spec)
    return models.load_weights(model, existing(weights)).eval() if weights else model.eval()


# -- graphs -----------------------------------------------------------------------------------------


def reader_of(model: nn.Module) -> Callable[[str], Data]:
    """What makes a graph of a SMILES string, with the features that the model takes: hydrogens counted, or MUTAG's."""
    return partial(datasets.molecules.from_smiles, hydrogens=counts_hydrogens(model))


def load_graphs(spec: str, *, root: Path | None = None, hydrogens: bool = False) -> NamedGraphs:
    """The graphs that a name, a file or an import path stands for.

    Args:
        spec: "molecules", a data set of `walkwise.datasets`, a file of PyG graphs (.pt), or "package.module:name":
            graphs, or what returns them when called without arguments.
        root: the folder of data sets.
        hydrogens: whether hydrogens are among the features of the bundled molecules.
    """
    if spec == "molecules":
        read = partial(datasets.molecules.from_smiles, hydrogens=hydrogens)
        return from_smiles(list(MOLECULES.values()), read, names=list(MOLECULES))
    if spec in datasets.names():
        return _named(datasets.load(spec, root=root))
    if is_import_path(check_graphs(spec)):
        return _loose(_called(import_path(spec), (Data, HeteroData, GraphSet, Iterable), spec), spec)
    return _loose(read_graphs(Path(spec)), Path(spec).name)


def from_smiles(
    smiles: Sequence[str], read: Callable[[str], Data], *, names: Sequence[str] | None = None
) -> NamedGraphs:
    """Molecules, each made into a graph by ``read``. Needs the extra ``chem``."""
    graphs = [read(text) for text in smiles]
    return NamedGraphs(graphs, "molecules", tuple(names or smiles), CLASSES["molecules"], (), tuple(range(len(graphs))))


def featuriser(spec: str) -> Callable[[str], Data]:
    """The function of an import path that makes a graph of a SMILES string; the graph keeps the string."""
    made = import_path(spec)
    if not callable(made):
        raise _unusable(spec, f"{spec} must be a function of a SMILES string, got {type(made).__name__}.")

    def read(text: str) -> Data:
        try:
            data = made(text)
        except WalkwiseError:
            raise
        except Exception as error:
            raise _unusable(spec, f"{spec}({text!r}) failed: {type(error).__name__}: {error}.") from error
        if not isinstance(data, Data):
            raise _unexpected("a torch_geometric Data", f"{spec}({text!r})", type(data).__name__)
        if "smiles" not in data:
            data.smiles = text
        return data

    return read


def _named(found: GraphSet) -> NamedGraphs:
    names = tuple(f"{found.name} {number}" for number in range(len(found.graphs)))
    test = tuple(found.test.tolist())
    return NamedGraphs(found.graphs, found.name, names, found.class_names, found.node_names or (), test)


def _loose(found: Any, source: str) -> NamedGraphs:
    """Graphs that come without a split."""
    if isinstance(found, GraphSet):
        return _named(found)
    graphs = [found] if isinstance(found, Data | HeteroData) else list(found)
    wrong = next((type(graph).__name__ for graph in graphs if not isinstance(graph, Data | HeteroData)), None)
    if not graphs or wrong:
        raise _unexpected("PyG graphs", source, wrong or "none")
    names = tuple(f"{source} {number}" for number in range(len(graphs)))
    return NamedGraphs(graphs, source, names, (), (), tuple(range(len(graphs))))


# -- names, files and import paths --------------------------------------------------------------------


def import_path(spec: str) -> Any:
    """What "package.module:name" stands for; the module runs. The current folder is searched first.

    >>> import_path("math:tau") > 6
    True
    """
    module, _, name = spec.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise _unusable(
                spec, f"There is no module {error.name!r} to import {spec} from.", "Is it in this folder?"
            ) from error
        raise _unusable(spec, f"{module} needs the module {error.name!r}, which is not installed.") from error
    except Exception as error:
        raise _unusable(spec, f"Importing {module} failed: {type(error).__name__}: {error}.") from error
    for part in name.split("."):
        if not hasattr(found, part):
            public = [known for known in dir(found) if not known.startswith("_")]
            raise _unusable(spec, f"{module} has no {part!r}{nearest(part, public)}")
        found = getattr(found, part)
    return found


def _unusable(spec: str, problem: str, remedy: str | None = None) -> SourceError:
    expected = "an import path such as mypkg.models:build"
    return SourceError(problem, argument="path", expected=expected, got=spec, remedy=remedy)


def _unexpected(expected: str, source: str, got: str) -> SourceError:
    problem = f"Expected {expected} from {source}, got {got}."
    return SourceError(problem, argument="path", expected=f"that of {expected}", got=source)


def _called(found: Any, kinds: Any, spec: str) -> Any:
    """The thing itself, or what it returns when called; checked."""
    made = found
    if isinstance(found, type) or not isinstance(found, kinds):
        if not callable(found):
            raise _unusable(spec, f"{spec} must be callable without arguments, got {type(found).__name__}.")
        try:
            made = found()
        except WalkwiseError:
            raise
        except Exception as error:
            raise _unusable(spec, f"{spec}() failed: {type(error).__name__}: {error}.") from error
    if not isinstance(made, kinds):
        wanted = "a torch.nn.Module" if kinds is nn.Module else "PyG graphs"
        raise _unexpected(wanted, spec, type(made).__name__)
    return made
