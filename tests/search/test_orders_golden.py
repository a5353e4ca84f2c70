"""Orders with the paper's authors' weights, scored as in their published figures."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch

import walkwise as ww
from authors import ba2motif, golden, load, mutag, needs_golden
from walkwise.search.orders import order_nodes

pytestmark = needs_golden

ALPHAS = [0.0, 0.5, 1.0]


@torch.no_grad()
def outputs(model, data: Batch, kept: Tensor) -> Tensor:
    """The logits of the graphs when only some nodes are kept: (G, 2)."""
    row = kept.cumsum(0) - 1
    edges = data.edge_index[:, kept[data.edge_index].all(dim=0)]
    return model(data.x[kept], row[edges], data.batch[kept], data.num_graphs)


def ranks(data: Batch, orders: list[Tensor], alpha: int) -> Tensor:
    """The place of every node in its graph's order: (M,)."""
    rank = torch.empty(data.num_nodes, dtype=torch.long)
    for order in orders:
        rank[order[alpha]] = torch.arange(order.shape[1])
    return rank


def areas(model, data: Batch, rank: Tensor, mode: str) -> Tensor:
    """AUAC or AUPC of every graph: (G,)."""
    size = data.batch.bincount()
    column = torch.arange(data.num_graphs), data.y
    whole = outputs(model, data, torch.ones_like(data.batch, dtype=torch.bool))[column]
    total = torch.zeros_like(whole)
    for i in range(int(size.max())):
        f = outputs(model, data, rank <= i if mode == "activation" else rank >= i)[column]
        total += torch.where(i < size, f if mode == "activation" else (f - whole).abs(), 0.0)
    return total / size


@pytest.fixture(scope="module")
def molecules():
    model, data = load("gin-3-mutag"), Batch.from_data_list(mutag())
    return model, data, ww.trace(model, data.x, data.edge_index, batch=data.batch, target=data.y.tolist(), rule="gamma")


@pytest.mark.parametrize(("mode", "name"), [("activation", "auac"), ("pruning", "aupc")])
def test_areas_on_mutag_are_the_published_ones(molecules, mode, name):
    model, data, chain = molecules
    # Symmetric molecules tie. By index the areas are within 0.02; where rounding decides, they move by up to 0.045.
    orders = order_nodes(chain, mode=mode, alpha=ALPHAS, graphs=data.batch, tolerance=1e-9)
    for i, alpha in enumerate(ALPHAS):
        area = areas(model, data, ranks(data, orders, i), mode)
        published = golden("published")[f"mutag_{name}"][f"{alpha:.2f}"]
        assert float(area[data.y == 0].mean()) == pytest.approx(published[f"{name}_pos"], abs=0.03)
        assert float(area[data.y == 1].mean()) == pytest.approx(published[f"{name}_neg"], abs=0.03)


def auroc(score: Tensor, truth: Tensor) -> float:
    """How many pairs of a motif node and another are in the right order; no two scores are equal."""
    return float((score[truth][:, None] > score[~truth][None]).double().mean())


def test_motifs_are_found_as_published():
    model, graphs = load("gin-3-ba2motif"), ba2motif()
    data = Batch.from_data_list([graphs[i] for i in [*range(400, 500), *range(900, 1000)]])
    chain = ww.trace(model, data.x, data.edge_index, batch=data.batch, target=data.y.tolist(), rule="gamma")
    motif = torch.arange(25) >= 20
    orders = order_nodes(chain, alpha=ALPHAS, graphs=data.batch)
    for i, alpha in enumerate(ALPHAS):
        rank = ranks(data, orders, i).view(200, 25)
        accuracy = float(((rank < 5) == motif).double().mean())
        area = sum(auroc(-r, motif) for r in rank) / 200
        published = golden("published")["ba2motif_gin3"][f"{alpha:.2f}"]
        assert accuracy == pytest.approx(published["acc"], abs=1e-9)
        assert area == pytest.approx(published["auc"], abs=1.01e-4)  # four digits, and one pair more or less
