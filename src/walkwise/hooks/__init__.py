"""The paper's own method: one subgraph per pass, by autograd through a masked run (Theorems 2 and 4).

Nothing here contracts a chain. The model runs once and is recorded, function by function. Every pass runs these
functions again under autograd: a stretch of linear maps z becomes its surrogate p ⊙ [z / p], the bracket held constant,
and the node tensor h at each position Hˡ becomes m ⊙ h + (1 - m) ⊙ [h]. One backward pass then gives the relevance. A
pass uses the recording of `walkwise.trace`, but neither the closed forms of layers nor the steps of a chain, so the two
check each other; `walkwise.trace` answers any number of questions after one run.
"""

from walkwise.hooks.passes import subgraph_relevance

__all__ = ["subgraph_relevance"]
