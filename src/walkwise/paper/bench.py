"""The settings of tables and figures: how much work, which graphs, which models."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from walkwise import datasets, models, training
from walkwise.datasets import GraphSet
from walkwise.paper.bunches import Bunch, bunch
from walkwise.recipes import RECIPES

#: The paper's data sets by name, with their names in print.
TITLES = {
    "ba2motif": "BA-2motif",
    "mutag": "MUTAG",
    "mutagenicity": "Mutagenicity",
    "reddit-binary": "REDDIT-B",
    "graph-sst2": "Graph-SST2",
}

#: Where the weights are from, when they are the authors' own.
AUTHORS = "the authors' weights"
#: Figure 4 begins at a depth that the paper has no trained model of.
UNTRAINED = "ba2motif-gin1"
#: What the authors call their models.
_THEIR_NAMES = {
    **{f"ba2motif-gin{depth}": f"gin-{depth}-ba2motif" for depth in range(2, 8)},
    "mutag-gin3": "gin-3-mutag",
    "mutagenicity-gin3": "gin-3-mutagenicity",
    "reddit-binary-gin5": "gin-5-reddit",
    "graph-sst2-gcn3": "gcn-3-sst2graph",
}


@dataclass(frozen=True)
class Effort:
    """How much is computed."""

    name: str
    samples: int  # graphs per data set that are timed
    trials: int  # how often each is timed
    limit: float  # seconds of processor time that naive GNN-LRP gets for one subgraph
    alphas: int  # discounts from 0 to 1
    sizes: tuple[int, ...]  # |S| in figure 4
    depth_samples: int  # graphs per point of figure 4
    sentences: int | None  # of Graph-SST2's test set in figure 6; None for all
    training: float  # where models are trained, the share of their recipe's epochs
    formats: tuple[str, ...]

    @property
    def discounts(self) -> list[float]:
        """α from 0 to 1."""
        return [round(i / (self.alphas - 1), 4) for i in range(self.alphas)]


FULL = Effort("full", 50, 3, 360.0, 21, tuple(range(1, 20)), 10, None, 1.0, ("png", "pdf"))
QUICK = Effort("quick", 3, 1, 15.0, 21, (1, 3, 5, 8, 12, 16, 19), 2, 200, 0.2, ("png",))


@dataclass(frozen=True, eq=False)
class BenchCase:
    """A model and the data set it was trained on."""

    name: str  # such as "gin-3-mutag"
    model: nn.Module  # float64, in evaluation mode
    graphs: GraphSet
    origin: str  # where the weights are from, in words
    digest: str  # of the weights and the graphs

    def some(self, index: Sequence[int] | Tensor) -> Bunch:
        """Graphs of the set side by side."""
        return bunch(self.graphs.graphs, index)


@dataclass(frozen=True, eq=False)
class Bench:
    """Data sets and models, loaded when they are asked for and once."""

    effort: Effort
    data: Path | None = None  # the data root
    weights: Path | None = None  # the authors' files (NAME.torch) or arrays (NAME.npz, .json), or NAME.safetensors
    out: Path = Path("paper")
    _sets: dict[str, GraphSet] = field(default_factory=dict)
    _cases: dict[str, BenchCase] = field(default_factory=dict)

    def graphs(self, name: str) -> GraphSet:
        """The data set of that name."""
        if name not in self._sets:
            self._sets[name] = datasets.load(name, root=self.data)
        return self._sets[name]

    def case(self, name: str) -> BenchCase:
        """The model of that name with its data set; trained first if there are no weights for it."""
        if name not in self._cases:
            graphs = self.graphs(name.rsplit("-", 1)[0])
            model, origin = self._model(name, graphs)
            model = model.double().eval().requires_grad_(False)
            self._cases[name] = BenchCase(name, model, graphs, origin, _digest(model, graphs))
        return self._cases[name]

    def _model(self, name: str, graphs: GraphSet) -> tuple[nn.Module, str]:
        """A model, and where it is from: the authors' arrays, a file of weights, or training."""
        if name == UNTRAINED:
            return _fresh(lambda: models.GIN(1, 20, 2, 1)), "untrained"
        width = graphs.graphs.x.shape[1]
        theirs = None if self.weights is None else _authors(self.weights, name, width)
        if theirs is not None:
            return theirs, AUTHORS
        given = None if self.weights is None else self.weights / f"{name}.safetensors"
        if given is not None and given.is_file():
            model, origin = models.open_weights(given), f"weights from {given.name}"
        else:
            model, origin = self._trained(name, graphs, width)
        accuracy = training.evaluate(model, graphs.graphs, graphs.test)[1]
        return model, f"{origin}, test accuracy {accuracy:.1%}"

    def _trained(self, name: str, graphs: GraphSet, width: int) -> tuple[nn.Module, str]:
        """A model trained here, by its recipe, and kept so that it is trained once."""
        # Those of a quick run are not for a full one.
        folder = self.out / ("models" if self.effort.training == 1 else f"models-{self.effort.name}")
        recipe, path = RECIPES[name], folder / f"{name}.safetensors"
        epochs = max(1, round(recipe.epochs * self.effort.training))
        origin = f"trained here for up to {epochs} epochs"
        if path.is_file():
            return models.open_weights(path), origin
        model = _fresh(lambda: models.build(name, in_channels=width))
        recipe.train(model, graphs, epochs=epochs, progress=True)
        folder.mkdir(parents=True, exist_ok=True)
        models.save_weights(model, path)
        return model, origin


def _fresh(make: Callable[[], nn.Module]) -> nn.Module:
    """A model with random weights, the same every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


def _authors(folder: Path, name: str, width: int) -> nn.Module | None:
    """The authors' model, if their arrays are in the folder and fit the data's features."""
    theirs = _THEIR_NAMES[name]
    published = folder / f"{theirs}.torch"
    if not published.is_file() and not (folder / f"{theirs}.npz").is_file():
        return None
    model: Any = models.load_authors(published) if published.is_file() else models.from_arrays(folder, theirs)
    return _in_our_columns(name, model) if model.sizes["in_channels"] == width else None


def _in_our_columns(name: str, model: nn.Module) -> nn.Module:
    """The authors number MUTAG's classes the other way round: 0 is mutagenic."""
    if name == "mutag-gin3":
        last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
        with torch.no_grad():
            last.weight.copy_(last.weight.flip(0))
            last.bias.copy_(last.bias.flip(0))
    return model


def _digest(model: nn.Module, graphs: GraphSet) -> str:
    """Tells weights and data apart."""
    digest = hashlib.sha256()
    for values in (graphs.graphs.edge_index, graphs.graphs.y, graphs.test):
        digest.update(values.contiguous().numpy().tobytes())
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + value.double().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
