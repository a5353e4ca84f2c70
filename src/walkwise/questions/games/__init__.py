"""Subgraph relevance as a cooperative game: Shapley values and interactions of nodes, and an interface to shapiq.

The game v(S) = R(S), the relevance of the walks inside S, is a sum over walks of R(m) times the game that pays 1 to
every S that contains all nodes of m. So its Möbius term a(T) is the relevance of the walks that visit exactly T, terms
of more than L + 1 nodes vanish, and every index that is linear in the game follows.
"""

from walkwise.questions.games.exact import shapley_interactions, shapley_values
from walkwise.questions.games.sampled import sampled_pair_interactions, sampled_shapley_values
from walkwise.questions.games.shapiq_game import as_game, as_interaction_values
from walkwise.questions.games.values import ShapleyInteractions, ShapleyValues

__all__ = [
    "ShapleyInteractions",
    "ShapleyValues",
    "as_game",
    "as_interaction_values",
    "sampled_pair_interactions",
    "sampled_shapley_values",
    "shapley_interactions",
    "shapley_values",
]
