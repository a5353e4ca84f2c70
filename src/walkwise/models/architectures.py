"""The paper's GIN and GCN, by their sizes or by name."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GINConv, global_add_pool

from walkwise.errors import InputError, unknown


class SumOfNodes(nn.Module):
    """Message-passing blocks of some linear maps each, one more map, then the sum over each graph's nodes / √20."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int, num_layers: int, *, maps: int) -> None:
        super().__init__()
        self.sizes = _sizes(in_channels, hidden, out_channels, num_layers)
        widths = [in_channels] + [hidden] * (num_layers - 1)  # of what every layer reads
        blocks: list[list[nn.Module]] = [
            [module for read in (width, *[hidden] * (maps - 1)) for module in (nn.Linear(read, hidden), nn.ReLU())]
            for width in widths[:-1]
        ]
        blocks.append([nn.Linear(widths[-1], out_channels)])
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


class GIN(SumOfNodes):
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
        super().__init__(in_channels, hidden_channels, out_channels, num_layers, maps=2)


class GCN(SumOfNodes):
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
        super().__init__(in_channels, hidden_channels, out_channels, num_layers, maps=1)


KINDS: dict[str, type[GIN] | type[GCN]] = {"GIN": GIN, "GCN": GCN}


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
        raise unknown("model", name, names())
    kind, width, *rest = _PAPER[name]
    return KINDS[kind](width if in_channels is None else in_channels, *rest)
