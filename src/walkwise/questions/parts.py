"""Questions about one node of a large graph: asked in the graph's ids, answered from the node's neighbourhood.

The tensors of such a node's chain have a row for every node that the output depends on, and no other node is on a walk.
So nodes elsewhere add nothing to an answer, and have zeros in it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from walkwise.core.chain import Origin, RelevanceChain
from walkwise.core.edges import running_totals
from walkwise.errors import InputError, described
from walkwise.questions.given_subgraphs import as_node_sets

P = ParamSpec("P")
T = TypeVar("T")
#: Makes of an argument about the graph one about its part, or of an answer about the part one about the graph.
Translation = Callable[[RelevanceChain, Any], Any]


def asked_of_part(
    answer: Translation | None = None, **arguments: Translation
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a question: for a chain of one node, ask about its part, and translate arguments and answer."""

    def about(query: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(query)
        def ask(*args: P.args, **kwargs: P.kwargs) -> T:
            chain: Any = args[0] if args else kwargs.get("chain")
            if chain is not None:
                check_chain_given(chain)
            if getattr(chain, "part", None) is None:
                return query(*args, **kwargs)
            given = inspect.signature(query).bind(*args, **kwargs).arguments
            if given.get("graphs") is not None:
                raise of_one_node()
            for name, translate in arguments.items():
                if given.get(name) is not None:
                    given[name] = translate(chain, given[name])
            found = query(**(given | {"chain": chain.part}))  # type: ignore[call-arg]
            return found if answer is None else answer(chain, found)

        return ask

    return about


def check_chain_given(given: object) -> None:
    """Refuse anything but a chain."""
    if isinstance(given, RelevanceChain):
        return
    held = isinstance(getattr(given, "chain", None), RelevanceChain)
    remedy = "Give the explanation's chain: explanation.chain." if held else "ww.trace(model, data) makes one."
    raise InputError(argument="chain", expected="a RelevanceChain", got=described(given), remedy=remedy)


def of_one_node() -> InputError:
    """The error for ``graphs`` where the chain explains one node."""
    return InputError(
        "The chain explains one node, and all its walks are in one graph, so there are no answers for several graphs.",
        argument="graphs",
        expected="left out for a chain of one node",
        remedy="Leave graphs out.",
    )


def part_of(chain: RelevanceChain) -> tuple[RelevanceChain, Origin]:
    """The part, and where it is in the graph."""
    assert chain.part is not None
    assert chain.part.origin is not None
    return chain.part, chain.part.origin


def rows_of(chain: RelevanceChain, nodes: Tensor) -> Tensor:
    """The rows of the graph's nodes in the part, -1 for those that are not in it."""
    origin = part_of(chain)[1]
    row = torch.searchsorted(origin.nodes, nodes).clamp_(max=len(origin.nodes) - 1)
    return torch.where(origin.nodes[row] == nodes, row, -1)


def named(chain: RelevanceChain, rows: Tensor) -> Tensor:
    """Which node of the graph each row of the part is, -1 where none is."""
    return torch.where(rows >= 0, part_of(chain)[1].nodes[rows], -1)


def sets_within(chain: RelevanceChain, subgraphs: Any) -> tuple[Tensor, Tensor]:
    """Subgraphs as the caller gives them, with just the rows of the part: (ids, offsets)."""
    sets = as_node_sets(chain, subgraphs)
    rows = rows_of(chain, sets.nodes)
    inside = rows >= 0
    return rows[inside], running_totals(torch.bincount(sets.owner[inside], minlength=sets.count))


def groups_within(chain: RelevanceChain, groups: Any) -> Any:
    """Groups of nodes, with only the rows of the part; the question itself refuses what is no group."""
    if not isinstance(groups, Mapping):
        return groups
    if not all(map(_is_list, groups.values())):
        return groups
    as_given = [nodes if hasattr(nodes, "dtype") else list(nodes) for nodes in groups.values()]
    ids, offsets = (part.tolist() for part in sets_within(chain, as_given))
    return {name: ids[offsets[i] : offsets[i + 1]] for i, name in enumerate(groups)}


def _is_list(nodes: Any) -> bool:
    """Whether something is a sequence of nodes."""
    return not isinstance(nodes, (str, bytes)) and hasattr(nodes, "__iter__") and getattr(nodes, "ndim", 1) > 0


def per_node(chain: RelevanceChain, values: Tensor) -> Tensor:
    """Spread values of the part's rows over all nodes of the graph.  # (K, …) -> (M, …)"""
    spread = values.new_zeros(chain.num_nodes, *values.shape[1:])
    return spread.index_copy_(0, part_of(chain)[1].nodes, values)
