"""The steps of a chain, written so that the cost of a question depends only on what it asks about."""
