"""A row for every neighbour to which a walk at a node can go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from walkwise.core.edges import Edges
from walkwise.core.lazy import cached_property
from walkwise.core.postponed import NodeTensor
from walkwise.core.rows import Places, Rows, total_by_owner


@dataclass(frozen=True, eq=False)
class Fan(Rows):
    """Queries that stand at one node each and take a single step, to a row for every neighbour.

    Until a message is summed over edges it has one row for each query, and afterwards one for each neighbour. A message
    that stayed at the node gets rows for the neighbours when the two meet.
    """

    num_nodes: int
    standing: Tensor  # (B,) where the queries stand
    nodes: Tensor  # (K,) where they can go, the node itself among them
    owner: Tensor  # (K,) ascending, whose each row is
    #: What the edges from every row's node to where its query stands weigh in all, the root included: (K,) or (K, H),
    #: or None for 1 each.
    weights: Callable[[Edges, Tensor | None, float], Tensor | None]

    @property
    def num_queries(self) -> int:  # type: ignore[override]
        """B."""
        return self.standing.shape[0]

    @cached_property
    def here(self) -> Tensor:
        """The row of the node itself.  # (B,)"""
        return (self.nodes == self.standing[self.owner]).nonzero()[:, 0]

    @cached_property
    def places(self) -> tuple[Places, Places]:
        """Where the queries stand, and where they can go."""
        queries = torch.arange(self.num_queries, device=self.nodes.device)
        return Places(self.standing, queries), Places(self.nodes, self.owner)

    def take(self, per_node: NodeTensor, like: Tensor | None = None) -> Tensor:
        """The rows of the nodes, before or after the step as the other message is."""
        before = like is not None and like.shape[0] == self.num_queries
        return per_node.index_select(0, self.standing if before else self.nodes).view(-1, 1, 1, per_node.shape[-1])

    def total(self, message: Tensor, values: Tensor) -> Tensor:
        """⟨message, values⟩ over each query's rows."""
        return total_by_owner(self.spread(message), values, self.nodes, self.owner, self.num_queries)

    def sum(self, message: Tensor, edges: Edges, weight: Tensor | None, root: float) -> Tensor:
        """What the edges carry to every neighbour, and the root to the node itself."""
        factor = self.weights(edges, weight, root)
        carried = message.index_select(0, self.owner)  # (K, 1, D, N)
        if factor is None:
            return carried
        if factor.dim() == 1:
            return carried * factor.view(-1, 1, 1, 1)
        heads = factor.shape[1]
        by_head = carried.reshape(*carried.shape[:3], heads, carried.shape[3] // heads)
        return (by_head * factor.view(-1, 1, 1, heads, 1)).reshape(carried.shape)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """Add two messages that meet; a message that stayed at the node is added at the node's own row."""
        if a.shape[0] == b.shape[0]:
            return a + b
        stayed, gone = (a, b) if a.shape[0] < b.shape[0] else (b, a)
        return gone.index_add(0, self.here, stayed)

    def spread(self, message: Tensor) -> Tensor:
        """A message with a row for every neighbour.  # (B or K, 1, D, N) -> (K, 1, D, N)"""
        if message.shape[0] == self.nodes.shape[0]:
            return message
        return message.new_zeros(self.nodes.shape[0], *message.shape[1:]).index_copy_(0, self.here, message)
