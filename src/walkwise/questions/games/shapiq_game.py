"""Subgraph relevance as a game and as interactions for shapiq."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from walkwise.core.chain import RelevanceChain
from walkwise.errors import MissingExtraError, as_count
from walkwise.questions.games.exact import shapley_interactions
from walkwise.questions.subgraphs import subgraph_relevance


def as_game(chain: RelevanceChain) -> Any:
    """The game v(S) = R(S) as a ``shapiq.Game`` with the nodes as players (needs the package shapiq).

    v(∅) = 0. Coalitions are answered in batches.

    >>> import pytest, torch, walkwise as ww
    >>> shapiq = pytest.importorskip("shapiq")
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> game = as_game(ww.trace(model, torch.ones(3, 2), edge_index, index=1))
    >>> game.n_players, float(game(game.empty_coalition)[0])
    (3, 0.0)
    """
    base: Any = _shapiq().Game

    class WalkGame(base):  # type: ignore[misc]
        """Subgraph relevance as a game."""

        def value_function(self, coalitions: Any) -> Any:
            """R of every coalition.  # (B, M) -> (B,)"""
            masks = torch.as_tensor(coalitions, dtype=torch.bool)
            return subgraph_relevance(chain, masks).double().cpu().numpy()

    return WalkGame(n_players=chain.num_nodes, normalize=True, normalization_value=0.0)


def as_interaction_values(chain: RelevanceChain, *, max_order: int = 2, max_walks: int = 1_000_000) -> Any:
    """The exact SII of orders 1 … max_order as ``shapiq.InteractionValues``, for its plots (needs shapiq).

    SII(S) = Σ over T ⊇ S of a(T) / (|T| − |S| + 1), as in :func:`shapley_interactions`.

    >>> import pytest, torch, walkwise as ww
    >>> shapiq = pytest.importorskip("shapiq")
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> model = GCN(2, 8, num_layers=2, out_channels=1)
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> as_interaction_values(ww.trace(model, torch.ones(3, 2), edge_index, index=1)).index
    'SII'
    """
    max_order = as_count(max_order, "max_order", "the number of nodes in the largest sets")
    shapiq = _shapiq()
    values: dict[tuple[int, ...], float] = {(): 0.0}
    for order in range(1, max_order + 1):
        found = shapley_interactions(chain, order=order, max_walks=max_walks)
        values |= dict(zip(map(tuple, found.nodes.tolist()), found.values.double().tolist(), strict=True))
    return shapiq.InteractionValues(
        values,
        index="SII",
        min_order=0,
        max_order=max_order,
        n_players=chain.num_nodes,
        estimated=False,
        baseline_value=0.0,
    )


def _shapiq() -> Any:
    try:
        return import_module("shapiq")
    except ImportError:
        raise MissingExtraError(
            "This needs the package shapiq.", remedy="Install it with: pip install shapiq"
        ) from None
