"""The paper's models as ordinary PyG modules, and their weights in files.

Both kinds aggregate with Λ = (A + I)/2 and add the nodes of a graph up, divided by √20. The ½ is folded into the first
linear map after each aggregation, so that a layer is PyG's `GINConv`, which sums over a node and its neighbours.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GINConv, global_add_pool

from walkwise.errors import InputError
from walkwise.files import as_path, read_json, read_npz, read_tensors, write_tensors


class _SumOfNodes(nn.Module):
    """Message-passing blocks, then the sum over the nodes of each graph / √20."""

    def __init__(self, blocks: list[list[nn.Module]], sizes: dict[str, int]) -> None:
        super().__init__()
        self.sizes = sizes
        self.convs = nn.ModuleList(_conv(nn.Sequential(*block)) for block in blocks)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, batch_size: int | None = None
    ) -> Tensor:
        """Logits of the graphs: (G, out_channels).

        Args:
            x: node features: (M, in_channels).
            edge_index: edges, both ways, without self-loops: (2, E).
            batch: the graph of each node: (M,); None for a single graph.
            batch_size: the number of graphs G, if some may have no nodes.
        """
        for conv in self.convs:
            x = conv(x, edge_index)
        return global_add_pool(x, batch, batch_size) / 20**0.5


def _conv(perceptron: nn.Sequential) -> nn.Module:
    """A layer that starts with weights of variance 1/fan-in, halved for Λ, and small negative biases that differ.

    The authors' biases are softmin(b) = −½ log(1 + exp(−2b)) of normal b and stay as they are drawn. Here they are
    trained and start at a tenth of that: larger ones leave the deepest models without a living neuron.
    """
    conv = GINConv(perceptron)  # type: ignore[abstract]
    linears = [module for module in perceptron if isinstance(module, nn.Linear)]
    with torch.no_grad():
        for linear in linears:
            linear.weight.normal_(std=linear.in_features**-0.5)
            linear.bias.copy_(-0.1 * F.softplus(torch.randn_like(linear.bias), beta=2))
        linears[0].weight /= 2
    return conv


class GIN(_SumOfNodes):
    """The paper's GIN: blocks of two linear maps with ReLU after each, and one linear map as the last layer.

    Args:
        in_channels: number of node features.
        hidden_channels: width of all layers but the last.
        out_channels: number of classes.
        num_layers: number of message-passing layers, the last one included.

    >>> model = GIN(7, 128, 2, 3)
    >>> model(torch.eye(7), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([1, 2])
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int) -> None:
        sizes = _sizes(in_channels, hidden_channels, out_channels, num_layers)
        widths = [in_channels] + [hidden_channels] * (num_layers - 1)
        blocks: list[list[nn.Module]] = [
            [nn.Linear(width, hidden_channels), nn.ReLU(), nn.Linear(hidden_channels, hidden_channels), nn.ReLU()]
            for width in widths[:-1]
        ]
        super().__init__([*blocks, [nn.Linear(widths[-1], out_channels)]], sizes)


