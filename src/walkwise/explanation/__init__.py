"""One prediction explained in one call: relevance, the best subgraph, the top walks, and whether that holds."""

from walkwise.explanation.answer import Explanation
from walkwise.explanation.check import Check, Outcome, check_subgraph
from walkwise.explanation.one_call import explain

__all__ = ["Check", "Explanation", "Outcome", "check_subgraph", "explain"]
