"""The adapter to torch_geometric.explain: relevance as masks that PyG's tools can work with."""

from walkwise.explainer.algorithm import SubgraphExplanation, SubgraphHeteroExplanation, SubgraphLRPExplainer

__all__ = ["SubgraphExplanation", "SubgraphHeteroExplanation", "SubgraphLRPExplainer"]
