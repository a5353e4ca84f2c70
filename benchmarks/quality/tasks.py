"""The tasks by name, and which of them decide (validation) and which only report (test)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from quality import molecules, planted, published

HERE = Path(__file__).parent


class UnavailableError(Exception):
    """A task's data, or what makes them, is not at hand."""


@dataclass(frozen=True)
class Split:
    """A task's examples for one seed; of a node-level task ``whole`` is the graph, and examples are node ids."""

    train: list[Any]
    validation: list[Any]
    test: list[Any]
    whole: Data | None = None

    def example(self, given: Any) -> Data:
        """The graph that an example is explained on."""
        return given if self.whole is None else planted.around(self.whole, given)


@dataclass(frozen=True)
class Task:
    """One thing to be learned whose deciding nodes are known."""

    name: str
    title: str
    level: str  # "graph", "number" (regression) or "node"
    load: Callable[[int, bool], Split]  # (seed, short) → examples
    classes: int = 2
    effort: float = 1.0  # how much longer than others its models are trained


def frozen_split(path: Path = HERE / "split.json") -> dict[str, list[str]]:
    """The names of the validation and of the test tasks, each task once."""
    parts = json.loads(path.read_text(encoding="utf-8"))
    names = [name for part in parts.values() for name in part]
    if sorted(parts) != ["test", "validation"] or sorted(names) != sorted(TASKS):
        raise ValueError(f"{path.name} names every task once, as validation or as test; got {parts}.")
    return {part: list(given) for part, given in parts.items()}


def _made(make: Callable[[], Callable[[Any, int], Data]], seed: int, short: bool) -> Split:
    graphs = planted.many(make(), 1200 if short else 2400, seed)
    return Split(graphs[:-300], graphs[-300:-200], graphs[-200:])


def _nodes(make: Callable[[int], Data], seed: int, short: bool) -> Split:
    whole = make(seed)
    order = np.random.default_rng(seed).permutation(len(whole.x)).tolist()
    a, b = len(order) * 6 // 10, len(order) * 7 // 10
    return Split(order[:a], order[a:b], order[b:], whole)


def _smarts(*patterns: str) -> Callable[[], Callable[[Any, int], Data]]:
    def make() -> Callable[[Any, int], Data]:
        try:
            return molecules.Rule(*patterns)
        except ImportError:
            raise UnavailableError("RDKit is not installed") from None

    return make


def data_folder() -> Path:
    """Where the published sets are: WALKWISE_DATA/data, or shared/data beside the project."""
    root = os.environ.get("WALKWISE_DATA") or HERE.parents[2] / "shared"
    return Path(root) / "data"


def _stored(name: str, seed: int, short: bool) -> Split:
    file = "ba2motif/raw/BA-2motif.pkl" if name == "ba2motif" else f"attribution/{name}.npz"
    if not any((data_folder() / f"{file}{end}").exists() for end in ("", ".xz")):
        raise UnavailableError(f"no {file} in WALKWISE_DATA/data")
    if name == "ba2motif":
        found = published.ba2motif(data_folder(), seed)
    else:
        found = published.molecules(data_folder(), name, 2500 if short else 4500, seed)
    return Split(found.train, found.validation, found.test)


def _two(base: planted.Base, positive: planted.Base, negative: planted.Base) -> Callable[[int, bool], Split]:
    return partial(_made, lambda: planted.two_motifs(base, positive, negative))


TASKS = {
    task.name: task
    for task in (
        Task(
            "ba2motif", "BA-2motif: house or cycle on a tree, constant features", "graph", partial(_stored, "ba2motif")
        ),
        Task("benzene", "molecules with a benzene ring", "graph", partial(_stored, "benzene"), effort=1.5),
        Task("logic7", "molecules, a logical formula of groups (7)", "graph", partial(_stored, "logic7"), effort=1.5),
        Task("logic8", "molecules, a logical formula of groups (8)", "graph", partial(_stored, "logic8"), effort=1.5),
        Task(
            "house-on-tree",
            "house or 5-cycle on a binary tree",
            "graph",
            _two(planted.regular_tree, planted.house, planted.cycle),
        ),
        Task(
            "grid-on-random",
            "3 × 3 grid or ring with chords on a random graph",
            "graph",
            _two(planted.random_graph, planted.grid, planted.ring_with_chords),
        ),
        Task(
            "star-on-small-world",
            "star or path on a small-world graph",
            "graph",
            _two(planted.small_world, planted.star, planted.path),
        ),
        Task(
            "coloured-chain",
            "three colours in a row on a random graph",
            "graph",
            partial(_made, lambda: planted.coloured_chain),
        ),
        Task("count-houses", "how many houses", "number", partial(_made, lambda: planted.count_houses), 1),
        Task(
            "sum-of-marks",
            "how many marked nodes in stars",
            "number",
            partial(_made, lambda: planted.sum_of_marks),
            1,
        ),
        Task("tree-cycles", "nodes of 6-cycles on a binary tree", "node", partial(_nodes, planted.tree_cycles)),
        Task("tree-grids", "nodes of grids on a binary tree", "node", partial(_nodes, planted.tree_grids)),
        Task("ba-shapes", "places in houses on a random graph", "node", partial(_nodes, planted.ba_shapes), 4),
        Task(
            "amide",
            "molecules with an amide group (SMARTS)",
            "graph",
            partial(_made, _smarts(*molecules.AMIDE)),
        ),
        Task(
            "acid-and-phenol",
            "molecules with an acid and a phenol (SMARTS)",
            "graph",
            partial(_made, _smarts(*molecules.ACID_AND_PHENOL)),
        ),
    )
}


def has_truth(task: Task, data: Data) -> bool:
    """Whether an example is of the positive class and its truth is neither nothing nor everything that is seen."""
    if not data.y:
        return False
    seen = data.seen if "seen" in data else torch.ones(len(data.x), dtype=torch.bool)
    inside = data.motifs[:, seen]
    return bool(inside.any(1).all() and not inside.all(1).any())
