"""What is asked of a chain: subgraphs, nodes and edges, walks, groups, games."""
