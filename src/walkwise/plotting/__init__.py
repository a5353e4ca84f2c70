"""Results as figures: graphs, molecules, sentences, walks, interactions and curves.

Every function draws on the axes it is given (or on a new figure) and returns them. None shows or saves anything or
changes matplotlib's settings: call ``ax.figure.savefig("figure.pdf")`` yourself, which gives vector graphics. Scores
above zero are orange, below zero blue, with the same scale on both sides.

Needs matplotlib (``pip install 'walkwise[viz]'``); molecules need RDKit too (``pip install 'walkwise[chem]'``).

>>> import torch
>>> from walkwise import plotting
>>> ax = plotting.graph_heatmap([0.5, -0.2, 0.1], torch.tensor([[0, 1], [1, 2]]), subgraph=[0, 1])
"""

try:
    import matplotlib as _matplotlib  # noqa: F401
except ImportError:
    from walkwise.errors import MissingExtraError

    raise MissingExtraError(
        "Plots need the package matplotlib.", remedy="Install it with: pip install 'walkwise[viz]'"
    ) from None

from walkwise.plotting.bars import interaction_bars, mean_bars, order_bars
from walkwise.plotting.chemistry import molecule_from_data, molecule_layout
from walkwise.plotting.curves import activation_curves, alpha_curve
from walkwise.plotting.graphs import graph_heatmap
from walkwise.plotting.layouts import graph_layout
from walkwise.plotting.molecules import molecule_heatmap, molecule_svg
from walkwise.plotting.sentences import sentence_heatmap
from walkwise.plotting.walk_rows import walk_lines
from walkwise.plotting.walks import top_walks

__all__ = [
    "activation_curves",
    "alpha_curve",
    "graph_heatmap",
    "graph_layout",
    "interaction_bars",
    "mean_bars",
    "molecule_from_data",
    "molecule_heatmap",
    "molecule_layout",
    "molecule_svg",
    "order_bars",
    "sentence_heatmap",
    "top_walks",
    "walk_lines",
]
