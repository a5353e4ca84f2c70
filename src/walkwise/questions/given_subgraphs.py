"""Subgraphs in every form that a caller may give, checked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain as flatten
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walkwise.core.chain import RelevanceChain
from walkwise.core.sending import Verdict, sent
from walkwise.errors import Described, InputError, described
from walkwise.questions.neighbours import running_totals
from walkwise.questions.nodesets import NodeSets

#: Lists of node ids or masks (M,), one boolean mask (B, M), or a pair of tensors: all ids, and the offsets where each
#: set begins.
Subgraphs = Sequence[Sequence[int]] | Sequence[Tensor] | Tensor | tuple[Tensor, Tensor]
#: Up to so many ids in main memory are checked there.
_FEW_IDS = 1 << 14


def as_node_sets(chain: RelevanceChain, given: Any) -> NodeSets:
    """Read and check subgraphs: ids are in range, and none appears twice in a subgraph."""
    sets = queued_node_sets(chain, given)
    sets.heed()
    return sets


def queued_node_sets(chain: RelevanceChain, given: Any) -> NodeSets:
    """The same for a question that may be queued before an accelerator has checked the ids.

    Until then, wrong ids stand for some node of the graph. The question reads the verdict at the end.
    """
    M = chain.num_nodes
    if chain.types is not None and isinstance(given, (list, tuple)):
        given = type(given)(chain.types.numbers(nodes) for nodes in given)
    if isinstance(given, np.ndarray):
        table = given.dtype == bool or (given.ndim == 2 and given.dtype.kind in "iu")
        given = torch.as_tensor(given) if table else list(given)
    if isinstance(given, Tensor) and given.dtype == torch.bool:
        if given.dim() != 2 or given.shape[1] != M:
            raise InputError(
                f"A boolean mask of subgraphs must have shape (B, {M}), one column per node, got {tuple(given.shape)}.",
                argument="subgraphs",
                expected=f"of shape (B, {M}), as a boolean mask",
                got=tuple(given.shape),
                remedy="For one subgraph write [mask]." if given.shape == (M,) else None,
            )
        return _from_mask(chain, given)
    if isinstance(given, Tensor) and given.dim() == 2 and not given.is_floating_point():  # sets of one size
        count, size = given.shape
        return _checked(chain, given.flatten(), torch.arange(count + 1, device=given.device) * size, (size, size))
    if isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, Tensor) for part in given):
        return _from_offsets(chain, *given)
    lists = [s if type(s) in (list, tuple) else _ids(s, i, M) for i, s in enumerate(_sequence(given))]
    if len(lists) <= 4 and all(type(i) is int and 0 <= i < M for ids in lists for i in ids):
        few = sorted(number * M + i for number, ids in enumerate(lists) for i in ids)
        if len(set(few)) == len(few):  # few and valid: no need to check with tensors
            return NodeSets(M, len(lists), torch.tensor(few, dtype=torch.long), chain.device)
    if masks := [i for i, ids in enumerate(lists) if ids and isinstance(ids[0], (bool, np.bool_))]:
        raise _of_truth_values(masks[0], lists[masks[0]])
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    return _checked(chain, _node_tensor(list(flatten.from_iterable(lists))), torch.from_numpy(running_totals(lengths)))


def _from_mask(chain: RelevanceChain, mask: Tensor) -> NodeSets:
    """Set b has the nodes where row b is true; the number of nodes costs one wait for an accelerator.  # (B, M)"""
    if mask.device.type != "cpu" or mask.numel() > _FEW_IDS:
        mask = sent(mask, chain.device)
    flat = mask.reshape(-1)
    if chain.device.type == "cpu" or not len(mask):
        return NodeSets(chain.num_nodes, len(mask), flat.nonzero().view(-1), chain.device)
    lengths = mask.sum(1)
    least, most, total = torch.stack([*torch.aminmax(lengths), lengths.sum()]).tolist()
    place = torch.where(flat, flat.cumsum(0) - 1, total)  # the others share a place at the end
    keys = place.new_empty(total + 1).scatter_(0, place, torch.arange(len(flat), device=flat.device))[:total]
    return NodeSets(chain.num_nodes, len(mask), keys, chain.device, (least, most))


def _from_offsets(chain: RelevanceChain, ids: Tensor, offsets: Tensor) -> NodeSets:
    """Set b has the ids from offsets[b] to before offsets[b + 1]."""
    for tensor in (ids, offsets):
        if tensor.dim() != 1 or tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
            expected, got = "two integer tensors, (K,) and (B + 1,)", f"{described(ids)} and {described(offsets)}"
            raise InputError(
                f"A pair (ids, offsets) must be {expected}, got {got}.",
                argument="subgraphs",
                expected=f"{expected}, as a pair (ids, offsets)",
                got=Described(got),
            )
    return _checked(chain, ids, offsets)


