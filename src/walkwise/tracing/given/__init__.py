"""The caller's input: the arguments as a model takes them, and the number to explain."""
