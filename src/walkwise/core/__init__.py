"""The chain, its parts, and the one loop that contracts it."""