def _checked(chain: RelevanceChain, ids: Tensor, offsets: Tensor, sizes: tuple[int, int] | None = None) -> NodeSets:
    """Check the sets, given all ids and where each set begins; errors name the first wrong one.

    A few sets in main memory are checked there, others where the chain is. There is a wait for an accelerator only if
    the offsets are on it, since later sizes depend on them.

    Args:
        chain: whose nodes they are.
        ids: those of all sets.
        offsets: where each set begins, and where the last one ends.
        sizes: those of the smallest and the largest set, if known; the offsets are then valid.
    """
    M, where = chain.num_nodes, ids.device if len(ids) + len(offsets) <= _FEW_IDS else chain.device
    ids, offsets = sent(ids, where, torch.long), offsets.to(where) if where.type == "cpu" else offsets
    if sizes is None:
        sizes = _sizes(len(ids), offsets)
    offsets = sent(offsets, where, torch.long)
    if where.type == "cpu":
        owner = torch.repeat_interleave(offsets.diff(), output_size=len(ids))
    else:
        owner = torch.searchsorted(offsets, torch.arange(len(ids), device=where), right=True) - 1
    beyond = (ids < 0) | (ids >= M)
    keys, _ = (owner * M + ids.clamp(0, M - 1)).sort()
    twice = keys[1:] == keys[:-1]

    def judge(found: list[int]) -> None:
        if found[0]:
            first = int(beyond.nonzero()[0])
            raise InputError(
                f"Subgraph {int(owner[first])} names node {int(ids[first])}, but the graph has nodes 0 to {M - 1}.",
                argument="subgraphs",
                expected=f"sets of nodes from 0 to {M - 1}",
                got=int(ids[first]),
            )
        if found[1]:
            key = int(keys[1:][twice][0])
            flags = len(ids) % M == 0 and set(ids.tolist()) <= {0, 1}
            remedy = "If these are flags, 0 or 1 for each node, give them as a boolean mask (B, M)." if flags else None
            raise InputError(
                f"Subgraph {key // M} names node {key % M} more than once.",
                argument="subgraphs",
                expected="sets that name each node once",
                got=key % M,
                remedy=remedy,
            )

    verdict = Verdict(torch.stack([beyond.any(), twice.any()]).long(), judge)
    known = sizes if chain.device.type != "cpu" else None
    return NodeSets(M, len(offsets) - 1, keys, chain.device, known, verdict)


def _sizes(count: int, offsets: Tensor) -> tuple[int, int]:
    """The sizes of the smallest and the largest set, after a check that offsets ascend from 0 to the number of ids."""
    offsets = offsets.long()
    lengths = offsets.diff()
    ends = [offsets[:1], offsets[-1:], *(torch.aminmax(lengths) if len(lengths) else [])]
    first, last, *sizes = torch.cat([end.view(-1) for end in ends]).tolist() or [-1, -1]
    if first or last != count or min(sizes, default=0) < 0:
        raise _wrong_offsets(count, offsets)
    least, most = sizes or (0, 0)
    return least, most


def _wrong_offsets(count: int, offsets: Tensor) -> InputError:
    shown = f"{offsets[:8].tolist()}{'...' if len(offsets) > 8 else ''}"
    return InputError(
        f"In a pair (ids, offsets), offsets must ascend from 0 to the number of ids, {count}, got {shown}.",
        argument="subgraphs",
        expected=f"a pair (ids, offsets) whose offsets ascend from 0 to {count}",
        got=Described(shown),
        remedy="Put two subgraphs that are tensors into a list, [a, b].",
    )


def _sequence(subgraphs: Any) -> Sequence[Any]:
    if isinstance(subgraphs, (str, bytes, Tensor)) or not hasattr(subgraphs, "__iter__"):
        expected = "a list of lists of node ids, a boolean mask (B, M), or a pair of tensors (ids, offsets)"
        raise InputError(argument="subgraphs", expected=expected, got=described(subgraphs))
    return list(subgraphs)


def _ids(subgraph: Any, number: int, num_nodes: int) -> list[Any]:
    if str(getattr(subgraph, "dtype", "")).endswith("bool") and tuple(subgraph.shape) == (num_nodes,):
        subgraph = torch.as_tensor(subgraph).nonzero().view(-1)  # a mask
    if hasattr(subgraph, "tolist"):
        subgraph = subgraph.tolist()
    if isinstance(subgraph, (str, bytes)) or not hasattr(subgraph, "__iter__"):
        raise InputError(
            argument=f"subgraphs[{number}]",
            expected="a list of node ids",
            got=subgraph,
            remedy="For one subgraph write [[0, 1, 2]].",
        )
    return list(subgraph)


def _of_truth_values(number: int, given: list[Any]) -> InputError:
    """The error for a list of truth values."""
    return InputError(
        f"Node ids must be integers, and subgraph {number} is a list of {len(given)} truth values.",
        argument=f"subgraphs[{number}]",
        expected="a list of node ids",
        got=Described(f"{len(given)} truth values"),
        remedy="Turn a mask with one value per node into a tensor: torch.tensor(mask).",
    )


def _node_tensor(ids: list[Any]) -> Tensor:
    if not ids:
        return torch.empty(0, dtype=torch.long)
    try:
        nodes = np.array(ids)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"Node ids must be integers: {error}.",
            argument="subgraphs",
            expected="lists of integers",
            got=Described(error),
        ) from None
    if nodes.dtype.kind not in "iu" or nodes.ndim != 1:
        odd = [i for i in ids if not isinstance(i, (int, np.integer))]
        got = Described(f"{odd[0]!r} among them") if odd and nodes.ndim == 1 else described(nodes)
        raise InputError(
            f"Node ids must be integers, got {got}.", argument="subgraphs", expected="lists of integers", got=got
        )
    return torch.from_numpy(nodes.astype(np.int64, copy=False))
