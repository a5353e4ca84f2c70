"""Equally many rows for every query, for thousands of questions on an accelerator."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkwise.core.edges import Edges
from walkwise.core.lazy import cached_property
from walkwise.core.postponed import NodeTensor
from walkwise.core.rows import Places, Rows


@dataclass(frozen=True, eq=False)
class Blocks(Rows):
    """Equally many rows for each query, one after the other; some may be empty.

    Their number alone determines their layout, so there is never a wait for an accelerator.
    """

    num_nodes: int
    block: Tensor  # (B, S) the nodes of every query, each once; any node in an empty row
    present: Tensor | None = None  # (B, S) which rows are not empty; None where all are
    _weights: dict[tuple[int, int, float, torch.dtype], Tensor] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(num_nodes: int, given: Tensor) -> Blocks:
        """The blocks of queries that may name a node more than once, or none with -1.  # (B, S)"""
        block, _ = given.sort(dim=1)
        present = block >= 0
        present[:, 1:] &= block[:, 1:] != block[:, :-1]
        return Blocks(num_nodes, block.clamp_(min=0), present)

    @property
    def num_queries(self) -> int:  # type: ignore[override]
        """B."""
        return self.block.shape[0]

    def standing(self, nodes: Tensor, dtype: torch.dtype) -> Tensor:
        """1 in the row of one node of each query, 0 elsewhere.  # (B,) -> (K, 1, 1, 1)"""
        here = self.block == nodes.unsqueeze(1)
        here = here if self.present is None else here & self.present
        return here.to(dtype).view(-1, 1, 1, 1)

    @cached_property
    def nodes(self) -> Tensor:
        """The nodes in one row.  # (K,)"""
        return self.block.flatten()

    @cached_property
    def places(self) -> tuple[Places, Places]:
        """The nodes of each query, block by block."""
        B, S = self.block.shape
        owner = torch.arange(B, device=self.block.device).repeat_interleave(S)
        places = Places(self.nodes, owner, None if self.present is None else self.present.flatten())
        return places, places

    def take(self, per_node: NodeTensor, like: Tensor | None = None) -> Tensor:
        """The rows of the nodes, zeros in empty rows."""
        taken = per_node.index_select(0, self.nodes)
        taken = taken if self.present is None else taken * self.present.view(-1, 1)
        return taken.unsqueeze(1).unsqueeze(1)

    def total(self, message: Tensor, values: Tensor) -> Tensor:
        """⟨message, values⟩ over each query's rows."""
        per_row = torch.einsum("kdn,kn->kd", message[:, 0], values.index_select(0, self.nodes))
        return per_row.view(*self.block.shape, -1).sum(1)

    def sum(self, message: Tensor, edges: Edges, weight: Tensor | None, root: float) -> Tensor:
        """(Λᵀ + root) · message between the nodes of each query."""
        (B, S), (_, _, D, N) = self.block.shape, message.shape
        each = self._between(edges, weight, root, message.dtype)  # (B, S, S) or (B, S, S, H)
        if each.dim() == 3:
            return torch.bmm(each, message.reshape(B, S, D * N)).view(message.shape)
        by_head = message.reshape(B, S, D, each.shape[3], -1)
        return torch.einsum("bijh,bjdhn->bidhn", each, by_head).reshape(message.shape)

    def _between(self, edges: Edges, weight: Tensor | None, root: float, dtype: torch.dtype) -> Tensor:
        """The weight with which a row (second axis) gets another (third axis) of the same query."""
        key = id(edges), id(weight), root, dtype
        if key not in self._weights:
            here, there = self.block.unsqueeze(2), self.block.unsqueeze(1)
            each = edges.between(there.expand(-1, here.shape[1], -1), here, weight, dtype)
            inside = None if self.present is None else self.present.unsqueeze(2) * self.present.unsqueeze(1)
            if inside is not None:
                each = each * (inside if each.dim() == 3 else inside.unsqueeze(-1))
            if root:
                own = torch.eye(here.shape[1], dtype=dtype, device=each.device) * root
                own = own if inside is None else own * inside
                each = each + (own if each.dim() == 3 else own.unsqueeze(-1))
            self._weights[key] = each
        return self._weights[key]
