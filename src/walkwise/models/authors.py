"""The models of the paper's authors, from plain arrays or from the files they publish."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkwise.errors import InputError
from walkwise.files import as_path, read_json, read_npz
from walkwise.models.architectures import GCN, GIN, KINDS


def from_arrays(folder: str | Path, name: str) -> nn.Module:
    """A model of the paper's authors from its plain arrays, in float64 and in evaluation mode.

    Their adjacency is (A + I)/2: the first weight of each block is halved here, and biases stay as they are.

    Args:
        folder: holds NAME.npz (the arrays) and NAME.json (what they are).
        name: such as "gin-3-mutag".
    """
    folder = as_path(folder, "folder")
    description, numbers = (folder / f"{name}.{ending}" for ending in ("json", "npz"))
    if not description.is_file() or not numbers.is_file():
        found = ", ".join(sorted(path.stem for path in folder.glob("*.npz"))) or "none"
        raise InputError(
            f"Expected {name}.json and {name}.npz in {folder}; the models there: {found}.",
            argument="name",
            expected=f"one of the models there: {found}",
            got=name,
        )
    try:
        sizes, layers = _described(read_json(description))
        arrays = read_npz(numbers, tuple(name for layer in layers for name in (layer["W"], layer["b"])))
        with torch.device("meta"):  # takes no room, however large the sizes in the file are
            shapes = [linear.weight.t().shape for linear in _linears(KINDS[sizes[0]](*sizes[1:]))]
        for shape, layer in zip(shapes, layers, strict=True):
            if (arrays[layer["W"]].shape, arrays[layer["b"]].shape) != (shape, shape[1:]):
                raise ValueError(f"{layer['W']} is {arrays[layer['W']].shape} instead of {tuple(shape)}")
    except InputError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"Expected {description} to describe the arrays in {numbers.name}: {type(error).__name__}: {error}.",
            expected=f"a description of the arrays in {numbers.name}",
            got=str(error),
            remedy="The files do not belong together: fetch them again.",
        ) from error
    maps = [(*(torch.from_numpy(arrays[layer[part]]) for part in "Wb"), layer["aggregates"]) for layer in layers]
    return _filled(KINDS[sizes[0]](*sizes[1:]), maps)


def _described(meta: Any) -> tuple[tuple[str, int, int, int, int], list[dict[str, Any]]]:
    """The kind and the sizes of the model that is described, and what is said of its linear maps."""
    layers = [dict(layer) for block in meta["blocks"] for layer in block["layers"]]
    if not 1 <= meta["L"] <= len(layers) or not all({"W", "b", "aggregates"} <= layer.keys() for layer in layers):
        raise ValueError(f"L is {meta['L']}, but it describes {len(layers)} linear maps")
    return (meta["kind"].upper(), meta["input_width"], layers[0]["out_width"], meta["num_classes"], meta["L"]), layers


def _linears(model: nn.Module) -> list[nn.Linear]:
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def load_authors(path: str | Path) -> nn.Module:
    """A model of the paper's authors from the file they publish (NAME.torch), in float64 and in evaluation mode.

    Such a file is a pickle of a whole object. Nothing in it is run: tensors and plain values are read, and for the
    authors' two classes stand two empty ones of our own; a file that names anything else is refused. As in
    `from_arrays`, the first weight of each block is halved for Λ = (A + I)/2, and a bias is
    softmin(b) = −½ log(1 + exp(−2b)) of what is stored.

    Args:
        path: such as gin-3-mutag.torch. MUTAG's classes are the other way round there: 0 is mutagenic.
    """
    theirs: list[Any] = [(_Theirs, "modules.GNN"), (_Theirs, "modules.Block")]
    try:
        with torch.serialization.safe_globals(theirs):
            found: Any = torch.load(path, map_location="cpu", weights_only=True)
        blocks = [block for block in found.blocks if block.W]
        maps = [(W, b, i == 0) for block in blocks for i, (W, b) in enumerate(zip(block.W, block.B, strict=True))]
        single = all(W.dim() == 3 and len(W) == 1 for W, _, _ in maps)
    except (UnpicklingError, RuntimeError, EOFError, AttributeError, OSError) as error:
        raise InputError(
            f"Expected a model of the paper's authors in {path}: {error}.",
            argument="path",
            expected="a file with a model of the paper's authors",
            got=str(path),
        ) from error
    if not single or not maps:
        raise InputError(
            f"Expected one adjacency per layer in {path}; models with several are not the paper's.",
            argument="path",
            expected="a file with a model of one adjacency per layer",
            got=str(path),
        )
    kind = GIN if len(maps) > len(blocks) else GCN
    model = kind(maps[0][0].shape[1], maps[0][0].shape[2], maps[-1][0].shape[2], len(blocks))
    return _filled(model, [(W[0], -F.softplus(-b[0].double(), beta=2), aggregates) for W, b, aggregates in maps])


class _Theirs:
    """Stands for the authors' classes in their files: it holds what is there, and does nothing."""


def _filled(model: nn.Module, maps: Sequence[tuple[Tensor, Tensor, bool]]) -> nn.Module:
    """The model with these linear maps: weights (N_in, N_out), biases, and whether it aggregates first, with a ½."""
    model = model.double()
    with torch.no_grad():
        for linear, (W, b, aggregates) in zip(_linears(model), maps, strict=True):
            linear.weight.copy_(W.double().t() * (0.5 if aggregates else 1.0))
            linear.bias.copy_(b)
    return model.eval()