class GCN(_SumOfNodes):
    """The paper's GCN: every layer ReLU(Λ H W + b) with Λ = (A + I)/2, the last one without ReLU.

    This is not PyG's `GCNConv`, whose Λ is normalised by degrees.

    Args:
        in_channels: number of node features.
        hidden_channels: width of all layers but the last.
        out_channels: number of classes.
        num_layers: number of message-passing layers, the last one included.

    >>> GCN(50, 20, 2, 3)(torch.ones(2, 50), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([1, 2])
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, num_layers: int) -> None:
        sizes = _sizes(in_channels, hidden_channels, out_channels, num_layers)
        widths = [in_channels] + [hidden_channels] * (num_layers - 1)
        blocks: list[list[nn.Module]] = [[nn.Linear(width, hidden_channels), nn.ReLU()] for width in widths[:-1]]
        super().__init__([*blocks, [nn.Linear(widths[-1], out_channels)]], sizes)


_KINDS: dict[str, type[GIN] | type[GCN]] = {"GIN": GIN, "GCN": GCN}


def _sizes(in_channels: int, hidden_channels: int, out_channels: int, num_layers: int) -> dict[str, int]:
    sizes = {
        "in_channels": in_channels,
        "hidden_channels": hidden_channels,
        "out_channels": out_channels,
        "num_layers": num_layers,
    }
    wrong = {name: size for name, size in sizes.items() if not isinstance(size, int) or size < 1}
    if wrong:
        name = next(iter(wrong))
        raise InputError(argument=name, expected="a positive integer", got=wrong[name])
    return sizes


# -- the paper's models by name -------------------------------------------------------------------

#: Kind, in_channels, hidden_channels, out_channels, num_layers (appendix H).
_PAPER: dict[str, tuple[str, int, int, int, int]] = {
    **{f"ba2motif-gin{depth}": ("GIN", 1, 20, 2, depth) for depth in range(2, 8)},
    "mutag-gin3": ("GIN", 7, 128, 2, 3),
    "mutagenicity-gin3": ("GIN", 13, 128, 2, 3),
    "mutagenicity-hydrogens-gin3": ("GIN", 17, 64, 2, 3),  # ours, bundled
    "reddit-binary-gin5": ("GIN", 1, 64, 2, 5),
    "graph-sst2-gcn3": ("GCN", 50, 20, 2, 3),
}


def names() -> list[str]:
    """The names of the paper's models: data set, kind and number of layers.

    >>> names()[-5:]
    ['mutag-gin3', 'mutagenicity-gin3', 'mutagenicity-hydrogens-gin3', 'reddit-binary-gin5', 'graph-sst2-gcn3']
    """
    return list(_PAPER)


def build(name: str, *, in_channels: int | None = None) -> nn.Module:
    """The paper's model of that name, untrained.

    Args:
        name: one of `names()`.
        in_channels: number of node features, where the data have another than the paper's or ours: the published
            Graph-SST2 has 768, the rebuilt one the 50 of its word vectors.

    >>> build("ba2motif-gin4").sizes
    {'in_channels': 1, 'hidden_channels': 20, 'out_channels': 2, 'num_layers': 4}
    """
    if name not in names():
        raise _unknown("model", name, names())
    kind, width, *rest = _PAPER[name]
    return _KINDS[kind](width if in_channels is None else in_channels, *rest)


def _unknown(what: str, name: object, known: list[str]) -> InputError:
    listed = f"one of {', '.join(known)}"
    return InputError(f"Unknown {what} {name!r}: expected {listed}.", argument="name", expected=listed, got=name)


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
            shapes = [linear.weight.t().shape for linear in _linears(_KINDS[sizes[0]](*sizes[1:]))]
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
    model = _KINDS[sizes[0]](*sizes[1:]).double()
    with torch.no_grad():
        for linear, layer in zip(_linears(model), layers, strict=True):
            share = 0.5 if layer["aggregates"] else 1.0
            linear.weight.copy_(torch.from_numpy(arrays[layer["W"]]).double().t() * share)
            linear.bias.copy_(torch.from_numpy(arrays[layer["b"]]))
    return model.eval()


def _described(meta: Any) -> tuple[tuple[str, int, int, int, int], list[dict[str, Any]]]:
    """The kind and the sizes of the model that is described, and what is said of its linear maps."""
    layers = [dict(layer) for block in meta["blocks"] for layer in block["layers"]]
    if not 1 <= meta["L"] <= len(layers) or not all({"W", "b", "aggregates"} <= layer.keys() for layer in layers):
        raise ValueError(f"L is {meta['L']}, and it tells of {len(layers)} linear maps")
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
    model = kind(maps[0][0].shape[1], maps[0][0].shape[2], maps[-1][0].shape[2], len(blocks)).double()
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    with torch.no_grad():
        for linear, (W, b, aggregates) in zip(linears, maps, strict=True):
            linear.weight.copy_(W[0].double().t() * (0.5 if aggregates else 1.0))
            linear.bias.copy_(-F.softplus(-b[0].double(), beta=2))
    return model.eval()


class _Theirs:
    """Stands for the authors' classes in their files: it holds what is there, and does nothing."""


# -- weights in files -----------------------------------------------------------------------------


def save_weights(model: nn.Module, path: str | Path) -> None:
    """Writes the model's weights as a safetensors file; a GIN or GCN of this module can be rebuilt from it alone.

    Args:
        model: any module.
        path: the file, usually NAME.safetensors. An existing file is replaced.
    """
    if not isinstance(model, nn.Module):
        raise InputError(argument="model", expected="a torch.nn.Module", got=model)
    kind = type(model).__name__
    header = {"model": json.dumps({"kind": kind, **model.sizes})} if isinstance(model, _SumOfNodes) else {}
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
            model = _KINDS[described.pop("kind")](**described)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} does not say which GIN or GCN it belongs to.",
            argument="metadata",
            expected="that of a GIN or GCN, which save_weights wrote",
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
        raise _unknown("bundled model", name, known)
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
            expected="a file of weights of the model's own shapes",
            got=str(path),
            remedy="Build the model with the sizes it was trained with.",
        )
