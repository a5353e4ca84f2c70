"""What a node contributes, from its surroundings, against R of both subgraphs walk by walk."""

import numpy as np
import pytest
import torch

import walkwise as ww
from chains import chain_of, walks_of
from walkwise import reference
from walkwise.questions.neighbours import step_neighbours
from walkwise.search import local_contributions
from walkwise.search.local_contributions import node_contributions

torch.set_num_threads(1)


def contributions(chain, inside, candidates, alpha=0.0):
    near = step_neighbours(chain).both_ways()
    with torch.no_grad():
        found, size = node_contributions(chain, near, inside, alpha, candidates)
    assert bool((found.abs() <= size + 1e-12).all())
    return found.tolist()


def swapped(S, m):
    """S with a node moved into it, or out of it."""
    return sorted({*S} ^ {m})


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("layers", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("room", [None, 1])
def test_equals_the_difference_of_two_subgraphs(seed, layers, room, alpha, monkeypatch):
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
        now = reference.subgraph_relevance(walks, S, alpha)
        want = [reference.subgraph_relevance(walks, swapped(S, m), alpha) - now for m in range(7)]
        assert contributions(chain, inside, np.arange(7), alpha) == pytest.approx(want, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_nodes_beyond_the_ball_matter_through_messages_alone(alpha):
    path = torch.stack([torch.arange(39), torch.arange(1, 40)])
    chain = chain_of(1, M=40, layers=4, edges=torch.cat([path, path.flip(0)], dim=1))
    inside = np.arange(40) % 7 != 3
    candidates = np.array([0, 3, 10, 11, 20, 39])
    S = np.flatnonzero(inside).tolist()
    moved = ww.subgraph_relevance(chain, [swapped(S, m) for m in candidates.tolist()], alpha=alpha)
    want = (moved - ww.subgraph_relevance(chain, [S], alpha=alpha)).tolist()
    assert contributions(chain, inside, candidates, alpha) == pytest.approx(want, rel=1e-9)
