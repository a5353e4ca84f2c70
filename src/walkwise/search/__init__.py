"""Searches in a chain: orders of its nodes, its best subgraph, its top walks."""
