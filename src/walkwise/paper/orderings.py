"""Node orders of a whole batch of graphs by the four methods that figure 6 compares."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch_geometric.explain.algorithm.utils import set_masks
from torch_geometric.nn import GINConv, GraphConv, MessagePassing, global_add_pool

from walkwise.baselines.edge_mask import descended_mask
from walkwise.core.chain import RelevanceChain
from walkwise.paper.bunches import Bunch
from walkwise.search.orders import order_nodes
from walkwise.tracing import trace

#: Orders the nodes of every graph, in activation or pruning mode, for several α: [(A, M_g)].
Orders = Callable[[str, Sequence[float]], list[Tensor]]

OURS, GNN_EXPLAINER, GRADIENT, CAM = "sGNN-LRP", "GNNExplainer", "Gradient", "CAM"
#: The same method as PyTorch Geometric has it.
PYG_EXPLAINER = "GNNExplainer (PyG)"


def sgnn_lrp(model: nn.Module, data: Bunch, target: Tensor) -> Orders:
    """Greedy orders by R_α (section 7.2.1)."""
    chain = trace(model, data.x, data.edge_index, batch=data.batch, target=target.tolist(), rule="gamma")
    return _greedy(chain, data)


def gnn_explainer(model: nn.Module, data: Bunch, target: Tensor) -> Orders:
    """Greedy orders by the edges of GNNExplainer's mask, as the authors run it (appendix K)."""
    return _by_edges(descended_masks(model, data, target), _with_loops(data), data)


def pyg_explainer(model: nn.Module, data: Bunch, target: Tensor) -> Orders:
    """The same by the mask of PyTorch Geometric's GNNExplainer."""
    return _by_edges(edge_masks(model, data, target), data.edge_index, data)


def _by_edges(mask: Tensor, edge_index: Tensor, data: Bunch) -> Orders:
    """Greedy orders by scores of edges, an edge being a walk of one step."""
    ones = torch.ones(len(data.batch), 1, dtype=mask.dtype)
    edges = _Edges().to(mask.dtype)
    chain = trace(edges, ones, edge_index, edge_weight=mask, batch=data.batch, target=[0] * len(data), rule="zero")
    return _greedy(chain, data)


def gradient(model: nn.Module, data: Bunch, target: Tensor) -> Orders:
    """By the gradient heat map: descending for activation, ascending for pruning; α has no say."""
    return _sorted(gradient_scores(model, data, target), data)


def cam(model: nn.Module, data: Bunch, target: Tensor) -> Orders:
    """By the class activation map; sorted likewise."""
    return _sorted(cam_scores(model, data, target), data)


METHODS: Mapping[str, Callable[[nn.Module, Bunch, Tensor], Orders]] = {
    OURS: sgnn_lrp,
    GNN_EXPLAINER: gnn_explainer,
    PYG_EXPLAINER: pyg_explainer,
    GRADIENT: gradient,
    CAM: cam,
}
#: Those that attribute steps, so that α matters.
DISCOUNTED = (OURS, GNN_EXPLAINER, PYG_EXPLAINER)


def gradient_scores(model: nn.Module, data: Bunch, target: Tensor) -> Tensor:
    """|Σ_features ∂f/∂x| of every node: (M,)."""
    x = data.x.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        f = model(x, data.edge_index, data.batch).gather(1, target[:, None]).sum()
        (slope,) = torch.autograd.grad(f, x)
    return slope.sum(dim=1).abs()


def cam_scores(model: nn.Module, data: Bunch, target: Tensor) -> Tensor:
    """A node's share of the output at the read-out, |Σ_n H_mn ∂f/∂H_mn| with H of the last layer: (M,)."""
    seen: list[Tensor] = []
    last = [module for module in model.modules() if isinstance(module, MessagePassing)][-1]

    def keep(module: nn.Module, args: object, H: Tensor) -> Tensor:
        seen.append(H.detach().requires_grad_(True))
        return seen[0]

    handle = last.register_forward_hook(keep)
    try:
        with torch.enable_grad():
            f = model(data.x, data.edge_index, data.batch).gather(1, target[:, None]).sum()
            (slope,) = torch.autograd.grad(f, seen[0])
    finally:
        handle.remove()
    return (seen[0] * slope).sum(dim=1).abs().detach()


