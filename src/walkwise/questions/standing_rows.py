"""The rows needed for walks with given nodes: those of the nodes, and of nodes that messages can pass in between."""

from __future__ import annotations

import torch
from torch import Tensor

from walkwise.core.blocks import Blocks
from walkwise.core.chain import RelevanceChain
from walkwise.core.contract import all_rows
from walkwise.core.rows import Rows
from walkwise.questions.balls import Surroundings, surroundings
from walkwise.questions.nodesets import NodeSets, budget

#: How many times as much as in the whole graph a row may cost that is carried for one walk alone.
_DEARER = 3


def standing_rows(chain: RelevanceChain, nodes: Tensor) -> tuple[Rows, list[Tensor]]:
    """Rows for every query, and for every column of the nodes it names, (K, P), which row that is; -1 names none.

    If every step leads to a neighbour, the rows of these nodes suffice. If messages are passed several times between
    two positions, rows around them are needed as well: half the hops lead away from a node, and half to the next.
    """
    M, K = chain.num_nodes, len(nodes)
    if chain.local:
        blocks = Blocks.of(M, nodes)
        return blocks, [blocks.standing(column, chain.dtype) for column in nodes.T]
    if (around := _around(chain, nodes.shape[1])) is not None:
        keys = torch.arange(K, device=nodes.device)[:, None] * M + nodes
        balls = around.balls(NodeSets(M, K, torch.unique(keys[nodes >= 0]), nodes.device))
        at = [(balls.nodes == column[balls.owner]).to(chain.dtype).view(-1, 1, 1, 1) for column in nodes.T]
        return balls.rows(), at
    every = torch.arange(M, device=nodes.device)[:, None]
    return all_rows(chain, K), [(column == every).to(chain.dtype)[:, :, None, None] for column in nodes.T]


def at_once(chain: RelevanceChain, columns: int) -> int:
    """How many queries, with so many nodes each, one contraction carries."""
    around = None if chain.local else _around(chain, columns)
    each = columns * chain.width if chain.local else chain.num_nodes * chain.width
    return max(1, budget(chain) // (each if around is None else int(_numbers(around, columns))))


def _around(chain: RelevanceChain, columns: int) -> Surroundings | None:
    """The surroundings of nodes, if the balls around them promise to be less work than the whole graph."""
    if chain.hops is None:
        return None
    around = surroundings(chain, max(chain.hops.between // 2, chain.hops.after))
    return around if _DEARER * _numbers(around, columns) <= around.whole else None


def _numbers(around: Surroundings, columns: int) -> float:
    """How many numbers stand for the balls around so many nodes, as they are on average."""
    return max(1.0, columns * around.usual)
