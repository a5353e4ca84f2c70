"""The method of the paper by its name: one subgraph per pass, by hooks on a copy of the model (Theorems 2 and 4).

Nothing here knows a chain. A first run of the copy says which layers ran on what; a second one replaces every linear
map z by its surrogate p ⊙ [z / p], the bracket held constant, and multiplies the gradient that arrives at each
position Hˡ by its node weights. What cannot be carried so is refused by name; `walkwise.trace` carries more, and
answers any number of questions after one run.
"""

from walkwise.hooks.passes import subgraph_relevance

__all__ = ["subgraph_relevance"]