def descended_masks(model: nn.Module, data: Bunch, target: Tensor, *, steps: int = 500) -> Tensor:
    """The authors' scores of edges, self-loops after them, of all graphs side by side: (E + M,).

    What a GINConv takes from a node itself is an edge to them: it is left out of the layer, and a loop put in.
    """
    loops, looped = _with_loops(data), copy.deepcopy(model)
    for conv in looped.modules():
        if isinstance(conv, GINConv):
            conv.eps.data.fill_(-1.0)

    def loss(masked: nn.Module) -> Tensor:
        logits: Tensor = masked(data.x, loops, data.batch)
        return -logits.gather(1, target[:, None]).sum()

    return descended_mask(looped, loops, loss, data.x.dtype, steps=steps)


def _with_loops(data: Bunch) -> Tensor:
    """The edges, and an edge from every node to itself.  # (2, E + M)"""
    return torch.cat([data.edge_index, torch.arange(len(data.batch)).expand(2, -1)], dim=1)


def edge_masks(
    model: nn.Module, data: Bunch, target: Tensor, *, epochs: int = 200, lr: float = 0.01, seed: int = 0
) -> Tensor:
    """GNNExplainer's edge masks of all graphs, learned side by side: (E,).

    The loss is the sum over graphs of PyG's GNNExplainer's own, with its default weights: −log p(target), 0.005
    times the sum and 1 times the mean entropy of the mask. No graph has a say in another's mask, so it is what
    one graph after the other would give, in one pass per epoch.
    """
    generator = torch.Generator().manual_seed(seed)
    owner = data.batch[data.edge_index[0]]  # (E,)
    std = math.sqrt(2.0) * (2.0 / (2 * data.sizes[owner])).sqrt()
    start = torch.randn(len(owner), generator=generator) * std
    logits = nn.Parameter(start.to(data.x.dtype))
    masked = copy.deepcopy(model).requires_grad_(False)
    set_masks(masked, logits, data.edge_index, apply_sigmoid=True)
    optimizer = torch.optim.Adam([logits], lr=lr)
    kept = share = torch.zeros_like(logits)  # edges that matter, found by the first epoch, and their part in a mean
    for epoch in range(epochs):
        with torch.enable_grad():
            loss = _mask_loss(masked(data.x, data.edge_index, data.batch), target, logits, kept, share)
            (logits.grad,) = torch.autograd.grad(loss, [logits])
        optimizer.step()
        if epoch == 0 and logits.grad is not None:
            kept = (logits.grad != 0).to(logits.dtype)
            share = kept / kept.new_zeros(len(data)).index_add(0, owner, kept)[owner].clamp(min=1)
    return kept * logits.detach().sigmoid()


def _mask_loss(output: Tensor, target: Tensor, logits: Tensor, kept: Tensor, share: Tensor) -> Tensor:
    """The sum of the graphs' losses."""
    fit = nn.functional.cross_entropy(output, target, reduction="sum")
    m = logits.sigmoid()
    entropy = -m * (m + 1e-15).log() - (1 - m) * (1 - m + 1e-15).log()
    return fit + (0.005 * kept * m + share * entropy).sum()


class _Edges(nn.Module):
    """A model whose walks are the edges: one layer, and a walk's relevance is its edge's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GraphConv(1, 1, bias=False)  # type: ignore[abstract]
        nn.init.ones_(self.conv.lin_rel.weight)
        nn.init.zeros_(self.conv.lin_root.weight)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor) -> Tensor:
        return global_add_pool(self.conv(x, edge_index, edge_weight), batch)


def _greedy(chain: RelevanceChain, data: Bunch) -> Orders:
    def orders(mode: str, alphas: Sequence[float]) -> list[Tensor]:
        return list(order_nodes(chain, mode=mode, alpha=list(alphas), graphs=data.batch))

    return orders


def _sorted(scores: Tensor, data: Bunch) -> Orders:
    """The same order for every α."""

    def orders(mode: str, alphas: Sequence[float]) -> list[Tensor]:
        found = []
        for graph in range(len(data)):
            begin, end = data.nodes_before[graph : graph + 2].tolist()
            order = scores[begin:end].argsort(descending=mode == "activation", stable=True) + begin
            found.append(order.expand(len(alphas), -1))
        return found

    return orders
