"""Mutation testing: small changes of the code, one at a time, each of which some test should notice."""
