"""What torch_geometric.nn offers, and where each class of it is tried, or why it is not."""

import importlib
import inspect
import pkgutil
import warnings

import torch_geometric.nn

from matrix.models import CONVS, NORMS, POOLS
from zoo.checks import built
from zoo.materials import MATERIALS
from zoo.models import ZOO
from zoo.molecules import MOLECULES
from zoo.plain import FOUND
from zoo.readymade import READYMADE
from zoo.rest import REST
from zoo.steps import STEPS

ALL = (*ZOO, *FOUND, *READYMADE, *REST, *STEPS, *MOLECULES, *MATERIALS)

#: Classes that no model of the zoo or of the matrix has a module of, and the test that tries each.
TESTED = {
    "LightGCN": "tracing/test_calls.py",
    "Sequential": "tracing/test_calls.py",
}

#: Why other classes are not tried.
NOT_TRIED = {
    "need a package beside torch_geometric": (
        "SplineConv", "DynamicEdgeConv", "GravNetConv", "XConv", "PANConv", "PANPooling", "FusedGATConv",
        "CuGraphSAGEConv", "CuGraphGATConv", "CuGraphRGCNConv", "KNNIndex", "L2KNNIndex", "MIPSKNNIndex",
        "ApproxL2KNNIndex", "ApproxMIPSKNNIndex",
    ),
    "look up embeddings of nodes or relations, and read no graph": (
        "Node2Vec", "MetaPath2Vec", "KGEModel", "TransE", "ComplEx", "DistMult", "RotatE", "RENet",
    ),
    "remember events, and pass no messages when they are asked": ("TGNMemory",),
    "give colours of nodes, which have no gradient": ("WLConv",),
    "run a model on several devices": ("DataParallel",),
}  # fmt: skip


def offered():
    """The public classes, by name: those that a package below torch_geometric.nn, or it itself, lists."""
    found = {}
    for home in _homes():
        classes = ((name, getattr(home, name)) for name in home.__all__)
        found |= {name: kind for name, kind in classes if inspect.isclass(kind)}
    return found


def _homes():
    yield torch_geometric.nn
    for module in pkgutil.iter_modules(torch_geometric.nn.__path__):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of packages that are deprecated
            home = importlib.import_module(f"torch_geometric.nn.{module.name}")
        if hasattr(home, "__all__"):
            yield home


def exercised():
    """The classes of all modules of the models that are tried, and what those are kinds of."""
    models = [model for entry in ALL if (model := built(entry)) is not None]
    models += [make(4, 4, True) for make in CONVS.values()]
    models += [make(4) for make in NORMS.values()] + [make(4, True) for make in POOLS.values()]
    kinds = {type(module) for model in models for module in model.modules()}
    return {base for kind in kinds for base in kind.__mro__}
