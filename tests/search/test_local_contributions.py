"""What a node contributes, from its surroundings, against R of both subgraphs walk by walk."""

import numpy as np
import pytest
import torch

import walkwise as ww
from chains import chain_of, walks_of
from walkwise import reference
from walkwise.questions.neighbours import step_neighbours
from walkwise.search import local_contributions
from walkwise.search.local_contributions import _passing, node_contributions

torch.set_num_threads(1)


def contributions(chain, inside, candidates):
    near = step_neighbours(chain).both_ways()
    with torch.no_grad():
        found, size = node_contributions(chain, near, _passing(chain, inside), inside, candidates)
    assert bool((found.abs() <= size + 1e-12).all())
    return found.tolist()


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("room", [None, 1])
def test_equals_the_difference_of_two_subgraphs(seed, layers, room, monkeypatch):
    """For nodes outside S and inside it, however few candidates are taken together."""
    if room is not None:
        monkeypatch.setattr(local_contributions, "_MOST_ROWS", room)
        monkeypatch.setattr(local_contributions, "budget", lambda chain: room)
    chain = chain_of(seed, M=7, layers=layers)
    walks = walks_of(chain)
    generator = np.random.default_rng(seed)
    for size in (0, 3, 5, 7):
        S = sorted(generator.choice(7, size, replace=False).tolist())
        inside = np.isin(np.arange(7), S)
        want = [
            reference.subgraph_relevance(walks, sorted({*S, m}), 0.0)
            - reference.subgraph_relevance(walks, [n for n in S if n != m], 0.0)
            for m in range(7)
        ]
        assert contributions(chain, inside, np.arange(7)) == pytest.approx(want, rel=1e-9, abs=1e-13)


def test_nodes_beyond_the_ball_matter_through_messages_alone():
    path = torch.stack([torch.arange(39), torch.arange(1, 40)])
    chain = chain_of(1, M=40, layers=4, edges=torch.cat([path, path.flip(0)], dim=1))
    inside = np.arange(40) % 7 != 3
    candidates = np.array([0, 3, 10, 11, 20, 39])
    S = np.flatnonzero(inside).tolist()
    with_m = ww.subgraph_relevance(chain, [sorted({*S, m}) for m in candidates.tolist()])
    without = ww.subgraph_relevance(chain, [[n for n in S if n != m] for m in candidates.tolist()])
    assert contributions(chain, inside, candidates) == pytest.approx((with_m - without).tolist(), rel=1e-9)
