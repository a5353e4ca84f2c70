"""Weights in files, and the trained models that come with the package."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor, nn

from walkwise.errors import InputError, unknown
from walkwise.files import as_path, read_tensors, write_tensors
from walkwise.models.architectures import KINDS, SumOfNodes


def save_weights(model: nn.Module, path: str | Path) -> None:
    """Writes the model's weights as a safetensors file; a GIN or GCN of this module can be rebuilt from it alone.

    Args:
        model: any module.
        path: the file, usually NAME.safetensors. An existing file is replaced.
    """
    if not isinstance(model, nn.Module):
        raise InputError(argument="model", expected="a torch.nn.Module", got=model)
    kind = type(model).__name__
    header = {"model": json.dumps({"kind": kind, **model.sizes})} if isinstance(model, SumOfNodes) else {}
    write_tensors(path, model.state_dict(), {"format": "pt", **header})


def load_weights(model: nn.Module, path: str | Path) -> nn.Module:
    """The model, with the weights of a file copied into it.

    Args:
        model: of the same architecture as the one that was saved.
        path: a safetensors file, or a state_dict saved by torch (``.pt`` or ``.pth``), of which only tensors are read.
    """
    if not isinstance(model, nn.Module):
        raise InputError(argument="model", expected="a torch.nn.Module", got=model)
    state = read_tensors(as_path(path, "path"))[0]
    _check(model, state, path)
    model.load_state_dict(state)
    return model


def open_weights(path: str | Path) -> nn.Module:
    """The GIN or GCN that a safetensors file describes, with its weights, in evaluation mode.

    Args:
        path: a file that `save_weights` wrote.

    >>> import tempfile
    >>> from walkwise.models import GIN
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_weights(GIN(1, 4, 2, 2), Path(folder) / "small.safetensors")
    ...     open_weights(Path(folder) / "small.safetensors").sizes["hidden_channels"]
    4
    """
    state, metadata = read_tensors(as_path(path, "path"))
    try:
        described = json.loads(metadata["model"])
        if not 1 <= described["num_layers"] <= len(state):
            raise ValueError("the file has weights for fewer layers")
        with torch.device("meta"):  # takes no room, however large the sizes in the file are
            model = KINDS[described.pop("kind")](**described)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} does not say which GIN or GCN it belongs to.",
            argument="metadata",
            expected="a file of a GIN or GCN that save_weights wrote",
            got=str(path),
            remedy="Build the model and use load_weights(model, path).",
        ) from error
    _check(model, state, path)
    model.load_state_dict(state, assign=True)
    return model.requires_grad_(True).eval()


def bundled(name: str) -> nn.Module:
    """A trained model that comes with the package, in evaluation mode.

    - "ba2motif": GIN-3 on generated BA-2motif; logits of cycle and house.
    - "mutagenicity": GIN-3 on Mutagenicity's atoms and their hydrogens (``from_smiles(smiles, hydrogens=True)``);
      logits of non-mutagenic and mutagenic.
    - "mutag": GIN-3 on MUTAG's atoms (see `walkwise.datasets.molecules`); logits of non-mutagenic and mutagenic.

    Args:
        name: "ba2motif", "mutagenicity" or "mutag".

    >>> bundled("mutag").sizes["in_channels"]
    7
    """
    folder = resources.files("walkwise") / "bundled"
    known = sorted(file.name.removesuffix(".safetensors") for file in folder.iterdir() if ".safetensors" in file.name)
    if name not in known:
        raise unknown("bundled model", name, known)
    with resources.as_file(folder / f"{name}.safetensors") as path:
        return open_weights(path)


def _check(model: nn.Module, state: dict[str, Tensor], path: str | Path) -> None:
    """Refuse weights of other names, shapes or kinds than the model's."""
    wanted = model.state_dict()
    problems = [f"{name} is missing" for name in wanted if name not in state]
    problems += [f"{name} is not in the model" for name in state if name not in wanted]
    for name in wanted.keys() & state.keys():
        if wanted[name].shape != state[name].shape:
            problems.append(f"{name} is {tuple(state[name].shape)} instead of {tuple(wanted[name].shape)}")
        elif wanted[name].is_floating_point() != state[name].is_floating_point():
            problems.append(f"{name} holds {state[name].dtype} instead of {wanted[name].dtype}")
    if len({value.dtype for value in state.values() if value.is_floating_point()}) > 1:
        problems.append("the numbers are of several types")
    if problems:
        more = f" and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise InputError(
            f"The weights in {path} do not fit the model: {'; '.join(sorted(map(str, problems))[:4])}{more}.",
            argument="path",
            expected="a file of weights with the model's shapes",
            got=str(path),
            remedy="Build the model with the sizes that it was trained with.",
        )
