"""The paper's models as ordinary PyG modules, and their weights in files.

Both kinds aggregate with Λ = (A + I)/2 and add the nodes of a graph up, divided by √20. The ½ is folded into the first
linear map after each aggregation, so that a layer is PyG's `GINConv`, which sums over a node and its neighbours.
"""

from walkwise.models.architectures import GCN, GIN, build, names
from walkwise.models.authors import from_arrays, load_authors
from walkwise.models.weights import bundled, load_weights, open_weights, save_weights

__all__ = [
    "GCN",
    "GIN",
    "build",
    "bundled",
    "from_arrays",
    "load_authors",
    "load_weights",
    "names",
    "open_weights",
    "save_weights",
]
