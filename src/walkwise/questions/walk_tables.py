"""A table of all walks of a chain, with what they visit and their relevance: if walks are few, it answers everything.

The relevance of a subgraph depends only on how often a walk stands at which node, not on the order; with α = 0, and for
Shapley values and interactions, only on which nodes it visits. So walks that agree in this share one entry, and while
the chain is run backward, partial walks at the same node with the same past share one message. Shallow models on sparse
graphs have few entries (a molecule of 18 atoms and three layers: about 250), and then thousands of subgraphs cost less
than one contraction.
"""

from __future__ import annotations

import math

from walkwise.core.chain import RelevanceChain
from walkwise.errors import TooManyWalksError
from walkwise.questions.neighbours import Ints, step_neighbours
from walkwise.questions.partial_walks import stages
from walkwise.questions.steps import walk_steps
from walkwise.questions.walk_listing import Detail, ListedWalks, WalkListing, WalkTable

__all__ = [
    "FEW_WALKS",
    "Detail",
    "ListedWalks",
    "WalkTable",
    "listed_walks",
    "table_of_few",
    "walk_table",
    "whole_table",
]

#: Below this many walks a table of them is quicker than a search.
FEW_WALKS = 500_000
#: From this many subgraphs on a table of few walks is quicker than to ask for them.
_MANY_QUESTIONS = 32
#: The longest table that stays with its chain for the next question, in numbers.
_MOST_KEPT = 1_000_000


def walk_table(
    chain: RelevanceChain, detail: Detail, *, ends: Ints | None = None, progress: bool | None = None
) -> WalkTable:
    """The table of all walks in main memory, as :func:`listed_walks` returns it."""
    listed = listed_walks(chain, detail, ends=ends, progress=progress)
    assert listed is not None  # no limit was given
    return listed.here


def listed_walks(
    chain: RelevanceChain,
    detail: Detail,
    *,
    max_rows: float = math.inf,
    max_numbers: float = math.inf,
    ends: Ints | None = None,
    progress: bool | None = None,
) -> ListedWalks | None:
    """The table of all walks, or None if listing them takes more than ``max_rows`` messages.

    If the neighbours of nodes alone show that, no walk is listed in vain.

    The chain keeps a short table of all walks. With "nodes", an entry shows the visits of one of its walks.

    Args:
        chain: the traced prediction.
        detail: what distinguishes two entries: "walks" (in no order), "visits" or "nodes".
        max_rows: how many messages at single nodes may be computed.
        max_numbers: how many node ids the entries may have together.
        ends: list only the walks that stand at one of these nodes (K,) when the read-out reads them; by default all.
        progress: show how many messages have been computed; by default only if that takes more than two seconds.
    """
    key = ListedWalks, detail
    kept: ListedWalks | None = chain.memo.get(key) if ends is None else None
    if kept is not None:
        return kept
    listed = WalkListing(stages(chain), detail, max_rows, max_numbers, progress).walks(ends)
    if listed is not None and ends is None and listed.numbers <= _MOST_KEPT:
        chain.memo[key] = listed
    return listed


def whole_table(chain: RelevanceChain, detail: Detail, max_walks: int) -> WalkTable:
    """The table of all walks, or a TooManyWalksError if there are more than allowed."""
    total = walk_steps(chain).num_walks
    if total > max_walks:
        raise TooManyWalksError(
            f"There are {total} walks, more than max_walks={max_walks}.",
            argument="max_walks",
            expected=f"at least {total}",
            got=max_walks,
            remedy="Raise the limit if you mean it, or ask for the relevance of subgraphs, which sums over walks "
            "without listing them.",
        )
    return walk_table(chain, detail)


def table_of_few(chain: RelevanceChain, detail: Detail, *, questions: int) -> WalkTable | None:
    """The table of all walks if the chain has it already, or if walks are few and the questions many."""
    if (ListedWalks, detail) in chain.memo:
        return walk_table(chain, detail)
    if questions < _MANY_QUESTIONS or (step_neighbours(chain) is None) or walk_steps(chain).num_walks > FEW_WALKS:
        return None
    return walk_table(chain, detail)
