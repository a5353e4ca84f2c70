"""The steps of a chain, written so that a question costs no more than what it asks about."""
